"""`pipedec bench`: what the method can give on this machine, without training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, get_args

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import keep_apart, require_place
from pipedec_cli.data.records import Family
from pipedec_cli.data.wording import many
from pipedec_cli.jobs import settings as common
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.settings import Dtype, Settings, names_of, option

if TYPE_CHECKING:
    from pipedec_cli.evaluate.bench import Bench
    from pipedec_cli.evaluate.competitor import Role
    from pipedec_cli.evaluate.forced import Lengths
    from pipedec_cli.evaluate.peers import PeerName
    from pipedec_cli.evaluate.projection import Acceptance
    from pipedec_cli.model.decoder import Decoder

Shape = Literal["wikihowqa", "cnn_dailymail", "pubmed", "msqa", "kp20k", "kptimes", "fields"]
#: Source tokens of these shapes, and of an object.
_SOURCE, _FIELDS_SOURCE = 512, 300
_lengths = partial(option, panel="Lengths")
_speed = partial(option, panel="Speed")


def parse_dtypes(value: Any) -> tuple[str, ...]:
    """Names of dtypes with commas between them, each once."""
    return names_of(value, get_args(Dtype))


@dataclass(frozen=True, kw_only=True)
class BenchSettings(Settings):
    """What `pipedec bench` is asked for."""

    shape: Shape | None = _lengths(
        None,
        "Lengths of one of the paper's data sets, by its Table 1, or of an object (fields): 12 keys of 2 tokens, values of 3 "
        "\\[default: wikihowqa].",
    )
    subsequences: int | None = _lengths(None, "Or: this many subsequences …", min=1)
    tokens: int | None = _lengths(None, "… of so many tokens each.", min=1)
    source: int | None = _lengths(None, "Tokens of the source \\[default: 512; 300 for fields].", min=2)
    model: str = option(
        "scratch-base",
        "scratch-tiny, -small, -base, -large or -qwen3-0.6b (fresh weights), a folder or a hub name; no training is needed.",
    )
    family: Family | None = common.family_key()
    compare: str = option(
        "sequential,transformers",
        "With whom, commas between: sequential (always takes part), transformers, ctranslate2, ctranslate2:int8, "
        "ctranslate2:bfloat16.",
        metavar="NAMES",
    )
    delays: tuple[int, ...] = option((1,), "Δt to try, commas between.")
    dtypes: tuple[str, ...] = _speed(
        ("float32",),
        "Of our weights, commas between; the others take the first.",
        parser=parse_dtypes,
        metavar="NAMES",
    )
    batch_sizes: tuple[int, ...] = _speed((1,), "Examples in flight, commas between.")
    rows: tuple[int, ...] = _speed(
        (1, 4, 8, 16), "Rows of the single steps that are timed beside their limit, commas between."
    )
    acceptance: Path | None = option(
        None,
        "A report.json with exact mode (`report --compare exact`): its seconds at these lengths are projected from the "
        "acceptance that was measured there and the calls that are timed here, at batch size 1.",
        metavar="FILE",
    )
    repeats: int = _speed(3, "How often; the medians count.", min=1)
    memory: bool = _speed(
        False, "Measure the peak memory of each decoder in a process of its own.", "--memory/--no-memory"
    )
    device: str = common.device_option(panel="Speed")
    threads: int | None = common.threads_key()
    seed: int = _speed(0, "Of fresh weights and random sources.")
    html: Path | None = option(None, "Write the figures, drawn, to this HTML file as well.")
    out: Path | None = option(None, "Keep the measurements in this JSON file.")
    config: Path | None = common.config_option()
    set_keys: tuple[str, ...] = common.set_option()
    quiet: bool = common.quiet_option()
    as_json: bool = common.json_option()


def bench(settings: BenchSettings, notify: Notify) -> tuple[Bench, dict[str, Any]]:
    """Time decoders on forced lengths, without training. Gives the result, and all of it as plain values."""
    from pipedec_cli.data.writing import manifest, write_json
    from pipedec_cli.evaluate.forced import Lengths
    from pipedec_cli.jobs.measuring import parse_compared

    peers, drafts = parse_compared(settings.compare)
    if drafts or "prompt-lookup" in peers:
        what = "--compare: what exact mode and prompt lookup give depends on the text, and here texts mean nothing"
        todo = "run `pipedec report --compare exact,prompt-lookup` on a trained model, and give its report.json as --acceptance"
        raise UserError(what, todo=todo)
    settings, accepted = _with_acceptance(settings)
    subsequences, tokens = settings.subsequences, settings.tokens
    if (subsequences is None) != (tokens is None) or (settings.shape and subsequences is not None):
        what = "lengths are given either as --shape, or as --subsequences and --tokens"
        raise UserError(what, todo="for example `--shape pubmed`, or `--subsequences 8 --tokens 12`")
    if settings.shape == "fields":
        if given := settings.typed & {"delays", "acceptance"}:
            what = f"fields start all at once: --{min(given)} does not apply"
            raise UserError(what, todo=f"leave --{min(given)} out")
        lengths = Lengths.of_fields(settings.source or _FIELDS_SOURCE)
    elif subsequences is None or tokens is None:
        lengths = Lengths.of_dataset(settings.shape or "wikihowqa", settings.source or _SOURCE)
    else:
        lengths = Lengths.even(settings.source or _SOURCE, subsequences, subsequences * tokens)
    read, out, html = ([*filter(None, [one])] for one in (settings.acceptance, settings.out, settings.html))
    for path in out + html:
        require_place(path)
    keep_apart(read, out + html, "name another file")
    keep_apart(out, html, "name another file")
    measured = run(settings, lengths, peers, accepted, notify)
    whom = settings.some("model", "family", "delays", "dtypes", "batch_sizes", "rows")
    how = settings.some("repeats", "device", "memory", "seed")
    resolved = {"lengths": asdict(lengths), "peers": peers, **whom, **how}
    inputs = [settings.acceptance] if settings.acceptance else []
    content = measured.as_json() | {"manifest": manifest(resolved, inputs=inputs)}
    if settings.out is not None:
        write_json(settings.out, content)
        notify.say(f"saved {settings.out}")
    return measured, content


def _with_acceptance(settings: BenchSettings) -> tuple[BenchSettings, list[Acceptance]]:
    """What a report measured of exact mode, and the settings with the delays that its drafts were made at."""
    from pipedec_cli.evaluate.projection import read_acceptance

    if settings.acceptance is None:
        return settings, []
    found = read_acceptance(settings.acceptance)
    if 1 not in settings.batch_sizes:
        raise UserError("--acceptance is for one example at a time", todo="add 1 to --batch-sizes")
    drafted = {one.delay for one in found if one.delay is not None}
    if (lacking := drafted - {*settings.delays}) and "delays" in settings.typed:
        what = f"drafts were made at Δt = {min(lacking)}, which is not timed here"
        raise UserError(what, where=str(settings.acceptance), todo=f"add {min(lacking)} to --delays")
    return replace(settings, delays=tuple(sorted({*settings.delays, *drafted}))), found


def run(
    settings: BenchSettings,
    lengths: Lengths,
    peers: Sequence[PeerName],
    accepted: Sequence[Acceptance],
    notify: Notify,
) -> Bench:
    """Time our decoders in every dtype and the peers on forced lengths, then single steps; project exact mode from these."""
    notify.say(f"loading {settings.model} …")

    from pipedec_cli.evaluate.bench import Bench, MemoryProbe, StepSpeed, time_steps
    from pipedec_cli.evaluate.competitor import Competitor, EngineRunner
    from pipedec_cli.evaluate.projection import Projection, project, rows_of
    from pipedec_cli.evaluate.timing import device_clock, pause
    from pipedec_cli.jobs.measuring import measure
    from pipedec_cli.model.arguments import choose_device
    from pipedec_cli.model.scratch import shape_of

    device = str(choose_device(settings.device))
    repeats, clock = settings.repeats, device_clock(device)
    with _decoders(settings, device, notify) as decoders:
        first = decoders[0].checkpoint
        if first.places is not None and lengths.source > first.places:
            what = f"sources of {lengths.source:,} tokens, and {settings.model} has {first.places:,} places for them"
            raise UserError(what, todo=f"give --source {first.places} or less")
        config, end = first.model.config, None if first.backbone.prompted else first.eos
        sources = lengths.sources(max(settings.batch_sizes), config.vocab_size, end, settings.seed)
        ours = list[Competitor]()
        delays: Sequence[int | Literal["together"]] = ("together",) if lengths.keys else settings.delays
        for decoder, delay in product(decoders, (None, *delays)):
            runner = EngineRunner(decoder, {"delay": delay}, lengths)
            role: Role = "pipelined" if delay else "baseline"
            name = f"Δt = {delay}" if delay else "sequential"
            if delay == "together":
                name = "fields together"
            if decoder is not decoders[0]:
                name += f", {runner.settings['dtype']}"
            ours.append(Competitor(name, role, runner, delay=delay, sources=sources))
        probe, steps = MemoryProbe(clock, device=device), list[StepSpeed]()
        notify.say(f"forced lengths: {lengths.line}")

        def rest() -> None:
            pause()
            probe.measure()

        def step() -> None:
            rows = sorted({*settings.rows, *rows_of(accepted)})
            notify.say(f"timing single steps of {', '.join(map(str, rows))} rows: {many(repeats, 'repeat')}")
            engines = [(decoder.engine(), decoder.checkpoint.model) for decoder in decoders]
            with notify.stage("timing steps", len(engines) * len(rows) * (1 + repeats)) as advance:
                steps.extend(time_steps(engines, rows, sources[0], probe, repeats, clock, pause, advance))

        longest = lengths.tokens + 1  # ours make an <eos> too
        found = measure(settings, ours, peers, first, longest, notify, forced=True, rest=rest, then=step)
        millions = sum(parameter.numel() for parameter in first.model.parameters()) / 1e6
        shape = shape_of(settings.model, settings.family)
        fresh = f", fresh weights of a {first.backbone.name}" if shape else ""
        found |= {"bandwidth": tuple(probe.readings), "reader": probe.reader, "repeats": repeats}
        model = f"{settings.model}, {millions:.0f} M parameters{fresh}"
        if accepted:
            projected = project(accepted, found["entries"], steps, lengths.tokens)
            found["projection"] = Projection(str(settings.acceptance), tuple(projected))
        return Bench(model=model, lengths=lengths, steps=tuple(steps), **found)


@contextmanager
def _decoders(settings: BenchSettings, device: str, notify: Notify) -> Iterator[list[Decoder]]:
    """The model in each dtype; fresh weights lie in a folder while they are needed, so that peers can convert them."""
    import torch

    from pipedec_cli.data.records import Segmentation
    from pipedec_cli.jobs.loading import announce_compiling
    from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings, save_checkpoint
    from pipedec_cli.model.decoder import load
    from pipedec_cli.model.scratch import make_model, shape_of, train_tokenizer

    with TemporaryDirectory(prefix="pipedec-bench-") as folder:
        name = settings.model
        if (shape := shape_of(name, settings.family)) is not None:
            notify.say(f"making {name} with fresh weights")
            torch.manual_seed(settings.seed)
            name = folder
            # The tokenizer knows few words, since nothing is read; the vocabulary has its whole size.
            tokenizer = train_tokenizer(["Lengths are forced, and sources are random."], shape.vocabulary)
            method = MethodSettings("sequential", "any", Segmentation("phrase", (";",), "; "))
            model = make_model(shape, shape.vocabulary)
            save_checkpoint(Checkpoint(model, tokenizer, method, settings.model), Path(folder))
        announce_compiling(torch.device(device).type, notify)
        yield [load(name, dtype=dtype, device=device, consume=False) for dtype in settings.dtypes]
