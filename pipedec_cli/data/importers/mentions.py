"""Named-entity data in CoNLL's layout, as objects: a label is a key, and its mentions in a sentence are a list.

A line holds a token and, in the last column, its tag; a blank line ends a sentence.
Tags are IOB1, IOB2 (BIO), BIOES or BILOU.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.file_formats import text_lines
from pipedec_cli.data.importers.layout import Example, files_of
from pipedec_cli.data.records import SplitName

_TAG: Final = re.compile(r"([BIESLU])-(\S+)|O")


def conll(location: str, split: SplitName | None) -> Iterator[Example]:
    """The sentences of a file, or of the files of a split in a folder.

    The source is the tokens with a space between them. The target has a key for each
    label of the sentence with its mentions in order, each once. ``-DOCSTART-`` lines
    and comments are skipped.
    """
    for file in files_of(Path(location), split):
        tokens: list[str] = []
        tags: list[str] = []
        begins = 0  # the line of a sentence's first token
        # A blank line behind the last one ends the last sentence.
        for number, line in chain(text_lines(file), [(0, "")]):
            columns = line.split("\t") if "\t" in line.strip(" \t\r") else line.split()
            if not columns or columns[0] == "-DOCSTART-":
                if tokens:
                    yield Example(
                        where=f"{file}:{begins}",
                        id=None,
                        source=" ".join(tokens),
                        target=_mentions(tokens, tags),
                    )
                tokens = []
                tags = []
            elif len(columns) > 1 and _TAG.fullmatch(columns[-1]):
                begins = begins if tokens else number
                tokens.append(columns[0])
                tags.append(columns[-1])
            elif columns[0] != "#":
                expected = "expected a token and its tag (O, B-…, I-…)"
                what = f"{expected}, found {line[:40]!r}"
                raise UserError(what, where=f"{file}:{number}")


def _mentions(tokens: Sequence[str], tags: Sequence[str]) -> dict[str, list[str]]:
    """The mentions of each label in a sentence, in order and each once.

    A tag is ``O``, or a letter and a label, ``B-PER``: B and S (or U) begin a mention, I
    goes on with it, E, S and L (or U) end it.
    """
    tokens_of: dict[str, list[list[str]]] = {}  # by label, of each mention
    before = ""  # the label of an open mention
    for token, tag in zip(tokens, tags, strict=True):
        prefix, _, label = tag.partition("-")
        if label and (prefix in "BSU" or label != before):
            tokens_of.setdefault(label, []).append([token])
        elif label:
            tokens_of[label][-1].append(token)
        before = "" if prefix in "ESLU" else label
    return {
        label: list(dict.fromkeys(map(" ".join, mentions)))
        for label, mentions in tokens_of.items()
    }
