"""`pipedec report`: decoders side by side, and which one to take."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pipedec_cli.data.reading import require_place
from pipedec_cli.data.records import SPLITS, Delay, SplitName
from pipedec_cli.evaluate.metrics import TASK_OF, ProtocolName, Task
from pipedec_cli.jobs import settings as common
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.generate import GenerateSettings
from pipedec_cli.jobs.loading import find_model
from pipedec_cli.jobs.settings import Dtype, WorkflowSettings, listed, names_of, numbers, option
from pipedec_cli.pipeline.grid import EmptyRows

if TYPE_CHECKING:
    from pipedec_cli.data.paper import PaperFigures
    from pipedec_cli.data.records import Draft
    from pipedec_cli.data.workspace import Workspace
    from pipedec_cli.evaluate.peers import PeerName
    from pipedec_cli.evaluate.report import Report
    from pipedec_cli.evaluate.scoring import ScoredRun
    from pipedec_cli.jobs.report_entries import LineUp

_input = partial(option, panel="Input")
_quality = partial(option, panel="Quality")
_speed = partial(option, panel="Speed")


def parse_delays(value: Any) -> tuple[Delay, ...]:
    """Delays with commas between them, rising, the schedule that waits last."""
    parts = listed(value)
    given = [part for part in parts if part != "wait"]
    return (*(numbers(given) if given else ()), *(("wait",) if len(given) < len(parts) else ()))


def parse_empty_rows(value: Any) -> tuple[EmptyRows, ...]:
    """Rules for empty rows with commas between them, each once."""
    rules: tuple[Any, ...] = names_of(value, get_args(EmptyRows))
    return rules


def parse_min_start_probs(value: Any) -> tuple[float, ...]:
    """Probabilities from 0 to 1 with commas between them, rising, each once."""
    with suppress(ValueError):
        found = sorted(set(map(float, listed(value))))
        if all(0 <= one <= 1 for one in found):  # nan is not
            return tuple(found)
    raise ValueError("give numbers from 0 to 1, with commas between them")


def parse_splits(value: Any) -> tuple[SplitName, ...]:
    """Names of splits with commas between them, in the order train, dev, test."""
    names = names_of(value, SPLITS)
    return tuple(split for split in SPLITS if split in names)


@dataclass(frozen=True, kw_only=True)
class ReportSettings(WorkflowSettings):
    """What `pipedec report` is asked for; None leaves a setting to the checkpoint or the workspace."""

    compare: str = option(
        "sequential",
        "With whom, commas between: sequential (always takes part), exact-pipelined, exact-source, exact-jacobi (exact: "
        "all three), transformers, prompt-lookup, ctranslate2, ctranslate2:int8, ctranslate2:bfloat16. All run the plain model.",
        metavar="NAMES",
    )
    delays: tuple[Delay, ...] | None = option(
        None,
        "Δt to try, commas between, and 'wait' for the same checkpoint's waiting schedule "
        "\\[default: as trained, 2 for a model that serves any].",
        parser=parse_delays,
        metavar="N,N",
    )
    empty_rows: tuple[EmptyRows, ...] | None = option(
        None,
        "Rules for empty rows to compare, commas between: retry, stop, retract \\[default: as in generate].",
        parser=parse_empty_rows,
        metavar="RULES",
    )
    stop_on_repeat: bool | None = option(
        None, "As in generate \\[default: as trained].", "--stop-on-repeat/--no-stop-on-repeat"
    )
    min_start_probs: tuple[float, ...] | None = option(
        None,
        "Least probabilities of a first token with which a subsequence may start early, commas between (see "
        "`generate --min-start-prob`): each at every Δt, beside the rules for empty rows.",
        parser=parse_min_start_probs,
        metavar="P,P",
    )
    model: str | None = _input(None, "The pipelined checkpoint \\[default: the workspace's].")
    baseline: str | None = _input(
        None,
        "The plain model \\[default: the checkpoint's teacher, else the workspace's, else the same checkpoint's waiting schedule, "
        "which one that was trained for a single delay, or for objects, has not].",
    )
    data: str | None = _input(
        None, "What to generate from and to score against \\[default: the workspace's test set]."
    )
    prompt_template: str | None = common.prompt_template_option(
        "as trained; of a baseline from elsewhere as the checkpoint's", panel="Input"
    )
    chat: bool | None = common.chat_option(
        "as trained; of a baseline from elsewhere as the checkpoint's", panel="Input"
    )
    split: tuple[SplitName, ...] | None = _input(
        None,
        "Of the workspace, of a folder or of a hub data set; several, such as dev,test, for the quality on each and all "
        "else on the last \\[default: test].",
        parser=parse_splits,
        metavar="NAMES",
    )
    limit: int | None = _input(None, "The first N examples only.", min=1)
    task: Task | None = _quality(None, "What is scored \\[default: what the data suggest].")
    protocol: ProtocolName | None = _quality(None, "How \\[default: the first of the task].")
    resamples: int = _quality(9999, "Bootstrap draws for the intervals.", min=99)
    seed: int = _quality(0, "Of these draws.", min=0)
    timing_examples: int | Literal["all"] = _speed(
        32, "How many examples are timed, evenly spread over all; 'all' times every one."
    )
    repeats: int = _speed(3, "How often; the medians count.", min=1)
    batch_sizes: tuple[int, ...] = _speed((1,), "Batch sizes that are timed, commas between.")
    memory: bool = _speed(
        True, "Measure the peak memory of each decoder in a process of its own.", "--memory/--no-memory"
    )
    batch_size: int | Literal["auto"] = _speed(
        "auto", "Examples decoded at the same time while generating what is missing; it is not timed."
    )
    dtype: Dtype = _speed("float32", "Of the weights; the peers take the same.")
    device: str = common.device_option(panel="Speed")
    threads: int | None = common.threads_key()
    open: bool = common.general(False, "Show report.html in a browser at the end.")
    out: Path | None = common.general(
        None, "The folder of report.json, report.md and report.html \\[default: report/ in the workspace]."
    )


@dataclass(frozen=True)
class Compared:
    """What `report` found: the comparison, the files of predictions, and the settings as they were resolved."""

    report: Report
    content: dict[str, Any]  # the report as plain values, with its manifest
    curves: dict[str, list[dict[str, float]]]  # how the models were trained
    folder: Path  # where it is to be saved


def report(settings: ReportSettings, notify: Notify) -> Compared:
    """Compare decoders: generate what is missing, score all of it, and time a sample."""
    require_place(settings.out, folder=True)
    for model in (settings.model, settings.baseline or settings.model):  # before torch, which takes its time
        find_model(GenerateSettings(model=model, workspace=settings.workspace))
    from pipedec_cli.data.workspace import Workspace
    from pipedec_cli.data.writing import manifest
    from pipedec_cli.evaluate.scoring import settle_metrics
    from pipedec_cli.jobs.measuring import parse_compared

    place = Workspace.find(settings.workspace)
    task, protocol = settle_metrics(settings.task, settings.protocol, settings.typed)
    settings = replace(settings, task=task, protocol=protocol)
    peers, drafts = parse_compared(settings.compare)
    files, made = compare(settings, peers, drafts, place, notify)
    folder = settings.out or place.report
    apart = (
        "compare",
        "timing_examples",
        "typed",
        "open",
        "out",
        "workspace",
        "config",
        "set_keys",
        "as_json",
        "quiet",
    )
    kept = {one.name: getattr(settings, one.name) for one in fields(settings) if one.name not in apart}
    resolved = {"peers": peers, "exact": drafts, "timed": settings.timing_examples, **kept}
    content = made.as_json() | {"manifest": manifest(resolved, inputs=files)}
    return Compared(made, content, _curves(made), folder)


def compare(
    settings: ReportSettings,
    peers: Sequence[PeerName],
    drafts: Sequence[Draft],
    place: Workspace,
    notify: Notify,
) -> tuple[list[Path], Report]:
    """Generate, score, time and weigh; returns the files of predictions and what they and the measurements come to."""
    from pipedec_cli.evaluate.exact import source_ids
    from pipedec_cli.evaluate.peers import MAX_TOKENS
    from pipedec_cli.evaluate.report import Sample, assemble, choose_sample
    from pipedec_cli.evaluate.significance import method
    from pipedec_cli.jobs.measuring import measure
    from pipedec_cli.jobs.report_entries import line_up

    decoders, baseline, called = line_up(settings, peers, drafts, place, notify)
    files, first = _score(settings, decoders, place, notify)
    records = [prediction.record for prediction in first.run.predictions]
    wanted = len(records) if settings.timing_examples == "all" else settings.timing_examples
    chosen = choose_sample(len(records), wanted)
    timed = [record for at in chosen if (record := records[at])]
    encode = cache(lambda decoder: [source_ids(decoder, record.source) for record in timed])
    for one, (predictions, *_) in decoders:
        one.sources = encode(predictions.decoder)
    (_, (first_one, *_)), metric = decoders[0], first.scores.measure.primary
    most = first_one.method.limits.max_tokens or MAX_TOKENS
    try:
        measured = measure(
            settings, [one for one, _ in decoders], peers, first_one.decoder.checkpoint, most, notify
        )
    except KeyboardInterrupt:
        notify.warn(
            "stopped while timing: the same command times again, and takes the predictions as they are"
        )
        raise
    return files, assemble(
        measured,
        [record.id for record in timed],
        metric=metric,
        called=called,
        baseline=baseline,
        sample=Sample(len(chosen), len(records), settings.repeats),
        split=settings.split[-1] if settings.split else None,
        dtype=settings.dtype,
        significance=f"decoder minus baseline, {method(settings.resamples, settings.seed)}",
        paper=_paper(settings, place),
    )


def _score(
    settings: ReportSettings, decoders: LineUp, place: Workspace, notify: Notify
) -> tuple[list[Path], ScoredRun]:
    """Generate what is missing and score all of it, split by split; returns the files and the baseline's last scores.

    The last split is what all else is measured on; the quality on others stands beside. One without right answers goes by
    the measure of those that have some.
    """
    from pipedec_cli.evaluate.agreement import TextAgreement
    from pipedec_cli.evaluate.scoring import compare_runs, load_runs, unscored
    from pipedec_cli.jobs.score import ScoreSettings, score_runs

    by = ScoreSettings(task=settings.task, protocol=settings.protocol, typed=settings.typed)
    found: list[list[ScoredRun]] = []
    files, splits = list[Path](), settings.split or ("test",)
    for at, split in enumerate(splits):
        some = f", {split}" if len(splits) > 1 else ""
        made = [predictions[at].complete(one.name + some) for one, predictions in decoders]
        loaded = load_runs(made)
        if runs := [*filter(None, map(unscored, loaded))]:
            notify.warn(f"no right answers{some}: nothing is scored but agreement with the baseline")
        else:
            runs = score_runs(by, loaded, place, notify, settings.limit)
            by = replace(by, task=TASK_OF[runs[0].scores.measure.name], protocol=settings.protocol)
        files += made
        found.append(runs)
    if measures := [runs[0].scores.measure for runs in found if not runs[0].is_blind]:
        for runs in (runs for runs in found if runs[0].is_blind):
            runs[:] = [replace(one, scores=replace(one.scores, measure=measures[-1])) for one in runs]
    for at, runs in enumerate(found):
        first = runs[0]
        for (one, _), scored in zip(decoders, runs, strict=True):
            if one.scored is not None:
                one.beside[splits[at - 1]] = one.quality
            one.scored = scored
            if scored is not first:
                one.text_agreement = TextAgreement.between(scored.run.predictions, first.run.predictions)
                one.differences = compare_runs(scored, first, **settings.some("resamples", "seed"))
    return files, first


def _curves(report: Report) -> dict[str, list[dict[str, float]]]:
    """How the models of a report were trained, by their folders' names, where their training.json tells."""
    from pipedec_cli.data.trained import curve_of
    from pipedec_cli.evaluate.competitor import EngineRunner

    runners = [one.runner for one in report.entries if one.role in ("baseline", "pipelined")]
    names = dict.fromkeys(one.decoder.checkpoint.name for one in runners if isinstance(one, EngineRunner))
    return {Path(name).name: curve for name in names if (curve := curve_of(name))}


def _paper(settings: ReportSettings, place: Workspace) -> PaperFigures | None:
    """The paper's figures for the recipe that was given, or that the workspace's data were segmented with."""
    from pipedec_cli.data.paper import paper_figures
    from pipedec_cli.data.workspace import segmented_with

    name = settings.recipe
    if not name and settings.data is None:
        name = segmented_with(place.segmentation, "recipe")
    return paper_figures(name) if name else None
