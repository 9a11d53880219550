"""Published data sets as pipedec's records: the table of importers, and the objects that they write."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pkgutil import resolve_name
from typing import Any, Final

from pipedec_cli.data.importers.layout import Example, splits_at
from pipedec_cli.data.records import Level, SplitName
from pipedec_cli.data.segmentation import TargetStatistics

__all__ = [
    "IMPORTERS",
    "CleaningCounts",
    "Example",
    "ImportedFile",
    "cleaned",
    "importer",
    "splits_at",
]

#: What `pipedec import` reads, with the level of its subsequences and the importer, a
#: function in a file of this folder: the paper's six data sets, then the general ones.
IMPORTERS: Final[Mapping[str, tuple[Level, str]]] = {
    "msqa": ("phrase", "spans:multispanqa"),
    "kp20k": ("phrase", "keyphrases:keyphrases"),
    "kptimes": ("phrase", "keyphrases:keyphrases"),
    "wikihowqa": ("sentence", "summaries:wikihowqa"),
    "cnn_dailymail": ("sentence", "summaries:cnn_dailymail"),
    "pubmed": ("sentence", "summaries:pubmed"),
    "keyphrases": ("phrase", "keyphrases:keyphrases"),
    "conll": ("field", "mentions:conll"),
    "parallel": ("phrase", "parallel:parallel"),
}

#: The notes on examples, by their names in JSON.
_NOTES: Final = {
    "left_out": "without a source left out",
    "without_target": "without a target: to generate from, not to train or score on",
    "empty_targets": "with an empty target",
    "renamed": "with an identifier that was already taken, given another",
    "with_variants": "with variants of a keyphrase: the first is the target, all are in keyphrase_variants",
}


def importer(name: str) -> Any:
    """What gives the `Example`s of a location and a split (None for a single file) of a data set in `IMPORTERS`."""
    return resolve_name(f"{__name__}.{IMPORTERS[name][1]}")


class CleaningCounts:
    """The number of examples written, and of examples with each of `_NOTES`."""

    def __init__(self) -> None:
        self.examples = 0
        self.times = Counter[str]()
        self._first_places: dict[str, str] = {}

    def add(self, note: str, where: str) -> None:
        """Count an example with a note, a key of `_NOTES`; `where` is its place."""
        self.times[note] += 1
        self._first_places.setdefault(note, where)

    def notes(self) -> list[str]:
        """A sentence for each note that was counted, with the first place."""
        notes = []
        for note, words in _NOTES.items():
            if note in self._first_places:
                first = self._first_places[note]
                notes.append(f"{self.times[note]:,} {words} (first: {first})")
        return notes

    def as_json(self) -> dict[str, int]:
        """The counts by name."""
        return {
            "examples": self.examples,
            **{note: self.times[note] for note in _NOTES},
        }


@dataclass(frozen=True)
class ImportedFile:
    """One file that was written, and what was counted in it."""

    path: str
    split: SplitName | None  # None if the data set was a single file
    tally: CleaningCounts
    statistics: TargetStatistics


def cleaned(
    examples: Iterable[Example], counts: CleaningCounts
) -> Iterator[dict[str, Any]]:
    """The objects to write: ``id``, ``source``, ``target`` and further fields of each example that has a source.

    What is noteworthy is counted in `counts`. A target of segments is a list. An
    example without an identifier gets its number; one whose identifier is taken gets it
    with ``-2``, ``-3`` and so on.
    """
    taken = set()
    for number, example in enumerate(examples, start=1):
        if not example.source.strip():
            counts.add("left_out", example.where)
            continue
        wanted = identifier = example.id or str(number)
        again = count(2)
        while identifier in taken:
            identifier = f"{wanted}-{next(again)}"
        taken.add(identifier)
        counts.examples += 1
        fields: dict[str, Any] = {"id": identifier, "source": example.source}
        if isinstance(example.target, tuple):
            fields["target"] = list(example.target)
        elif example.target is not None:
            fields["target"] = example.target
        if identifier != wanted:
            counts.add("renamed", example.where)
        if example.target is None:
            counts.add("without_target", example.where)
        elif not example.target:
            counts.add("empty_targets", example.where)
        if "keyphrase_variants" in example.extra:
            counts.add("with_variants", example.where)
        yield fields | dict(example.extra)
