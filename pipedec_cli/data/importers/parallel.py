"""Parallel text files, as in Chan et al. (2019): a line of sources, and beside it a line of targets."""

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Final

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.file_formats import text_lines
from pipedec_cli.data.importers.layout import Example, files_of, one_line, parts
from pipedec_cli.data.records import SplitName

_SOURCE_NAME: Final = re.compile(
    r"(?<![a-z0-9])(src|source)(?![a-z0-9])", re.IGNORECASE
)


def parallel(
    location: str,
    split: SplitName | None,
    *,
    targets: Path | None = None,
    separator: str | None = None,
) -> Iterator[Example]:
    """The lines of a source file, or of the source files of a split, with the lines of their target files.

    Without `targets` the target file is found by its name (``trg``, ``tgt`` or
    ``target`` for ``src``). The separator of phrases is ``;`` by default; with ``""`` a
    target is plain text.
    """
    for source in files_of(Path(location), split, _is_source):
        target_file = targets or _target_file(source)
        lines = zip_longest(text_lines(source), text_lines(target_file))
        for number, (left, right) in enumerate(lines, start=1):
            if left is None:
                raise _no_partner(target_file, source, number)
            if right is None:
                raise _no_partner(source, target_file, number)
            target: str | tuple[str, ...]
            if separator == "":
                target = right[1].strip()
            else:
                target = split_phrases(right[1], separator or ";")
            yield Example(
                f"{source}:{number}",
                None,
                one_line(left[1].replace("<eos>", " ")),
                target,
            )


def _target_file(source: Path) -> Path:
    """The file beside a source file that holds its targets, found by its name."""
    tried = []
    if _is_source(source):
        for word in ("trg", "tgt", "target"):
            tried.append(source.with_name(_SOURCE_NAME.sub(word, source.name)))
    for file in tried:
        if file.is_file():
            return file
    what = "which file holds its targets?"
    if tried:
        names = ", ".join(file.name for file in tried)
        what = f"expected one of {names} beside it, found none"
    raise UserError(what, where=source, todo="name it with --targets FILE")


def _no_partner(longer: Path, shorter: Path, number: int) -> UserError:
    """The error of a line of the longer file that the shorter one does not have."""
    what = f"has no partner: {shorter} ends with line {number - 1}"
    return UserError(what, where=f"{longer}:{number}")


def split_phrases(line: str, separator: str = ";") -> tuple[str, ...]:
    """The phrases of a line of parallel text, without empty ones and ``<peos>``."""
    return tuple(
        phrase for phrase in parts(line.split(separator)) if phrase != "<peos>"
    )


def _is_source(file: Path) -> bool:
    return _SOURCE_NAME.search(file.name) is not None
