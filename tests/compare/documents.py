"""Predictions and right answers written on one line, for tables of cases."""

from collections.abc import Iterable

from pipedec_cli.metrics.measure import Measure, Scores, ScoringItem, score


def scored(measure: Measure, *documents: str, source: str = "") -> Scores:
    """Scores of documents, each ``predicted | right`` with ``; `` between two of them."""
    items = []
    for place, document in enumerate(documents):
        predicted, right = (
            tuple(filter(None, side.strip().split("; ")))
            for side in document.split("|")
        )
        items.append(ScoringItem(str(place), "", predicted, gold=right, source=source))
    return score(items, measure)


def told(scores: Scores, names: Iterable[str]) -> dict[str, float | None]:
    """Of the values and counts, those with these names; of keyphrases, those of the present ones need not say so."""
    found = scores.values | scores.counts
    return {name: found[name if name in found else f"present_{name}"] for name in names}
