"""The splits train, dev and test: from files of their own, from a field, or split off by source."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.inputs import given_splits, read_records
from pipedec_cli.data.reading import missing_field
from pipedec_cli.data.records import SPLIT_NAMES, SPLITS, FieldNames, Record, SplitName
from pipedec_cli.data.stored import StoredRecords

if TYPE_CHECKING:
    from numpy import uint64
    from numpy.typing import NDArray

Splits = dict[SplitName, StoredRecords]
#: Reads the records of a place, or of one split of it.
_Read = Callable[[str | Path, SplitName | None], StoredRecords]


def gather_splits(
    data: str | Path,
    extra: Mapping[SplitName, str | Path],
    names: FieldNames,
    fractions: Mapping[SplitName, float],
    *,
    near: Path,
    sources_only: bool = False,
    seed: int = 0,
    limit: int | None = None,
) -> tuple[Splits, dict[SplitName, str]]:
    """Read all records once, at most `limit` of each place, and make a train, a dev and a test split.

    Splits that are given stay as they are: the files of a folder, the splits of a hub
    data set, the `extra` files, or what a field ``split`` of the records says. Those
    that are missing are split off from train, by source.

    Args:
        data: a file, a folder or a hub data set.
        extra: files of dev and test that the user named.
        names: the fields that hold source and target.
        fractions: the share, 0 to 1, of the sources that goes into dev and into test,
            where they are not given.
        near: the records are stored in a temporary file near this folder.
        sources_only: no record may have a target, but those of a test file: right
            answers, to score by. Otherwise each must have one.
        seed: of the choice of sources.
        limit: the first so many records of each place are read; None: all.

    Returns:
        The records of all three splits, and the origin of each split in words.
    """
    stored = StoredRecords(near)

    def read(place: str | Path, split: SplitName | None = None) -> StoredRecords:
        start = len(stored)
        is_test_file = place == extra.get("test")
        records = read_records(place, names, split=split, say_mended=True)
        for record in islice(records, limit):
            names.check(record)
            if not sources_only:
                _require_target(record, names)
            elif not is_test_file:
                _refuse_target(record)
            stored.append(record)
        return stored[start:]

    splits, origin = _splits_of(data, read)
    origins: dict[SplitName, str] = dict.fromkeys(splits, origin)
    for name, place in extra.items():
        if name in splits:
            what = f"{data} brings its own {name} split"
            raise UserError(what, todo=f"leave out --{name}")
        splits[name] = read(place, _split_of_file(place, name))
        origins[name] = f"given in {place}"
    if not splits.get("train"):
        todo = f"its splits are {', '.join(splits)}"
        raise UserError("has no records to train on", where=data, todo=todo)
    lacking = {name: share for name, share in fractions.items() if name not in splits}
    if lacking:
        parts = split_by_source(splits["train"], lacking, seed)
        splits |= {name: parts[name] for name in ("train", *lacking)}
        origins |= dict.fromkeys(lacking, "split off by source")
    return {name: splits[name] for name in SPLITS}, origins


def _require_target(record: Record, names: FieldNames) -> None:
    """Raise a UserError if a record has no target."""
    if record.target is None:
        hint = "--target-field names another, or leave the record out; "
        hint += "--sources-only takes data for `pipedec train --teacher`"
        raise missing_field(record.fields, names.target, record.where, hint)


def _refuse_target(record: Record) -> None:
    """Raise a UserError if a record has a target where a teacher is to write it."""
    if record.target is not None:
        todo = "leave out --sources-only: a teacher takes data with targets, too"
        raise UserError("there is a target", where=record.where, todo=todo)


def _splits_of(data: str | Path, read: _Read) -> tuple[Splits, str]:
    """The splits that the data itself has, all of it as train if it names none, and their origin in words."""
    origin = f"given in {data}"
    given = given_splits(data)
    if given:
        return {name: read(data, name) for name in given}, origin
    train = read(data, None)
    by_field = split_by_field(train)
    if not by_field:
        return {"train": train}, origin
    splits = {name: rows for name, rows in by_field.items() if rows}
    return splits, "given by the field 'split'"


def _split_of_file(place: str | Path, name: SplitName) -> SplitName | None:
    """What to read of the place that --dev or --test names for the split `name`.

    None for a file, which is read whole. Of a folder or hub data set it is the same
    split; a UserError if there is none, as train would be read in its place.
    """
    there = given_splits(place)
    if not there:
        return None
    if name in there:
        return name
    todo = f"name the file with --{name}"
    raise UserError(f"has no file for {name}", where=place, todo=todo)


def split_by_source(
    records: StoredRecords, fractions: Mapping[SplitName, float], seed: int
) -> Splits:
    """Split records by a seeded hash of their sources: dev and test get their `fractions` of the sources, train the rest.

    Records with equal sources come into the same split, and a record stays in its split
    when others are added. If a wanted split would be empty although there are sources
    enough, it gets the nearest source. A UserError if nothing is left to train on.
    """
    share = sum(fractions.values())
    if not 0 <= share < 1 or min(fractions.values(), default=0) < 0:
        what = (
            f"dev and test take {share:g} of the data, which leaves nothing to train on"
        )
        raise UserError(what, todo="let the key held_out be less than a half")
    import numpy as np

    # As fractions of 2**64 the hashes are spread evenly from 0 to 1: a split has the
    # sources between two bounds.
    hashes = source_hashes(records, seed)
    order = np.unique(hashes)
    wanted = [name for name in reversed(SPLITS) if fractions.get(name, 0.0) > 0]
    bounds = list(accumulate((fractions[name] for name in wanted), initial=0.0))
    sizes = np.diff(np.searchsorted(order / 2.0**64, bounds)).tolist()
    if len(order) <= len(wanted):  # too few to hold any out
        sizes = [0] * len(wanted)
    elif not all((*sizes, len(order) - sum(sizes))):  # a split, or train, lacks any
        sizes = [max(1, size) for size in sizes]
        while sum(sizes) >= len(order):
            sizes[sizes.index(max(sizes))] -= 1
    # The number of each record's split in (*wanted, "train"): so many splits end before
    # its source.
    numbers = np.searchsorted(
        np.cumsum(sizes), np.searchsorted(order, hashes), side="right"
    )
    parts = {
        name: records.only(numbers == number)
        for number, name in enumerate([*wanted, "train"])
    }
    return {name: parts.get(name, records[:0]) for name in SPLITS}


def split_by_field(records: StoredRecords) -> Splits | None:
    """Split records by their ``split`` field, which all of them must have; None if none of them has it."""
    named = [
        SPLIT_NAMES.get(str(record.fields.get("split")).lower()) for record in records
    ]
    if not any(named):
        return None
    if None in named:
        what = "'split' names no split, as it does in other records"
        where = records[named.index(None)].where
        raise UserError(what, where=where, todo="write train, dev or test")
    splits = {}
    for name in SPLITS:
        splits[name] = records.only(record_split == name for record_split in named)
    return splits


def count_leaks(splits: Splits) -> int:
    """The number of records of dev and test whose source train has, too."""
    import numpy as np

    train, *others = (source_hashes(splits[name]) for name in SPLITS)
    return int(np.isin(np.concatenate(others), train).sum())


def source_hashes(records: Iterable[Record], seed: int = 0) -> NDArray[uint64]:
    """An 8-byte hash of each record's source and the seed."""
    import numpy as np

    digests = array("Q")
    for record in records:
        text = f"{seed}\0{record.source}".encode("utf-8", "surrogatepass")
        digests.append(
            int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
        )
    return np.frombuffer(digests, np.uint64)
