"""The examples of a report to browse: sources, right answers and texts side by side, with what went wrong in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pipedec_cli.compare.comparison import choose_sample
from pipedec_cli.data.errors import many
from pipedec_cli.metrics.alignment import aligned, aligned_by_key
from pipedec_cli.metrics.failures import dropped, duplicates
from pipedec_cli.metrics.fields import Fields
from pipedec_cli.metrics.measure import record_beside
from pipedec_cli.page.page import Section, block, template

if TYPE_CHECKING:
    from pipedec_cli.compare.comparison import Report
    from pipedec_cli.data.records import Generated
    from pipedec_cli.metrics.scoring import Scored


#: The most examples on a page. Of more, one is drawn from each of as many equal parts.
MOST: Final = 300


def shown_places(report: Report) -> list[int]:
    """The places of the examples on the page, in the order of the file."""
    scored = report.first.quality.scored
    return choose_sample(len(scored.items), MOST) if scored else []


def shown_first(names: Sequence[str], report: Report) -> int:
    """The place of the decoder that is shown first: the advised one, else the first after the baseline."""
    advised = report.advice.entry
    return names.index(advised) if advised in names else min(1, len(names) - 1)


def size(data: object) -> int:
    """Bytes of data on a page."""
    return len(block(data).encode())


def shortened(text: str, most: int) -> str:
    """The start of a text, of at most `most` characters, and how much was left out."""
    if len(text) <= most:
        return text
    start = (
        text[: most + 1].rsplit(None, 1)[0]
        if " " in text[most // 2 : most]
        else text[:most]
    )
    rest = text[len(start) :]
    words = len(rest.split())
    return f"{start} … {many(words, 'more word') if words > 1 else many(len(rest), 'more character')}"


#: Bytes of all examples together.
BUDGET: Final = 700_000
#: Characters of a text that are shown. The largest number that fits is taken.
SCREENS: Final = (1600, 800, 400, 200, 100)


def examples(report: Report) -> Section | None:
    """The section of examples; None if there are no texts."""
    ours = [
        entry for entry in report.entries if entry.role in ("baseline", "pipelined")
    ]
    runs = {entry.name: entry.quality.scored for entry in ours if entry.quality.scored}
    if not runs:
        return None
    scored = report.first.quality.scored
    metrics = (
        {} if scored is None or scored.is_unscored else scored.scores.measure.headline
    )
    measure = scored.scores.measure if scored else None
    objects = (
        (measure if isinstance(measure, Fields) else Fields())
        if report.part == Fields.part
        else None
    )
    chosen, left, entries = shown_places(report), BUDGET, list[dict[str, Any]]()
    for number, place in enumerate(chosen):
        for screen in SCREENS:
            entry = _example(place, [*runs.values()], [*metrics], screen, objects)
            taken = size(entry)
            if taken <= left / (len(chosen) - number):
                break
        left -= taken
        entries.append(entry)
    data = {
        "decoders": list(runs),
        "usual": shown_first(list(runs), report),
        "metrics": list(metrics.values()),
        "part": report.part,
        "metric": list(metrics).index(report.metric)
        if report.metric in metrics
        else None,
        "examples": entries,
    }
    of = len(next(iter(runs.values())).items)
    note = f"{len(chosen)} of {of:,} examples, one drawn from each of as many equal parts. "
    body = template(
        "examples.html", note=note if len(chosen) < of else "", part=report.part
    )
    return Section("examples", "Examples", body, data, "examples.js")


def _example(
    place: int,
    runs: Sequence[Scored],
    metrics: Sequence[str],
    screen: int,
    objects: Fields | None,
) -> dict[str, Any]:
    """One example for the script, with as much of its texts as fills a screen or two.

    `objects` is how objects are scored, None for texts. `rows` align the parts of each
    text with the right answer. `again` are the parts that say what an earlier part
    says; `mistaken` are the fields with a wrong value.
    """
    first = runs[0].items[place]
    record = record_beside(first)
    wanted = record.target_segments
    gold = None if wanted is None else _parts(wanted, screen)
    texts = [_parts(run.items[place].segments, screen) for run in runs]
    right = texts[0] if gold is None else gold
    matched = [objects.renumbered(parts, right) for parts in texts] if objects else []
    rows = (
        aligned_by_key(matched, right)
        if objects
        else [aligned(parts, right) for parts in texts]
    )
    references = [
        one for one in record.references if gold is None or one != record.target
    ]
    shown = []
    for run, parts, at in zip(runs, texts, rows, strict=True):
        item = run.items[place]
        scores = run.scores.examples.get(item.id, {})
        values = [scores.get(metric) for metric in metrics]
        repeated, mistaken = (
            duplicates(item.segments),
            objects.wrong(item) if objects else [],
        )
        one = {
            "texts": parts,
            "rows": at,
            "again": [number for number in repeated if number < len(parts)],
            "mistaken": [number for number in mistaken if number < len(parts)],
            "left": len(item.segments) - len(parts),
            "duplicated": len(repeated),
            "wrong": len(mistaken),
            "dropped": dropped(item),
            "cut": item.truncated,
            "missing": _missing(run.run.predictions[place]),
            "same": item.text.split() == first.text.split(),
            "steps": run.run.predictions[place].steps,
            "scores": [None if value is None else round(value, 1) for value in values],
        }
        shown.append(one)
    return {
        "id": shortened(first.id, 80),
        "place": place + 1,
        "source": shortened(record.source, screen),
        "gold": gold,
        "count": len(first.segments if wanted is None else wanted),
        "references": _parts(references, screen),
        "otherReferences": len(references),
        "runs": shown,
    }


def _missing(generated: Generated) -> str:
    """The values that must be there and that the text lacks, with the probability that there is none."""
    return ", ".join(
        f"{shortened(name, 80)} ({share:.0%})"
        for name, share in generated.missing.items()
    )


def _parts(texts: Sequence[str], screen: int) -> list[str]:
    """The first texts, each at most a screen, until two screens are full."""
    parts, room = list[str](), 2 * screen
    for text in texts[: max(4, screen // 40)]:
        if room > 0:
            parts.append(shortened(text, min(screen, max(room, 40))))
            room -= len(parts[-1])
    return parts
