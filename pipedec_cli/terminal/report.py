"""`pipedec report`: decoders side by side, and which one to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Delay
from pipedec_cli.evaluate.metrics import ProtocolName, Task
from pipedec_cli.terminal import settings as common
from pipedec_cli.terminal.console import Talk, make_console, write_stdout
from pipedec_cli.terminal.generate import GenerateSettings, load_decoder, read_inputs
from pipedec_cli.terminal.settings import Dtype, WorkflowSettings, number_or, numbers, option

if TYPE_CHECKING:
    from pipedec_cli.data.workspace import Workspace
    from pipedec_cli.evaluate.competitor import Competitor, Role
    from pipedec_cli.evaluate.peers import PeerName
    from pipedec_cli.evaluate.report import Paper, Report
    from pipedec_cli.model.decoder import Decoder
    from pipedec_cli.pipeline.grid import Explore
    from pipedec_cli.terminal.predicting import Predictions

EXAMPLES = """
pipedec report --compare sequential            [dim]# at the checkpoint's own delay[/dim]
pipedec report --delays 1,2,3 --explore both   [dim]# which delay to take on these data[/dim]
pipedec report --compare sequential,transformers,prompt-lookup,ctranslate2
pipedec report --batch-sizes 1,4,16 --dtype bfloat16 --limit 200
pipedec report --recipe wikihowqa              [dim]# the paper's figures beside yours[/dim]
"""

_input = partial(option, panel="Input")
_quality = partial(option, panel="Quality")
_speed = partial(option, panel="Speed")


def parse_delays(value: Any) -> tuple[Delay, ...]:
    """Delays with commas between them, rising, the schedule that waits last; ``sequential`` is its older name."""
    written = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    parts = [part.strip() for part in written.split(",")]
    given = [part for part in parts if part not in ("wait", "sequential")]
    return (*(numbers(given) if given else ()), *(("wait",) if len(given) < len(parts) else ()))


@dataclass(frozen=True, kw_only=True)
class ReportSettings(WorkflowSettings):
    """What `pipedec report` is asked for; None leaves a setting to the checkpoint or the workspace."""

    compare: str = option(
        "sequential",
        "With whom, commas between: sequential (always takes part), transformers, prompt-lookup, ctranslate2. "
        "The last three run the plain T5.",
        metavar="NAMES",
    )
    delays: tuple[Delay, ...] | None = option(
        None,
        "Δt to try, commas between, and 'wait' for the same checkpoint's waiting schedule "
        "\\[default: as trained, 2 for a model that serves any].",
        parser=parse_delays,
        metavar="N,N",
    )
    explore: Literal["retry", "once", "both"] = option(
        "retry", "The exploration rule, or both of them side by side."
    )
    model: str | None = _input(None, "The pipelined checkpoint \\[default: the workspace's].")
    baseline: str | None = _input(
        None, "The plain T5 \\[default: the workspace's, else the same checkpoint's waiting schedule]."
    )
    data: str | None = _input(
        None, "What to generate from and to score against \\[default: the workspace's test set]."
    )
    limit: int | None = _input(None, "The first N examples only.", min=1)
    task: Task | None = _quality(None, "What is scored \\[default: what the data suggest].")
    protocol: ProtocolName | None = _quality(None, "How \\[default: the first of the task].")
    resamples: int = _quality(9999, "Bootstrap draws for the intervals.", min=99)
    seed: int = _quality(0, "Of these draws.", min=0)
    timing_examples: int = _speed(32, "How many examples are timed, evenly spread over all.", min=1)
    repeats: int = _speed(3, "How often; the medians count.", min=1)
    batch_sizes: tuple[int, ...] = _speed(
        (1,), "Batch sizes that are timed, commas between.", parser=numbers, metavar="N,N"
    )
    memory: bool = _speed(
        True, "Measure the peak memory of each decoder in a process of its own.", "--memory/--no-memory"
    )
    batch_size: int | Literal["auto"] = _speed(
        "auto",
        "Examples decoded at the same time while generating what is missing; it is not timed.",
        parser=number_or("auto"),
        metavar="N|auto",
    )
    dtype: Dtype = _speed("float32", "Of the weights; the peers take the same.")
    device: str = common.device_option(panel="Speed")
    out: Path | None = common.general(
        None, "The folder of report.json and report.md \\[default: report/ in the workspace]."
    )


def report(settings: ReportSettings) -> None:
    """Compare decoders on your data and this machine: quality, speed, decoder steps, memory, and what goes wrong.

    Generates what is missing and scores all of it; times a fixed sample, the decoders in turn in one process. The baseline is the plain T5 that `pipedec train --decoder sequential` made, or without one the same checkpoint's waiting schedule; the report says which. It ends in advice: which delay to take, or that the method does not help here. report.json and report.md are saved in the workspace.
    """
    from pipedec_cli.data.workspace import Workspace
    from pipedec_cli.data.writing import manifest, to_json, write_json, write_text
    from pipedec_cli.evaluate.scoring import settle_metrics
    from pipedec_cli.terminal.measuring import parse_peers
    from pipedec_cli.terminal.report_sheets import markdown, show_report

    talk, place = Talk(quiet=settings.quiet), Workspace.find(settings.workspace)
    task, protocol = settle_metrics(settings.task, settings.protocol, settings.typed)
    settings, peers = replace(settings, task=task, protocol=protocol), parse_peers(settings.compare)
    files, made = compare(settings, peers, place, talk)
    folder = settings.out or place.report
    apart = ("compare", "timing_examples", "typed", "out", "workspace", "config", "as_json", "quiet")
    kept = {one.name: getattr(settings, one.name) for one in fields(settings) if one.name not in apart}
    resolved = {"peers": peers, "timed": settings.timing_examples, **kept}
    content = made.as_json() | {"manifest": manifest(resolved, inputs=files)}
    write_json(folder / "report.json", content)
    write_text(folder / "report.md", markdown(made))
    if settings.as_json:
        write_stdout(to_json(content, indent=2) + "\n")
    else:
        show_report(make_console(stderr=False), made)
    talk.say(f"saved {folder / 'report.json'} and {folder / 'report.md'}")


def compare(
    settings: ReportSettings, peers: Sequence[PeerName], place: Workspace, talk: Talk
) -> tuple[list[Path], Report]:
    """Generate, score, time and weigh; returns the files of predictions and what they and the measurements come to."""
    from pipedec_cli.evaluate.peers import MAX_TOKENS
    from pipedec_cli.evaluate.report import Sample, assemble, choose_sample
    from pipedec_cli.evaluate.scoring import LABELS, compare_runs, load_runs
    from pipedec_cli.evaluate.significance import method
    from pipedec_cli.terminal.measuring import measure
    from pipedec_cli.terminal.score import ScoreSettings, score_runs

    decoders, baseline, called = line_up(settings, peers, place, talk)
    ours = [one for one, _ in decoders]
    files = [predictions.complete(one.name) for one, predictions in decoders]
    by = ScoreSettings(task=settings.task, protocol=settings.protocol, typed=settings.typed)
    runs = score_runs(by, load_runs(files), place, talk)
    first = runs[0]
    for one, scored in zip(ours, runs, strict=True):
        one.scored = scored
        if scored is not first:
            one.differences = compare_runs(scored, first, resamples=settings.resamples, seed=settings.seed)
    records = [prediction.record for prediction in first.run.predictions]
    chosen = choose_sample(len(records), settings.timing_examples)
    timed = [record for at in chosen if (record := records[at])]
    encode = cache(lambda text: [text.source(record.source)[0] for record in timed])
    for one, predictions in decoders:
        one.sources = encode(predictions.decoder.text)
    (_, first_one), metric = decoders[0], first.scores.measure.primary
    most = first_one.method.limits.max_tokens or MAX_TOKENS
    return files, assemble(
        measure(settings, ours, peers, first_one.decoder.checkpoint, most, talk),
        [record.id for record in timed],
        metric=metric,
        label=LABELS[metric],
        called=called,
        baseline=baseline,
        sample=Sample(len(chosen), len(records), settings.repeats),
        dtype=settings.dtype,
        significance=f"decoder minus baseline, {method(settings.resamples, settings.seed)}",
        paper=_paper(settings, place),
    )


def _paper(settings: ReportSettings, place: Workspace) -> Paper | None:
    """The paper's figures for the recipe that was given, or that the workspace's data were segmented with."""
    from pipedec_cli.data.paper import SPEEDUP_BY_SUBSEQUENCES, delay_rows, paper_row
    from pipedec_cli.data.workspace import segmented_with
    from pipedec_cli.evaluate.report import Paper

    name = (
        settings.recipe
        or (segmented_with(place.segmentation, "recipe") if settings.data is None else None)
        or ""
    )
    row = paper_row(name)
    return Paper(row, delay_rows(name), SPEEDUP_BY_SUBSEQUENCES.get(name)) if row else None


def line_up(
    settings: ReportSettings, peers: Sequence[PeerName], place: Workspace, talk: Talk
) -> tuple[list[tuple[Competitor, Predictions]], str, str]:
    """Our decoders, the baseline first, with what they make of the data; and the baseline in words, and in short."""
    from pipedec_cli.evaluate.competitor import Competitor, EngineRunner
    from pipedec_cli.terminal.predicting import Predictions

    shared = ("model", "data", "limit", "batch_size", "dtype", "device", "workspace")
    usual = GenerateSettings(**{name: getattr(settings, name) for name in shared})
    pipelined = load_decoder(usual, talk)
    trained = pipelined.settings
    if trained.decoder == "sequential":
        todo = "give it as --baseline, and as --model a checkpoint that `pipedec train` made"
        raise UserError(f"{pipelined.checkpoint.name} is an ordinary T5, not a pipelined decoder", todo=todo)
    plain = _load_plain(settings.baseline, usual, peers, place, talk)
    inputs = read_inputs(usual, talk)

    def one(name: str, role: Role, options: str, how: GenerateSettings) -> tuple[Competitor, Predictions]:
        decoder = plain if plain and name == "sequential" else pipelined
        runner = EngineRunner(decoder, {"delay": how.delay, "explore": how.explore})
        delay = how.delay if isinstance(how.delay, int) else None
        competitor = Competitor(name, role, runner, options=options, delay=delay)
        return competitor, Predictions(how, decoder, inputs, talk)

    asked, ours = settings.delays or (), []
    delays = [delay for delay in asked if isinstance(delay, int)] or [trained.usual_delay]
    rules: list[Explore] = ["retry", "once"] if settings.explore == "both" else [settings.explore]
    for delay, rule in product(delays, rules):
        name = f"Δt = {delay}" + (f", {rule}" if settings.explore != "retry" else "")
        options = f"--delay {delay}" + (" --explore once" if rule == "once" else "")
        ours.append(one(name, "pipelined", options, replace(usual, delay=delay, explore=rule)))
    waiting = replace(usual, delay="wait")  # the same checkpoint, each subsequence after the one before
    if plain is not None:
        if "wait" in asked:
            ours.append(one("waiting schedule", "pipelined", "--delay wait", waiting))
        options, how = "--decoder sequential", replace(usual, model=None, decoder="sequential")
        if settings.baseline is not None:
            options, how = f"--model {settings.baseline}", replace(usual, model=settings.baseline)
        words = f"the plain T5 ({plain.checkpoint.name}), the whole target as one string, on our engine"
        return [one("sequential", "baseline", options, how), *ours], words, "the plain T5"
    if trained.delay != "any":
        lacking = "no plain T5, and this checkpoint was not trained for its waiting schedule"
        what, where = f"there is nothing to compare with: {lacking}", pipelined.checkpoint.name
        todo = "run `pipedec train --decoder sequential` first, or give --baseline"
        raise UserError(what, where=where, todo=todo)
    words = (
        f"the waiting schedule of the same checkpoint ({pipelined.checkpoint.name}): not the plain T5, which needs about "
        "one decoder call a subsequence less; `pipedec train --decoder sequential` makes one to compare with"
    )
    baseline = one("waiting schedule", "baseline", "--delay wait", waiting)
    return [baseline, *ours], words, "the same checkpoint's waiting schedule"


def _load_plain(
    given: str | None, usual: GenerateSettings, peers: Sequence[PeerName], place: Workspace, talk: Talk
) -> Decoder | None:
    """The plain T5 that was given, else the workspace's; None if there is none and nobody needs it."""
    folder = place.model("sequential")
    if given is None and not (folder / "config.json").exists():
        if folder.exists():
            talk.warn(
                f"the training of {folder} has not come to its end: it is left out; the command that began it finishes "
                "it with --resume"
            )
        if peers:
            what = f"{', '.join(peers)} would run the plain T5, and there is none"
            todo = "run `pipedec train --decoder sequential` first, give --baseline, or compare with sequential alone"
            raise UserError(what, todo=todo)
        return None
    # transformers runs the model itself, which our own engine can do without
    consume = not {"transformers", "prompt-lookup"} & set(peers)
    plain = load_decoder(replace(usual, model=given or str(folder)), talk, consume=consume)
    if plain.settings.decoder != "sequential":
        todo = "--baseline takes a plain T5; `pipedec train --decoder sequential` makes one"
        raise UserError(f"{plain.checkpoint.name} is a pipelined decoder", todo=todo)
    return plain
