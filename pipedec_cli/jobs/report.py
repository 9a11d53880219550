"""`pipedec report`: decoders side by side, and which one to take."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from pipedec_cli.data.reading import require_place
from pipedec_cli.data.records import SPLITS, Delay, SplitName
from pipedec_cli.evaluate.metrics import TASK_OF, ProtocolName, Task
from pipedec_cli.jobs import settings as common
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.generate import GenerateSettings
from pipedec_cli.jobs.loading import find_model
from pipedec_cli.jobs.settings import (
    Dtype,
    WorkflowSettings,
    argument,
    key,
    listed,
    names_of,
    numbers,
    option,
)
from pipedec_cli.pipeline.grid import EmptyRows

if TYPE_CHECKING:
    from pipedec_cli.data.paper import PaperFigures
    from pipedec_cli.data.workspace import Workspace
    from pipedec_cli.evaluate.comparison import Comparison, Quality
    from pipedec_cli.evaluate.scoring import ScoredRun
    from pipedec_cli.jobs.report_entries import ReportEntry

_input = partial(option, panel="Input")
_speed = partial(option, panel="Speed")
#: Settings that say nothing about the result, or that its manifest has under another name.
_NOT_IN_MANIFEST: Final = frozenset(
    {
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
    }
)


def parse_delays(value: Any) -> tuple[Delay, ...]:
    """Delays with commas between them, rising; ``wait`` comes last."""
    parts = listed(value)
    given = [part for part in parts if part != "wait"]
    return (*(numbers(given) if given else ()), *(("wait",) if len(given) < len(parts) else ()))


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
    """The settings of one report; None leaves a setting to the checkpoint or the workspace."""

    data: str | None = argument("Generate from these data and score against them \\[default: the test set].")
    compare: str = option(
        "sequential",
        "Decoders to compare with, commas between: sequential (always), exact (exact-pipelined, exact-source, exact-jacobi), "
        "transformers, prompt-lookup, ctranslate2, ctranslate2:int8, ctranslate2:bfloat16.",
        metavar="NAMES",
    )
    delays: tuple[Delay, ...] | None = option(
        None,
        "Δt to try, commas between, or 'wait' \\[default: as trained; 2 for a model that serves any].",
        parser=parse_delays,
        metavar="N,N",
    )
    empty_rows: tuple[EmptyRows, ...] | None = option(
        None,
        "Rules for empty rows to try, commas between: retry, stop, retract \\[default: as trained].",
        parser=partial(names_of, known=get_args(EmptyRows)),
        metavar="RULES",
    )
    stop_on_repeat: bool | None = key(None, "End a text when it repeats itself \\[default: as trained].")
    min_start_probs: tuple[float, ...] | None = key(
        None,
        "Values of generate's min_start_prob to try at every Δt, commas between.",
        parser=parse_min_start_probs,
        metavar="P,P",
    )
    model: str | None = _input(None, "The pipelined model \\[default: the workspace's].")
    baseline: str | None = _input(
        None, "The sequential model \\[default: the model's teacher, else the workspace's]."
    )
    prompt_template: str | None = key(
        None,
        "The text around a source in the prompt; {source} stands for it \\[default: as trained].",
        parser=common.template_parser,
    )
    chat: bool | None = key(None, "Put the prompt into the model's chat template \\[default: as trained].")
    split: tuple[SplitName, ...] | None = _input(
        None,
        "The split; of several, such as dev,test, the last is timed \\[default: test].",
        parser=parse_splits,
        metavar="NAMES",
    )
    limit: int | None = _input(None, "Compare on the first N examples only.", min=1)
    task: Task | None = key(None, "The task to score \\[default: as the data suggest].")
    protocol: ProtocolName | None = key(None, "The scoring protocol \\[default: the first of the task].")
    resamples: int = key(9999, "Bootstrap draws for the intervals.", min=99)
    seed: int = key(0, "The seed of these draws.", min=0)
    timing_examples: int | Literal["all"] = key(32, "How many examples to time, drawn evenly, or 'all'.")
    repeats: int = key(3, "Timed passes; medians count.", min=1)
    batch_sizes: tuple[int, ...] = _speed((1,), "Batch sizes to time, commas between.")
    memory: bool = key(True, "Measure the peak memory of each decoder in a process of its own.")
    batch_size: int | Literal["auto"] = key("auto", "The batch size of generating, which is not timed.")
    dtype: Dtype = _speed("float32", "The dtype of the weights, also of the peers'.")
    device: str = common.device_option(panel="Speed")
    threads: int | None = common.threads_key()
    open: bool = common.general(False, "Show report.html in a browser at the end.")
    out: Path | None = common.general(
        None, "The folder of report.json, .md and .html \\[default: report/ in the workspace]."
    )


@dataclass(frozen=True)
class Compared:
    """A report: the comparison, its plain values with a manifest, the models' training curves, and the folder to save it in."""

    report: Comparison
    content: dict[str, Any]
    curves: dict[str, list[dict[str, float]]]
    folder: Path


def report(settings: ReportSettings, notify: Notify) -> Compared:
    """Compare decoders: generate what is missing, score everything, and time a sample."""
    require_place(settings.out, folder=True)
    for model in (
        settings.model,
        settings.baseline or settings.model,
    ):  # before torch, whose import takes seconds
        find_model(GenerateSettings(model=model, workspace=settings.workspace))
    from pipedec_cli.data.workspace import Workspace
    from pipedec_cli.data.writing import manifest
    from pipedec_cli.evaluate.scoring import settle_metrics
    from pipedec_cli.jobs.measuring import parse_compared

    place = Workspace.find(settings.workspace)
    task, protocol = settle_metrics(settings.task, settings.protocol, settings.typed)
    settings = replace(settings, task=task, protocol=protocol)
    peers, drafts = parse_compared(settings.compare)
    files, made = compare(settings, place, notify)
    names = (one.name for one in fields(settings) if one.name not in _NOT_IN_MANIFEST)
    resolved = {"peers": peers, "exact": drafts, "timed": settings.timing_examples, **settings.some(*names)}
    content = made.values() | {"manifest": manifest(resolved, inputs=files)}
    return Compared(made, content, _curves(made), settings.out or place.report)


def compare(settings: ReportSettings, place: Workspace, notify: Notify) -> tuple[list[Path], Comparison]:
    """Plan, generate, score and measure. Returns the files of predictions and the comparison."""
    from pipedec_cli.evaluate.assemble import assemble
    from pipedec_cli.evaluate.comparison import Sample, choose_sample
    from pipedec_cli.evaluate.peers import MAX_TOKENS
    from pipedec_cli.evaluate.runners import source_ids
    from pipedec_cli.evaluate.significance import method
    from pipedec_cli.jobs.measuring import measure, parse_compared
    from pipedec_cli.jobs.report_entries import plan_entries

    peers, drafts = parse_compared(settings.compare)
    plan = plan_entries(settings, peers, drafts, place, notify)
    files, scored = _score(settings, plan.entries, place, notify)
    qualities = [_qualities(settings, runs, scored[0]) for runs in scored]
    first = [*scored[0].values()][-1]
    records = [prediction.record for prediction in first.run.predictions]
    wanted = len(records) if settings.timing_examples == "all" else settings.timing_examples
    chosen = choose_sample(len(records), wanted)
    timed = [record for at in chosen if (record := records[at])]
    encode = cache(lambda decoder: [source_ids(decoder, record.source) for record in timed])
    planned = [replace(one.entry, sources=encode(one.predictions[0].decoder)) for one in plan.entries]
    baseline = plan.entries[0].predictions[0]
    most = baseline.method.limits.max_tokens or MAX_TOKENS
    try:
        measured = measure(settings, planned, peers, baseline.decoder.checkpoint, most, notify)
    except KeyboardInterrupt:
        notify.warn(
            "stopped while timing: the same command times again, and takes the predictions as they are"
        )
        raise
    return files, assemble(
        measured.entries,
        qualities,
        measured.conditions,
        [record.id for record in timed],
        metric=first.scores.measure.primary,
        called=plan.called,
        baseline=plan.baseline,
        sample=Sample(len(chosen), len(records), settings.repeats),
        split=settings.split[-1] if settings.split else None,
        dtype=settings.dtype,
        significance=f"decoder minus baseline, {method(settings.resamples, settings.seed)}",
        paper=_paper(settings, place),
    )


def _score(
    settings: ReportSettings, entries: Sequence[ReportEntry], place: Workspace, notify: Notify
) -> tuple[list[Path], list[dict[SplitName, ScoredRun]]]:
    """Generate what is missing and score it. Returns the files, and for each entry its scored runs by split.

    A split without right answers has the metric of those that have some.
    """
    from pipedec_cli.evaluate.scoring import load_runs, unscored_run
    from pipedec_cli.jobs.score import ScoreSettings, score_runs

    by = ScoreSettings(task=settings.task, protocol=settings.protocol, typed=settings.typed)
    files: list[Path] = []
    found: list[dict[SplitName, ScoredRun]] = [{} for _ in entries]
    splits: Sequence[SplitName] = settings.split or ("test",)
    measure = None
    for at, split in enumerate(splits):
        some = f", {split}" if len(splits) > 1 else ""
        made = [one.predictions[at].complete(one.entry.name + some) for one in entries]
        files += made
        loaded = load_runs(made)
        runs = [run for run in map(unscored_run, loaded) if run is not None]
        if runs:
            notify.warn(f"no right answers{some}: nothing is scored but agreement with the baseline")
        else:
            runs = score_runs(by, loaded, place, notify, settings.limit)
            measure = runs[0].scores.measure
            by = replace(by, task=TASK_OF[measure.name], protocol=settings.protocol)
        for one, run in zip(found, runs, strict=True):
            one[split] = run
    for one in found:
        for split, run in one.items():
            if run.is_unscored and measure is not None:
                one[split] = replace(run, scores=replace(run.scores, measure=measure))
    return files, found


def _qualities(
    settings: ReportSettings, runs: dict[SplitName, ScoredRun], baseline: dict[SplitName, ScoredRun]
) -> dict[SplitName, Quality]:
    """The quality of one entry by split, beside the baseline's runs."""
    from pipedec_cli.evaluate.agreement import TextAgreement
    from pipedec_cli.evaluate.comparison import Quality
    from pipedec_cli.evaluate.scoring import compare_runs

    if runs is baseline:
        return {split: Quality(run) for split, run in runs.items()}
    found = {}
    for split, run in runs.items():
        differences = compare_runs(run, baseline[split], **settings.some("resamples", "seed"))
        agreement = TextAgreement.between(run.run.predictions, baseline[split].run.predictions)
        found[split] = Quality(run, differences, agreement)
    return found


def _curves(report: Comparison) -> dict[str, list[dict[str, float]]]:
    """The training curves of the compared models by the names of their folders, where training.json has them."""
    from pipedec_cli.data.trained import curve_of
    from pipedec_cli.evaluate.runners import EngineRunner

    runners = [one.runner for one in report.entries if one.role in ("baseline", "pipelined")]
    names = dict.fromkeys(one.decoder.checkpoint.name for one in runners if isinstance(one, EngineRunner))
    return {Path(name).name: curve for name in names if (curve := curve_of(name))}


def _paper(settings: ReportSettings, place: Workspace) -> PaperFigures | None:
    """The paper's figures for the recipe of the command or of the workspace's data."""
    from pipedec_cli.data.paper import paper_figures
    from pipedec_cli.data.workspace import segmented_with

    name = settings.recipe
    if not name and settings.data is None:
        name = segmented_with(place.segmentation, "recipe")
    return paper_figures(name) if name else None
