"""Train, dev and test out of one file, such that equal sources stay together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import SPLIT_NAMES, SPLITS, Record, SplitName

DEV_FRACTION: Final = 0.1
TEST_FRACTION: Final = 0.1
SPLIT_FIELD: Final = "split"
_HELD_OUT: Final[tuple[SplitName, ...]] = ("test", "dev")

Splits = dict[SplitName, list[Record]]


def split_by_source(records: Iterable[Record], fractions: Mapping[SplitName, float], seed: int) -> Splits:
    """Deal records out by a seeded hash of their sources.

    Records with equal sources come into the same split, and a record stays where it is when others are added. Where
    chance leaves a wanted split empty although there is a source for each, it is given the one nearest to it.

    Args:
        records: what to deal out.
        fractions: the share of dev and of test, below 1 together; what is left is train's. A split that is not
            named gets nothing.
        seed: another one deals differently.

    Raises:
        UserError: the fractions leave nothing to train on.
    """
    if not 0 <= sum(fractions.values()) < 1 or any(share < 0 for share in fractions.values()):
        raise UserError(
            f"dev and test take {sum(fractions.values()):g} of the data, which leaves nothing to train on",
            todo="let --dev-fraction and --test-fraction come to less than 1",
        )
    records = list(records)
    drawn = {source: _draw(source, seed) for source in dict.fromkeys(record.source for record in records)}
    order = sorted(drawn, key=lambda source: (drawn[source], source))
    place: dict[str, SplitName] = {}
    for source in order:
        bound = 0.0
        place[source] = "train"
        for name in _HELD_OUT:
            bound += fractions.get(name, 0.0)
            if drawn[source] < bound:
                place[source] = name
                break
    _fill_empty(place, order, fractions)
    splits: Splits = {name: [] for name in SPLITS}
    for record in records:
        splits[place[record.source]].append(record)
    return splits


def split_by_field(records: Sequence[Record]) -> Splits | None:
    """Deal records out as their ``split`` field says; None if it does not speak of splits.

    Raises:
        UserError: some records name a split there, and others do not.
    """
    named = [SPLIT_NAMES.get(str(record.fields.get(SPLIT_FIELD)).lower()) for record in records]
    if not any(named):
        return None
    splits: Splits = {name: [] for name in SPLITS}
    for record, name in zip(records, named, strict=True):
        if name is None:
            raise UserError(
                f"{SPLIT_FIELD!r} names no split, as it does in other records",
                where=record.where,
                todo="write train, dev or test",
            )
        splits[name].append(record)
    return splits


def count_leaks(splits: Mapping[SplitName, Sequence[Record]]) -> int:
    """How many records of dev and test have a source that train has, too."""
    known = {record.source for record in splits["train"]}
    return sum(record.source in known for name in ("dev", "test") for record in splits[name])


def _draw(source: str, seed: int) -> float:
    """A number in [0, 1) that depends on source and seed alone."""
    digest = hashlib.blake2b(f"{seed}\0{source}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _fill_empty(
    place: dict[str, SplitName], order: Sequence[str], fractions: Mapping[SplitName, float]
) -> None:
    """Give each wanted split a source of its own, if there are enough: order ascends from test over dev to train."""
    wanted: list[SplitName] = [name for name in _HELD_OUT if fractions.get(name, 0.0) > 0]
    if len(order) < len(wanted) + 1:
        place.update(dict.fromkeys(order, "train"))
        return
    if all(name in place.values() for name in (*wanted, "train")):
        return
    counts = {name: sum(there == name for there in place.values()) for name in (*wanted, "train")}
    sizes = [max(1, counts[name]) for name in wanted]
    while sum(sizes) >= len(order):
        sizes[sizes.index(max(sizes))] -= 1
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    for rank, source in enumerate(order):
        place[source] = next((name for name, end in zip(wanted, ends, strict=True) if rank < end), "train")
