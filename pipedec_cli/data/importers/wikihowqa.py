r"""WikiHowQA (Deng et al. 2020): a question, a long answer of wikiHow, and the summary that answers the question.

Layout as released (linked from dengyang17/wikihowQA; read so by ``datasets/wikihowqa/wikihowqa.py`` in
ExpressAI/DataLab and by ``project_BilgicYamac/code/LoadData.py`` in sinankalkan/CENG501-Spring2021): a folder with

- ``train.txt``, ``valid.txt``, ``test.txt``: ``question \t answer id \t label`` a line, label 1 if the answer is one to
  the question;
- ``summary.txt``: ``answer id \t answer \t summary`` a line.

Flat copies have one object an example: ``answer``, ``article`` or ``text``; ``summary``; and ``question``, if there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers.layout import Example, Fields, question_and_context
from pipedec_cli.data.importers.places import files_of, rows_at, text_lines
from pipedec_cli.data.records import SplitName

_SUMMARIES = ("summary.txt", "summary.txt.gz")
_POSITIVE, _NEGATIVE = "1", "0"


def read(location: str, split: SplitName | None) -> Iterator[Example]:
    """The answered questions of the released files, of a flat file, or of a hub data set.

    The source is ``question: … context: …`` with the answer as context, the target the summary. Pairs with label 0
    are left out: they are there for answer selection. The order is that of ``summary.txt``.
    """
    path = Path(location)
    if path.is_dir() and _summaries_in(path):
        for pairs in files_of(path, split):
            yield from _released(pairs)
    elif path.is_file() and path.name.removesuffix(".gz").endswith(".txt") and _summaries_in(path.parent):
        yield from _released(path)
    else:
        for row in rows_at(location, split):
            yield _flat(Fields(row))


def _flat(fields: Fields) -> Example:
    answer = fields.text(fields.first_of(("answer", "article", "text"))).strip()
    question = fields.text("question").strip() if fields.has("question") else ""
    return Example(
        where=fields.where,
        id=fields.identifier("id"),
        source=question_and_context(question, answer) if question and answer else answer,
        target=fields.text("summary").strip(),
    )


def _released(pairs: Path) -> Iterator[Example]:
    """The positive pairs of a split. Summaries are streamed, since with their answers they are far larger."""
    questions = _positive_questions(pairs)
    summaries = _summaries_in(pairs.parent)
    if summaries is None:
        raise UserError("expected summary.txt beside it, found no such file", where=str(pairs))
    for number, line in text_lines(summaries):
        where = f"{summaries}:{number}"
        identifier, answer, summary = _columns(line, ("answer id", "answer", "summary"), where)
        for question, _ in questions.pop(identifier, ()):
            yield Example(
                where=where,
                id=identifier,
                source=question_and_context(question, answer.strip()) if answer.strip() else "",
                target=summary.strip(),
            )
    for identifier, asked in questions.items():
        raise UserError(f"answer id {identifier!r} is not in {summaries.name}", where=asked[0][1])


def _positive_questions(pairs: Path) -> dict[str, list[tuple[str, str]]]:
    """For each answer id the questions that it answers, each with its place."""
    found: dict[str, list[tuple[str, str]]] = {}
    for number, line in text_lines(pairs):
        where = f"{pairs}:{number}"
        question, identifier, label = _columns(line, ("question", "answer id", "label"), where)
        if label not in (_POSITIVE, _NEGATIVE):
            raise UserError(f"column 'label': expected 0 or 1, found {label!r}", where=where)
        if label == _POSITIVE:
            found.setdefault(identifier, []).append((question.strip(), where))
    return found


def _columns(line: str, names: tuple[str, str, str], where: str) -> tuple[str, str, str]:
    columns = line.split("\t")
    if len(columns) != len(names):
        raise UserError(
            f"expected {len(names)} columns with tabs between them ({', '.join(names)}), found {len(columns)}",
            where=where,
        )
    return columns[0], columns[1].strip(), columns[2].strip()


def _summaries_in(folder: Path) -> Path | None:
    return next((folder / name for name in _SUMMARIES if (folder / name).is_file()), None)
