"""CNN/DailyMail (Hermann et al. 2015; See et al. 2017): a news article, and the highlights that sum it up.

Layouts:

- The hub's abisee/cnn_dailymail (its card; configurations 1.0.0, 2.0.0 and 3.0.0): ``article``, ``highlights`` (one
  highlight a line) and ``id``.
- The story files of the original release, as abisee/cnn-dailymail reads them (``make_datafiles.py``): a folder of
  ``HASH.story``, each the article's paragraphs, then ``@highlight`` on a line by itself before each highlight.

The paper cites Gupta et al. (2021) for this data set and Hermann et al. (2015) for PubMed: the two are exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers.layout import Example, Fields, one_line
from pipedec_cli.data.importers.places import rows_at, splits_at, text_lines
from pipedec_cli.data.records import SplitName

_STORY = ".story"
_MARK = "@highlight"


def splits(location: str) -> tuple[SplitName, ...]:
    """The splits that a place holds; () for a file or a folder of stories."""
    return () if _stories(location) else splits_at(location)


def read(location: str, split: SplitName | None) -> Iterator[Example]:
    """The articles of a file, a folder, a folder of stories or a hub data set.

    The source is the article; the target its highlights, which are its sentences as far as the data set goes.
    """
    stories = _stories(location)
    if stories:
        yield from map(_story, stories)
        return
    for row in rows_at(location, split):
        fields = Fields(row)
        yield Example(
            where=fields.where,
            id=fields.identifier("id"),
            source=fields.text("article").strip(),
            target=_lines(fields.text("highlights").split("\n")),
        )


def _stories(location: str) -> list[Path]:
    path = Path(location)
    if path.is_dir():
        return sorted(path.glob(f"*{_STORY}"))
    return [path] if path.suffix == _STORY and path.is_file() else []


def _story(path: Path) -> Example:
    lines = [line.strip() for _, line in text_lines(path)]
    if _MARK not in lines:
        raise UserError(f"expected a line {_MARK!r}, found none", where=str(path))
    end = lines.index(_MARK)
    return Example(
        where=str(path),
        id=path.stem,
        source=" ".join(_lines(lines[:end])),
        target=_lines(line for line in lines[end:] if line != _MARK),
    )


def _lines(lines: Iterator[str] | list[str]) -> tuple[str, ...]:
    return tuple(line for line in map(one_line, lines) if line)
