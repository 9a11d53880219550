"""Records as training batches: each target lies on its grid, token by token (Eq. 5 of the method).

The target of n subsequences is Ŷ = Ŷ_1 … Ŷ_n Y^F with Ŷ_i = [<bos>, Y_i, <eos>] and Y^F = [<bos>, <eos>]. <bos> of
subsequence i stands at time start_i, its j-th token at start_i + j. Each token but the last of its subsequence learns
the next one: Σ(m_i + 1) + 1 predictions.
"""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

from pipedec_cli.data.fields import plain_text
from pipedec_cli.data.records import Record
from pipedec_cli.model.checkpoint import PLAIN, Checkpoint, MethodSettings
from pipedec_cli.model.fields import FieldCodec
from pipedec_cli.model.training.order import Turn
from pipedec_cli.pipeline.attention import PADDING
from pipedec_cli.pipeline.grid import split_opener
from pipedec_cli.pipeline.schedule import Fixed, Schedule, Together, Whole, draw_schedule, place

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
    """The last time-step by which 99.5 % of the targets are written, at the delays that the checkpoint serves.

    It is never less than settings.time_max. sub_max needs no such fit: targets with more subsequences were merged.
    """
    plans: Sequence[Schedule] = (Fixed(1), Fixed(2), Fixed(3))
    if settings.delay != "any":
        plans = [_schedule_of(settings.delay)]
    ends = array("I")
    for example in examples:
        lengths = [*map(len, example.texts), 0]  # and the empty subsequence Y^F
        rows = (row for plan in plans for row in zip(place(plan, lengths), lengths, strict=True))
        ends.append(max(start + length + 1 for start, length in rows))
    if not ends:
        return settings.time_max
    last = torch.frombuffer(ends, dtype=torch.int32).kthvalue(math.ceil(_HELD * len(ends))).values
    return max(settings.time_max, int(last))


def collator(
    checkpoint: Checkpoint, seed: int
) -> Callable[[Sequence[tuple[Turn, Encoded]]], dict[str, Tensor]]:
    """A function from examples and their turns to the tensors of `collate`. The seed draws the schedules."""
    settings, pad = _settings(checkpoint), int(checkpoint.model.config.pad_token_id or 0)
    bos, eos = checkpoint.bos, checkpoint.eos
    known = FieldCodec(checkpoint.codec(), settings.segmentation.fields).known if checkpoint.together else ()
    closing = settings.decoder == "pipelined" and not known

    def lay_out(batch: Sequence[tuple[Turn, Encoded]]) -> dict[str, Tensor]:
        plans = [schedule(settings, seed, turn, 1 + len(example.texts)) for turn, example in batch]
        examples = [example for _, example in batch]
        return collate(examples, plans, bos=bos, eos=eos, pad=pad, closing=closing, known=known)

    return lay_out


def schedule(settings: MethodSettings, seed: int, turn: Turn, subsequences: int) -> Schedule:
    """The schedule of an example with at most so many subsequences, Y^F included.

    A random schedule depends only on the seed, the update and the example. So a resumed training, and a training in
    several processes, draw the same schedules as one undisturbed process.
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
    known: Sequence[Sequence[int]] = (),
) -> dict[str, Tensor]:
    """The arguments of `loss.TeacherForcing.forward`: tensors of int64, [batch, source length] or [batch, grid length].

    Without a `bos`, the last token of the source opens the one subsequence. With `closing`, every target ends with the
    empty subsequence Y^F. `known` are the known tokens of each row: they stand before its start and are not learnt.
    Any id may be the `pad`: padding is known by its position.
    """
    sources, grids = list[Sequence[int]](), []
    for example, plan in zip(batch, plans, strict=True):
        source, opener = split_opener(bos, example.source)
        texts = [*example.texts, []] if closing else example.texts
        cells: list[tuple[int, int, int, int]] = []  # token, subsequence, time, label
        for number, (start, text) in enumerate(zip(place(plan, [*map(len, texts)]), texts, strict=True), 1):
            key = known[number - 1] if known else ()
            row = [opener, *key, *text, eos]
            labels = [*[IGNORED] * len(key), *text, eos, IGNORED]
            for offset, (token, label) in enumerate(zip(row, labels, strict=True), -len(key)):
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


def _settings(checkpoint: Checkpoint) -> MethodSettings:
    return checkpoint.settings or PLAIN


def _padded(rows: Sequence[Sequence[int]], filling: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[filling] * (longest - len(row))] for row in rows], dtype=torch.long)
