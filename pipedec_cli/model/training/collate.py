"""Records into training batches: each target laid out in its grid, token by token (Eq. 5)."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, repeat
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor

from pipedec_cli.data.fields import plain_text
from pipedec_cli.data.records import Record
from pipedec_cli.data.stored import Stored
from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings
from pipedec_cli.model.fields import FieldCodec
from pipedec_cli.model.training.order import Turn
from pipedec_cli.pipeline.attention import PADDING
from pipedec_cli.pipeline.grid import split_opener
from pipedec_cli.pipeline.schedule import Fixed, Schedule, Together, Whole, draw_schedule, place

IGNORED: Final = -100
#: The share of the training targets that time_max is to hold.
_HELD: Final = 0.995


class Encoded(NamedTuple):
    """One example in token ids: the source with its <eos>, each subsequence without <bos> and <eos>, whether the source was cut."""

    source: list[int]
    texts: tuple[list[int], ...]
    cut: bool = False


#: Examples on disk, so that there may be more of them than memory holds.
StoredExamples = Stored[Encoded]


def encode(checkpoint: Checkpoint, records: Iterable[Record]) -> Iterator[Encoded]:
    """Records as the checkpoint's decoder is trained on them: the sequential one on the whole target as one text.

    Segments that hold no token are left out, unless they are a key's.
    """
    codec, settings = checkpoint.codec(), _settings(checkpoint)
    fields = settings.segmentation.fields
    for record in records:
        source, cut = codec.source(record.source)
        if settings.decoder == "sequential":
            values = record.target_segments or ()
            texts = codec.ids([plain_text(values, fields) if fields else record.target or ""])
        else:
            texts = [ids for ids in codec.ids(record.target_segments or ()) if ids or fields]
        yield Encoded(source, tuple(texts), cut)


def fit_time_max(examples: Iterable[Encoded], settings: MethodSettings) -> int:
    """The last time-step by which all but a few of the targets are written, at the delays that a checkpoint serves.

    It is no less than the paper's. sub_max needs no fitting: targets with more subsequences were merged.
    """
    every: Sequence[Schedule] = (Fixed(1), Fixed(2), Fixed(3))
    plans = every if settings.delay == "any" else [_only(settings.delay)]

    def needed(lengths: Sequence[int]) -> int:
        placed = (zip(place(plan, lengths), lengths, strict=True) for plan in plans)
        return max(start + length + 1 for each in placed for start, length in each)

    ends = array("I", (needed([*map(len, example.texts), 0]) for example in examples))
    if not ends:
        return settings.time_max
    last = torch.frombuffer(ends, dtype=torch.int32).kthvalue(math.ceil(_HELD * len(ends))).values
    return max(settings.time_max, int(last))


def collator(
    checkpoint: Checkpoint, seed: int
) -> Callable[[Sequence[tuple[Turn, Encoded]]], dict[str, Tensor]]:
    """How this checkpoint's training batches are laid out, with schedules drawn by the seed and each example's turn."""
    settings, pad = _settings(checkpoint), int(checkpoint.model.config.pad_token_id or 0)
    bos, eos = checkpoint.bos, checkpoint.eos
    known = FieldCodec(checkpoint.codec(), settings.segmentation.fields).known if checkpoint.together else ()
    closing = settings.decoder == "pipelined" and not known

    def lay_out(batch: Sequence[tuple[Turn, Encoded]]) -> dict[str, Tensor]:
        turns, examples = zip(*batch, strict=True)
        lengths = (1 + len(example.texts) for example in examples)
        plans = [schedule(settings, seed, *each) for each in zip(turns, lengths, strict=True)]
        return collate(examples, plans, bos=bos, eos=eos, pad=pad, closing=closing, known=known)

    return lay_out


def schedule(settings: MethodSettings, seed: int, turn: Turn, subsequences: int) -> Schedule:
    """The schedule of an example that has at most so many subsequences, the closing one included.

    The draw depends on the seed, on the update and on the example, and on nothing else: a resumed run draws what an undisturbed
    one would have drawn, and several processes what one would.
    """
    if settings.decoder == "sequential":
        return Whole()
    if settings.delay != "any":
        return _only(settings.delay)
    update, example = (random.Random(f"{seed} {key}") for key in (turn.update, tuple(turn)))  # noqa: S311
    return draw_schedule(update, example, subsequences)


def _only(delay: int | Literal["together"]) -> Schedule:
    return Together() if delay == "together" else Fixed(delay)


def collate(
    batch: Sequence[Encoded],
    plans: Sequence[Schedule],
    *,
    bos: int | None,
    eos: int,
    pad: int,
    closing: bool,
    known: Sequence[Sequence[int]] = (),
) -> dict[str, Tensor]:
    """Tensors for `loss.TeacherForcing.forward`, all int64 [batch, longest].

    Without a `bos` a source's last token opens its one subsequence. Any id serves as `pad`, since padding is told by position. With `closing`, the empty subsequence Y^F closes every
    target; not so for the sequential decoder. Tokens that are `known`, a row's each, stand before its start and are not
    learnt.
    """
    parted = [split_opener(bos, example.source) for example in batch]
    grids = []
    for example, (_, opener), schedule in zip(batch, parted, plans, strict=True):
        texts = [*example.texts, *[[]] * closing]
        cells: list[tuple[int, int, int, int]] = []
        starts = place(schedule, [*map(len, texts)])
        for number, (start, text) in enumerate(zip(starts, texts, strict=True), start=1):
            key = known[number - 1] if known else ()
            row, learnt = [opener, *key, *text, eos], [*[IGNORED] * len(key), *text, eos, IGNORED]
            cells += zip(row, repeat(number), count(start - len(key)), learnt, strict=False)
        grids.append(zip(*cells, strict=True))
    tokens, subsequences, times, labels = zip(*grids, strict=True)
    return {
        "input_ids": _padded([source for source, _ in parted], pad),
        "attention_mask": _padded([[1] * len(source) for source, _ in parted], 0),
        "decoder_input_ids": _padded(tokens, pad),
        "subsequence": _padded(subsequences, PADDING),
        "time": _padded(times, PADDING),
        "labels": _padded(labels, IGNORED),
    }


def _settings(checkpoint: Checkpoint) -> MethodSettings:
    assert checkpoint.settings is not None, "training needs the method's settings"
    return checkpoint.settings


def _padded(rows: Sequence[Sequence[int]], filling: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[filling] * (longest - len(row))] for row in rows], dtype=torch.long)
