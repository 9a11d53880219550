"""Published data sets as pipedec's records: one module a layout, and the registry that names them.

An importer reads a data set as it is published and yields an `Example` at a time; `cleaned` makes them fit to be
written. Nothing here runs a program that comes with a data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers import cnn_dailymail, keyphrases, multispanqa, parallel, pubmed, wikihowqa
from pipedec_cli.data.importers.cleaning import Tally, cleaned
from pipedec_cli.data.importers.layout import Example
from pipedec_cli.data.importers.places import splits_at
from pipedec_cli.data.records import Level, SplitName

__all__ = ["IMPORTERS", "Example", "Importer", "Tally", "cleaned", "importer"]


@dataclass(frozen=True, slots=True)
class Importer:
    """How one data set is read.

    Attributes:
        name: what `pipedec import` calls it; also its name in `data.paper` and `data.recipes`, if it has one there.
        title: its name as the paper writes it.
        level: what a subsequence of its targets is.
        read: the examples of a location and a split (None for a single file).
        splits: the splits that a location holds; () for a single file.
    """

    name: str
    title: str
    level: Level
    read: Callable[[str, SplitName | None], Iterator[Example]]
    splits: Callable[[str], tuple[SplitName, ...]] = splits_at


#: The importers by name: the paper's six data sets, then the general ones.
IMPORTERS: Final[Mapping[str, Importer]] = {
    entry.name: entry
    for entry in (
        Importer("msqa", "MSQA", "phrase", multispanqa.read),
        Importer("kp20k", "KP20K", "phrase", keyphrases.read),
        Importer("kptimes", "KPTimes", "phrase", keyphrases.read),
        Importer("wikihowqa", "WikiHowQA", "sentence", wikihowqa.read),
        Importer("cnn_dailymail", "CNN/DMail", "sentence", cnn_dailymail.read, cnn_dailymail.splits),
        Importer("pubmed", "PubMed", "sentence", pubmed.read, pubmed.splits),
        Importer("keyphrases", "keyphrases", "phrase", keyphrases.read),
        Importer("parallel", "parallel text", "phrase", parallel.read, parallel.splits),
    )
}


def importer(name: str) -> Importer:
    """The importer of that name.

    Raises:
        UserError: there is none; the names that there are follow.
    """
    try:
        return IMPORTERS[name]
    except KeyError:
        raise UserError(
            f"no importer is called {name!r}", todo=f"the importers are {', '.join(IMPORTERS)}"
        ) from None
