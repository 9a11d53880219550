"""Records into training batches: each target laid out in its grid, token by token (Eq. 5)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import count, repeat
from typing import Final, NamedTuple

import torch
from torch import Tensor

from pipedec_cli.data.records import Record
from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings
from pipedec_cli.pipeline.attention import PADDING
from pipedec_cli.pipeline.schedule import Fixed, Schedule, Whole, draw_schedules, place

IGNORED: Final = -100
#: The share of the training targets that time_max is to hold.
_HELD: Final = 0.995


class Encoded(NamedTuple):
    """One example in token ids: the source with its <eos>, each subsequence without <bos> and <eos>, whether the source was cut."""

    source: list[int]
    texts: tuple[list[int], ...]
    cut: bool = False


def encode(checkpoint: Checkpoint, records: Iterable[Record]) -> list[Encoded]:
    """Records as the checkpoint's decoder is trained on them: the sequential one on the whole target as one text.

    Segments that hold no token are left out.
    """
    codec, settings = checkpoint.codec(), _settings(checkpoint)
    encoded = []
    for record in records:
        source, cut = codec.source(record.source)
        if settings.decoder == "sequential":
            texts = codec.ids([record.target or ""])
        else:
            texts = [ids for ids in codec.ids(record.target_segments or ()) if ids]
        encoded.append(Encoded(source, tuple(texts), cut))
    return encoded


def fit_time_max(examples: Sequence[Encoded], settings: MethodSettings) -> int:
    """The last time-step by which all but a few of the targets are written, at the delays that a checkpoint serves.

    It is no less than the paper's. sub_max needs no fitting: targets with more subsequences were merged.
    """
    if not examples:
        return settings.time_max
    delays = (1, 2, 3) if settings.delay == "any" else (settings.delay,)

    def needed(lengths: Sequence[int]) -> int:
        placed = (zip(place(Fixed(delay), lengths), lengths, strict=True) for delay in delays)
        return max(start + length + 1 for each in placed for start, length in each)

    ends = sorted(needed([*map(len, example.texts), 0]) for example in examples)
    return max(settings.time_max, ends[math.ceil(_HELD * len(ends)) - 1])


def collator(checkpoint: Checkpoint, seed: int) -> Callable[[Sequence[Encoded]], dict[str, Tensor]]:
    """How this checkpoint's training batches are laid out, with schedules drawn by the seed."""
    settings, pad = _settings(checkpoint), int(checkpoint.model.config.pad_token_id or 0)
    ids = {"bos": checkpoint.bos, "eos": checkpoint.eos, "pad": pad}
    closing = settings.decoder == "pipelined"
    return lambda batch: collate(batch, schedules(batch, settings, seed), **ids, closing=closing)


def schedules(batch: Sequence[Encoded], settings: MethodSettings, seed: int) -> Sequence[Schedule]:
    """A schedule for each example of a training batch.

    The draw depends on the seed and on what is in the batch, and on nothing else: a resumed run draws what an
    undisturbed one would have drawn.
    """
    if settings.decoder == "sequential":
        return [Whole()] * len(batch)
    if settings.delay != "any":
        return [Fixed(settings.delay)] * len(batch)
    content = [example.source[:8] + example.source[-8:] for example in batch]
    rng = random.Random(f"{seed} {content}")  # noqa: S311 - chance, not secrecy
    return draw_schedules(rng, len(batch), 1 + max(len(example.texts) for example in batch))


def collate(
    batch: Sequence[Encoded], plans: Sequence[Schedule], *, bos: int, eos: int, pad: int, closing: bool
) -> dict[str, Tensor]:
    """Tensors for `teacher_forcing.TeacherForcing.forward`, all int64 [batch, longest].

    Any id serves as `pad`, since padding is told by position. With `closing`, the empty subsequence Y^F closes every
    target; not so for the sequential decoder.
    """
    sources = [example.source for example in batch]
    grids = []
    for example, schedule in zip(batch, plans, strict=True):
        texts = [*example.texts, *[[]] * closing]
        cells: list[tuple[int, int, int, int]] = []
        starts = place(schedule, [*map(len, texts)])
        for number, (start, text) in enumerate(zip(starts, texts, strict=True), start=1):
            row = [bos, *text, eos]
            cells += zip(row, repeat(number), count(start), [*row[1:], IGNORED], strict=False)
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


def _settings(checkpoint: Checkpoint) -> MethodSettings:
    assert checkpoint.settings is not None, "training needs the method's settings"
    return checkpoint.settings


def _padded(rows: Sequence[Sequence[int]], filling: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[filling] * (longest - len(row))] for row in rows], dtype=torch.long)
