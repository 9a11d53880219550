"""Compare decoders on real input: plan the entries, generate what is missing, score it, and measure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from pipedec_cli.data.json_schema import schema_of
from pipedec_cli.data.paper import paper_figures
from pipedec_cli.data.records import Draft, SplitName
from pipedec_cli.data.trained import curve_of
from pipedec_cli.data.workspace import segmented_with
from pipedec_cli.evaluate.agreement import TextAgreement
from pipedec_cli.evaluate.assemble import assemble
from pipedec_cli.evaluate.comparison import Report, Sample, choose_sample
from pipedec_cli.evaluate.entry import Quality
from pipedec_cli.evaluate.metrics import TASK_OF
from pipedec_cli.evaluate.peers import MAX_TOKENS, PeerName
from pipedec_cli.evaluate.runners import EngineRunner, source_ids
from pipedec_cli.evaluate.scoring import ScoredRun, compare_runs, load_runs, unscored_run
from pipedec_cli.evaluate.significance import method
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.fidelity import report_fidelity
from pipedec_cli.jobs.measuring import measure
from pipedec_cli.jobs.report_entries import ReportEntry, plan_blind, plan_entries
from pipedec_cli.jobs.report_settings import ReportSettings
from pipedec_cli.jobs.score import ScoreSettings, score_runs


def compare(
    settings: ReportSettings,
    peers: Sequence[PeerName],
    drafts: Sequence[Draft],
    notify: Notify,
) -> tuple[list[Path], Report]:
    """Plan, generate, score and measure. Returns the files of predictions and the comparison."""
    if settings.is_blind:
        plan = plan_blind(settings, peers, notify)
    else:
        plan = plan_entries(settings, peers, drafts, notify)
    files, scored = _score(settings, plan.entries, notify)
    qualities = [_qualities(settings, runs, scored[0]) for runs in scored]
    first = [*scored[0].values()][-1]
    records = [prediction.record for prediction in first.run.predictions]
    wanted = len(records) if settings.timing_examples == "all" else settings.timing_examples
    chosen = choose_sample(len(records), wanted)
    timed = [record for at in chosen if (record := records[at])]
    encode = cache(lambda decoder: [source_ids(decoder, record.source) for record in timed])
    planned = [replace(one.entry, sources=encode(one.runs[0].decoder)) for one in plan.entries]
    if plan.in_turn:
        planned.append(replace(plan.in_turn, sources=planned[-1].sources))
    baseline = plan.entries[0].runs[0]
    schema = json.dumps(schema_of(plan.fields)) if plan.fields else None
    most = baseline.method.limits.max_tokens or MAX_TOKENS
    try:
        measured, conditions = measure(
            settings, planned, peers, baseline.decoder.checkpoint, most, notify, schema=schema
        )
    except KeyboardInterrupt:
        notify.warn(
            "stopped while timing: the same command times again, and takes the predictions as they are"
        )
        raise
    own = [one.runs[0].decoder for one in plan.entries if one.entry.role != "exact"]
    own = own[:1] if settings.is_blind else own  # they share their weights
    fidelity = report_fidelity(settings, dict.fromkeys(own), records, notify)
    recipe = settings.recipe
    if not recipe and settings.data is None:
        recipe = segmented_with(settings.place.segmentation, "recipe")
    return files, assemble(
        measured,
        qualities,
        conditions,
        [record.id for record in timed],
        metric=first.scores.measure.primary,
        called=plan.called,
        baseline=plan.baseline,
        sample=Sample(len(chosen), len(records), settings.repeats),
        split=settings.split[-1] if settings.split else None,
        dtype=settings.dtype,
        significance=f"decoder minus baseline, {method(settings.resamples, settings.seed)}",
        fidelity=tuple(fidelity),
        paper=paper_figures(recipe) if recipe else None,
    )


def _score(
    settings: ReportSettings, entries: Sequence[ReportEntry], notify: Notify
) -> tuple[list[Path], list[dict[SplitName, ScoredRun]]]:
    """Generate what is missing, and score it: the files, and the scored runs of each entry by split."""
    from pipedec_cli.jobs.predicting import complete  # late: it imports torch

    by = ScoreSettings(**settings.some("task", "protocol", "typed", "workspace"))
    files: list[Path] = []
    found: list[dict[SplitName, ScoredRun]] = [{} for _ in entries]
    splits: Sequence[SplitName] = settings.split or ("test",)
    measure = None
    for at, split in enumerate(splits):
        some = f", {split}" if len(splits) > 1 else ""
        made = [Path(complete(one.runs[at], one.entry.name + some, notify).out) for one in entries]
        files += made
        loaded = load_runs(made)
        runs = [run for run in map(unscored_run, loaded) if run is not None]
        if runs:
            notify.warn(f"no right answers{some}: nothing is scored but agreement with the baseline")
        else:
            runs = score_runs(by, loaded, notify, settings.limit)
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
    if runs is baseline:
        return {split: Quality(run) for split, run in runs.items()}
    found = {}
    for split, run in runs.items():
        differences = compare_runs(run, baseline[split], **settings.some("resamples", "seed"))
        agreement = TextAgreement.between(run.run.predictions, baseline[split].run.predictions)
        found[split] = Quality(run, differences, agreement)
    return found


def training_curves(report: Report) -> dict[str, list[dict[str, float]]]:
    """The training curves of the compared models by the names of their folders, where training.json has them."""
    runners = [one.runner for one in report.entries if one.role in ("baseline", "pipelined")]
    names = dict.fromkeys(one.decoder.checkpoint.name for one in runners if isinstance(one, EngineRunner))
    return {Path(name).name: curve for name in names if (curve := curve_of(name))}
