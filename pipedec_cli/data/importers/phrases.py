"""Data sets whose targets are lists of phrases: keyphrases, the spans of MultiSpanQA, and parallel text files.

docs/datasets.md says where each is published and in which layouts: KP20k (Meng et al.
2017), KPTimes (Gallina et al. 2019) and the hub's copies of both, MultiSpanQA (Li et
al. 2022), parallel text as in Chan et al. (2019).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Literal

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.file_formats import text_lines
from pipedec_cli.data.importers.layout import (
    Example,
    Fields,
    files_of,
    one_line,
    parts,
    qa_source,
    rows_at,
)
from pipedec_cli.data.reading import as_json, checked
from pipedec_cli.data.records import SplitName

_SOURCE_NAME: Final = re.compile(
    r"(?<![a-z0-9])(src|source)(?![a-z0-9])", re.IGNORECASE
)


def keyphrases(location: str, split: SplitName | None) -> Iterator[Example]:
    """The documents of a file, a folder or a hub data set.

    The source is the title and the body with a space between them, as the evaluation of
    Chan et al. (2019) reads them. The target is the phrases in their order. If a
    keyphrase has variants, the first is the target; all of them are kept in the field
    ``keyphrase_variants``.
    """
    for fields in rows_at(location, split):
        phrases, extra = _phrases(fields)
        name = fields.first_of("abstract", "body", "text", "document", "source")
        body = " ".join(fields.texts(name)) if name == "document" else fields.text(name)
        title = ""
        if name != "source" and fields.has("title"):
            title = fields.text("title")
        source = f"{title.strip()} {body.strip()}".strip()
        yield fields.example(source, phrases, extra=extra)


def _phrases(fields: Fields) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The keyphrases of a document; and the field ``keyphrase_variants``, {} if no keyphrase has several.

    A row has them as a text with ``;`` between, as a list, as a list of lists of
    variants, or in two lists: those that stand in the text, and those that do not.
    """
    name = fields.first_of("keyphrases", "keywords", "keyword", "extractive_keyphrases")
    if name == "extractive_keyphrases":
        texts = fields.texts(name)
        if fields.has("abstractive_keyphrases"):
            texts += fields.texts("abstractive_keyphrases")
        return parts(texts), {}
    value = fields.values[name]
    if value and isinstance(value, list) and isinstance(value[0], list):
        lists = checked(value, tuple[tuple[str, ...], ...], fields.where, field=name)
        groups = [list(variants) for variants in map(parts, lists) if variants]
        phrases = tuple(first for first, *_ in groups)
        if any(len(variants) > 1 for variants in groups):
            return phrases, {"keyphrase_variants": groups}
        return phrases, {}
    text_or_list: Any = str | tuple[str, ...]
    given = checked(value, text_or_list, fields.where, field=name)
    return parts(given.split(";") if isinstance(given, str) else given), {}


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
