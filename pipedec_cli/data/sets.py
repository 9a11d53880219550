"""Data of several sorts: sets of records, each a file or a folder of its own, with its JSON Schema or none."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.file_formats import SUFFIXES
from pipedec_cli.data.inputs import files_by_split, refuse_model
from pipedec_cli.data.reading import some_names
from pipedec_cli.data.records import SPLITS
from pipedec_cli.data.splits import Splits
from pipedec_cli.data.stored import StoredRecords

#: The schema of a folder, and of a file NAME.jsonl what stands behind NAME.
_SCHEMA: Final = "schema.json"


class RecordSet(NamedTuple):
    """Records of one sort: their name, the file or folder that holds them, and the file of their schema."""

    name: str
    place: str
    schema: str | None

    @property
    def schema_place(self) -> Path:
        """Where its schema is looked for."""
        place = Path(self.place)
        if place.is_dir():
            return place / _SCHEMA
        return place.with_name(f"{self.name}.{_SCHEMA}")


def record_sets(data: str, schema: str | None = None) -> list[RecordSet]:
    """The sets of a folder that has no files of splits itself, or else the only one of a file, a folder or a hub data set.

    The schema of a folder is its ``schema.json``, that of NAME.jsonl is
    ``NAME.schema.json`` beside it; of an only set it is `schema`, if that is given. A
    UserError for a folder without any set, and for a model's.
    """
    path = Path(data)
    if not has_sets(data):
        return [_record_set(path, schema) if path.exists() else _of_hub(data, schema)]
    refuse_model(path)
    if schema is not None:
        what = f"{data} has several sets, each of which has a schema of its own"
        todo = f"call it {_SCHEMA} in the folder of its set, or NAME.{_SCHEMA} beside NAME.jsonl"
        raise UserError(what, todo=todo)
    sets = [_record_set(place, None) for place in _places_of_sets(path)]
    _warn_of_others(path, sets)
    if not sets:
        todo = (
            "give a file, or a folder with train.jsonl, or with a folder for each set"
        )
        raise UserError("has no records", where=path, todo=todo)
    names = [each.name for each in sets]
    for name in names:
        if names.count(name) > 1:
            what = f"two sets are called {name!r}"
            raise UserError(what, where=path, todo="rename one")
    return sets


def _places_of_sets(folder: Path) -> list[Path]:
    """The files and folders of a folder that may each be a set."""
    places = []
    for place in sorted(folder.iterdir()):
        is_data = place.is_dir() or place.name.lower().endswith(SUFFIXES)
        is_schema = place.name.endswith(_SCHEMA)
        if is_data and not is_schema and not place.name.startswith("."):
            places.append(place)
    return places


def refuse_sets(data: str, todo: str = "give one of them") -> None:
    """Raise a UserError, with what `todo`, for a folder of sets, where only one set can be read."""
    if not has_sets(data):
        return
    names = [place.name for place in _places_of_sets(Path(data))]
    if names:
        what = f"a folder of sets: {some_names(names)}"
        raise UserError(what, where=data, todo=todo)


def _warn_of_others(folder: Path, sets: Sequence[RecordSet]) -> None:
    """Warn of schemas in a folder that belong to none of its sets."""
    known = {each.schema for each in sets}
    for file in sorted(folder.glob(f"*.{_SCHEMA}")):
        if str(file) not in known:
            log.warning(f"{file}: there is no set of that name here")


def has_sets(data: str) -> bool:
    """Whether data are a folder that holds sets, and not a file or the files of one set's splits."""
    path = Path(data)
    return path.is_dir() and not files_by_split(path)


def _record_set(place: Path, schema: str | None) -> RecordSet:
    found = RecordSet(_stem(place), str(place), schema)
    if schema is None and found.schema_place.is_file():
        return found._replace(schema=str(found.schema_place))
    return found


def _stem(place: Path) -> str:
    """The name of a file without its endings, or of a folder."""
    return place.name if place.is_dir() else place.name.partition(".")[0]


def _of_hub(data: str, schema: str | None) -> RecordSet:
    return RecordSet(data.replace("/", "-"), data, schema)


def mixed(parts: Mapping[str, Splits], near: Path) -> Splits:
    """The splits of all sets, given by the sets' names, as those of one data set, which is kept near a folder.

    The records of the sets stand evenly among each other. Their identifiers begin with
    the name of their set and a slash.
    """
    splits = {}
    for split in SPLITS:
        order = []
        for name, of_set in parts.items():
            size = len(of_set[split])
            for number in range(size):
                order.append(((number + 0.5) / size, name, number))
        records = StoredRecords(near)
        for _, name, number in sorted(order):
            record = parts[name][split][number]
            records.append(replace(record, id=f"{name}/{record.id}"))
        splits[split] = records
    return splits
