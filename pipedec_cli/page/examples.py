"""The examples of a report to browse: sources, right answers and texts side by side, with what went wrong in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pipedec_cli.data.errors import many
from pipedec_cli.metrics.alignment import aligned, aligned_by_key
from pipedec_cli.metrics.failures import dropped, duplicates
from pipedec_cli.metrics.fields import Fields
from pipedec_cli.metrics.measure import record_beside
from pipedec_cli.page.page import Section, template

if TYPE_CHECKING:
    from pipedec_cli.compare.comparison import Report
    from pipedec_cli.data.records import Generated
    from pipedec_cli.metrics.scoring import Scored


#: The examples on a page: the first ones of the file.
MOST: Final = 100
#: Characters of a text that are shown. A list of texts has twice as many, in so many
#: parts.
LENGTH: Final = 800
MOST_PARTS: Final = 40
#: Characters that are shown of an id or of a key.
NAME_LENGTH: Final = 80


def shown_count(report: Report) -> int:
    """The number of examples on the page: the first ones of the file."""
    scored = report.first.quality.scored
    return min(len(scored.items), MOST) if scored else 0


def shown_first(names: Sequence[str], report: Report) -> int:
    """The number, among `names`, of the decoder that is shown first: the advised one, else the first after the baseline."""
    advised = report.advice.entry
    return names.index(advised) if advised in names else min(1, len(names) - 1)


def shortened(text: str, most: int) -> str:
    """The first `most` characters of a text, and how many more there are."""
    more = len(text) - most
    return text if more <= 0 else f"{text[:most]} … {many(more, 'more character')}"


def examples(report: Report) -> Section | None:
    """The section of examples; None if there are no texts."""
    runs = {}
    for entry in report.entries:
        if entry.role != "exact" and entry.quality.scored:
            runs[entry.name] = entry.quality.scored
    if not runs:
        return None
    scored = report.first.quality.scored
    metrics = {}
    if scored and not scored.is_unscored:
        metrics = dict(scored.scores.measure.headline)
    names = list(runs)
    shown = shown_count(report)
    data = {
        "decoders": names,
        "usual": shown_first(names, report),
        "metrics": list(metrics.values()),
        "part": report.part,
        "metric": None,
        "examples": [
            _example(number, list(runs.values()), list(metrics))
            for number in range(shown)
        ],
    }
    if report.metric in metrics:
        data["metric"] = list(metrics).index(report.metric)
    count = len(runs[names[0]].items)
    note = f"The first {shown} of {count:,} examples. " if shown < count else ""
    body = template("examples.html", note=note, part=report.part)
    return Section("examples", "Examples", body, data, "examples.js")


def _example(
    number: int, runs: Sequence[Scored], metrics: Sequence[str]
) -> dict[str, Any]:
    """One example, by its number from 0, for the page's script: the target, and the texts of all `runs`, the baseline's first."""
    first = runs[0].items[number]
    record = record_beside(first)
    wanted = record.target_segments
    gold = None if wanted is None else _parts(wanted)
    references = record.references
    if gold is not None:
        references = tuple(text for text in references if text != record.target)
    return {
        "id": shortened(first.id, NAME_LENGTH),
        "place": number + 1,
        "source": shortened(record.source, LENGTH),
        "gold": gold,
        "count": len(first.segments if wanted is None else wanted),
        "references": _parts(references),
        "otherReferences": len(references),
        "runs": _texts(number, runs, gold, metrics),
    }


def _texts(
    number: int,
    runs: Sequence[Scored],
    gold: Sequence[str] | None,
    metrics: Sequence[str],
) -> list[dict[str, Any]]:
    """The text of each run for an example, for the page's script, with its scores and what went wrong.

    The rows put its parts beside those of the target, `gold`, or beside the baseline's
    if there are none.
    """
    texts = [_parts(run.items[number].segments) for run in runs]
    right = texts[0] if gold is None else gold
    measure = runs[0].scores.measure
    if isinstance(measure, Fields):
        matched = [measure.renumbered(parts, right) for parts in texts]
        rows = aligned_by_key(matched, right)
    else:
        rows = [aligned(parts, right) for parts in texts]
    usual = runs[0].items[number].text.split()
    shown = []
    for run, parts, its_rows in zip(runs, texts, rows, strict=True):
        item = run.items[number]
        values = _faults(run, number, len(parts))
        scores = run.scores.examples.get(item.id, {})
        values["texts"] = parts
        values["rows"] = its_rows
        values["same"] = item.text.split() == usual
        values["scores"] = [scores.get(metric) for metric in metrics]
        shown.append(values)
    return shown


def _faults(run: Scored, number: int, shown: int) -> dict[str, Any]:
    """What went wrong with the text of an example, of which the first `shown` parts are on the page.

    In the values for the page's script, ``again`` are the parts that say what an earlier
    part says, ``mistaken`` the fields with a wrong value.
    """
    item = run.items[number]
    prediction = run.run.predictions[number]
    measure = run.scores.measure
    repeated = duplicates(item.segments)
    mistaken = measure.wrong(item) if isinstance(measure, Fields) else []
    return {
        "again": [part for part in repeated if part < shown],
        "mistaken": [part for part in mistaken if part < shown],
        "left": len(item.segments) - shown,
        "duplicated": len(repeated),
        "wrong": len(mistaken),
        "dropped": dropped(item),
        "cut": item.truncated,
        "missing": _missing(prediction),
        "steps": prediction.steps,
    }


def _missing(prediction: Generated) -> str:
    """The values that must be there and that the text lacks, with the probability that there is none."""
    missing = [
        f"{shortened(key, NAME_LENGTH)} ({probability:.0%})"
        for key, probability in prediction.missing.items()
    ]
    return ", ".join(missing)


def _parts(texts: Sequence[str]) -> list[str]:
    """The first texts, each shortened, as far as a page has room for the parts of an example."""
    parts = []
    room = 2 * LENGTH
    for text in texts[:MOST_PARTS]:
        if room <= 0:
            break
        parts.append(shortened(text, min(LENGTH, max(room, 40))))
        room -= len(parts[-1])
    return parts
