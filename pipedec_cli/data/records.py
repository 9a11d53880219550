"""The record types that travel between the commands, and the names of their fields.

A file is JSON lines. What `segment` writes, `train`, `generate` and `report` read; what `generate` writes,
`score` and `report` read. Unknown fields are the user's: they are carried along untouched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pipedec_cli.data.errors import UserError

Level = Literal["sentence", "phrase", "clause"]
SplitName = Literal["train", "dev", "test"]
SPLITS: Final[tuple[SplitName, ...]] = ("train", "dev", "test")

#: What data sets call their splits, and what they are called here.
SPLIT_NAMES: Final[Mapping[str, SplitName]] = {
    "train": "train",
    "training": "train",
    "dev": "dev",
    "val": "dev",
    "valid": "dev",
    "validation": "dev",
    "test": "test",
    "testing": "test",
}

#: What `generate` adds to an input record. An input that already has one of these is refused, by name.
OUTPUT_FIELDS: Final = (
    "prediction",
    "segments",
    "steps",
    "tokens",
    "truncated",
    "seconds",
    "grid",
    "source_token_ids",
)


_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")


def whole_text(text: str) -> str:
    """A text with U+FFFD for each half of a surrogate pair: JSON can write them, UTF-8 and tokenizers cannot take them."""
    return _HALF_PAIR.sub("\ufffd", text)


@dataclass(frozen=True, slots=True)
class Record:
    """One example as read from a file.

    Attributes:
        id: its identifier, unique within the file; the line number in decimal where the input has none.
        source: the context that text is generated from; never empty.
        target: the right answer as one string (a target given as a list is joined); None where there is none,
            as in an input to be generated from.
        target_segments: the target's subsequences in order, or None before segmentation. An empty target has ().
        references: every right answer, the target first if it is among them; () where there is none.
        where: ``file:line`` for messages.
        fields: the whole input object as it was read, in its own order, to be passed through.
    """

    id: str
    source: str
    target: str | None
    target_segments: tuple[str, ...] | None
    references: tuple[str, ...]
    where: str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FieldNames:
    """What the input calls its fields."""

    source: str = "source"
    target: str = "target"
    id: str = "id"

    def check(self, records: Iterable[Record]) -> None:
        """Refuse records with a field that a later command would write over.

        Raises:
            UserError: naming the field and the first record that has it.
        """
        for record in records:
            for name in OUTPUT_FIELDS:
                if name in record.fields:
                    raise UserError(
                        f"field {name!r} is one that `pipedec generate` writes",
                        where=record.where,
                        todo="rename it",
                    )
            for ours, theirs in (("source", self.source), ("target", self.target), ("id", self.id)):
                if ours != theirs and theirs in record.fields and ours in record.fields:
                    raise UserError(
                        f"field {ours!r} would be written over with {theirs!r}",
                        where=record.where,
                        todo=f"rename {ours!r}, or leave out --{ours}-field",
                    )


@dataclass(frozen=True, slots=True)
class Segmentation:
    """How the targets of a data set were split, as saved beside the data and in a checkpoint's config.json.

    Attributes:
        level: ``sentence``, ``phrase`` or ``clause``.
        separators: the strings that end a phrase at level ``phrase``; () at the other levels.
        joiner: what stands between two segments when a prediction is put together again: a space, ``"; "`` for
            phrases, nothing for scripts without spaces.
        sub_max: the decoder's bound on subsequences; targets hold at most ``sub_max - 1``, since the empty
            subsequence that closes every target needs a place.
    """

    level: Level
    separators: tuple[str, ...]
    joiner: str
    sub_max: int = 20


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was generated from one record: the fields that `generate` adds, and the record's own.

    Attributes:
        id: the record's identifier.
        prediction: the whole text: the segments put together with the joiner.
        segments: the subsequences as text, in order, empty ones dropped.
        steps: decoder calls that this example took part in.
        tokens: tokens generated, <eos> and <bos> not counted.
        truncated: what cut the text short: ``time_max``, ``sub_max`` or ``max_tokens``; None if nothing did.
        seconds: wall time from admission to exit.
        record: the record that it was generated from.
    """

    id: str
    prediction: str
    segments: tuple[str, ...]
    steps: int
    tokens: int
    truncated: str | None
    seconds: float
    record: Record
