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

from pipedec_cli.model.engine.kept import Columns, Ids
from pipedec_cli.model.engine.sequences import Sequences
from pipedec_cli.model.engine.torch.context import Call, GridCache, StepContext
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
    return -(-count // unit) * unit


class TorchStepper(Sequences):
    """See `Sequences`. The `cache` has keys, values and places of all; `source_length` counts their source tokens."""

    def __init__(self, layers: StepLayers, sequences: int) -> None:
        super().__init__(sequences)
        self.layers = layers
        #: Whether calls are filled up to a few shapes, which a GPU records once.
        self.fixed = wants_graphs(layers.device)
        self.cache = GridCache(layers.shape, sequences)
        self.source_length = [0] * sequences
        #: By rows of a sequence and columns.
        self._calls: dict[tuple[int, int], Call] = {}
        self._pool: Any = None  # the memory that all graphs share

    def _grow(self, columns: int) -> None:
        if self.cache.grow(columns):
            self._forget_calls()

    def _forget_calls(self) -> None:
        """Graphs refer to buffers that have moved. torch frees a pool with the last graph that uses it."""
        self._calls.clear()
        self._pool = None

    @torch.inference_mode()
    def remember(
        self,
        memory: Tensor,
        newcomers: Sequence[tuple[int, Ids]],
    ) -> None:
        """Keep keys and values of encoded sources, [n, longest, d_model]."""
        batch, length, _ = memory.shape
        self._make_room(length)
        for sequence, source in newcomers:
            self.show(sequence, len(source), encoded=True)
        numbers = [sequence for sequence, _ in newcomers]
        states = memory.flatten(0, 1).to(self.layers.dtype)
        heads = self.layers.heads
        layers = self.layers.source_kv(states)
        for layer, both in zip(layers, self.cache.sources, strict=True):
            for made, kept in zip(layer, both, strict=True):
                by_token = made.view(batch, length, heads, -1)
                kept[numbers, :, :length] = by_token.transpose(1, 2)

    def _make_room(self, tokens: int) -> None:
        """Make room for so many tokens of each source."""
        if self.fixed:
            tokens = _rounded(tokens, SOURCE_TOKENS)
        if self.cache.grow_sources(tokens):
            self._forget_calls()

    @torch.inference_mode()
    def columns(self, sequence: int, tokens: int, *, encoded: bool) -> Columns:
        """See `Sequences.columns`."""
        if encoded:
            self._make_room(tokens)
            layers = self.cache.sources
        else:
            self._grow(tokens)
            layers = self.cache.grid
        return [both[:, sequence, :, :tokens] for both in layers]

    @torch.inference_mode()
    def show(self, sequence: int, tokens: int, *, encoded: bool) -> None:
        """See `Sequences.show`."""
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
        """See `Sequences.read`."""
        prompts = [self.begin(*newcomer) for newcomer in newcomers]
        lengths = [len(rows) for rows in prompts]
        longest = max(lengths)
        sequences = [sequence for sequence, *_ in newcomers]
        lanes = torch.tensor(sequences, device=self.layers.device)
        for first in range(0, longest, PROMPT_TOKENS):
            given: list[tuple[int, ...]] = []
            for lane, rows in enumerate(prompts):
                portion = rows[first : first + PROMPT_TOKENS]
                for place, (row, column) in enumerate(portion):
                    slot = row.slot
                    given.append(
                        (slot.token, lane, column, 0, slot.time, column, place)
                    )
                self.filled[sequences[lane]] += len(portion)
            filled = [self.filled[sequence] for sequence in sequences]
            columns = max(filled)
            self._grow(columns)
            table = self._table(given)
            width = min(longest - first, PROMPT_TOKENS)
            shape = (len(newcomers), width)
            call = Call(
                table,
                shape,
                columns,
                0,
                table,
                table,
                lanes=lanes,
            )
            context = StepContext(self.cache, call)
            self.layers.states(context)

    def _table(self, given: list[tuple[int, ...]]) -> Tensor:
        """Rows as the columns of a table, on the device."""
        columns = list(zip(*given, strict=True))
        return torch.tensor(columns, device=self.layers.device)

    @torch.inference_mode()
    def step(self, rows: Sequence[Row]) -> list[int]:
        """The most probable next token of each row, from those that its slot allows; −1 if a logit is NaN."""
        call, where = self._run(rows)
        answers = call.answers
        narrow = [number for number, row in enumerate(rows) if row.slot.allowed]
        if narrow:
            places = [where[number] for number in narrow]
            narrow_rows = [rows[number] for number in narrow]
            logits = _allowed(call.logits[places], narrow_rows)
            answers = answers.clone()  # a graph writes into its own
            answers[places] = _best(logits)
        tokens: list[int] = answers.tolist()
        return [tokens[place] for place in where]

    def step_with_odds(self, rows: Sequence[Row]) -> tuple[list[int], list[Odds]]:
        """The most probable next token of each row, and its odds."""
        return odds_of(self.logits(rows), rows)

    @torch.inference_mode()
    def logits(self, rows: Sequence[Row]) -> Tensor:
        """Run a call: logits [rows, vocabulary], in the dtype of the weights."""
        call, where = self._run(rows)
        return call.logits[where] if self.fixed else call.logits

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
        """Run the call that holds these rows; gives the call and where each row is among its rows."""
        filled = self.filled
        counts = [0] * self.sequences
        given: list[tuple[int, ...]] = []
        self.settle(rows)
        for sequence, slot in rows:
            row, time, position = self.place(sequence, slot)
            column = filled[sequence]
            number = counts[sequence]
            given.append((slot.token, sequence, column, row, time, position, number))
            counts[sequence] += 1
            filled[sequence] += 1
        width = max(counts)
        where: Sequence[int] = range(len(given))
        if self.fixed:
            call, where = self._filled_up(given, width)
        else:
            call = self._alone(given, width)
        if call.graph is not None:
            call.graph.replay()
        elif self.fixed and self.layers.device.type == "cuda":
            self._record(call)
        else:
            self._compute(call)
        return call, where

    def _alone(self, given: list[tuple[int, ...]], width: int) -> Call:
        """The call of these rows alone, without the sequences behind the last one that has a row."""
        sequences = max(row[1] for row in given) + 1
        columns = max(self.filled[:sequences])
        source = max(self.source_length[:sequences])
        self._grow(columns)
        table = self._table(given)
        return Call(
            table,
            (sequences, width),
            columns,
            source,
            table,
            table,
        )

    def _filled_up(
        self, given: list[tuple[int, ...]], width: int
    ) -> tuple[Call, Sequence[int]]:
        """The call of the smallest shape that holds these rows. A call of each shape is made once."""
        width = bucket(width)
        columns = _rounded(max(self.filled), COLUMNS)
        self._grow(columns + 1)
        # Rows that fill up write their keys into the last column, which attention never
        # reads.
        table = torch.full((7, self.sequences * width), PADDING)
        _, size = table.shape
        numbers = torch.arange(size)
        table[0] = 0
        table[1] = numbers // width
        table[2] = self.cache.places.shape[2] - 1
        table[5] = 0
        table[6] = numbers % width
        where = [lane * width + place for _, lane, *_, place in given]
        entries = torch.tensor(given)
        table[:, where] = entries.T
        if (width, columns) not in self._calls:
            empty = torch.empty_like(table, device=self.layers.device)
            self._calls[width, columns] = Call(
                empty,
                (self.sequences, width),
                columns,
                self.cache.source_hidden.shape[1],
                empty,
                empty,
            )
        call = self._calls[width, columns]
        call.given.copy_(table)
        return call, where

    def _record(self, call: Call) -> None:
        """Run a call and keep its kernels as a graph. The call runs three times, which writes the same keys each time."""
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
    """The most probable next token of each row by its logits, and its odds with so many `top` tokens."""
    free = logits.float()
    allowed = _allowed(free, rows)
    whole = free.logsumexp(dim=-1)
    shares = (allowed.logsumexp(dim=-1) - whole).exp()
    chances = allowed.softmax(dim=-1)
    ends = torch.tensor([row.slot.end for row in rows], device=free.device)
    places = ends.clamp(min=0).unsqueeze(1)
    of_ends = chances.gather(1, places).squeeze(1)
    of_ends = of_ends * (ends >= 0)
    of_answers = chances.amax(dim=-1)
    table = torch.stack([of_answers, of_ends, shares], dim=1).tolist()
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
    """The logits of rows, −∞ at each token that a row's slot does not allow."""
    width = logits.shape[1]
    size = -(-width // 8)
    if not any(row.slot.allowed for row in rows):
        return logits
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
