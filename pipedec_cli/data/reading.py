"""Records from raw objects: what each field must look like, and what is said when it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipedec_cli.data.errors import UserError, kind_of
from pipedec_cli.data.records import Record, SplitName, whole_text
from pipedec_cli.data.rows import read_rows

_EXAMPLE = 'write {"source": "…", "target": "…"}'


def read_records(
    location: str | Path,
    *,
    source_field: str = "source",
    target_field: str = "target",
    id_field: str = "id",
    need_target: bool = False,
    split: SplitName | None = None,
    allow_empty: bool = False,
    warn: Callable[[str], None] | None = None,
) -> Iterator[Record]:
    """Read records one at a time, checking each.

    A target that is a list of strings is already segmented: `Record.target_segments` holds it, and
    `Record.target` the parts with a space between them. So is a record with ``target_segments``, as `segment`
    writes it. Half surrogate pairs, which no tokenizer takes, become U+FFFD in the text that models see; the
    object in `Record.fields` stays as it was.

    Args:
        location: what `rows.read_rows` takes: a path, ``-``, a folder or a hub data set.
        source_field: the field that holds the source.
        target_field: the field that holds the target.
        id_field: the field that holds the identifier; a record without one gets its line number.
        need_target: refuse records without a target, too.
        split: which split of a folder or hub data set.
        allow_empty: yield nothing for an empty file rather than refuse it.
        warn: called once, when reading ends, if text had to be mended.

    Yields:
        The records in file order.

    Raises:
        UserError: something is not as it must be; it names file, line and field.
    """
    seen: dict[str, str] = {}
    mended: list[str] = []
    try:
        for row in read_rows(location, split):
            if not isinstance(row.value, dict):
                raise UserError(
                    f"{kind_of(row.value)} where an object belongs", where=row.where, todo=_EXAMPLE
                )
            text = _FieldReader(row.value, row.where)
            identifier = text.identifier(id_field) or str(row.number)
            if identifier in seen:
                raise UserError(f"id {identifier!r} was already used at {seen[identifier]}", where=row.where)
            seen[identifier] = row.where
            record = _record(text, identifier, source_field, target_field, need_target=need_target)
            if text.mended:
                mended.append(row.where)
            yield record
        if not seen and not allow_empty:
            raise UserError("is empty", where=str(location), todo="it must hold at least one record")
    finally:
        if mended and warn is not None:
            records = "1 record" if len(mended) == 1 else f"{len(mended):,} records"
            warn(f"{mended[0]}: half a surrogate pair replaced by U+FFFD, in {records}")


def _record(
    text: _FieldReader, identifier: str, source_field: str, target_field: str, *, need_target: bool
) -> Record:
    source = text.string(source_field)
    if source is None:
        raise text.missing(source_field, "--source-field")
    if not source.strip():
        raise UserError(
            f"{source_field!r} is empty",
            where=text.where,
            todo="a record must have a source to generate from",
        )
    target, segments = text.target(target_field)
    if target is None and need_target:
        raise text.missing(target_field, "--target-field")
    return Record(
        id=identifier,
        source=source,
        target=target,
        target_segments=segments,
        references=text.references(target),
        where=text.where,
        fields=text.fields,
    )


class _FieldReader:
    """The fields of one object, each read with its type checked."""

    def __init__(self, fields: Mapping[str, Any], where: str) -> None:
        self.fields = fields
        self.where = where
        self.mended = False

    def identifier(self, name: str) -> str | None:
        value = self.fields.get(name)
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise UserError(f"{name!r} is {kind_of(value)}, not a string or a number", where=self.where)
        return self._whole(str(value))

    def string(self, name: str) -> str | None:
        value = self.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise UserError(f"{name!r} is {kind_of(value)}, not a string", where=self.where)
        return self._whole(value)

    def strings(self, name: str) -> tuple[str, ...] | None:
        value = self.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise UserError(f"{name!r} is {kind_of(value)}, not a list of strings", where=self.where)
        for place, item in enumerate(value, start=1):
            if not isinstance(item, str):
                raise UserError(
                    f"{name!r} holds {kind_of(item)} at place {place}, not a string", where=self.where
                )
        return tuple(map(self._whole, value))

    def target(self, name: str) -> tuple[str | None, tuple[str, ...] | None]:
        """The target as one string, and its segments where it has been split already."""
        value = self.fields.get(name)
        if value is not None and not isinstance(value, str | list):
            raise UserError(
                f"{name!r} is {kind_of(value)}, neither a string nor a list of strings", where=self.where
            )
        segments = self.strings("target_segments")
        if isinstance(value, list):
            listed = self.strings(name) or ()
            return " ".join(listed), listed if segments is None else segments
        target = self.string(name)
        if target is None and segments is not None:
            target = " ".join(segments)
        return target, segments

    def references(self, target: str | None) -> tuple[str, ...]:
        given = self.strings("references") or ()
        if target not in given:
            return given
        place = given.index(target)
        return (target, *given[:place], *given[place + 1 :])

    def missing(self, name: str, option: str) -> UserError:
        have = ", ".join(list(map(str, self.fields))[:8]) or "none"
        verb = "is null" if name in self.fields else "is missing"
        return UserError(
            f"field {name!r} {verb}", where=self.where, todo=f"its fields are: {have}; {option} names another"
        )

    def _whole(self, text: str) -> str:
        whole = whole_text(text)
        self.mended |= whole != text
        return whole
