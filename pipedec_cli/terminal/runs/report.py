"""What `pipedec report` does: generate what is missing, score, time, weigh, compare, and say what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from pipedec_cli.data.paper import SPEEDUP_BY_SUBSEQUENCES, delay_rows, paper_row
from pipedec_cli.data.workspace import Workspace, recipe_of
from pipedec_cli.data.writing import manifest, to_json, write_json, write_text
from pipedec_cli.evaluate.advice import advise
from pipedec_cli.evaluate.breakdown import Run, SizeRow, by_size, ids_by_size
from pipedec_cli.evaluate.comparison import (
    Entry,
    Paper,
    Report,
    Sample,
    choose_sample,
    outcome,
    primary_metric,
    totals,
)
from pipedec_cli.evaluate.gain import gains_over
from pipedec_cli.evaluate.machine import this_machine, versions
from pipedec_cli.evaluate.peers import agreement
from pipedec_cli.evaluate.scoring import ScoredRun, compare_runs
from pipedec_cli.evaluate.significance import method
from pipedec_cli.evaluate.timing import Timing
from pipedec_cli.terminal.console import Talk, make_console, write_stdout
from pipedec_cli.terminal.runs.report_lineup import Lineup, Planned, ReportRequest, line_up
from pipedec_cli.terminal.runs.report_measurements import (
    Measurements,
    contest,
    seconds_by_id,
    time_all,
    watched_for_others,
    weigh_all,
)
from pipedec_cli.terminal.runs.report_predictions import predict, score_all
from pipedec_cli.terminal.views.report import show
from pipedec_cli.terminal.views.report_markdown import markdown
from pipedec_cli.terminal.views.report_sheet import label


def run_report(
    request: ReportRequest, *, out: Path | None, workspace: Path | None, talk: Talk, as_json: bool
) -> None:
    """Compare as requested, save the report and print it.

    Args:
        request: what to compare.
        out: the folder of report.json and report.md; by default the workspace's.
        workspace: where the commands find each other's results.
        talk: where to say what happens.
        as_json: print report.json instead of the tables.

    Raises:
        UserError: something that is needed is not there, or does not fit.
    """
    place = Workspace.find(workspace)
    lineup = line_up(request, place, talk)
    files = predict(lineup.planned, place, talk)
    scored = score_all(files, request, place, talk)
    ids = [prediction.id for prediction in scored[0].run.predictions]
    chosen = choose_sample(len(ids), request.timed)
    records = [prediction.record for prediction in scored[0].run.predictions]
    texts = [record.source for at in chosen if (record := records[at])]
    with contest(lineup, request.peers, texts, talk) as made:
        device = str(lineup.planned[0].checkpoint.device)
        with watched_for_others(talk) as others:
            made.timings = time_all(
                lambda _: made.contestants, request.batch_sizes, request.repeats, device, talk
            )
        made.disturbed = others.words
        if request.memory:
            made.memory = weigh_all(made.contestants, request.batch_sizes[0], talk)
    sample = Sample(len(chosen), len(ids), request.repeats)
    report = assemble(
        request, lineup, scored, made, sample, [ids[at] for at in chosen], _paper(request, place)
    )
    folder = out or place.report
    content = report.as_json() | {"manifest": manifest(asdict(request), inputs=files)}
    write_json(folder / "report.json", content)
    write_text(folder / "report.md", markdown(report))
    if as_json:
        write_stdout(to_json(content, indent=2) + "\n")
    else:
        show(make_console(stderr=False), report)
    talk.say(f"saved {folder / 'report.json'} and {folder / 'report.md'}")


def assemble(
    request: ReportRequest,
    lineup: Lineup,
    scored: Sequence[ScoredRun],
    made: Measurements,
    sample: Sample,
    timed: Sequence[str],
    paper: Paper | None,
) -> Report:
    """Put together what was scored and measured.

    Args:
        request: what was asked for.
        lineup: our decoders.
        scored: their predictions, in the same order.
        made: everyone's measurements.
        sample: which examples were timed.
        timed: their ids.
        paper: the paper's figures.
    """
    metric = primary_metric(scored[0].scores)
    entries = [
        _entry(planned, mine, scored[0], made, request)
        for planned, mine in zip(lineup.planned, scored, strict=True)
    ]
    first = entries[0]
    runs = [
        _run(mine, made.timings[planned.name], timed)
        for planned, mine in zip(lineup.planned, scored, strict=True)
    ]
    groups = ids_by_size(scored[0].items)
    sizes = {
        entry.name: by_size(run, runs[0], groups, metric)
        for entry, run in zip(entries[1:], runs[1:], strict=True)
    }
    mean = _mean_size(groups)
    device = lineup.planned[0].checkpoint.device
    return Report(
        entries=(*entries, *_peers(made, lineup, first)),
        baseline=lineup.baseline,
        metric=metric,
        subsequences=mean,
        sizes=sizes,
        advice=advise(
            [outcome(entry, first, metric) for entry in entries[1:] if entry.delay is not None],
            baseline="the plain T5" if lineup.plain else "the same checkpoint's sequential schedule",
            baseline_rates=first.rates,
            subsequences=mean,
            metric=label(metric),
        ),
        sample=sample,
        dtype=request.dtype,
        device=str(device),
        machine=this_machine(str(device)),
        versions=versions(),
        significance=f"decoder minus baseline, {method(request.resamples, request.seed)}",
        absent=tuple(made.absent),
        paper=paper,
        notes=_notes(sizes, made.disturbed),
    )


def _entry(
    planned: Planned,
    mine: ScoredRun,
    baseline: ScoredRun,
    made: Measurements,
    request: ReportRequest,
) -> Entry:
    decoder = next(one.decoder for one in made.contestants if one.decoder.name == planned.name)
    timings, first = made.timings[planned.name], made.timings[made.contestants[0].decoder.name]
    differs = planned.role != "baseline"
    differences = (
        compare_runs(mine, baseline, resamples=request.resamples, seed=request.seed) if differs else {}
    )
    delay = planned.choice.delay
    return Entry(
        name=planned.name,
        role=planned.role,
        settings=decoder.settings,
        options=planned.options,
        delay=delay if isinstance(delay, int) else None,
        scored=mine,
        totals=totals(mine.run.predictions),
        used_up=_used_up(next(iter(timings.values()))) if differs else None,
        differences=differences,
        timings=timings,
        gains=gains_over(timings, first) if differs else {},
        memory=made.memory.get(planned.name),
    )


def _peers(made: Measurements, lineup: Lineup, first: Entry) -> list[Entry]:
    entries = []
    for decoder, _ in made.contestants[len(lineup.planned) :]:
        timings = made.timings.get(decoder.name, {})
        compared = next(iter(timings.items()), None)
        entries.append(
            Entry(
                name=decoder.name,
                role="peer",
                settings=decoder.settings,
                timings=timings,
                gains=gains_over(timings, first.timings),
                memory=made.memory.get(decoder.name),
                agreement=(
                    agreement(compared[1].outputs, first.timings[compared[0]].outputs) if compared else None
                ),
            )
        )
    return entries


def _run(mine: ScoredRun, timings: Mapping[int, Timing], timed: Sequence[str]) -> Run:
    steps = {prediction.id: prediction.steps for prediction in mine.run.predictions}
    return Run(mine.scores, steps, seconds_by_id(timings.get(1), timed))


def _used_up(timing: Timing) -> float:
    return sum(output.used_up for output in timing.outputs) / timing.examples


def _mean_size(groups: Mapping[int, Sequence[str]]) -> float | None:
    count = sum(map(len, groups.values()))
    return sum(size * len(members) for size, members in groups.items()) / count if count else None


def _notes(sizes: Mapping[str, Sequence[SizeRow]], disturbed: str | None) -> tuple[str, ...]:
    notes = ["how often sub_max was used up is counted on the timed examples, what else goes wrong on all"]
    if not any(sizes.values()):
        notes.append("the targets are not segmented, so nothing is told by number of subsequences")
    if disturbed:
        notes.append(disturbed)
    return tuple(notes)


def _paper(request: ReportRequest, place: Workspace) -> Paper | None:
    """The paper's figures for the recipe that was given, or that the workspace's data were segmented with."""
    name = request.recipe or (recipe_of(place.segmentation) if request.data is None else None)
    row = paper_row(name) if name else None
    if name is None or row is None:
        return None
    return Paper(row, delay_rows(name), SPEEDUP_BY_SUBSEQUENCES.get(name))
