"""Decoder calls by torch, on any device.

On a GPU a step at batch 1 is bound by launching some fifteen kernels a layer. A CUDA
graph launches all of them at once, but its shapes and addresses are fixed. So for
graphs the rows of each sequence, the columns and the sources are filled up to a few
sizes, and the buffers stay in place while graphs refer to them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from pipedec_cli.model.engine.prompt_cache import Columns, Ids
from pipedec_cli.model.engine.sequences import Sequences
from pipedec_cli.model.engine.torch.context import (
    Call,
    GridCache,
    PlacedRow,
    StepContext,
)
from pipedec_cli.pipeline.attention import PADDING, PROMPT_TIME
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Odds

if TYPE_CHECKING:  # it imports model code of transformers
    from pipedec_cli.model.engine.torch.layers import StepLayers

#: Set to 0, this environment variable turns CUDA graphs off.
VARIABLE: Final = "PIPEDEC_CUDA_GRAPHS"
#: Fixed sizes: rows of a sequence (above the last bucket its multiples), and units of
#: columns and source tokens.
ROW_BUCKETS: Final = (1, 2, 4, 8, 12, 16, 20, 32)
COLUMNS = 64
SOURCE_TOKENS = 128
#: Tokens of each prompt that one call reads.
PROMPT_TOKENS = 512


def wants_graphs(device: torch.device) -> bool:
    """Whether steps on a device are replayed as CUDA graphs."""
    return device.type == "cuda" and os.environ.get(VARIABLE) != "0"


def bucket(count: int) -> int:
    """The smallest of `ROW_BUCKETS` that holds a count; above the last bucket a multiple of it."""
    for size in ROW_BUCKETS:
        if size >= count:
            return size
    return _rounded(count, ROW_BUCKETS[-1])


def _rounded(count: int, unit: int) -> int:
    """The smallest multiple of a unit that is not less than a count."""
    return -(-count // unit) * unit


class TorchStepper(Sequences):
    """Sequences of examples in flight, whose calls torch computes.

    The `cache` has keys, values and places of all sequences; `source_length` counts
    their source tokens.
    """

    def __init__(self, layers: StepLayers, sequences: int) -> None:
        """Make room for so many sequences."""
        super().__init__(sequences)
        self.layers = layers
        #: Whether calls are filled up to a few shapes, which a GPU records once.
        self.fixed = wants_graphs(layers.device)
        self.cache = GridCache(layers.shape, sequences)
        self.source_length = [0] * sequences
        #: Calls of fixed shapes, by the rows of a sequence and the columns.
        self._calls: dict[tuple[int, int], Call] = {}
        self._pool: Any = None  # the memory that all graphs share

    def _grow(self, columns: int) -> None:
        """Make room for so many columns in each sequence. Recorded calls are forgotten if the buffers have moved."""
        if self.cache.grow(columns):
            self._forget_calls()

    def _forget_calls(self) -> None:
        """Forget all recorded calls, since their graphs refer to buffers that have moved.

        torch frees the graphs' memory with the last graph that uses it.
        """
        self._calls.clear()
        self._pool = None

    @torch.inference_mode()
    def remember(
        self,
        memory: Tensor,
        newcomers: Sequence[tuple[int, Ids]],
    ) -> None:
        """Compute and keep the keys and values of encoded sources, given as (sequence, token ids).

        `memory` has the encoder's states of them, [n, longest, d_model].
        """
        batch, length, _ = memory.shape
        self._make_room(length)
        for sequence, source in newcomers:
            self.show(sequence, len(source), encoded=True)
        numbers = [sequence for sequence, _ in newcomers]
        states = memory.flatten(0, 1).to(self.layers.dtype)
        heads = self.layers.shape.heads
        layers = self.layers.source_kv(states)
        for keys_and_values, buffers in zip(layers, self.cache.sources, strict=True):
            for computed, buffer in zip(keys_and_values, buffers, strict=True):
                by_token = computed.view(batch, length, heads, -1)
                buffer[numbers, :, :length] = by_token.transpose(1, 2)

    def _make_room(self, tokens: int) -> None:
        """Make room for so many tokens of each source."""
        if self.fixed:
            tokens = _rounded(tokens, SOURCE_TOKENS)
        if self.cache.grow_sources(tokens):
            self._forget_calls()

    @torch.inference_mode()
    def columns(self, sequence: int, tokens: int, *, encoded: bool) -> Columns:
        """Views of the keys and values of the first tokens of a sequence's prompt, or of its `encoded` source.

        One tensor a layer, [2, heads, tokens, width]. It makes room for so many tokens.
        """
        if encoded:
            self._make_room(tokens)
            layers = self.cache.sources
        else:
            self._grow(tokens)
            layers = self.cache.grid
        return [both[:, sequence, :, :tokens] for both in layers]

    @torch.inference_mode()
    def show(self, sequence: int, tokens: int, *, encoded: bool) -> None:
        """Let later rows of a sequence see that many tokens of its prompt, or of its `encoded` source."""
        if encoded:
            self.source_length[sequence] = tokens
            hidden = self.cache.source_hidden[sequence]
            hidden[:] = True
            hidden[:tokens] = False
        else:
            position = torch.arange(tokens, device=self.layers.device)
            row = torch.zeros_like(position)
            places = torch.stack([row, position + PROMPT_TIME, position])
            self.cache.places[:, sequence, :tokens] = places

    @torch.inference_mode()
    def read(self, newcomers: Sequence[tuple[int, Ids, int]]) -> None:
        """Compute the keys and values of prompts, a portion of all of them in each call.

        They are given as (sequence, token ids, how many of these it has already).
        """
        prompts = [self.begin(*newcomer) for newcomer in newcomers]
        longest = max(len(rows) for rows in prompts)
        sequences = [sequence for sequence, *_ in newcomers]
        lanes = torch.tensor(sequences, device=self.layers.device)
        for first in range(0, longest, PROMPT_TOKENS):
            rows: list[PlacedRow] = []
            for lane, prompt in enumerate(prompts):
                portion = prompt[first : first + PROMPT_TOKENS]
                for number, (row, position) in enumerate(portion):
                    placed = PlacedRow(
                        token=row.slot.token,
                        lane=lane,
                        column=position,
                        subsequence=0,
                        time=row.slot.time,
                        position=position,
                        number=number,
                    )
                    rows.append(placed)
                self.filled[sequences[lane]] += len(portion)
            columns = max(self.filled[sequence] for sequence in sequences)
            self._grow(columns)
            shape = (len(newcomers), min(longest - first, PROMPT_TOKENS))
            call = Call(self._table(rows), shape, columns, 0, lanes)
            context = StepContext(self.cache, call)
            self.layers.states(context)

    def _table(self, rows: list[PlacedRow]) -> Tensor:
        """Rows as the columns of a table on the device, int64 [7, rows]."""
        columns = list(zip(*rows, strict=True))
        return torch.tensor(columns, device=self.layers.device)

    @torch.inference_mode()
    def step(self, rows: Sequence[Row]) -> list[int]:
        """The most probable next token of each row, from those that its slot allows; −1 if a logit is NaN."""
        call, places = self._run(rows)
        answers = call.answers
        held = [number for number, row in enumerate(rows) if row.slot.allowed]
        if held:  # to some tokens only
            held_places = [places[number] for number in held]
            held_rows = [rows[number] for number in held]
            logits = _allowed(call.logits[held_places], held_rows)
            answers = answers.clone()  # a graph writes into its own
            answers[held_places] = _best(logits)
        tokens: list[int] = answers.tolist()
        return [tokens[place] for place in places]

    def step_with_odds(self, rows: Sequence[Row]) -> tuple[list[int], list[Odds]]:
        """The most probable next token of each row, and its odds."""
        return odds_of(self.logits(rows), rows)

    @torch.inference_mode()
    def logits(self, rows: Sequence[Row]) -> Tensor:
        """Run a call: logits [rows, vocabulary], in the dtype of the weights."""
        call, places = self._run(rows)
        return call.logits[places] if self.fixed else call.logits

    @torch.inference_mode()
    def take_back(self, sequence: int, count: int) -> None:
        """Forget the newest `count` rows of a sequence; a ValueError if it has fewer."""
        super().take_back(sequence, count)
        start = self.filled[sequence]
        end = start + count
        self.cache.places[:, sequence, start:end] = PADDING

    @torch.inference_mode()
    def release(self, sequence: int) -> None:
        """Forget a sequence's grid; its source stays, but is hidden."""
        super().release(sequence)
        self.source_length[sequence] = 0
        self.cache.source_hidden[sequence] = True

    def _run(self, rows: Sequence[Row]) -> tuple[Call, Sequence[int]]:
        """Run the decoder for these rows, which get the next columns of their sequences.

        Returns the call, which has the results, and the place of each row in it.
        """
        counts = [0] * self.sequences
        placed: list[PlacedRow] = []
        self.settle(rows)
        for sequence, slot in rows:
            subsequence, time, position = self.place(sequence, slot)
            row = PlacedRow(
                slot.token,
                sequence,
                self.filled[sequence],
                subsequence,
                time,
                position,
                counts[sequence],
            )
            placed.append(row)
            counts[sequence] += 1
            self.filled[sequence] += 1
        width = max(counts)
        places: Sequence[int] = range(len(placed))
        if self.fixed:
            call, places = self._filled_up(placed, width)
        else:
            call = self._alone(placed, width)
        if call.graph is not None:
            call.graph.replay()
        elif self.fixed and self.layers.device.type == "cuda":
            self._record(call)
        else:
            self._compute(call)
        return call, places

    def _alone(self, rows: list[PlacedRow], width: int) -> Call:
        """The call of these rows alone, at most `width` a sequence, without the sequences behind the last that has one."""
        sequences = max(row.lane for row in rows) + 1
        columns = max(self.filled[:sequences])
        source = max(self.source_length[:sequences])
        self._grow(columns)
        return Call(
            self._table(rows),
            (sequences, width),
            columns,
            source,
        )

    def _filled_up(
        self, rows: list[PlacedRow], width: int
    ) -> tuple[Call, Sequence[int]]:
        """The call of the smallest fixed shape that holds these rows, at most `width` a sequence, filled up with others.

        A call of each shape is made once, so that its graph can run again. Returns the
        call and the place of each row in it.
        """
        width = bucket(width)
        columns = _rounded(max(self.filled), COLUMNS)
        self._grow(columns + 1)
        if (width, columns) not in self._calls:
            self._calls[width, columns] = Call(
                torch.empty(
                    7,
                    self.sequences * width,
                    dtype=torch.long,
                    device=self.layers.device,
                ),
                (self.sequences, width),
                columns,
                self.cache.source_hidden.shape[1],
            )
        call = self._calls[width, columns]
        # A table has the fields of a `PlacedRow` as its rows: the token, lane and column,
        # and behind the places the number. Rows that fill up write their keys into the
        # last column, which attention never reads.
        table = torch.full(call.given.shape, PADDING)
        numbers = torch.arange(self.sequences * width)
        table[0] = 0
        table[1] = numbers // width
        table[2] = self.cache.places.shape[2] - 1
        table[5] = 0
        table[6] = numbers % width
        places = [row.lane * width + row.number for row in rows]
        table[:, places] = torch.tensor(rows).T
        call.given.copy_(table)
        return call, places

    def _record(self, call: Call) -> None:
        """Run a call, and keep its kernels as a CUDA graph that can run again.

        The call runs three times, which writes the same keys each time.
        """
        current = torch.cuda.current_stream()
        aside: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(current)
        with torch.cuda.stream(aside):
            # Libraries choose their kernels and get their workspaces.
            self._compute(call)
        current.wait_stream(aside)
        if not self._pool:
            self._pool = torch.cuda.graph_pool_handle()
        call.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(call.graph, pool=self._pool):
            self._compute(call)
        call.graph.replay()

    def _compute(self, call: Call) -> None:
        """Run a call: its logits and answers are filled in, and its keys and values stand in the cache."""
        context = StepContext(self.cache, call)
        states = self.layers.states(context)
        call.logits = self.layers.head(states)
        call.answers = _best(call.logits)


@torch.inference_mode()
def odds_of(
    logits: Tensor,
    rows: Sequence[Row],
    top: int = 0,
) -> tuple[list[int], list[Odds]]:
    """The most probable next token of each row, and its odds, by its logits, [rows, vocabulary].

    The odds are the probabilities of this token and of the slot's end among the tokens
    that the slot allows, and of these among all; and so many `top` tokens of all.
    """
    free = logits.float()
    allowed = _allowed(free, rows)
    whole = free.logsumexp(dim=-1)
    of_allowed = (allowed.logsumexp(dim=-1) - whole).exp()
    chances = allowed.softmax(dim=-1)
    of_answers = chances.amax(dim=-1)
    ends = torch.tensor([row.slot.end for row in rows], device=free.device)
    of_ends = chances.gather(1, ends.clamp(min=0).unsqueeze(1)).squeeze(1)
    of_ends = of_ends * (ends >= 0)  # 0 where a slot asks for no end
    table = torch.stack([of_answers, of_ends, of_allowed], dim=1).tolist()
    values, tokens = free.topk(top, dim=-1)
    logarithms = (values - whole.unsqueeze(1)).tolist()
    odds = []
    of_rows = zip(table, tokens.tolist(), logarithms, strict=True)
    for number, (numbers, best, their_logarithms) in enumerate(of_rows):
        pairs = [*zip(best, their_logarithms, strict=True)]
        slot = rows[number].slot
        others = list(slot.others)
        of_others: Sequence[float] = ()
        if others:
            of_others = chances[number, others].tolist()
        told = Odds(*numbers)
        odds.append(told._replace(top=pairs, others=of_others))
    answers: list[int] = _best(allowed).tolist()
    return answers, odds


def _allowed(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """The logits of rows, [rows, vocabulary], with −∞ at each token that a row's slot does not allow.

    A slot's mask has token t as bit t % 8 of byte t // 8; no mask allows all.
    """
    if not any(row.slot.allowed for row in rows):
        return logits
    width = logits.shape[1]
    size = -(-width // 8)
    everything = b"\xff" * size
    masks = bytearray()
    for row in rows:
        mask = row.slot.allowed or everything
        padded = mask.ljust(size, b"\0")
        masks += padded[:size]
    packed = torch.frombuffer(masks, dtype=torch.uint8).view(len(rows), size, 1)
    shifts = torch.arange(8, device=logits.device)
    bits = packed.to(logits.device) >> shifts & 1
    allowed = bits.view(len(rows), -1)[:, :width]
    return logits.masked_fill(allowed == 0, -torch.inf)


def _best(logits: Tensor) -> Tensor:
    """The token of each row's largest logit; −1 if one of them is NaN."""
    largest, tokens = logits.max(dim=-1)
    return tokens.masked_fill(largest.isnan(), -1)
