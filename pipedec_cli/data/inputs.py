"""The records to generate from. All are read once before anything is generated, so that errors come first."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from pipedec_cli.data.errors import UserError, skipping_invalid
from pipedec_cli.data.lines import FieldNames
from pipedec_cli.data.records import Record
from pipedec_cli.data.shards import Shard
from pipedec_cli.data.stored import InvalidRecords, StoredRecords
from pipedec_cli.data.writing import hashed, to_json


@dataclass(frozen=True, slots=True)
class Inputs:
    """Valid records, counted, that can be read again and again."""

    count: int
    sha256: str  # of all records of the job, in order
    longest: int  # characters of the longest source
    names: FieldNames
    read: Callable[..., Iterator[Record]]  # the records, or those from a first place up to an end
    file: Mapping[str, str | None]  # where they come from, as a manifest lists it
    invalid: InvalidRecords | None = None  # the records that are skipped, where any may be
    shard: Shard | None = None  # the part of the job; None for all of it
    total: int = 0  # the job's records, where this is a shard

    def part(self, shard: Shard) -> Inputs:
        """The records of one shard."""
        first, end = shard.records(self.count)
        read = lambda: self.read(first, end)  # noqa: E731
        return replace(self, count=end - first, read=read, shard=shard, total=self.count)

    def skipped(self) -> Iterator[dict[str, Any]]:
        """What is wrong with the skipped records between these."""
        if self.invalid is None:
            return iter(())
        places = self.shard.records(self.total) if self.shard else ()
        return self.invalid.between(*places)


def scan_inputs(
    read: Callable[[], Iterator[Record]],
    names: FieldNames,
    *,
    limit: int | None = None,
    keep: Path | None = None,
    location: str = "",
    invalid: InvalidRecords | None = None,
) -> Inputs:
    """Check and count the first `limit` records.

    Records that can be read only once, from a pipe, are kept on disk, in or near the folder `keep`. With `invalid`, which
    `read` must use as well, invalid records are skipped and noted there.
    """
    kept = StoredRecords(keep) if keep else None
    count = longest = 0
    digest = hashlib.sha256()

    def read_valid() -> Iterator[Record]:
        for record in read():
            with skipping_invalid(invalid):
                names.check(record)
                yield record

    def read_again(first: int = 0, end: int | None = None) -> Iterator[Record]:
        if kept is not None:
            return iter(kept[first:end])
        return islice(read_valid(), first, limit if end is None else end)

    for record in islice(read_valid(), limit):
        count, longest = count + 1, max(longest, len(record.source))
        digest.update(to_json([record.id, record.source, dict(record.fields)]).encode() + b"\n")
        if kept is not None:
            kept.append(record)
        if invalid:
            invalid.good = count
    if invalid:
        invalid.closed = True
        if not count:
            first = next(invalid.between(), None)
            none = "none of its records can be used; the first: {where}: {what}"
            raise UserError("is empty" if first is None else none.format(**first), where=location)
    return Inputs(count, digest.hexdigest(), longest, names, read_again, hashed(location), invalid)
