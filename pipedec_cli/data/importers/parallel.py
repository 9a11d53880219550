"""Parallel text files: line n of one file is the source of line n of the other.

Layout of the keyphrase files of Chan et al. (2019) (kenchan0226/keyphrase-generation-rl, "Formats"): a folder with ``train_src.txt``, ``train_trg.txt``, ``valid_src.txt`` and so on; title and body of
a source with ``<eos>`` between them; phrases with ``;`` between them, and in some copies ``<peos>`` between those that
the source holds and those that it does not. Names with ``.src`` and ``.trg`` or ``.tgt`` are taken too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Final

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers.keyphrases import SEPARATOR, split_phrases
from pipedec_cli.data.importers.layout import Example, files_of, one_line
from pipedec_cli.data.records import SplitName
from pipedec_cli.data.rows import text_lines

_SOURCE_NAME: Final = re.compile(r"(?<![a-z0-9])(src|source)(?![a-z0-9])", re.IGNORECASE)


def read(
    location: str, split: SplitName | None, *, targets: Path | None = None, separator: str | None = None
) -> Iterator[Example]:
    """The lines of a source file, or of those of a split in a folder, with those of its target file.

    The target file is found by its name (``src`` made ``trg``, ``tgt`` or ``target``) if none is given. Between two
    phrases of a target stands ``;`` or the separator; if that is ``""``, a target is plain text.
    """
    path = Path(location)
    if not path.exists():
        raise UserError("no such file or folder", where=location)
    for source in files_of(path, split, _is_source) if path.is_dir() else [path]:
        yield from _pairs(
            source, targets or _target_of(source), SEPARATOR if separator is None else separator
        )


def _is_source(file: Path) -> bool:
    return _SOURCE_NAME.search(file.name) is not None


def _target_of(source: Path) -> Path:
    tried = [
        source.with_name(_SOURCE_NAME.sub(word, source.name))
        for word in ("trg", "tgt", "target")
        if _is_source(source)
    ]
    found = next((file for file in tried if file.is_file()), None)
    if found is None:
        names = ", ".join(file.name for file in tried)
        raise UserError(
            f"expected one of {names} beside it, found none" if tried else "which file holds its targets?",
            where=str(source),
            todo="name it with --targets FILE",
        )
    return found


def _pairs(source: Path, targets: Path, separator: str) -> Iterator[Example]:
    for number, (left, right) in enumerate(zip_longest(text_lines(source), text_lines(targets)), start=1):
        if left is None or right is None:
            longer, shorter = (targets, source) if left is None else (source, targets)
            what = f"has no partner: {shorter} ends with line {number - 1}"
            raise UserError(what, where=f"{longer}:{number}")
        text = one_line(left[1].replace("<eos>", " "))
        target: str | tuple[str, ...] = right[1].strip()
        if separator:
            target = tuple(phrase for phrase in split_phrases(right[1], separator) if phrase != "<peos>")
        yield Example(f"{source}:{number}", None, text, target)
