"""MultiSpanQA (Li et al. 2022), whose targets are spans of a passage. docs/datasets.md says in which layouts it is published."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.file_formats import text_lines
from pipedec_cli.data.importers.layout import (
    Example,
    Fields,
    files_of,
    qa_source,
    rows_at,
)
from pipedec_cli.data.reading import as_json, checked
from pipedec_cli.data.records import SplitName


def multispanqa(location: str, split: SplitName | None) -> Iterator[Example]:
    """The questions of a file, a folder or a hub data set.

    The source is ``question: … context: …``. The target is the spans in the order of
    the passage, their tokens joined by a space, as the published evaluation compares
    them. The field ``answers`` keeps them for scoring: no later step joins or merges
    it. A split without labels has neither.
    """
    for fields in _questions(location, split):
        question = fields.texts("question")
        context = fields.texts("context")
        answers = None
        if fields.has("label"):
            tags = tuple[Literal["B", "I", "O"], ...]
            labels = checked(fields.values["label"], tags, fields.where, field="label")
            if len(labels) != len(context):
                what = f"expected {len(context)} tags, one for each token of 'context', found {len(labels)}"
                raise UserError(f"field 'label': {what}", where=fields.where)
            answers = spans(labels, context)
        source = qa_source(" ".join(question), " ".join(context)) if context else ""
        extra = {}
        if answers is not None:
            extra["answers"] = list(answers)
        yield fields.example(
            source,
            answers,
            extra=extra,
        )


def _questions(location: str, split: SplitName | None) -> Iterator[Fields]:
    """The questions of JSON files with ``{"data": […]}`` or a list, on any number of lines, or of rows."""
    path = Path(location)
    files = files_of(path, split) if path.exists() else []
    names = [file.name.lower().removesuffix(".gz") for file in files]
    if not files or not all(name.endswith(".json") for name in names):
        yield from rows_at(location, split)
        return
    for file in files:
        text = "".join(f"{line}\n" for _, line in text_lines(file))
        data = as_json(text.encode(), str(file))
        if isinstance(data, Mapping):
            data = data.get("data", [data])
        questions = checked(data, list[Any], str(file), field="data")
        for number, question in enumerate(questions, start=1):
            yield Fields(question, f"{file} question {number}")


def spans(labels: Sequence[str], tokens: Sequence[str]) -> tuple[str, ...]:
    """The spans that BIO tags mark, one tag a token: ``B`` begins a span, ``I`` goes on with it, ``O`` is outside.

    An ``I`` after an ``O`` begins a span, too, as in the published evaluation.
    """
    spans_tokens = []
    for before, label, token in zip(("O", *labels), labels, tokens, strict=False):
        if label == "B" or (label == "I" and before == "O"):
            spans_tokens.append([token])
        elif label == "I":
            spans_tokens[-1].append(token)
    return tuple(map(" ".join, spans_tokens))
