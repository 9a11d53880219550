"""Records from a file or another place, one at a time, each checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import FieldNames, Record, SplitName, missing, record_of, whole_text
from pipedec_cli.data.rows import read_rows


def read_records(
    location: str | Path,
    names: FieldNames | None = None,
    *,
    need_target: bool = False,
    split: SplitName | None = None,
    allow_empty: bool = False,
    warn: Callable[[str], None] | None = None,
) -> Iterator[Record]:
    """Read records in file order, checking each.

    A target that is a list of strings is already segmented, and so is a record with ``target_segments``, as `segment`
    writes it. Half surrogate pairs, which no tokenizer takes, become U+FFFD in the text that models see; the object
    in `Record.fields` stays as it was.

    Args:
        location: what `rows.read_rows` takes: a path, ``-``, a folder or a hub data set.
        names: what the input calls its fields.
        need_target: refuse records without a target, too.
        split: which split of a folder or hub data set.
        allow_empty: yield nothing for an empty file rather than refuse it.
        warn: called once, when reading ends, if text had to be mended.
    """
    names = names or FieldNames()
    seen: dict[str, str] = {}
    mended: list[str] = []
    try:
        for number, where, fields in read_rows(location, split):
            record = record_of(fields, where, number, names)
            if _has_half_pairs(record):
                mended.append(where)
                whole = json.loads(whole_text(json.dumps(fields, ensure_ascii=False, default=str)))
                record = replace(record_of(whole, where, number, names), fields=fields)
            if record.id in seen:
                raise UserError(f"id {record.id!r} was already used at {seen[record.id]}", where=where)
            seen[record.id] = where
            if not record.source.strip():
                if fields.get(names.source) is None:
                    raise missing(fields, names.source, where, "--source-field")
                todo = "a record must have a source to generate from"
                raise UserError(f"{names.source!r} is empty", where=where, todo=todo)
            if record.target is None and need_target:
                raise missing(fields, names.target, where, "--target-field")
            yield record
        if not seen and not allow_empty:
            raise UserError("is empty", where=str(location), todo="it must hold at least one record")
    finally:
        if mended and warn is not None:
            records = "1 record" if len(mended) == 1 else f"{len(mended):,} records"
            warn(f"{mended[0]}: half a surrogate pair replaced by U+FFFD, in {records}")


def _has_half_pairs(record: Record) -> bool:
    texts = (
        record.id,
        record.source,
        record.target or "",
        *(record.target_segments or ()),
        *record.references,
    )
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return True
    return False
