"""Train, dev and test: from files of their own, from a field, or out of one file, equal sources together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain, compress, islice, pairwise, repeat
from pathlib import Path

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import SPLIT_NAMES, SPLITS, FieldNames, Record, SplitName
from pipedec_cli.data.rows import given_splits, read_records

Splits = dict[SplitName, list[Record]]


def gather_splits(
    data: str | Path,
    extra: Mapping[SplitName, str | Path],
    names: FieldNames,
    fractions: Mapping[SplitName, float],
    *,
    seed: int = 0,
    limit: int | None = None,
    warn: Callable[[str], None] | None = None,
) -> tuple[Splits, dict[SplitName, str]]:
    """Read all records and see to it that there is a train, a dev and a test split.

    Splits that are given stay as they are: the files of a folder, the splits of a hub data set, `extra` files of dev
    and test, a ``split`` field. What is missing is split off from train by `split_by_source`. No more than `limit`
    records are read of each place; `warn` is told about text that had to be mended. Returns the records by split, and
    where each split comes from, in words.
    """

    def read(place: str | Path, split: SplitName | None = None) -> list[Record]:
        return list(islice(read_records(place, names, need_target=True, split=split, warn=warn), limit))

    origin = f"given in {data}"
    if found := given_splits(data):
        splits: Splits = {name: read(data, name) for name in found}
    else:
        splits = {"train": read(data)}
        if by_field := split_by_field(splits["train"]):
            splits = {name: rows for name, rows in by_field.items() if rows}
            origin = "given by the field 'split'"
    origins: dict[SplitName, str] = dict.fromkeys(splits, origin)
    for name, place in extra.items():
        if name in splits:
            raise UserError(f"{data} brings its own {name} split", todo=f"leave out --{name}")
        splits[name] = read(place)
        origins[name] = f"given in {place}"
    if not splits.get("train"):
        todo = f"its splits are {', '.join(splits)}"
        raise UserError("has no records to train on", where=str(data), todo=todo)
    if missing := {name: share for name, share in fractions.items() if name not in splits}:
        parts = split_by_source(splits["train"], missing, seed)
        splits |= {name: parts[name] for name in ("train", *missing)}
        origins |= dict.fromkeys(missing, "split off by source")
    return {name: splits[name] for name in SPLITS}, origins


def split_by_source(records: Iterable[Record], fractions: Mapping[SplitName, float], seed: int) -> Splits:
    """Deal records out by a seeded hash of their sources.

    Records with equal sources come into the same split, and a record stays where it is when others are added. Where
    chance leaves a wanted split empty although there is a source for each, it is given the one nearest to it. What the
    fractions of dev and test leave is train's, and must be something.
    """
    share = sum(fractions.values())
    if not 0 <= share < 1 or min(fractions.values(), default=0) < 0:
        what = f"dev and test take {share:g} of the data, which leaves nothing to train on"
        raise UserError(what, todo="let --dev-fraction and --test-fraction come to less than 1")
    records = list(records)
    drawn: dict[str, float] = {}  # a number in [0, 1) that depends on source and seed alone
    for source in {record.source for record in records}:
        digest = hashlib.blake2b(f"{seed}\0{source}".encode("utf-8", "surrogatepass"), digest_size=8)
        drawn[source] = int.from_bytes(digest.digest(), "big") / 2**64
    order = sorted(drawn, key=lambda source: (drawn[source], source))
    wanted = [name for name in reversed(SPLITS) if fractions.get(name, 0.0) > 0]
    bounds = accumulate((fractions[name] for name in wanted), initial=0.0)
    sizes = [sum(low <= drawn[source] < high for source in order) for low, high in pairwise(bounds)]
    if len(order) <= len(wanted):  # too few to hold any out
        sizes = []
    elif not all((*sizes, len(order) - sum(sizes))):
        sizes = [max(1, size) for size in sizes]
        while sum(sizes) >= len(order):
            sizes[sizes.index(max(sizes))] -= 1
    place: dict[str, SplitName] = dict.fromkeys(order, "train")
    place.update(zip(order, chain.from_iterable(map(repeat, wanted, sizes)), strict=False))
    return {name: [record for record in records if place[record.source] == name] for name in SPLITS}


def split_by_field(records: Sequence[Record]) -> Splits | None:
    """Deal records out as their ``split`` field says, in all of them or in none; None if it does not speak of splits."""
    named = [SPLIT_NAMES.get(str(record.fields.get("split")).lower()) for record in records]
    if not any(named):
        return None
    if None in named:
        what, where = "'split' names no split, as it does in other records", records[named.index(None)].where
        raise UserError(what, where=where, todo="write train, dev or test")
    return {name: list(compress(records, (name == one for one in named))) for name in SPLITS}


def count_leaks(splits: Mapping[SplitName, Sequence[Record]]) -> int:
    """How many records of dev and test have a source that train has, too."""
    known = {record.source for record in splits["train"]}
    return sum(record.source in known for name in ("dev", "test") for record in splits[name])
