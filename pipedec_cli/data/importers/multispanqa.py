"""MultiSpanQA (Li et al. 2022): a question and a passage, and the spans that answer it.

Layout, as haonan-li/MultiSpanQA publishes it and its ``src/eval_script.py`` reads it: one JSON object a file,
``{"version": …, "data": [{"id", "type", "question": [tokens], "context": [tokens], "num_span", "label": [BIO tags],
"structure"}, …]}``, a tag for each token of the context. The test split holds ``id``, ``question``, ``context`` only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers.layout import Example, Fields, files_of, kind, question_and_context, rows_at
from pipedec_cli.data.records import SplitName
from pipedec_cli.data.rows import Row, text_lines


def read(location: str, split: SplitName | None) -> Iterator[Example]:
    """The questions of a file, a folder or a hub data set in MultiSpanQA's layout.

    The source is ``question: … context: …``; the target the spans in the order of the passage, their tokens joined
    by a space, as the published evaluation compares them. They are kept in the field ``answers``, too, which no later
    step joins or merges, so that they are what is scored against. A split without labels has neither.
    """
    for fields in map(Fields, _questions(location, split)):
        question = fields.strings("question", "a list of tokens")
        context = fields.strings("context", "a list of tokens")
        answers = _answers(fields, context)
        yield fields.example(
            question_and_context(" ".join(question), " ".join(context)) if context else "",
            answers,
            extra={} if answers is None else {"answers": list(answers)},
        )


def _questions(location: str, split: SplitName | None) -> Iterator[Row]:
    path = Path(location)
    for file in files_of(path, split) if path.is_dir() else [path]:
        whole = file.is_file() and file.name.lower().removesuffix(".gz").endswith(".json")
        for row in [_whole_json(file)] if whole else rows_at(str(file) if path.exists() else location, split):
            yield from _unwrapped(row)


def _whole_json(file: Path) -> Row:
    """The file as one value, on however many lines it stands."""
    try:
        return Row(1, str(file), json.loads("".join(f"{line}\n" for _, line in text_lines(file))))
    except json.JSONDecodeError as error:
        what, where = f"not JSON: {error.msg} at column {error.colno}", f"{file}:{error.lineno}"
        raise UserError(what, where=where) from None


def _unwrapped(row: Row) -> Iterator[Row]:
    """The questions of ``{"data": […]}`` or of a list; a question by itself is one."""
    if isinstance(row.value, Mapping) and "data" not in row.value:
        yield row
        return
    questions = row.value["data"] if isinstance(row.value, Mapping) else row.value
    if not isinstance(questions, list):
        what = f"field 'data': expected a list of questions, found {kind(questions)}"
        raise UserError(what, where=row.where)
    for number, question in enumerate(questions, start=1):
        yield Row(number, f"{row.where} question {number}", question)


def _answers(fields: Fields, context: Sequence[str]) -> tuple[str, ...] | None:
    if not fields.has("label"):
        return None
    labels = fields.strings("label", "a list of B, I and O, one a token")
    if len(labels) != len(context):
        what = f"expected {len(context)} tags, one for each token of 'context', found {len(labels)}"
        raise UserError(f"field 'label': {what}", where=fields.where)
    for place, label in enumerate(labels, start=1):
        if label not in ("B", "I", "O"):
            fields.refuse("label", "B, I or O", label, place)
    return spans(labels, context)


def spans(labels: Sequence[str], tokens: Sequence[str]) -> tuple[str, ...]:
    """The spans that BIO tags mark, one tag a token, each span its tokens joined by a space.

    An ``I`` after an ``O`` opens a span, as in the published evaluation.
    """
    found: list[list[str]] = []
    inside = False
    for label, token in zip(labels, tokens, strict=True):
        if label == "B" or (label == "I" and not inside):
            found.append([token])
        elif label == "I":
            found[-1].append(token)
        inside = label != "O"
    return tuple(map(" ".join, found))
