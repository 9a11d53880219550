"""Targets that are lists of phrases: keyphrases, the spans of MultiSpanQA, and parallel text files.

docs/datasets.md says where each is published, and in which layouts: KP20k of Meng et al. (2017), KPTimes of Gallina et
al. (2019) and the hub's copies of both, MultiSpanQA of Li et al. (2022), parallel text as Chan et al. (2019) have it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers.layout import (
    Example,
    Fields,
    files_of,
    kind,
    one_line,
    parts,
    qa_source,
    rows_at,
)
from pipedec_cli.data.reading import as_json
from pipedec_cli.data.records import SplitName
from pipedec_cli.data.rows import RawRow, text_lines

_SOURCE_NAME: Final = re.compile(r"(?<![a-z0-9])(src|source)(?![a-z0-9])", re.IGNORECASE)


def keyphrases(location: str, split: SplitName | None) -> Iterator[Example]:
    """The documents of a file, a folder or a hub data set in one of the layouts above.

    The source is the title and the body with a space between them, as the evaluation of Chan et al. (2019) reads
    them; the target the phrases in their order, empty ones left out. Where a keyphrase has variants the first is
    the target, and all of them are kept in the field ``keyphrase_variants``.
    """
    for fields in map(Fields, rows_at(location, split)):
        phrases, extra = _phrases(fields)
        name = fields.first_of("abstract", "body", "text", "document", "source")
        body = " ".join(fields.strings(name, "a list of tokens")) if name == "document" else fields.text(name)
        title = fields.text("title") if name != "source" and fields.has("title") else ""
        yield fields.example(" ".join(filter(None, (title.strip(), body.strip()))), phrases, extra=extra)


def _phrases(fields: Fields) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The keyphrases, and all of their variants as a further field where one has several."""
    name = fields.first_of("keyphrases", "keywords", "keyword", "extractive_keyphrases")
    if name == "extractive_keyphrases":
        absent = fields.strings("abstractive_keyphrases") if fields.has("abstractive_keyphrases") else ()
        return parts((*fields.strings(name), *absent)), {}
    value = fields.values[name]
    if isinstance(value, str):
        return parts(value.split(";")), {}
    if not (isinstance(value, list) and value and all(isinstance(item, list) for item in value)):
        return parts(fields.strings(name, "a list of strings, or one string with ';' between phrases")), {}
    for place, group in enumerate(value, start=1):
        for item in group:
            if not isinstance(item, str):
                fields.refuse(name, "a list of strings, the variants of a keyphrase", item, place)
    groups = [list(variants) for variants in map(parts, value) if variants]
    several = any(len(variants) > 1 for variants in groups)
    return tuple(first for first, *_ in groups), {"keyphrase_variants": groups} if several else {}


def multispanqa(location: str, split: SplitName | None) -> Iterator[Example]:
    """The questions of a file, a folder or a hub data set in MultiSpanQA's layout.

    The source is ``question: … context: …``; the target the spans in the order of the passage, their tokens joined
    by a space, as the published evaluation compares them. They are kept in the field ``answers``, too, which no later
    step joins or merges, so that they are what is scored against. A split without labels has neither.
    """
    path = Path(location)
    for file in files_of(path, split) if path.is_dir() else [path]:
        whole = file.is_file() and file.name.lower().removesuffix(".gz").endswith(".json")
        rows = [_whole_json(file)] if whole else rows_at(str(file) if path.exists() else location, split)
        for fields in (Fields(question) for row in rows for question in _questions(row)):
            question, context = (fields.strings(name, "a list of tokens") for name in ("question", "context"))
            answers = _answers(fields, context)
            source = qa_source(" ".join(question), " ".join(context)) if context else ""
            yield fields.example(source, answers, extra={} if answers is None else {"answers": list(answers)})


def _whole_json(file: Path) -> RawRow:
    """The file as one value, on however many lines it stands."""
    content = "".join(f"{line}\n" for _, line in text_lines(file)).encode()
    return RawRow(1, str(file), as_json(content, str(file)))


def _questions(row: RawRow) -> Iterator[RawRow]:
    """The questions of ``{"data": […]}`` or of a list; a question by itself is one."""
    found = row.value.get("data", ...) if isinstance(row.value, Mapping) else row.value
    if found is ...:
        yield row
    elif isinstance(found, list):
        for number, question in enumerate(found, start=1):
            yield RawRow(number, f"{row.where} question {number}", question)
    else:
        raise UserError(f"field 'data': expected a list of questions, found {kind(found)}", where=row.where)


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
    """The spans that BIO tags mark, one tag a token; an ``I`` after an ``O`` opens one, as in the published evaluation."""
    found: list[list[str]] = []
    for before, label, token in zip(("O", *labels), labels, tokens, strict=False):
        if label == "B" or (label == "I" and before == "O"):
            found.append([token])
        elif label == "I":
            found[-1].append(token)
    return tuple(map(" ".join, found))


def parallel(
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
        beside = targets or _target_of(source)
        for number, (left, right) in enumerate(zip_longest(text_lines(source), text_lines(beside)), start=1):
            if left is None or right is None:
                longer, shorter = (beside, source) if left is None else (source, beside)
                what = f"has no partner: {shorter} ends with line {number - 1}"
                raise UserError(what, where=f"{longer}:{number}")
            target = right[1].strip() if separator == "" else split_phrases(right[1], separator or ";")
            yield Example(f"{source}:{number}", None, one_line(left[1].replace("<eos>", " ")), target)


def split_phrases(line: str, separator: str = ";") -> tuple[str, ...]:
    """The phrases of a line of parallel text; an empty one is no phrase, nor is ``<peos>``."""
    return tuple(phrase for phrase in parts(line.split(separator)) if phrase != "<peos>")


def _is_source(file: Path) -> bool:
    return _SOURCE_NAME.search(file.name) is not None


def _target_of(source: Path) -> Path:
    words = ("trg", "tgt", "target") if _is_source(source) else ()
    tried = [source.with_name(_SOURCE_NAME.sub(word, source.name)) for word in words]
    for file in tried:
        if file.is_file():
            return file
    names = ", ".join(file.name for file in tried)
    what = f"expected one of {names} beside it, found none" if tried else "which file holds its targets?"
    raise UserError(what, where=str(source), todo="name it with --targets FILE")
