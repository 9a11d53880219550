"""Predictions and right answers written on one line, for tables of cases."""

from collections.abc import Iterable
from typing import Any

from pipedec_cli.data.records import Generated, Record
from pipedec_cli.metrics.measure import Measure, Scores, score_examples


def example(
    segments: Iterable[str] = (),
    gold: Iterable[str] | None = None,
    *,
    text: str | None = None,
    target: str | None = None,
    references: tuple[str, ...] = (),
    source: str = "",
    name: str = "1",
    **more: Any,
) -> Generated:
    """A prediction of these segments beside the right ones."""
    segments = tuple(segments)
    right = None if gold is None else tuple(gold)
    record = Record(name, source, target, right, references, "file:1")
    written = " ".join(segments) if text is None else text
    return Generated(text=written, segments=segments, record=record, **more)


def scored(measure: Measure, *documents: str, source: str = "") -> Scores:
    """Scores of documents, each ``predicted | right`` with ``; `` between two of them."""
    examples = []
    for place, document in enumerate(documents):
        predicted, right = (
            filter(None, side.strip().split("; ")) for side in document.split("|")
        )
        examples.append(example(predicted, right, source=source, name=str(place)))
    return score_examples(examples, measure)


def told(scores: Scores, names: Iterable[str]) -> dict[str, float | None]:
    """Of the values and counts, those with these names; of keyphrases, those of the present ones need not say so."""
    values = scores.values | scores.counts
    return {
        name: values[name if name in values else f"present_{name}"] for name in names
    }
