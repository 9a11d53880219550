"""Records into training batches: each target laid out in its grid, token by token (Eq. 5)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pipedec_cli.data.records import DecoderKind, Record
from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.pipeline.attention import PADDING
from pipedec_cli.pipeline.schedule import Fixed, Schedule, Whole, draw_schedules, place

IGNORED = -100


@dataclass(frozen=True, slots=True)
class Encoded:
    """One example in token ids.

    Attributes:
        source: the source with its <eos>, cut to the model's limit.
        texts: the ids of each subsequence, without <bos> and <eos>; the whole target as one for the sequential
            decoder.
        cut: how many source tokens were cut off.
    """

    source: list[int]
    texts: tuple[list[int], ...]
    cut: int = 0


def encode(checkpoint: Checkpoint, records: Iterable[Record]) -> list[Encoded]:
    """Records as the checkpoint's decoder is trained on them; segments that hold no token are left out."""
    assert checkpoint.settings is not None, "training needs the method's settings"
    codec = checkpoint.codec()
    encoded = []
    for record in records:
        source, cut = codec.source(record.source)
        if checkpoint.settings.decoder == "sequential":
            texts = codec.ids([record.target or ""])
        else:
            texts = [ids for ids in codec.ids(record.target_segments or ()) if ids]
        encoded.append(Encoded(source, tuple(texts), cut))
    return encoded


Scheduler = Callable[[Sequence[Encoded]], Sequence[Schedule]]


def scheduler(decoder: DecoderKind, delay: int | Literal["any"], seed: int) -> Scheduler:
    """How a training batch gets its schedules.

    The draw depends on the seed and on what is in the batch, and on nothing else: a resumed run draws what an
    undisturbed one would have drawn.
    """
    if decoder == "sequential":
        return lambda batch: [Whole()] * len(batch)
    if delay != "any":
        return lambda batch: [Fixed(delay)] * len(batch)

    def drawn(batch: Sequence[Encoded]) -> Sequence[Schedule]:
        content = [example.source[:8] + example.source[-8:] for example in batch]
        rng = random.Random(f"{seed} {content}")  # noqa: S311 - chance, not secrecy
        return draw_schedules(rng, len(batch), 1 + max(len(example.texts) for example in batch))

    return drawn


@dataclass(frozen=True, slots=True)
class Collator:
    """Examples to one batch of tensors.

    Any id serves as `pad`, since padding is told by position. With `closing`, the empty subsequence Y^F closes every
    target; not so for the sequential decoder.
    """

    scheduler: Scheduler
    bos: int
    eos: int
    pad: int
    closing: bool

    def __call__(self, batch: Sequence[Encoded]) -> dict[str, Tensor]:
        """Tensors for `teacher_forcing.TeacherForcing.forward`, all int64 [batch, longest]."""
        sources = [example.source for example in batch]
        grids = [
            self._grid(example.texts, schedule)
            for example, schedule in zip(batch, self.scheduler(batch), strict=True)
        ]
        tokens, subsequences, times, labels = zip(*grids, strict=True)
        return {
            "input_ids": _padded(sources, self.pad),
            "attention_mask": _padded([[1] * len(source) for source in sources], 0),
            "decoder_input_ids": _padded(tokens, self.pad),
            "subsequence": _padded(subsequences, PADDING),
            "time": _padded(times, PADDING),
            "labels": _padded(labels, IGNORED),
        }

    def _grid(self, texts: Sequence[list[int]], schedule: Schedule) -> tuple[list[int], ...]:
        """Tokens, subsequences, times and labels of one target: [<bos>, Y_i, <eos>] for each i, and Y^F."""
        closed = [*texts, []] if self.closing else list(texts)
        starts = place(schedule, [len(text) for text in closed])
        grid: tuple[list[int], ...] = ([], [], [], [])
        for number, (start, text) in enumerate(zip(starts, closed, strict=True), start=1):
            row = [self.bos, *text, self.eos]
            grid[0].extend(row)
            grid[1].extend([number] * len(row))
            grid[2].extend(range(start, start + len(row)))
            grid[3].extend([*row[1:], IGNORED])
        return grid


def collator(checkpoint: Checkpoint, seed: int) -> Collator:
    """How this checkpoint's training batches are laid out."""
    settings = checkpoint.settings
    assert settings is not None, "training needs the method's settings"
    return Collator(
        scheduler=scheduler(settings.decoder, settings.delay, seed),
        bos=checkpoint.bos,
        eos=checkpoint.eos,
        pad=int(checkpoint.model.config.pad_token_id or 0),
        closing=settings.decoder == "pipelined",
    )


def _padded(rows: Sequence[Sequence[int]], filling: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[filling] * (longest - len(row))] for row in rows], dtype=torch.long)
