"""Records as training batches: each target lies on its grid (Eq. 5 of the method).

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
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple

import torch
from msgspec.structs import replace
from torch import Tensor

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Field, plain_text
from pipedec_cli.data.records import Record
from pipedec_cli.model.checkpoint import PLAIN, Checkpoint, MethodSettings
from pipedec_cli.model.pretrained import load_config, load_tokenizer, quiet
from pipedec_cli.objects.codec import FieldCodec, PlacedRow, place_rows
from pipedec_cli.pipeline.attention import PADDING, apart
from pipedec_cli.pipeline.grid import split_opener
from pipedec_cli.pipeline.schedule import (
    Fixed,
    Schedule,
    Together,
    Whole,
    draw_schedule,
    place,
)
from pipedec_cli.training.encoded import Encoded
from pipedec_cli.training.order import Turn
from pipedec_cli.training.questions import encode_questions

#: The label of a token after which nothing is learnt.
IGNORED: Final = -100
#: time_max holds this share of the training targets.
_HELD: Final = 0.995
#: The most rows of a record, in one update, that have a value.
_MOST_ASKED: Final = 12


def encode(checkpoint: Checkpoint, records: Iterable[Record]) -> Iterator[Encoded]:
    """Make token ids of records, as they come.

    The sequential decoder learns the whole target as one text, another one a text for
    each segment. Segments without a token are left out, except the values of fields.
    Where questions are learnt, each key has a row that asks for it.
    """
    settings = checkpoint.settings or PLAIN
    if settings.questions:
        yield from encode_questions(checkpoint, records)
        return
    codec = checkpoint.codec()
    fields = settings.segmentation.fields
    for record in records:
        source, cut = codec.source(record.source)
        segments = record.target_segments or ()
        if settings.decoder == "sequential":
            text = plain_text(segments, fields) if fields else record.target or ""
            texts = codec.ids([text], written=True)
        else:
            texts = codec.ids(segments, written=True)
            if not fields:
                texts = [ids for ids in texts if ids]
        yield Encoded(source, tuple(texts), cut)


def check_ids(
    checkpoint: Checkpoint,
    folder: Path,
    records: Sequence[Record],
    examples: Iterable[Encoded],
) -> None:
    """Raise a UserError if a checkpoint's tokenizer gives other ids once it is saved and loaded.

    transformers reads the tokenizers of some families in another way than it has
    written them. `folder` is where it was saved; `examples` are what `encode` made of
    the `records` before.
    """
    with quiet():
        config, _ = load_config(str(folder), local=True)
        tokenizer = load_tokenizer(str(folder), config, local=True)
    loaded = dataclasses.replace(checkpoint, tokenizer=tokenizer)
    read_again = encode(loaded, records)
    for number, (again, learnt) in enumerate(zip(read_again, examples, strict=True)):
        if again != learnt:
            what = f"the tokenizer of {checkpoint.name} gives this text other ids once it is saved and loaded"
            where = records[number].where
            raise UserError(what, where=where, todo="train from another --model")


def fit_limits(examples: Iterable[Encoded], settings: MethodSettings) -> MethodSettings:
    """Return the settings with the time_max and item_max that 99.5 % of the training targets do not exceed.

    They hold at all delays that the checkpoint serves: 1, 2 and 3 if it serves any.
    time_max is the last time-step of a target; item_max are the items of its longest
    list, with the empty one. Neither is less than that of the settings. sub_max needs
    no such fit: targets with more subsequences were merged.
    """
    if settings.questions:  # whose answers are short, whatever the targets are
        return settings
    delays = (1, 2, 3) if settings.delay == "any" else (settings.delay,)
    plans = [_schedule_of(delay) for delay in delays]
    fields = settings.segmentation.fields if settings.decoder == "pipelined" else ()
    listed = sum(field.listed for field in fields)
    ends = array("I")
    items = array("I")
    for example in examples:
        lengths = [len(text) for text in example.texts]
        ends.append(max(_end(plan, lengths, fields) for plan in plans))
        item_count = 1
        if listed:
            # A text for each field, one item of the list included, then a text for
            # each listed field of every other item; and the empty item behind them.
            item_count = 2 + (len(lengths) - len(fields)) // listed
        items.append(item_count)
    time_max = _most(ends, settings.time_max)
    item_max = _most(items, settings.item_max)
    return replace(settings, time_max=time_max, item_max=item_max)


def _end(plan: Schedule, lengths: Sequence[int], fields: Sequence[Field]) -> int:
    """The last time-step of a target whose texts have these many tokens, laid out by the schedule `plan`."""
    ends = []
    for row in _rows(plan, lengths, fields, closing=True):
        length = 0 if row.text is None else lengths[row.text]
        ends.append(row.start + 1 + length)
    return max(ends)


def _most(numbers: array[int], least: int) -> int:
    """The number that 99.5 % of these do not exceed, at least `least`."""
    if not numbers:
        return least
    held = math.ceil(_HELD * len(numbers))
    return max(least, sorted(numbers)[held - 1])


def _rows(
    plan: Schedule, lengths: Sequence[int], fields: Sequence[Field], *, closing: bool
) -> list[PlacedRow]:
    """The rows of the grid for a target whose texts have these many tokens, laid out by the schedule `plan`.

    With `fields` the texts are the values of an object. Else each text is a
    subsequence, and with `closing` the empty subsequence follows that ends a target.
    """
    if fields:
        return place_rows(plan, lengths, fields)
    starts = place(plan, [*lengths, 0] if closing else lengths)
    rows = [PlacedRow(start, 0, 0, number) for number, start in enumerate(starts)]
    if closing:
        rows[-1] = rows[-1]._replace(text=None)
    return rows


def collator(
    checkpoint: Checkpoint, seed: int
) -> Callable[[Sequence[tuple[Turn, Encoded]]], dict[str, Tensor]]:
    """Make the function that makes tensors of a batch, those of `collate`, for a checkpoint.

    It takes each example with its turn, from which, and from the seed, a random
    schedule is drawn.
    """
    settings = checkpoint.settings or PLAIN
    pad = int(checkpoint.model.config.pad_token_id or 0)
    if settings.questions:
        return partial(_collate_questions, seed, pad)
    fields = None
    if checkpoint.together:
        fields = FieldCodec(checkpoint.codec(), settings.segmentation.fields)

    def lay_out(batch: Sequence[tuple[Turn, Encoded]]) -> dict[str, Tensor]:
        """Choose a schedule for each example, and make the tensors of all."""
        plans = [
            schedule(settings, seed, turn, 1 + len(example.texts))
            for turn, example in batch
        ]
        return collate(
            [example for _, example in batch],
            plans,
            bos=checkpoint.bos,
            eos=checkpoint.eos,
            pad=pad,
            closing=settings.decoder == "pipelined" and not fields,
            fields=fields,
        )

    return lay_out


def schedule(
    settings: MethodSettings, seed: int, turn: Turn, subsequences: int
) -> Schedule:
    """The schedule by which the rows of a training example start: the one that the checkpoint is trained for.

    A model for any delay has a random one. `turn` is the example and its update;
    `subsequences` the number of rows, the closing empty one included. A random schedule
    depends only on the seed, the update and the example. So a resumed training, and a
    training in several processes, draw the same schedules as one undisturbed process.
    """
    if settings.decoder == "sequential":
        return Whole()
    if settings.delay != "any":
        return _schedule_of(settings.delay)
    of_update = random.Random(f"{seed} {turn.update}")  # noqa: S311
    return draw_schedule(of_update, _draw_of(seed, turn), subsequences)


def _draw_of(seed: int, turn: Turn) -> random.Random:
    """What draws for an example in an update: the same whichever process computes it, and whenever."""
    return random.Random(f"{seed} {(turn.update, turn.example)}")  # noqa: S311


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
    """Make the arguments of `loss.TeacherForcing.forward`: int64 tensors [batch, source length] or [batch, grid length].

    Args:
        batch: The examples.
        plans: The schedule of each.
        bos: The token that opens a subsequence; without one the last token of the
            source opens the only subsequence.
        eos: The token that ends a subsequence.
        pad: The token of padding; it may be any, as padding is known by its position.
        closing: Whether every target ends with the empty subsequence Y^F.
        fields: The fields of objects, whose keys stand before the start of each row
            and are not learnt.
    """
    sources = []
    grids = []
    for example, plan in zip(batch, plans, strict=True):
        source, opener = split_opener(bos, example.source)
        sources.append(source)
        grids.append(_grid(example, plan, opener, eos, closing=closing, fields=fields))
    return _tensors(sources, grids, pad)


def _tensors(
    sources: Sequence[Sequence[int]], grids: Sequence[_Grid], pad: int
) -> dict[str, Tensor]:
    """The tensors of sources and grids, filled up with the token `pad`."""
    return {
        "input_ids": _padded(sources, pad),
        "attention_mask": _padded([[1] * len(source) for source in sources], 0),
        "decoder_input_ids": _padded([grid.tokens for grid in grids], pad),
        "subsequence": _padded([grid.subsequences for grid in grids], PADDING),
        "time": _padded([grid.times for grid in grids], PADDING),
        "labels": _padded([grid.labels for grid in grids], IGNORED),
    }


class _Grid(NamedTuple):
    """A target on its grid: the same number of each."""

    tokens: list[int]
    subsequences: list[int]
    times: list[int]
    labels: list[int]


def _grid(
    example: Encoded,
    plan: Schedule,
    opener: int,
    eos: int,
    *,
    closing: bool,
    fields: FieldCodec | None,
) -> _Grid:
    """An example's target on its grid, as the schedule `plan` lays it out.

    The `opener` is the token that begins each row, `eos` the one that ends it. With
    `closing` the empty subsequence ends the target. The keys of `fields`, if the target
    is an object, stand before the start of their rows and are not learnt.
    """
    grid = _Grid([], [], [], [])
    lengths = [len(text) for text in example.texts]
    rows = _rows(plan, lengths, fields.fields if fields else (), closing=closing)
    for number, row in enumerate(rows, start=1):
        key = fields.known_of(max(1, row.item))[row.field] if fields else ()
        text = () if row.text is None else example.texts[row.text]
        tokens = [opener, *key, *text, eos]
        first = row.start - len(key)
        grid.tokens.extend(tokens)
        grid.subsequences.extend([number] * len(tokens))
        grid.times.extend(range(first, first + len(tokens)))
        grid.labels.extend([*[IGNORED] * len(key), *text, eos, IGNORED])
    return grid


def _collate_questions(
    seed: int, pad: int, batch: Sequence[tuple[Turn, Encoded]]
) -> dict[str, Tensor]:
    """Choose the rows of each example, by the seed and its turn, and make the tensors of all."""
    sources = []
    grids = []
    for turn, example in batch:
        sources.append(example.source)
        grids.append(_blind_grid(example, asked_rows(example, seed, turn)))
    return _tensors(sources, grids, pad)


def asked_rows(example: Encoded, seed: int, turn: Turn) -> list[int]:
    """The rows that an example has in an update, by their numbers.

    They are drawn anew for each `turn`: at most 12 rows with a value, and a quarter as
    many without, at least one of these. More of them teach a model to say that there is
    no value. It depends on the seed, the update and the example.
    """
    draw = _draw_of(seed, turn)
    rows = range(len(example.texts))
    filled = rows[: len(rows) - example.lacking]
    lacking = rows[len(filled) :]
    asked = draw.sample(filled, min(_MOST_ASKED, len(filled)))
    most = max(1, len(asked) // 4)
    return asked + draw.sample(lacking, min(most, len(lacking)))


def _blind_grid(example: Encoded, rows: Iterable[int]) -> _Grid:
    """Some rows of questions on a grid in which each sees the prompt and itself alone."""
    grid = _Grid([], [], [], [])
    for number, row in enumerate(rows, start=1):
        known = example.known[row]
        text = example.texts[row]
        tokens = [*known, *text[:-1]]
        grid.tokens.extend(tokens)
        grid.subsequences.extend([number] * len(tokens))
        grid.times.extend(apart(number, place) for place in range(len(tokens)))
        grid.labels.extend([*[IGNORED] * (len(known) - 1), *text])
    return grid


def _padded(rows: Sequence[Sequence[int]], filling: int) -> Tensor:
    longest = max(len(row) for row in rows)
    padded = [[*row, *[filling] * (longest - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.long)
