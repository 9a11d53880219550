"""The shards of a job: which records each has, and how its file is named."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from pipedec_cli.data.errors import UserError

_WRITTEN: Final = re.compile(r"0*(\d{1,6})/0*(\d{1,6})", re.ASCII)
_NAMED: Final = re.compile(r"part-0*(\d{1,6})-of-0*(\d{1,6})\.jsonl", re.ASCII)


@dataclass(frozen=True, order=True)
class Shard:
    """Part `number`, counted from 1, of the `of` parts of a job's records, in order."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @property
    def file(self) -> str:
        """The name of its file, such as ``part-03-of-16.jsonl``: the names sort as the shards do."""
        return f"part-{self.number:0{len(str(self.of))}}-of-{self.of}.jsonl"

    def records(self, count: int) -> tuple[int, int]:
        """The place of its first record, from 0, and the place behind its last one, of `count` records."""
        return count * (self.number - 1) // self.of, count * self.number // self.of

    @classmethod
    def all_of(cls, count: int) -> list[Self]:
        """The shards of a job with `count` of them."""
        return [cls(number, count) for number in range(1, count + 1)]

    @classmethod
    def parse(cls, text: str) -> Self:
        """The shard that a command line names, such as ``3/16``."""
        if (shard := cls._match(_WRITTEN, text)) is None:
            raise UserError(f"{text!r} is no shard", todo="write K/N, such as 1/4 for the first of four")
        return shard

    @classmethod
    def named(cls, file: str) -> Self | None:
        """The shard that a file's name tells."""
        return cls._match(_NAMED, file)

    @classmethod
    def _match(cls, pattern: re.Pattern[str], text: str) -> Self | None:
        found = pattern.fullmatch(text)
        shard = cls(int(found[1]), int(found[2])) if found else None
        return shard if shard and 1 <= shard.number <= shard.of else None
