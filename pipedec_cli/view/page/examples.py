"""A report's examples to browse: sources, right answers and texts beside one another, with what went wrong in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipedec_cli.evaluate.alignment import aligned, aligned_by_key
from pipedec_cli.evaluate.failures import dropped, duplicates
from pipedec_cli.evaluate.metrics.fields import Fields, wrong
from pipedec_cli.view.page.page import Section, template
from pipedec_cli.view.page.shown import shortened, shown_places, size

if TYPE_CHECKING:
    from pipedec_cli.data.records import Generated
    from pipedec_cli.evaluate.comparison import Comparison
    from pipedec_cli.evaluate.metrics.measure import ScoringItem

#: Bytes of all examples together.
BUDGET: Final = 700_000
#: Characters that fill a screen; where there is no room for as many, less.
SCREENS: Final = (1600, 800, 400, 200, 100)


class _Texts(NamedTuple):
    """What one decoder made, by the example's place, and how it was scored, by its identifier."""

    items: Sequence[ScoringItem]
    made: Sequence[Generated]
    scores: dict[str, dict[str, float | None]]


def examples(report: Comparison) -> Section | None:
    """The section of examples; None where no texts are known."""
    ours = ("baseline", "pipelined")
    decoders = [one for one in report.entries if one.role in ours and one.quality.scored]
    runs = [
        _Texts(scored.items, scored.run.predictions, scored.scores.examples)
        for one in decoders
        if (scored := one.quality.scored)
    ]
    if not runs:
        return None
    chosen, of, left, entries = shown_places(report), len(runs[0].items), BUDGET, list[dict[str, Any]]()
    scored = report.first.quality.scored
    metrics = {} if scored is None or scored.is_unscored else scored.scores.measure.headline
    objects = report.part == Fields.part
    for number, place in enumerate(chosen):
        for screen in SCREENS:
            made = _example(place, runs, tuple(metrics), screen, objects=objects)
            if (taken := size(made)) <= left / (len(chosen) - number):
                break
        left -= taken
        entries.append(made)
    advised = [at for at, one in enumerate(decoders) if one.name == report.advised]
    names = [one.name for one in decoders]
    data = {
        "decoders": names,
        "usual": (advised or [min(1, len(decoders) - 1)])[0],
        "metrics": list(metrics.values()),
        "part": report.part,
        "metric": list(metrics).index(report.metric) if report.metric in metrics else None,
        "examples": entries,
    }
    some = f"{len(chosen)} of {of:,} examples, one drawn from each of as many equal parts. "
    body = template("examples.html", note=some if len(chosen) < of else "", part=report.part)
    return Section("examples", "Examples", body, data, "examples.js")


def _example(
    place: int, runs: Sequence[_Texts], metrics: Sequence[str], screen: int, *, objects: bool
) -> dict[str, Any]:
    """One example, with as much of its texts as fills a screen or two."""
    first = runs[0].items[place]
    gold = None if first.gold is None else _part(first.gold, screen)
    beside = _part(runs[0].items[place].segments, screen) if gold is None else gold
    made = [_part(one.items[place].segments, screen) for one in runs]
    rows = aligned_by_key(made, beside) if objects else [aligned(texts, beside) for texts in made]
    more = [one for one in first.references if gold is None or one != first.target]
    return {
        "id": shortened(first.id, 80),
        "place": place + 1,
        "source": shortened(first.source, screen),
        "gold": gold,
        "count": len(first.segments if first.gold is None else first.gold),
        "references": _part(more, screen),
        "otherReferences": len(more),
        "runs": [
            {"texts": texts, "rows": at, **_run(one, place, len(texts), metrics, first, objects=objects)}
            for one, texts, at in zip(runs, made, rows, strict=True)
        ],
    }


def _run(
    run: _Texts, place: int, shown: int, metrics: Sequence[str], first: ScoringItem, *, objects: bool
) -> dict[str, Any]:
    """What one decoder made of an example: which of the parts shown say what an earlier one says, or are wrong, and its scores.

    A subsequence may say the same in other words; a field of `objects` is right or wrong.
    """
    item, made = run.items[place], run.made[place]
    scores = run.scores.get(item.id, {})
    repeated, mistaken = duplicates(item.segments), wrong(item) if objects else []
    return {
        "again": [at for at in repeated if at < shown],
        "mistaken": [at for at in mistaken if at < shown],
        "left": len(item.segments) - shown,
        "duplicated": len(repeated),
        "wrong": len(mistaken),
        "dropped": dropped(item),
        "cut": item.truncated,
        "same": item.prediction.split() == first.prediction.split(),
        "steps": made.steps,
        "scores": [None if (value := scores.get(one)) is None else round(value, 1) for one in metrics],
    }


def _part(texts: Sequence[str], screen: int) -> list[str]:
    """Of several texts those that fill two screens, each at most one."""
    part, room = list[str](), 2 * screen
    for text in texts[: max(4, screen // 40)]:
        if room > 0:
            part.append(shortened(text, min(screen, max(room, 40))))
            room -= len(part[-1])
    return part
