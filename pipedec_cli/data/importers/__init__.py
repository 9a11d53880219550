"""Published data sets as pipedec's records: the registry that names them, and what is made of their examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, count
from typing import Any, Final, NamedTuple

from pipedec_cli.data.importers import summaries
from pipedec_cli.data.importers.layout import Example, splits_at
from pipedec_cli.data.importers.mentions import conll
from pipedec_cli.data.importers.phrases import keyphrases, multispanqa, parallel
from pipedec_cli.data.records import Level, SplitName

__all__ = ["IMPORTERS", "CleaningCounts", "Example", "cleaned", "parallel", "splits_at"]


class Importer(NamedTuple):
    """What a subsequence of a data set is, and its examples at a location, of a split (None for a single file)."""

    level: Level
    read: Callable[[str, SplitName | None], Iterator[Example]]


#: The importers by the names that `pipedec import` takes: the paper's six data sets, then the general ones.
IMPORTERS: Final[Mapping[str, Importer]] = {
    "msqa": Importer("phrase", multispanqa),
    "kp20k": Importer("phrase", keyphrases),
    "kptimes": Importer("phrase", keyphrases),
    "wikihowqa": Importer("sentence", summaries.wikihowqa),
    "cnn_dailymail": Importer("sentence", summaries.cnn_dailymail),
    "pubmed": Importer("sentence", summaries.pubmed),
    "keyphrases": Importer("phrase", keyphrases),
    "conll": Importer("field", conll),
    "parallel": Importer("phrase", parallel),
}

#: What may have to be said of examples, by its name in JSON.
_NOTES: Final = {
    "left_out": "without a source left out",
    "without_target": "without a target: to generate from, not to train or score on",
    "empty_targets": "with an empty target",
    "renamed": "with an identifier that was already taken, given another",
    "with_variants": "with variants of a keyphrase: the first is the target, all are in keyphrase_variants",
}


class CleaningCounts:
    """How many examples were given out, and how often each of `_NOTES` happened, so that nothing is left out unseen."""

    def __init__(self) -> None:
        self.examples, self.times = 0, Counter[str]()
        self._first: dict[str, str] = {}

    def add(self, what: str, where: str) -> None:
        """Count one."""
        self.times[what] += 1
        self._first.setdefault(what, where)

    def notes(self) -> list[str]:
        """A sentence for each thing that happened, with the first place where it did."""
        happened = ((self.times[what], words, self._first.get(what)) for what, words in _NOTES.items())
        return [f"{times:,} {words} (first: {first})" for times, words, first in happened if times]

    def as_json(self) -> dict[str, int]:
        """The counts by name."""
        return {"examples": self.examples, **{what: self.times[what] for what in _NOTES}}


def cleaned(examples: Iterable[Example], tally: CleaningCounts) -> Iterator[dict[str, Any]]:
    """The objects to write, one for each example that has a source: ``id``, ``source``, ``target`` and further fields.

    A target that came in segments is a list. An example without an identifier gets its number among those read.
    """
    taken: set[str] = set()
    for number, (where, given, source, target, extra) in enumerate(examples, start=1):
        if not source.strip():
            tally.add("left_out", where)
            continue
        wanted = given or str(number)
        names = chain([wanted], (f"{wanted}-{again}" for again in count(2)))
        identifier = next(name for name in names if name not in taken)
        taken.add(identifier)
        tally.examples += 1
        fields: dict[str, Any] = {"id": identifier, "source": source}
        if identifier != wanted:
            tally.add("renamed", where)
        if target is None:
            tally.add("without_target", where)
        else:
            fields["target"] = list(target) if isinstance(target, tuple) else target
            if not target:
                tally.add("empty_targets", where)
        if "keyphrase_variants" in extra:
            tally.add("with_variants", where)
        yield fields | dict(extra)
