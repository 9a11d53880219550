"""One job in several shards: which records each has, and what its file is called."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Self

from pipedec_cli.data.errors import UserError

_WRITTEN: Final = re.compile(r"0*(\d{1,6})/0*(\d{1,6})", re.ASCII)
_NAMED: Final = re.compile(r"part-0*(\d{1,6})-of-0*(\d{1,6})\.jsonl", re.ASCII)


class Shard(NamedTuple):
    """One of so many parts of a job's records, each of which follows on the one before; counted from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @property
    def file(self) -> str:
        """Such as ``part-03-of-16.jsonl``: the names are in the order of the shards."""
        return f"part-{self.number:0{len(str(self.of))}}-of-{self.of}.jsonl"

    def records(self, count: int) -> tuple[int, int]:
        """The first of a job's records that belongs to it, from 0, and the first one behind it."""
        return count * (self.number - 1) // self.of, count * self.number // self.of

    @classmethod
    def written(cls, text: str) -> Self:
        """As on a command line, ``3/16``."""
        if (shard := cls._found(_WRITTEN, text)) is None:
            raise UserError(f"{text!r} is no shard", todo="write K/N, such as 1/4 for the first of four")
        return shard

    @classmethod
    def named(cls, file: str) -> Self | None:
        """The shard that a file's name tells."""
        return cls._found(_NAMED, file)

    @classmethod
    def _found(cls, pattern: re.Pattern[str], text: str) -> Self | None:
        found = pattern.fullmatch(text)
        shard = cls(int(found[1]), int(found[2])) if found else None
        return shard if shard and 1 <= shard.number <= shard.of else None
