"""The method written out once more: plain, slow and without a cache. The code is held to it, and shares none of it.

`oracle_decode` is the decoding loop; it knows nothing of plans, rows or caches: at every time-step it hands the whole
grid so far to a function that computes every logit afresh. `oracle_t5_logits` is such a computation for T5: the
decoder's own blocks, with a mask and a bias that are filled in pair by pair from the Manhattan distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor


class Placed(NamedTuple):
    """A token of the grid: the subsequence it belongs to (from 1), the time at which it stands, and its id."""

    subsequence: int
    time: int
    token: int


#: Given every token of the grid so far and the indices of those whose successor is wanted: the logits, one row each.
NextLogits = Callable[[list[Placed], list[int]], Sequence[Sequence[float]]]


@dataclass(frozen=True)
class OracleSchedule:
    """When a new subsequence is due.

    Attributes:
        kind: ``fixed`` (every `delay` time-steps), ``wait`` (when the one before has ended), ``drawn`` (each at
            its own distance from the one before, at the latest when that ends) or ``whole`` (one and never another).
        delay: Δt of a fixed schedule.
        distances: of a drawn one: distances[i] lies between subsequence i + 1 and i + 2; the last one repeats.
    """

    kind: Literal["fixed", "wait", "drawn", "whole"]
    delay: int = 1
    distances: tuple[float, ...] = ()


@dataclass
class OracleSubsequence:
    """A row of the grid: where its <bos> stands, and its tokens without <bos> and with <eos>."""

    start: int
    tokens: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class OracleCall:
    """One decoder call: the time-step, the tokens that no earlier call has seen, and the tokens that came of it."""

    time: int
    fed: list[Placed]
    made: list[Placed]


@dataclass
class OracleResult:
    """The whole decoding.

    Attributes:
        subsequences: every one that was established, empty ones included.
        calls: the decoder calls, in order.
        truncated: ``time_max``, ``sub_max``, ``max_tokens`` or None.
        gap: the smallest difference between the best two logits of any answer; infinite if none was asked for.
    """

    subsequences: list[OracleSubsequence]
    calls: list[OracleCall]
    truncated: str | None
    gap: float

    @property
    def steps(self) -> int:
        """Decoder calls."""
        return len(self.calls)

    @property
    def rows(self) -> list[tuple[int, list[int]]]:
        """(start, tokens) of every subsequence, <eos> kept."""
        return [(row.start, row.tokens) for row in self.subsequences]


def oracle_decode(
    next_logits: NextLogits,
    schedule: OracleSchedule,
    *,
    bos: int,
    eos: int,
    explore: str = "retry",
    time_max: int | None = 50,
    sub_max: int | None = 20,
    max_tokens: int | None = None,
) -> OracleResult:
    """Decode greedily, as the method's text says, recomputing everything at every time-step.

    Args:
        next_logits: the model.
        schedule: when subsequences start.
        bos: the id that opens a subsequence.
        eos: the id that ends one.
        explore: ``retry`` goes on establishing after an empty subsequence, ``once`` does not.
        time_max: the last time-step, or None.
        sub_max: the most subsequences, or None.
        max_tokens: the most tokens, <eos> not counted; for schedules with one live subsequence at a time.
    """
    rows: list[OracleSubsequence] = []
    calls: list[OracleCall] = []
    seen: set[Placed] = set()
    gap = math.inf
    out_of_tokens = False

    def live(row: OracleSubsequence) -> bool:
        return row.tokens[-1:] != [eos]

    def complete() -> bool:
        if any(live(row) for row in rows):
            return False
        return rows[-1].tokens == [eos] or len(rows) == sub_max or schedule.kind == "whole"

    t = 0
    while time_max is None or t < time_max:
        t += 1
        given_up = explore == "once" and any(row.tokens == [eos] for row in rows)
        if _due(schedule, t, rows, eos) and not given_up and (sub_max is None or len(rows) < sub_max):
            rows.append(OracleSubsequence(start=t - 1))
        asked = [i for i, row in enumerate(rows, 1) if live(row)]
        if not asked:
            continue  # the clock runs on to the next establishing time

        grid = _placed(rows, bos)
        newest = [max(k for k, placed in enumerate(grid) if placed.subsequence == i) for i in asked]
        made = []
        for i, logits in zip(asked, next_logits(grid, newest), strict=True):
            best, second = sorted(logits, reverse=True)[:2]
            gap = min(gap, float(best - second))
            token = list(logits).index(best)
            rows[i - 1].tokens.append(token)
            made.append(Placed(i, t, token))
        calls.append(OracleCall(t, [placed for placed in grid if placed not in seen], made))
        seen |= set(grid)

        if complete():
            break
        count = sum(token != eos for row in rows for token in row.tokens)
        if max_tokens is not None and count >= max_tokens:
            out_of_tokens = True
            break

    truncated = None
    if out_of_tokens:
        truncated = "max_tokens"
    elif any(live(row) for row in rows):
        truncated = "time_max"
    elif len(rows) == sub_max and rows[-1].tokens != [eos]:
        truncated = "sub_max"
    return OracleResult(rows, calls, truncated, gap)


def _due(schedule: OracleSchedule, t: int, rows: list[OracleSubsequence], eos: int) -> bool:
    """Whether a subsequence is to be established at the start of time-step t, its <bos> at time t − 1."""
    if schedule.kind == "fixed":
        return (t - 1) % schedule.delay == 0
    if not rows:
        return t == 1
    if schedule.kind == "whole":
        return False
    newest = rows[-1]
    has_ended = newest.tokens[-1:] == [eos]
    if schedule.kind == "wait":
        return has_ended
    distance = schedule.distances[min(len(rows), len(schedule.distances)) - 1]
    return has_ended or t - 1 == newest.start + distance


def _placed(rows: list[OracleSubsequence], bos: int) -> list[Placed]:
    """Every token of the grid: <bos> of subsequence i at time start_i, its j-th token at start_i + j."""
    return [
        Placed(i, row.start + j, token)
        for i, row in enumerate(rows, 1)
        for j, token in enumerate([bos, *row.tokens])
    ]


def sees(looking: Placed, looked_at: Placed) -> bool:
    """Whether one token sees another: it stands in no later subsequence and at no later time."""
    return looked_at.subsequence <= looking.subsequence and looked_at.time <= looking.time


def manhattan(one: Placed, other: Placed) -> int:
    """The distance |t1 − t2| + |i1 − i2|."""
    return abs(one.time - other.time) + abs(one.subsequence - other.subsequence)


def oracle_t5_logits(
    model: Any,
    source_ids: Sequence[int],
    tokens: Sequence[int],
    subsequences: Sequence[int],
    times: Sequence[int],
) -> Tensor:
    """All tokens of one example through transformers' own T5 decoder blocks at once, under the method's mask.

    Args:
        model: a T5ForConditionalGeneration (or mT5) in evaluation mode.
        source_ids: the source, not padded.
        tokens: the ids that stand in the grid, in any order.
        subsequences: which subsequence each belongs to, from 1.
        times: the time at which each stands.

    Returns:
        Logits of shape [tokens, vocabulary].
    """
    grid = [Placed(*entry) for entry in zip(subsequences, times, tokens, strict=True)]
    decoder = model.decoder
    attention = decoder.block[0].layer[0].SelfAttention
    with torch.no_grad():
        encoded = model.encoder(input_ids=torch.tensor([list(source_ids)])).last_hidden_state
        mask = torch.zeros(1, 1, len(grid), len(grid), dtype=encoded.dtype)
        bias = torch.zeros(1, attention.n_heads, len(grid), len(grid), dtype=encoded.dtype)
        for q, looking in enumerate(grid):
            for k, looked_at in enumerate(grid):
                if not sees(looking, looked_at):
                    mask[0, 0, q, k] = torch.finfo(encoded.dtype).min
                bucket = attention._relative_position_bucket(
                    torch.tensor(-manhattan(looking, looked_at)),
                    bidirectional=False,
                    num_buckets=attention.relative_attention_num_buckets,
                    max_distance=attention.relative_attention_max_distance,
                )
                bias[0, :, q, k] = attention.relative_attention_bias.weight[bucket]
        states = decoder.embed_tokens(torch.tensor([list(tokens)]))
        for block in decoder.block:
            states, _, _ = block(
                states, attention_mask=mask, position_bias=bias, encoder_hidden_states=encoded
            )
        states = decoder.final_layer_norm(states)
        if getattr(model.config, "scale_decoder_outputs", False):
            states = states * model.model_dim**-0.5
        logits: Tensor = model.lm_head(states)[0]
        return logits


def t5_next_logits(model: Any, source_ids: Sequence[int]) -> NextLogits:
    """A T5 model and a source as `oracle_decode` wants them: a full teacher-forced pass for every answer."""

    def next_logits(grid: list[Placed], wanted: list[int]) -> Sequence[Sequence[float]]:
        logits = oracle_t5_logits(
            model,
            source_ids,
            [placed.token for placed in grid],
            [placed.subsequence for placed in grid],
            [placed.time for placed in grid],
        )
        rows: list[list[float]] = logits[wanted].tolist()
        return rows

    return next_logits
