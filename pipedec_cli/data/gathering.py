"""Bringing train, dev and test together: from files of their own, from a field, or out of one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import read_records
from pipedec_cli.data.records import SPLITS, FieldNames, Record, SplitName
from pipedec_cli.data.rows import given_splits
from pipedec_cli.data.splits import DEV_FRACTION, TEST_FRACTION, Splits, split_by_field, split_by_source


@dataclass(frozen=True, slots=True)
class SplitRules:
    """How splits are made that are not given.

    Attributes:
        dev_fraction: dev's share of the records that are split.
        test_fraction: test's share.
        seed: of the hash that deals sources out.
    """

    dev_fraction: float = DEV_FRACTION
    test_fraction: float = TEST_FRACTION
    seed: int = 0

    @property
    def fractions(self) -> dict[SplitName, float]:
        """The shares by split."""
        return {"dev": self.dev_fraction, "test": self.test_fraction}


@dataclass(frozen=True, slots=True)
class Gathered:
    """Records by split, and where each split comes from, in words."""

    splits: Splits
    origins: Mapping[SplitName, str]


SPLIT_OFF: Final = "split off by source"


def gather_splits(
    data: str | Path,
    extra: Mapping[SplitName, str | Path],
    names: FieldNames,
    rules: SplitRules,
    *,
    limit: int | None = None,
    warn: Callable[[str], None] | None = None,
) -> Gathered:
    """Read all records and see to it that there is a train, a dev and a test split.

    Splits that are given stay as they are: the files of a folder, the splits of a hub data set, files named apart, a ``split`` field.
    What is missing is split off from train.

    Args:
        data: a file, a folder, ``-`` or a hub data set.
        extra: files of dev and test beside it.
        names: what the input calls its fields.
        rules: how missing splits are made.
        limit: read no more records than that of each place.
        warn: told about text that had to be mended.

    Raises:
        UserError: bad input, or two places for the same split.
    """

    def read(place: str | Path, split: SplitName | None = None) -> list[Record]:
        return list(islice(read_records(place, names, need_target=True, split=split, warn=warn), limit))

    found = given_splits(data)
    splits: Splits = {}
    origins: dict[SplitName, str] = {}
    if found:
        splits = {name: read(data, name) for name in found}
        origins = dict.fromkeys(found, f"given in {data}")
    else:
        records = read(data)
        by_field = split_by_field(records)
        splits = {name: rows for name, rows in by_field.items() if rows} if by_field else {"train": records}
        origins = dict.fromkeys(splits, "given by the field 'split'" if by_field else f"given in {data}")
    for name, place in extra.items():
        if name in splits:
            raise UserError(f"{data} brings its own {name} split", todo=f"leave out --{name}")
        splits[name] = read(place)
        origins[name] = f"given in {place}"
    if not splits.get("train"):
        raise UserError(
            "has no records to train on", where=str(data), todo=f"its splits are {', '.join(splits)}"
        )
    missing = {name: share for name, share in rules.fractions.items() if name not in splits}
    if missing:
        parts = split_by_source(splits["train"], missing, rules.seed)
        for name in ("train", *missing):
            splits[name] = parts[name]
            origins.setdefault(name, SPLIT_OFF)
    return Gathered({name: splits[name] for name in SPLITS}, origins)
