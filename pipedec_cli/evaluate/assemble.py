"""A report put together from measured entries and their scores. Pure: nothing runs here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import starmap, zip_longest
from typing import Any

from pipedec_cli.data.records import SplitName
from pipedec_cli.evaluate.advice import Advice, advise, exact_advice
from pipedec_cli.evaluate.breakdown import Run, by_size
from pipedec_cli.evaluate.comparison import Conditions, Report
from pipedec_cli.evaluate.entry import Entry, MeasuredEntry, Quality, Totals, promoted
from pipedec_cli.evaluate.fitness import faults


def assemble(
    measured: Sequence[MeasuredEntry],
    qualities: Sequence[Mapping[SplitName, Quality]],
    conditions: Conditions,
    timed: Sequence[str],
    *,
    metric: str,
    called: str,
    **rest: Any,
) -> Report:
    """Put a report together. The baseline comes first in `measured`; `timed` are the ids of the timed examples.

    `qualities` belong to the first entries, by split; the last split is the one that everything is measured on. `called` is
    the baseline in the advice; `rest` are other fields of `Report`.
    """
    methods = filter(None, (getattr(one.runner, "method", None) for one in measured))
    keys = max((len(method.openings) for method in methods), default=0)
    first, *others = starmap(partial(_scored_entry, keys), zip_longest(measured, qualities, fillvalue={}))
    # The texts of exact mode, and so their quality, are the baseline's.
    runs = {one.name: _run(one, timed) for one in others if one.quality.scored and one.role != "exact"}
    baseline, groups = _run(first, timed), _ids_by_size(first)
    examples = sum(map(len, groups.values()))
    subsequences = sum(size * len(ids) for size, ids in groups.items()) / examples if examples else None
    return Report(
        entries=(first, *others),
        conditions=conditions,
        metric=metric,
        subsequences_per_target=subsequences,
        by_subsequences={name: by_size(run, baseline, groups, metric) for name, run in runs.items()},
        advice=_advice(first, others, called, subsequences, metric, conditions.disturbed),
        **rest,
    )


def _scored_entry(keys: int, one: MeasuredEntry, qualities: Mapping[SplitName, Quality]) -> Entry:
    """An entry with quality, totals and faults, if its texts were scored. An object has so many `keys`."""
    entry = Entry(**promoted(one))
    if not qualities:
        return entry
    *splits, last = qualities
    scored, timing = qualities[last].scored, next(iter(one.timings.values()), None)
    assert scored is not None
    exhausted = None
    if one.role == "pipelined" and one.delay != "together" and timing is not None:
        exhausted = sum(output.row_budget_exhausted for output in timing.outputs) / timing.examples
    made = scored.run.predictions
    drafting = sum(each.draft_steps or 0 for each in made) if one.role == "exact" else None
    steps, tokens = sum(each.steps for each in made), sum(each.tokens for each in made)
    totals = Totals.of(len(made), steps, tokens, drafting)
    return replace(
        entry,
        quality=qualities[last],
        other_splits={split: qualities[split] for split in splits},
        totals=replace(totals, keys_per_step=keys * len(made) / max(1, steps) or None),
        row_budget_exhausted=exhausted,
        faults=tuple(faults(scored)),
    )


def _run(entry: Entry, timed: Sequence[str]) -> Run:
    """A scored entry example by example."""
    scored = entry.quality.scored
    assert scored is not None
    seconds = entry.timings[1].example_seconds if 1 in entry.timings else ()
    steps = {each.id: each.steps for each in scored.run.predictions}
    return Run(scored.scores, steps, dict(zip(timed, seconds, strict=bool(seconds))))


def _ids_by_size(first: Entry) -> dict[int, list[str]]:
    """The ids of examples by the number of subsequences in their target, where it is known."""
    groups: dict[int, list[str]] = {}
    for item in first.quality.scored.items if first.quality.scored else ():
        if item.gold is not None:
            groups.setdefault(len(item.gold), []).append(item.id)
    return groups


def _advice(
    first: Entry,
    others: Sequence[Entry],
    called: str,
    subsequences: float | None,
    metric: str,
    disturbed: str | None,
) -> Advice:
    tried = [one for one in others if one.role == "pipelined" and one.delay is not None]
    advice = advise(tried, first, called=called, subsequences=subsequences, metric=metric)
    exact = exact_advice([one for one in others if one.role == "exact"], called)
    if exact and not first.faults:
        advice = replace(advice, text=f"{advice.text} {exact}")
    if disturbed:  # speeds that are too low weaken all that is said about them
        advice = replace(advice, text=f"{disturbed[0].upper()}{disturbed[1:]}. {advice.text}")
    return advice
