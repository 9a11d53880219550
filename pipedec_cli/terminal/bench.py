"""`pipedec bench`: what the method can give on this machine, without training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from pipedec_cli.data.errors import UserError
from pipedec_cli.terminal.console import Talk, make_console, many, write_stdout
from pipedec_cli.terminal.settings import (
    ConfigOption,
    Dtype,
    JsonOption,
    QuietOption,
    Settings,
    numbers,
    parse_device,
)
from pipedec_cli.terminal.tables import (
    NONE,
    Section,
    Sheet,
    figure,
    megabytes,
    milliseconds,
    settings_sheet,
    show_sheet,
    times,
)

if TYPE_CHECKING:
    from pipedec_cli.evaluate.forced import Lengths
    from pipedec_cli.evaluate.peers import PeerName
    from pipedec_cli.evaluate.report import Bench
    from pipedec_cli.evaluate.timing import Timing
    from pipedec_cli.model.decoder import Decoder

EXAMPLES = """
[bold]Examples[/bold]

  pipedec bench                                  [dim]# T5-Base's shape, the lengths of WikiHowQA, against the sequential decoder[/dim]

  pipedec bench --compare sequential,transformers,ctranslate2 --dtypes float32,bfloat16

  pipedec bench --shape pubmed --delays 1,2,3 --batch-sizes 1,16

  pipedec bench --subsequences 8 --tokens 12 --source 512

  pipedec bench --model google-t5/t5-large --device cuda --json > bench.json
"""

Shape = Literal["wikihowqa", "cnn_dailymail", "pubmed", "msqa", "kp20k", "kptimes"]
_lengths = partial(typer.Option, show_default=False, rich_help_panel="Lengths")
_speed = partial(typer.Option, rich_help_panel="Speed")


def parse_dtypes(value: Any) -> tuple[str, ...]:
    """Names of dtypes with commas between them, each once."""
    parts = value.split(",") if isinstance(value, str) else value
    names = tuple(dict.fromkeys(part.strip() for part in parts))
    if not set(names) <= set(get_args(Dtype)):
        raise typer.BadParameter(f"give one or more of {', '.join(get_args(Dtype))}, commas between")
    return names


@dataclass(frozen=True, kw_only=True)
class BenchSettings(Settings):
    """What `pipedec bench` is asked for."""

    shape: Annotated[
        Shape | None,
        _lengths(help="Lengths of one of the paper's data sets, by its Table 1 \\[default: wikihowqa]."),
    ] = None
    subsequences: Annotated[int | None, _lengths(help="Or: this many subsequences …", min=1)] = None
    tokens: Annotated[int | None, _lengths(help="… of so many tokens each.", min=1)] = None
    source: Annotated[int, _lengths(help="Tokens of the source.", min=2, show_default=True)] = 512
    model: Annotated[
        str,
        typer.Option(
            help="scratch-tiny, -small, -base or -large (fresh weights in a T5's shape), a folder or a hub name; no "
            "training is needed."
        ),
    ] = "scratch-base"
    compare: Annotated[
        str,
        typer.Option(
            help="With whom, commas between: sequential (always takes part), transformers, ctranslate2.",
            metavar="NAMES",
        ),
    ] = "sequential,transformers"
    delays: Annotated[
        tuple[int, ...], typer.Option(help="Δt to try, commas between.", parser=numbers, metavar="N,N")
    ] = (1,)
    dtypes: Annotated[
        tuple[str, ...],
        _speed(
            help="Of our weights, commas between; the others take the first.",
            parser=parse_dtypes,
            metavar="NAMES",
        ),
    ] = ("float32",)
    batch_sizes: Annotated[
        tuple[int, ...], _speed(help="Examples in flight, commas between.", parser=numbers, metavar="N,N")
    ] = (1,)
    rows: Annotated[
        tuple[int, ...],
        _speed(
            help="Rows of the single steps that are timed beside their limit, commas between.",
            parser=numbers,
            metavar="N,N",
        ),
    ] = (1, 4, 8, 16)
    repeats: Annotated[int, _speed(help="How often; the medians count.", min=1)] = 3
    memory: Annotated[
        bool,
        _speed(
            "--memory/--no-memory",
            help="Measure the peak memory of each decoder in a process of its own.",
        ),
    ] = False
    device: Annotated[
        str,
        _speed(
            help="auto takes a CUDA GPU where there is one.", parser=parse_device, metavar="auto|cpu|cuda"
        ),
    ] = "auto"
    seed: Annotated[int, _speed(help="Of fresh weights and random sources.")] = 0
    out: Annotated[
        Path | None, typer.Option(help="Keep the measurements in this JSON file.", show_default=False)
    ] = None
    config: ConfigOption = None
    quiet: QuietOption = False
    as_json: JsonOption = False


def bench(settings: BenchSettings) -> None:
    """See in a minute what the method can give on this machine: speed without training, on forced lengths.

    The model computes every step in earnest and is told when to end each subsequence; so are the others. Times are split into encoder, set-up and decoding, gains into fewer calls (the schedule) and faster calls (kernels); single steps stand beside the limit that the machine's memory sets.
    """
    from pipedec_cli.data.writing import manifest, to_json, write_json
    from pipedec_cli.evaluate.forced import Lengths
    from pipedec_cli.terminal.measuring import parse_peers

    talk = Talk(quiet=settings.quiet)
    peers = parse_peers(settings.compare)
    if "prompt-lookup" in peers:
        raise UserError(
            "--compare: what prompt lookup gives depends on the text, and here texts mean nothing",
            todo="compare with it on a trained model: `pipedec report --compare prompt-lookup`",
        )
    subsequences, tokens = settings.subsequences, settings.tokens
    if (subsequences is None) != (tokens is None) or (settings.shape and subsequences is not None):
        raise UserError(
            "lengths are given either as --shape, or as --subsequences and --tokens",
            todo="for example `--shape pubmed`, or `--subsequences 8 --tokens 12`",
        )
    if subsequences is None or tokens is None:
        lengths = Lengths.of_dataset(settings.shape or "wikihowqa", settings.source)
    else:
        lengths = Lengths.even(settings.source, subsequences, subsequences * tokens)
    measured = measure(settings, lengths, peers, talk)
    resolved = {
        "lengths": asdict(lengths),
        "peers": peers,
        **{name: getattr(settings, name) for name in _SAVED},
    }
    content = measured.as_json() | {"manifest": manifest(resolved, inputs=[])}
    if settings.out is not None:
        write_json(settings.out, content)
        talk.say(f"saved {settings.out}")
    if settings.as_json:
        write_stdout(to_json(content, indent=2) + "\n")
    else:
        console = make_console(stderr=False)
        for sheet in sheets(measured):
            show_sheet(console, sheet)


_SAVED = ("model", "delays", "dtypes", "batch_sizes", "rows", "repeats", "device", "memory", "seed")


def measure(settings: BenchSettings, lengths: Lengths, peers: Sequence[PeerName], talk: Talk) -> Bench:
    """Time our decoders in every dtype and the peers on forced lengths, then single steps.

    Raises:
        UserError: the model cannot be loaded.
    """
    from pipedec_cli.evaluate.competitor import Competitor, EngineRunner
    from pipedec_cli.evaluate.machine import this_machine, versions
    from pipedec_cli.evaluate.report import Bench
    from pipedec_cli.evaluate.steps import MemoryProbe, time_steps
    from pipedec_cli.evaluate.timing import device_clock, pause
    from pipedec_cli.model.device import choose_device
    from pipedec_cli.model.scratch import SHAPES
    from pipedec_cli.terminal.measuring import invite, time_all, watched_for_others, weigh_all
    from pipedec_cli.terminal.progress import stage

    device = str(choose_device(settings.device))
    repeats, clock = settings.repeats, device_clock(device)
    with _decoders(settings, device, talk) as decoders, TemporaryDirectory(prefix="pipedec-peers-") as folder:
        first = decoders[0].checkpoint
        probe = MemoryProbe(clock, device=device)
        ours: list[Competitor] = []
        for dtype, decoder in zip(settings.dtypes, decoders, strict=True):
            suffix = f", {dtype}" if ours else ""
            ours.append(
                Competitor(f"sequential{suffix}", "baseline", EngineRunner(decoder, {"delay": None}, lengths))
            )
            for delay in settings.delays:
                runner = EngineRunner(decoder, {"delay": delay}, lengths)
                ours.append(Competitor(f"Δt = {delay}{suffix}", "pipelined", runner, delay=delay))
        # One more than the text has: ours make an <eos> too.
        most = lengths.tokens + 1
        theirs, absent = invite(peers, first, Path(folder), most, talk, exactly=True)
        entries = (*ours, *theirs)
        sources = lengths.sources(
            max(settings.batch_sizes), first.model.config.vocab_size, first.eos, settings.seed
        )
        for one in entries:
            one.sources = sources
        talk.say(f"forced lengths: {lengths.line}")

        def rest() -> None:
            pause()
            probe.measure()

        steps = []
        with watched_for_others(talk) as disturbed:
            time_all(entries, settings.batch_sizes, repeats, device, talk, rest=rest, one_batch=True)
            if settings.rows:
                counts = ", ".join(map(str, settings.rows))
                talk.say(f"timing single steps of {counts} rows: {many(repeats, 'repeat')}")
                total = len(decoders) * len(settings.rows) * (1 + repeats)
                with stage(talk, "timing steps", total) as advance:
                    steps = time_steps(
                        [(decoder.engine(), decoder.checkpoint.model.config) for decoder in decoders],
                        settings.rows,
                        sources[0],
                        probe,
                        repeats=repeats,
                        clock=clock,
                        rest=pause,
                        on_repeat=advance,
                    )
        if settings.memory:
            weigh_all(entries, settings.batch_sizes[0], talk, one_batch=True)
        millions = sum(parameter.numel() for parameter in first.model.parameters()) / 1e6
        return Bench(
            model=f"{settings.model}, {millions:.0f} M parameters"
            + (", fresh weights" if settings.model in SHAPES else ""),
            lengths=lengths,
            entries=entries,
            steps=tuple(steps),
            bandwidth=tuple(probe.readings),
            reader=probe.reader,
            absent=tuple(absent),
            repeats=repeats,
            device=device,
            machine=this_machine(device),
            versions=versions(),
            disturbed=next(iter(disturbed), None),
        )


@contextmanager
def _decoders(settings: BenchSettings, device: str, talk: Talk) -> Iterator[list[Decoder]]:
    """The model in each dtype; fresh weights lie in a folder while they are needed, so that peers can convert them."""
    import torch

    from pipedec_cli.data.records import Segmentation
    from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings, save_checkpoint
    from pipedec_cli.model.decoder import load
    from pipedec_cli.model.scratch import SHAPES, make_model, train_tokenizer
    from pipedec_cli.terminal.predicting import announce_compiling

    with TemporaryDirectory(prefix="pipedec-bench-") as folder:
        name = settings.model
        if name in SHAPES:
            talk.say(f"making {name} with fresh weights")
            torch.manual_seed(settings.seed)
            shape, name = SHAPES[name], folder
            # The tokenizer knows few words, since nothing is read; the vocabulary has its whole size.
            tokenizer = train_tokenizer(["Lengths are forced, and sources are random."], shape.vocabulary)
            method = MethodSettings("sequential", "any", Segmentation("phrase", (";",), "; "))
            model = make_model(shape, shape.vocabulary)
            save_checkpoint(Checkpoint(model, tokenizer, method, settings.model), Path(folder))
        where = torch.device(device)
        announce_compiling(where.type, talk)
        yield [load(name, dtype=dtype, device=device, consume=False) for dtype in settings.dtypes]


# ---- what it prints --------------------------------------------------------------------------------------------


def sheets(bench: Bench) -> list[Sheet]:
    """Every table of a bench, in order."""
    made = [side_by_side(bench), ratios(bench), *([steps(bench)] if bench.steps else [])]
    notes = (
        f"{bench.model}; on {bench.device}; {bench.machine.line}",
        bench.versions_line,
        f"one process, the decoders in turn; one pass to warm up, medians of {many(bench.repeats, 'repeat')}",
        *(f"{peer.name} is absent: {peer.why}" for peer in bench.absent),
        *filter(None, [bench.disturbed]),
    )
    return [*made, settings_sheet("What was measured", bench.entries, notes)]


def side_by_side(bench: Bench) -> Sheet:
    """Times of each decoder, by batch size."""

    def section(size: int) -> Section:
        def row(name: str, show: Callable[[Timing], str]) -> tuple[str, ...]:
            return (
                name,
                *(show(one.timings[size]) if size in one.timings else NONE for one in bench.entries),
            )

        return Section(
            f"batch size {size}",
            (
                row("end to end, ms", lambda timing: milliseconds(timing.seconds)),
                row("  encoder", lambda timing: milliseconds(timing.encoder_seconds)),
                row("  keys and values of the source", lambda timing: milliseconds(timing.setup_seconds)),
                row("  decoding", lambda timing: milliseconds(timing.decoding_seconds)),
                row("decoder calls", lambda timing: f"{timing.decoder_calls:,}"),
                row("decoding, ms a call", lambda timing: milliseconds(timing.seconds_per_call)),
                row("tokens a step", lambda timing: figure(timing.tokens_per_step)),
                row("examples/s", lambda timing: figure(timing.examples_per_second)),
            ),
        )

    sections = list(map(section, bench.batch_sizes))
    if any(one.memory for one in bench.entries):
        peaks = [megabytes(one.memory.peak_bytes if one.memory else None) for one in bench.entries]
        sections.append(Section("memory", (("peak, MB", *peaks),)))
    return Sheet(
        f"Forced lengths: {bench.lengths.line}",
        tuple(one.name for one in bench.entries),
        tuple(sections),
        kept=1,
        notes=(
            "times are those of all examples in flight together, in milliseconds, medians of the repeats",
            "the lengths are forced: every step is computed in earnest, and the texts mean nothing",
        ),
    )


def ratios(bench: Bench) -> Sheet:
    """How many times as fast each of ours is, end to end and in decoding alone, and where that comes from."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    for name, over, size, gain in bench.ratios:
        groups.setdefault(f"{name}, batch size {size}", []).append(
            (
                f"over {over}",
                times(gain.speedup),
                f"{gain.low:.1f} to {gain.high:.1f}",
                times(gain.decoding),
                times(gain.fewer_calls),
                times(gain.faster_calls),
            )
        )
    return Sheet(
        "Times as fast",
        ("end to end", "by repeats", "decoding", "fewer calls", "faster calls"),
        tuple(Section(heading, tuple(rows)) for heading, rows in groups.items()),
        notes=(
            "decoding = fewer calls (the schedule) × faster calls (kernels, and what more rows a call cost)",
        ),
    )


def steps(bench: Bench) -> Sheet:
    """One step by rows, beside what reading the weights alone takes."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    for step in bench.steps:
        groups.setdefault(step.dtype, []).append(
            (
                f"{step.rows}",
                milliseconds(step.seconds),
                milliseconds(step.limit_seconds),
                f"{step.fraction:.2f}",
                f"{step.bytes / 1e6:,.0f}",
            )
        )
    low, middle, high = (f"{choose(bench.bandwidth) / 1e9:.1f}" for choose in (min, median, max))
    return Sheet(
        "One decoder step, by rows",
        ("step, ms", "limit, ms", "limit ÷ step", "MB read"),
        tuple(Section(dtype, tuple(rows)) for dtype, rows in groups.items()),
        notes=(
            "limit: reading every matrix of the decoder and one example's keys and values once, at the speed that the "
            "probe read memory beside each repeat; many rows are bound by arithmetic instead, and what fits into the "
            "processor's caches can be read faster than that",
            f"the probe ({bench.reader}) read {low} to {high} GB/s, median {middle}",
        ),
        corner="rows",
    )
