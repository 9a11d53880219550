"""PubMed: a biomedical article and its abstract, in the layouts of Cohan et al. (2018) and of SumPubMed.

Layouts:

- Cohan et al. as released (armancohan/long-summarization, its README): ``train.txt``, ``val.txt``, ``test.txt``, JSON
  lines with ``article_id``, ``article_text`` and ``abstract_text`` (lists of sentences; those of the abstract stand
  between ``<S>`` and ``</S>``), ``section_names``, ``sections``.
- The hub's ccdv/pubmed-summarization and armanc/scientific_papers: ``article`` and ``abstract``, strings.
- SumPubMed (Gupta et al. 2021) as released (vgupta123/sumpubmed): folders ``text/text_N.txt``,
  ``shorter_abstract/abst_N.txt`` ("final short summary", one sentence a line) and ``abstract/abstract_N.txt`` (the long
  one, with its headings); no splits. Its copy on the hub, Blaise-g/SumPubmed, has these as the fields ``text``,
  ``shorter_abstract`` (its line ends lost) and ``abstract``.

The sizes in the paper's Table 1 (120 K train, 7 K test) are those of Cohan et al. (119,924 and 6,658). The paper cites
Hermann et al. (2015) here and Gupta et al. (2021), which is SumPubMed, for CNN/DailyMail: the two are exchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers.layout import Example, Fields, one_line
from pipedec_cli.data.importers.places import rows_at, splits_at, text_lines
from pipedec_cli.data.records import SplitName

_SENTENCE_MARKS = re.compile(r"</?S>")

_SHORT_SUMMARY = "shorter_abstract"


def splits(location: str) -> tuple[SplitName, ...]:
    """The splits that a place holds; () for a file or SumPubMed's folders."""
    return () if _is_sumpubmed(location) else splits_at(location)


def read(location: str, split: SplitName | None) -> Iterator[Example]:
    """The articles of a file, a folder or a hub data set in one of the layouts above.

    The target is the list of sentences where the data set has them apart, else the abstract as text. SumPubMed's
    target is its short summary.
    """
    if _is_sumpubmed(location):
        yield from _sumpubmed(Path(location))
        return
    for row in rows_at(location, split):
        yield _example(Fields(row))


def _example(fields: Fields) -> Example:
    layout = fields.first_of(("article_text", "article", "text"))
    target: str | tuple[str, ...]
    if layout == "article_text":
        sentences = fields.strings("abstract_text", "a list of sentences")
        source = " ".join(map(one_line, fields.strings("article_text", "a list of sentences")))
        target = _sentences(_SENTENCE_MARKS.sub(" ", sentence) for sentence in sentences)
    elif layout == "article":
        source, target = fields.text("article").strip(), fields.text("abstract").strip()
    else:
        source, target = fields.text("text").strip(), _summary(fields.text(_SHORT_SUMMARY))
    return Example(
        where=fields.where,
        id=fields.identifier("article_id", "id", "filename_text"),
        source=source,
        target=target,
    )


def _is_sumpubmed(location: str) -> bool:
    folder = Path(location)
    return (folder / "text").is_dir() and (folder / _SHORT_SUMMARY).is_dir()


def _sumpubmed(folder: Path) -> Iterator[Example]:
    """SumPubMed's articles by rising number."""
    articles = sorted((folder / "text").glob("text_*.txt"), key=lambda path: (len(path.name), path.name))
    if not articles:
        raise UserError("expected files text_1.txt, text_2.txt, …, found none", where=str(folder / "text"))
    for article in articles:
        number = article.stem.removeprefix("text_")
        summary = folder / _SHORT_SUMMARY / f"abst_{number}.txt"
        if not summary.is_file():
            raise UserError(f"expected its summary {summary}, found no such file", where=str(article))
        yield Example(
            where=str(article),
            id=number,
            source=" ".join(filter(None, (one_line(line) for _, line in text_lines(article)))),
            target=_sentences(line for _, line in text_lines(summary)),
        )


def _summary(text: str) -> str | tuple[str, ...]:
    """One sentence a line as released; the copy on the hub has lost its line ends, and is text."""
    lines = _sentences(text.split("\n"))
    return lines if len(lines) > 1 else text.strip()


def _sentences(lines: Iterator[str] | list[str]) -> tuple[str, ...]:
    return tuple(line for line in map(one_line, lines) if line)
