"""The rows of a model that answers without training: the keys of a schema, examples for the prompt, and questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from pipedec_cli.data.checking import some_names
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Field, kind_of, list_places, rows_of, texts_of
from pipedec_cli.data.json_schema import read_schema, read_short, settled
from pipedec_cli.data.lines import FieldNames
from pipedec_cli.data.objects import any_item, leaves
from pipedec_cli.data.reading import contents
from pipedec_cli.data.records import Record
from pipedec_cli.data.rows import read_records
from pipedec_cli.data.schema import learn_schema
from pipedec_cli.jobs.events import Notify

if TYPE_CHECKING:
    from pipedec_cli.jobs.generate_settings import RunSettings
    from pipedec_cli.model.blind import BlindDecoder, Rows

#: Examples are chosen from so many records.
_CHOSEN_FROM: Final = 2_000
#: Thresholds are fitted to so many records at most; to fewer than the second number they say little.
MOST_FITTED, FEW_FITTED = 200, 24


def calibration(settings: RunSettings, fields: Sequence[Field], notify: Notify) -> list[Record]:
    """The records with right answers that thresholds are fitted to."""
    if not settings.calibrate:
        return []
    if records := [*islice(_with_targets(settings.calibrate, settings), MOST_FITTED)]:
        _warn_of_unfilled(records, fields, settings.calibrate, notify)
        return records
    what = "has no records with an object as target"
    raise UserError(what, where=settings.calibrate, todo="give records as for --shots")


def blind_rows(settings: RunSettings, notify: Notify) -> Rows:
    """What the rows ask for. A UserError for a file that cannot be used."""
    from pipedec_cli.model.blind import Rows

    questions = list(settings.ask)
    if settings.questions:
        lines = contents(settings.questions).decode("utf-8", "replace").splitlines()
        if not any(found := [line.strip() for line in lines]):
            raise UserError("is empty", where=str(settings.questions), todo="write a question a line")
        questions += filter(None, found)
    if not all(map(str.strip, questions)):
        raise UserError("--ask is empty", todo="ask a question")
    location, count = settings.shots or ("", 0)
    records = [*_with_targets(location, settings)] if location else []
    fields: tuple[Field, ...] = ()
    if settings.schema is not None:
        fields = tuple(map(settled, read_schema(settings.schema, notify.warn).values()))
    elif settings.fields is not None:
        fields = tuple(map(settled, read_short(settings.fields).values()))
    elif records:
        fields, _ = learn_schema(records)
    check_lists(fields)
    if count > len(records):
        what = f"has {len(records):,} records with an object as target"
        raise UserError(what, where=location, todo=f"give at least {count}, or fewer --shots")
    if records:
        _warn_of_unfilled(records, fields, location, notify)
    return Rows(fields, tuple(dict.fromkeys(questions)), tuple(choose_shots(records, fields, count)))


def _warn_of_unfilled(
    records: Sequence[Record], fields: Sequence[Field], location: str, notify: Notify
) -> None:
    """Warn of keys that no record fills: a model that is shown them so learns that they have no value."""
    values = (leaf for record in records for leaf in leaves(record.target_fields or {}))
    filled = {any_item(keys) for keys, value in values if kind_of(value)}
    if unfilled := [field.name for field in fields if field.keys not in filled]:
        keys = some_names(unfilled)
        notify.warn(f"{location}: no record has a value for {keys}: are the keys spelled alike?")


def check_lists(fields: Sequence[Field]) -> None:
    """A UserError for a list of objects that no key names."""
    for places in list_places(fields):
        if all(fields[at].kind == "list" for at in places):
            what = f"{fields[places[0]].name!r} has no key beside it that tells the items apart"
            raise UserError(
                what, todo="put a string beside it, or train with `pipedec segment --level field`"
            )


def _with_targets(location: str, settings: RunSettings) -> Iterator[Record]:
    """The first records of a file that have an object as target."""
    names = FieldNames(settings.source_field, settings.target_field, settings.id_field)
    found = (one for one in read_records(location, names) if one.target_fields is not None)
    return islice(found, _CHOSEN_FROM)


def choose_shots(records: Sequence[Record], fields: Sequence[Field], count: int) -> list[Record]:
    """Examples that show each key with a value and without one, and with different values, as evenly as can be.

    One after the other the record is taken whose keys have been shown least in its ways; the first of equals.
    """
    shown = Counter[tuple[str, bool | str]]()
    texts = [texts_of(record.target_fields or {}, fields) for record in records]
    ways = [
        [
            (field.name, way)
            for (field, _), text in zip(rows_of(fields, len(row)), row, strict=True)
            for way in (bool(text), text)
        ]
        for row in texts
    ]
    chosen: list[int] = []
    while len(chosen) < count:
        left = (number for number in range(len(records)) if number not in chosen)
        chosen.append(max(left, key=lambda number: sum(1 / (1 + shown[way]) for way in ways[number])))
        shown.update(ways[chosen[-1]])
    return [records[number] for number in chosen]


def show_prompt(decoder: BlindDecoder, source: str) -> str:
    """What the model reads for a source: the prompt, and what each row adds to it."""
    write = decoder.text.written
    ids, _ = decoder.text.source(source)
    rows = (f"--- row {number}\n{write(known)}" for number, known in enumerate(decoder.known, start=1))
    return "\n".join([write(ids), *rows])
