"""Parallel text files: line n of one file is the source of line n of the other.

Layout of the keyphrase files of Chan et al. (2019) and Chen et al. (2020) (kenchan0226/keyphrase-generation-rl,
README, "Formats"): a folder with ``train_src.txt``, ``train_trg.txt``, ``valid_src.txt`` and so on; title and body of
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
from pipedec_cli.data.importers.layout import Example, one_line
from pipedec_cli.data.importers.places import split_files, text_lines
from pipedec_cli.data.records import SplitName

_TITLE_END: Final = "<eos>"
_PRESENT_END: Final = "<peos>"
_SOURCE_NAME: Final = re.compile(r"(?<![a-z0-9])(src|source)(?![a-z0-9])", re.IGNORECASE)
_TARGET_WORDS: Final = ("trg", "tgt", "target")


def splits(location: str) -> tuple[SplitName, ...]:
    """The splits of a folder of source and target files; () for a single source file."""
    folder = Path(location)
    return tuple(_source_files(folder)) if folder.is_dir() else ()


def read(
    location: str, split: SplitName | None, *, targets: Path | None = None, separator: str = SEPARATOR
) -> Iterator[Example]:
    """The lines of a source file with those of its target file.

    Args:
        location: the source file, or a folder with the files of each split.
        split: which split of a folder.
        targets: the target file; found by its name (``src`` made ``trg``, ``tgt`` or ``target``) if None.
        separator: what stands between two phrases of a target; with ``""`` a target is plain text.

    Raises:
        UserError: a file is missing, or one has more lines than the other; with the first line that has no partner.
    """
    for source in _sources(location, split):
        yield from _pairs(source, targets or _target_of(source), separator)


def _sources(location: str, split: SplitName | None) -> list[Path]:
    path = Path(location)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError("no such file or folder", where=location)
    found = _source_files(path)
    if split is None and len(found) == 1:
        return next(iter(found.values()))
    if split not in found:
        raise UserError(f"has no split {split}", where=location, todo=f"it has {', '.join(found)}")
    return found[split]


def _source_files(folder: Path) -> dict[SplitName, list[Path]]:
    return split_files(folder, lambda file: _SOURCE_NAME.search(file.name) is not None)


def _target_of(source: Path) -> Path:
    candidates = [
        source.with_name(name)
        for word in _TARGET_WORDS
        if (name := _SOURCE_NAME.sub(word, source.name)) != source.name
    ]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    tried = ", ".join(candidate.name for candidate in candidates)
    raise UserError(
        "which file holds its targets?" if not tried else f"expected one of {tried} beside it, found none",
        where=str(source),
        todo="name it with --targets FILE",
    )


def _pairs(source: Path, target: Path, separator: str) -> Iterator[Example]:
    for left, right in zip_longest(text_lines(source), text_lines(target)):
        if left is None or right is None:
            (longer, number), shorter = (
                ((target, right[0]), source) if left is None else ((source, left[0]), target)
            )
            raise UserError(
                f"has no partner: {shorter} ends with line {number - 1}", where=f"{longer}:{number}"
            )
        text = one_line(left[1].replace(_TITLE_END, " "))
        yield Example(where=f"{source}:{left[0]}", id=None, source=text, target=_target(right[1], separator))


def _target(line: str, separator: str) -> str | tuple[str, ...]:
    if not separator:
        return line.strip()
    return tuple(phrase for phrase in split_phrases(line, separator) if phrase != _PRESENT_END)
