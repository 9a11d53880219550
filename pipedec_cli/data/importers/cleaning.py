"""From what an importer reads to what is written: unique identifiers, no empty sources, and a count of all of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pipedec_cli.data.importers.layout import Example


@dataclass(slots=True)
class Count:
    """How often something happened, and where it did first."""

    times: int = 0
    first: str | None = None

    def add(self, where: str) -> None:
        """One more."""
        self.times += 1
        self.first = self.first or where


class Tally:
    """What was read, and what had to be changed on the way; nothing is left out without being counted.

    Attributes:
        examples: examples given out.
        left_out: examples without a source, which nothing can be generated from.
        unlabelled: examples without a target, given out all the same.
        empty: examples with an empty target, given out all the same.
        renamed: examples whose identifier was already taken, given a new one.
        variants: examples with keyphrases in several variants.
    """

    def __init__(self) -> None:
        self.examples = 0
        self.left_out = Count()
        self.unlabelled = Count()
        self.empty = Count()
        self.renamed = Count()
        self.variants = Count()

    def notes(self) -> list[str]:
        """A sentence for each thing that happened."""
        wordings = (
            (self.left_out, "without a source left out"),
            (self.unlabelled, "without a target: to generate from, not to train or score on"),
            (self.empty, "with an empty target"),
            (self.renamed, "with an identifier that was already taken, given another"),
            (
                self.variants,
                "with variants of a keyphrase: the first is the target, all are in keyphrase_variants",
            ),
        )
        return [f"{count.times:,} {what} (first: {count.first})" for count, what in wordings if count.times]

    def as_json(self) -> dict[str, int]:
        """The counts by name."""
        return {
            "examples": self.examples,
            "left_out": self.left_out.times,
            "without_target": self.unlabelled.times,
            "empty_targets": self.empty.times,
            "renamed": self.renamed.times,
            "with_variants": self.variants.times,
        }


def cleaned(examples: Iterable[Example], tally: Tally) -> Iterator[dict[str, Any]]:
    """The objects to write, one for each example that has a source: ``id``, ``source``, ``target`` and further fields.

    A target that came in segments is a list. An example without an identifier gets its number among those read,
    which in a file of lines is its line number.

    Args:
        examples: what an importer reads.
        tally: counts along; it is complete once the last object was taken.
    """
    taken: set[str] = set()
    for number, example in enumerate(examples, start=1):
        if not example.source.strip():
            tally.left_out.add(example.where)
            continue
        identifier = example.id or str(number)
        if identifier in taken:
            tally.renamed.add(example.where)
            identifier = _free(identifier, taken)
        taken.add(identifier)
        yield _fields(example, identifier, tally)


def _free(identifier: str, taken: set[str]) -> str:
    number = 2
    while f"{identifier}-{number}" in taken:
        number += 1
    return f"{identifier}-{number}"


def _fields(example: Example, identifier: str, tally: Tally) -> dict[str, Any]:
    fields: dict[str, Any] = {"id": identifier, "source": example.source}
    tally.examples += 1
    if example.target is None:
        tally.unlabelled.add(example.where)
    else:
        if not example.target:
            tally.empty.add(example.where)
        fields["target"] = list(example.target) if isinstance(example.target, tuple) else example.target
    if "keyphrase_variants" in example.extra:
        tally.variants.add(example.where)
    return fields | dict(example.extra)
