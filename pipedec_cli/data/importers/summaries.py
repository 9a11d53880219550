"""Data sets of texts and their summaries: WikiHowQA, CNN/DailyMail, PubMed and SumPubMed.

docs/datasets.md says where each is published and in which layouts.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.file_formats import text_lines
from pipedec_cli.data.importers.layout import (
    Example,
    files_of,
    one_line,
    parts,
    qa_source,
    rows_at,
)
from pipedec_cli.data.records import SplitName

_HIGHLIGHT = "@highlight"
_SENTENCE_MARKS = re.compile(r"</?S>")
_SHORT_SUMMARY = "shorter_abstract"


def wikihowqa(location: str, split: SplitName | None) -> Iterator[Example]:
    """The answered questions of the released files or of a flat copy, in the order of ``summary.txt``.

    The source is ``question: … context: …`` with the answer as context, the target the
    summary. Pairs with label 0 serve answer selection and are left out.
    """
    path = Path(location)
    folder = path if path.is_dir() else path.parent
    is_text = path.is_file() and path.name.removesuffix(".gz").endswith(".txt")
    for name in ("summary.txt", "summary.txt.gz"):
        summaries = folder / name
        if summaries.is_file() and (path.is_dir() or is_text):
            for pairs in files_of(path, split):
                yield from _answered(pairs, summaries)
            return
    for fields in rows_at(location, split):
        answer = fields.text("answer", "article", "text").strip()
        question = fields.text("question").strip() if fields.has("question") else ""
        source = qa_source(question, answer) if question and answer else answer
        yield fields.example(source, fields.text("summary").strip())


def _answered(pairs: Path, summaries: Path) -> Iterator[Example]:
    """The examples of a split: a question of the file `pairs`, which has the answer's id, with answer and summary.

    The `summaries` are streamed: with their answers they are far larger than the pairs.
    """
    # Question and place, by the id of the answer.
    questions: dict[str, list[tuple[str, str]]] = {}
    for where, question, identifier, label in _rows(
        pairs, "question", "answer id", "label"
    ):
        if label not in ("0", "1"):
            what = f"column 'label': expected 0 or 1, found {label!r}"
            raise UserError(what, where=where)
        if label == "1":
            questions.setdefault(identifier, []).append((question.strip(), where))
    for where, identifier, answer, summary in _rows(
        summaries, "answer id", "answer", "summary"
    ):
        for question, _ in questions.pop(identifier, ()):
            source = qa_source(question, answer) if answer else ""
            yield Example(where, identifier, source, summary)
    if questions:  # which have no answer
        identifier, ((_, where), *_) = next(iter(questions.items()))
        what = f"answer id {identifier!r} is not in {summaries.name}"
        raise UserError(what, where=where)


def _rows(path: Path, *names: str) -> Iterator[tuple[str, str, str, str]]:
    """The place and the three columns of each line, which tabs separate; `names` are what an error calls the columns."""
    for number, line in text_lines(path):
        where = f"{path}:{number}"
        columns = line.split("\t")
        if len(columns) != len(names):
            what = f"expected {len(names)} columns with tabs between them ({', '.join(names)})"
            raise UserError(f"{what}, found {len(columns)}", where=where)
        yield where, columns[0], columns[1].strip(), columns[2].strip()


def cnn_dailymail(location: str, split: SplitName | None) -> Iterator[Example]:
    """The articles of a place or of story files; the target is the highlights, each a sentence."""
    place = Path(location)
    stories = sorted(place.glob("*.story"))
    if place.suffix == ".story" and place.is_file():
        stories = [place]
    for path in stories:
        lines = [line.strip() for _, line in text_lines(path)]
        if _HIGHLIGHT not in lines:
            raise UserError(f"expected a line {_HIGHLIGHT!r}, found none", where=path)
        end = lines.index(_HIGHLIGHT)
        highlights = parts(line for line in lines[end:] if line != _HIGHLIGHT)
        yield Example(str(path), path.stem, " ".join(parts(lines[:end])), highlights)
    if not stories:
        for fields in rows_at(location, split):
            yield fields.example(
                fields.text("article").strip(),
                parts(fields.text("highlights").split("\n")),
            )


def pubmed(location: str, split: SplitName | None) -> Iterator[Example]:
    """The articles of PubMed or SumPubMed; the target is a list of sentences if they stand apart, else text."""
    folder = Path(location)
    if (folder / "text").is_dir() and (folder / _SHORT_SUMMARY).is_dir():
        yield from _released_articles(folder)
        return
    target: str | tuple[str, ...]
    for fields in rows_at(location, split):
        layout = fields.first_of("article_text", "article", "text")
        if layout == "article_text":
            source = " ".join(map(one_line, fields.texts("article_text")))
            target = parts(
                _SENTENCE_MARKS.sub(" ", sentence)
                for sentence in fields.texts("abstract_text")
            )
        elif layout == "article":
            source = fields.text("article").strip()
            target = fields.text("abstract").strip()
        else:
            source = fields.text("text").strip()
            abstract = fields.text(_SHORT_SUMMARY)
            # One sentence a line as released; the copy on the hub has lost its line
            # ends, and is text.
            lines = parts(abstract.split("\n"))
            target = lines if len(lines) > 1 else abstract.strip()
        yield fields.example(
            source, target, id_names=("article_id", "id", "filename_text")
        )


def _released_articles(folder: Path) -> Iterator[Example]:
    """The articles of SumPubMed as it was released: text/text_N.txt with shorter_abstract/abst_N.txt, a sentence a line."""
    articles = sorted(
        (folder / "text").glob("text_*.txt"),
        key=lambda path: (len(path.name), path.name),  # by rising number
    )
    if not articles:
        what = "expected files text_1.txt, text_2.txt, …, found none"
        raise UserError(what, where=str(folder / "text"))
    for article in articles:
        number = article.stem.removeprefix("text_")
        summary = folder / _SHORT_SUMMARY / f"abst_{number}.txt"
        if not summary.is_file():
            what = f"expected its summary {summary}, found no such file"
            raise UserError(what, where=article)
        source = " ".join(_lines(article))
        yield Example(str(article), number, source, _lines(summary))


def _lines(path: Path) -> tuple[str, ...]:
    """The lines of a file, without blank ones."""
    return parts(line for _, line in text_lines(path))
