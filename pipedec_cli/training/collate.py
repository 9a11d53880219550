"""The order of the training examples, and records as batches: each target lies on its grid (Eq. 5 of the method).

The target of n subsequences is Ŷ = Ŷ_1 … Ŷ_n Y^F with Ŷ_i = [<bos>, Y_i, <eos>] and Y^F
= [<bos>, <eos>]. <bos> of subsequence i stands at time start_i, its j-th token at
start_i + j. Each token but the last of its subsequence learns the next one: Σ(m_i + 1)
+ 1 predictions.
"""

from __future__ import annotations

import dataclasses
import math
import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import torch
from msgspec.structs import replace
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Field, plain_text
from pipedec_cli.data.records import Record
from pipedec_cli.model.checkpoint import PLAIN, Checkpoint, MethodSettings
from pipedec_cli.model.pretrained import load_config, load_tokenizer, quiet
from pipedec_cli.objects.codec import FieldCodec, place_rows
from pipedec_cli.pipeline.attention import PADDING
from pipedec_cli.pipeline.grid import split_opener
from pipedec_cli.pipeline.schedule import (
    Fixed,
    Schedule,
    Together,
    Whole,
    draw_schedule,
    place,
)

Example = TypeVar("Example")
#: The examples of so many updates are sorted by length together.
_GROUP: Final = 50


class Turn(NamedTuple):
    """The place of an example in a training: the number of its update, from 0 over all epochs, and its own number."""

    update: int
    example: int


class Turns(Sampler[Turn]):
    """Draws the turns of one epoch: the examples of an update have similar lengths; the updates come in random order.

    Every update has `size` examples over all processes and all accumulated batches, so
    that any number of processes learns from the same examples. The last update is
    filled up with examples that the epoch has had already. `epoch` is called when an
    epoch begins.
    """

    def __init__(
        self, lengths: Sequence[int], size: int, seed: int, epoch: Callable[[], int]
    ) -> None:
        self.lengths, self.size, self.seed, self.epoch = (
            torch.tensor(lengths),
            size,
            seed,
            epoch,
        )
        self.updates = -(-len(lengths) // size)

    def __len__(self) -> int:
        return self.updates * self.size

    def __iter__(self) -> Iterator[Turn]:
        count, epoch = len(self.lengths), self.epoch()
        generator = torch.Generator().manual_seed((self.seed << 20) + epoch)
        shuffled = torch.randperm(count, generator=generator)
        group = torch.arange(count) // (
            self.size * max(1, min(_GROUP, count // (4 * self.size)))
        )
        order = shuffled[
            (group * (self.lengths.max() + 1) + self.lengths[shuffled]).argsort(
                stable=True
            )
        ]
        examples = order[torch.arange(len(self)) % count].view(
            -1, self.size
        )  # [updates, size]
        drawn = torch.randperm(self.updates, generator=generator)
        for number, update in enumerate(drawn, self.updates * epoch):
            for example in examples[update].tolist():
                yield Turn(number, example)


class ByTurn(Dataset[tuple[Turn, Example]], Generic[Example]):
    """Examples by their turn. A number alone stands for an update that has only this example."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, turn: Turn | int) -> tuple[Turn, Example]:
        turn = turn if isinstance(turn, Turn) else Turn(turn, turn)
        return turn, self.examples[turn.example]


#: The label of a token after which nothing is learnt.
IGNORED: Final = -100
#: time_max holds this share of the training targets.
_HELD: Final = 0.995


@dataclass(frozen=True, slots=True)
class Encoded:
    """One example in token ids: the source with its <eos>, and each subsequence without <bos> and <eos>.

    `cut` is whether the source was too long and was cut.
    """

    source: list[int]
    texts: tuple[list[int], ...]
    cut: bool = False


def encode(checkpoint: Checkpoint, records: Iterable[Record]) -> Iterator[Encoded]:
    """Records as token ids. The sequential decoder learns the whole target as one text.

    Segments without a token are left out, except the values of fields.
    """
    codec, settings = checkpoint.codec(), checkpoint.settings or PLAIN
    fields = settings.segmentation.fields
    for record in records:
        source, cut = codec.source(record.source)
        if settings.decoder == "sequential":
            values = record.target_segments or ()
            texts = codec.ids(
                [plain_text(values, fields) if fields else record.target or ""],
                written=True,
            )
        else:
            texts = [
                ids
                for ids in codec.ids(record.target_segments or (), written=True)
                if ids or fields
            ]
        yield Encoded(source, tuple(texts), cut)


def check_ids(
    checkpoint: Checkpoint,
    folder: Path,
    records: Iterable[Record],
    examples: Iterable[Encoded],
) -> None:
    """A UserError if the tokenizer in a folder gives a record other ids than those of its example.

    transformers reads the tokenizers of some families in another way than it has
    written them.
    """
    with quiet():
        config, _ = load_config(str(folder), local=True)
        tokenizer = load_tokenizer(str(folder), config, local=True)
    loaded = dataclasses.replace(checkpoint, tokenizer=tokenizer)
    # Both are read once: there may be too many for the memory.
    for record, learnt in zip(records, examples, strict=True):
        (found,) = encode(loaded, [record])
        if found != learnt:
            what = f"the tokenizer of {checkpoint.name} gives this text other ids once it is saved and loaded"
            raise UserError(what, where=record.where, todo="train from another --model")


def fit_limits(examples: Iterable[Encoded], settings: MethodSettings) -> MethodSettings:
    """The settings with the time_max and item_max that hold 99.5 % of the targets at the delays that the checkpoint serves.

    time_max is the last time-step of a target; item_max are the items of its longest
    list, with the empty one. Neither is less than that of the settings. sub_max needs
    no such fit: targets with more subsequences were merged.
    """
    delays = (1, 2, 3) if settings.delay == "any" else (settings.delay,)
    plans = [_schedule_of(delay) for delay in delays]
    fields = settings.segmentation.fields if settings.decoder == "pipelined" else ()
    listed = sum(field.listed for field in fields)
    ends, items = array("I"), array("I")
    for example in examples:
        lengths = [*map(len, example.texts)]
        rows = [
            row
            for plan in plans
            for row in _placed(plan, lengths, fields, closing=True)
        ]
        ends.append(
            max(
                start + (0 if at is None else lengths[at]) + 1
                for start, _, _, at in rows
            )
        )
        items.append(2 + (len(lengths) - len(fields)) // listed if listed else 1)
    time_max, item_max = _most(ends, settings.time_max), _most(items, settings.item_max)
    return replace(settings, time_max=time_max, item_max=item_max)


def _most(numbers: array[int], least: int) -> int:
    """The number that 99.5 % of these do not exceed, at least `least`."""
    if not numbers:
        return least
    last = (
        torch.frombuffer(numbers, dtype=torch.int32)
        .kthvalue(math.ceil(_HELD * len(numbers)))
        .values
    )
    return max(least, int(last))


def _placed(
    plan: Schedule, lengths: Sequence[int], fields: Sequence[Field], *, closing: bool
) -> Iterable[tuple[int, int, int, int | None]]:
    """As `place_rows`, also for texts that are no objects."""
    if fields:
        return place_rows(plan, lengths, fields)
    ends = [*lengths, 0] if closing else lengths
    numbers = [*range(len(lengths)), None]
    return (
        (start, 0, 0, at) for start, at in zip(place(plan, ends), numbers, strict=False)
    )


def collator(
    checkpoint: Checkpoint, seed: int
) -> Callable[[Sequence[tuple[Turn, Encoded]]], dict[str, Tensor]]:
    """A function from examples and their turns to the tensors of `collate`. The seed draws the schedules."""
    settings, pad = (
        checkpoint.settings or PLAIN,
        int(checkpoint.model.config.pad_token_id or 0),
    )
    fields = (
        FieldCodec(checkpoint.codec(), settings.segmentation.fields)
        if checkpoint.together
        else None
    )
    same: Any = {
        "bos": checkpoint.bos,
        "eos": checkpoint.eos,
        "pad": pad,
        "fields": fields,
    }
    same["closing"] = settings.decoder == "pipelined" and not fields

    def lay_out(batch: Sequence[tuple[Turn, Encoded]]) -> dict[str, Tensor]:
        plans = [
            schedule(settings, seed, turn, 1 + len(example.texts))
            for turn, example in batch
        ]
        return collate([example for _, example in batch], plans, **same)

    return lay_out


def schedule(
    settings: MethodSettings, seed: int, turn: Turn, subsequences: int
) -> Schedule:
    """The schedule of an example with at most so many subsequences, Y^F included.

    A random schedule depends only on the seed, the update and the example. So a resumed
    training, and a training in several processes, draw the same schedules as one
    undisturbed process.
    """
    if settings.decoder == "sequential":
        return Whole()
    if settings.delay != "any":
        return _schedule_of(settings.delay)
    of_update = random.Random(f"{seed} {turn.update}")  # noqa: S311
    of_example = random.Random(f"{seed} {(turn.update, turn.example)}")  # noqa: S311
    return draw_schedule(of_update, of_example, subsequences)


def _schedule_of(delay: int | Literal["together"]) -> Schedule:
    return Together() if delay == "together" else Fixed(delay)


def collate(
    batch: Sequence[Encoded],
    plans: Sequence[Schedule],
    *,
    bos: int | None,
    eos: int,
    pad: int,
    closing: bool,
    fields: FieldCodec | None = None,
) -> dict[str, Tensor]:
    """The arguments of `loss.TeacherForcing.forward`: tensors of int64, [batch, source length] or [batch, grid length].

    Without a `bos`, the last token of the source opens the one subsequence. With
    `closing`, every target ends with the empty subsequence Y^F. The keys of `fields`
    stand before the start of each row and are not learnt. Any id may be the `pad`:
    padding is known by its position.
    """
    sources, grids = list[Sequence[int]](), []
    for example, plan in zip(batch, plans, strict=True):
        source, opener = split_opener(bos, example.source)
        rows = _placed(
            plan,
            [*map(len, example.texts)],
            fields.fields if fields else (),
            closing=closing,
        )
        cells: list[tuple[int, int, int, int]] = []  # token, subsequence, time, label
        for number, (start, field, item, at) in enumerate(rows, 1):
            key = fields.known_of(max(1, item))[field] if fields else ()
            text = [] if at is None else example.texts[at]
            row = [opener, *key, *text, eos]
            labels = [*[IGNORED] * len(key), *text, eos, IGNORED]
            for offset, (token, label) in enumerate(
                zip(row, labels, strict=True), -len(key)
            ):
                cells.append((token, number, start + offset, label))
        sources.append(source)
        grids.append(zip(*cells, strict=True))
    tokens, subsequences, times, labels = zip(*grids, strict=True)
    return {
        "input_ids": _padded(sources, pad),
        "attention_mask": _padded([[1] * len(source) for source in sources], 0),
        "decoder_input_ids": _padded(tokens, pad),
        "subsequence": _padded(subsequences, PADDING),
        "time": _padded(times, PADDING),
        "labels": _padded(labels, IGNORED),
    }


def _padded(rows: Sequence[Sequence[int]], filling: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor(
        [[*row, *[filling] * (longest - len(row))] for row in rows], dtype=torch.long
    )
