"""The method written out once more: plain, slow and without a cache. The code is held to it, and shares none of it.

`oracle_decode` is the decoding loop; it knows nothing of plans, rows or caches: at
every time-step it hands the whole grid so far to a function that computes every logit
afresh. `oracle_logits` is such a computation for a T5: the blocks and buckets of
transformers, with a mask and distances that are filled in pair by pair.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor


class Placed(NamedTuple):
    """A token of the grid: the subsequence it belongs to (from 1), the time at which it stands, and its id."""

    subsequence: int
    time: int
    token: int


#: Given every token of the grid so far and the indices of those whose successor is
#: wanted: the logits, one row each.
NextLogits = Callable[[list[Placed], list[int]], Sequence[Sequence[float]]]


@dataclass(frozen=True)
class OracleSchedule:
    """When a new subsequence is due.

    ``fixed``: every `delay` time-steps; ``wait``: when the one before has ended;
    ``drawn``: distances[i] after the start of subsequence i + 1, at the latest when
    none is live, the last one repeats; ``whole``: one and never another.
    """

    kind: Literal["fixed", "wait", "drawn", "whole"]
    delay: int = 1
    distances: tuple[float, ...] = ()


@dataclass
class OracleSubsequence:
    """A row of the grid: where its <bos> stands, and its tokens without <bos> and with <eos>.

    Tokens that were known beforehand stand between; then `start` is where the last of
    them stands.
    """

    start: int
    tokens: list[int] = field(default_factory=list)
    known: list[int] = field(default_factory=list)
    #: The product of the probabilities of its tokens, among those that might have come.
    confidence: float = 1.0
    #: The most probable beginning with an end behind it, among all tokens: its
    #: probability and length; see `oracle_blind`.
    best: tuple[float, int] = (0.0, -1)
    forced: float = (
        0.0  # the largest share of probability of the tokens that might not come
    )


class OracleCall(NamedTuple):
    """One decoder call: the time-step, the tokens that no earlier call has seen, and the tokens that came of it."""

    time: int
    fed: list[Placed]
    made: list[Placed]


@dataclass
class OracleResult:
    """The whole decoding; `gap` is the smallest difference between the best two logits of any answer."""

    subsequences: list[OracleSubsequence]
    calls: list[OracleCall]
    truncated: str | None
    gap: float

    @property
    def steps(self) -> int:
        return len(self.calls)

    @property
    def rows(self) -> list[tuple[int, list[int]]]:
        return [(row.start, row.tokens) for row in self.subsequences]


def oracle_decode(
    next_logits: NextLogits,
    schedule: OracleSchedule,
    *,
    bos: int,
    eos: int,
    empty_rows: str = "retry",
    stop_on_repeat: bool = False,
    time_max: int | None = 50,
    sub_max: int | None = 20,
    max_tokens: int | None = None,
) -> OracleResult:
    """Decode greedily, recomputing everything at every time-step; `max_tokens` leaves out <eos>."""
    rows: list[OracleSubsequence] = []
    calls: list[OracleCall] = []
    seen: set[Placed] = set()
    gap = math.inf
    out_of_tokens = repeated = False

    def live(row: OracleSubsequence) -> bool:
        return row.tokens[-1:] != [eos]

    def complete() -> bool:
        if any(live(row) for row in rows):
            return False
        return (
            rows[-1].tokens == [eos]
            or len(rows) == sub_max
            or schedule.kind == "whole"
            or repeated
        )

    t = 0
    while time_max is None or t < time_max:
        t += 1
        given_up = repeated or (
            empty_rows == "stop" and any(row.tokens == [eos] for row in rows)
        )
        if (
            _due(schedule, t, rows, eos)
            and not given_up
            and (sub_max is None or len(rows) < sub_max)
        ):
            rows.append(OracleSubsequence(start=t - 1))
        asked = [i for i, row in enumerate(rows, 1) if live(row)]
        if not asked:
            continue  # the clock runs on to the next establishing time

        grid = _placed(rows, bos)
        newest = [
            max(k for k, placed in enumerate(grid) if placed.subsequence == i)
            for i in asked
        ]
        made = []
        for i, logits in zip(asked, next_logits(grid, newest), strict=True):
            best, second = sorted(logits, reverse=True)[:2]
            gap = min(gap, float(best - second))
            token = list(logits).index(best)
            rows[i - 1].tokens.append(token)
            made.append(Placed(i, t, token))
        calls.append(
            OracleCall(t, [placed for placed in grid if placed not in seen], made)
        )
        seen |= set(grid)

        if stop_on_repeat:
            repeated = repeated or _before_repeats(rows, eos) < len(rows)
            del rows[_before_repeats(rows, eos) :]
        if complete():
            break
        count = sum(token != eos for row in rows for token in row.tokens)
        if max_tokens is not None and count >= max_tokens:
            out_of_tokens = True
            break

    truncated = None
    if out_of_tokens:
        truncated = "max_tokens"
    elif any(live(row) for row in rows) or not (complete() or given_up):
        truncated = "time_max"  # a row was live, or could not start
    elif len(rows) == sub_max and rows[-1].tokens != [eos] and not repeated:
        truncated = "sub_max"
    return OracleResult(rows, calls, truncated, gap)


def _before_repeats(rows: list[OracleSubsequence], eos: int) -> int:
    """How many rows there are before one comes again at once, or two that came before come again."""

    def said(i: int) -> list[int] | None:
        return (
            rows[i].tokens
            if rows[i].tokens[-1:] == [eos] and len(rows[i].tokens) > 1
            else None
        )

    for i in range(len(rows) - 1):
        if said(i) is None or said(i + 1) is None:
            continue
        if any([said(i), said(i + 1)] == [said(j), said(j + 1)] for j in range(i)):
            return i
        if said(i) == said(i + 1):
            return i + 1
    return len(rows)


def oracle_together(
    next_logits: NextLogits, known: Sequence[Sequence[int]], **bounds: Any
) -> OracleResult:
    """Decode a row for each key, all of them from time 0 on: leaves of no list, with the bounds of `oracle_listed`."""
    nowhere, schedule = [None] * len(known), OracleSchedule("wait")
    return oracle_listed(
        next_logits, lambda row, _: known[row], nowhere, schedule, **bounds
    )


def oracle_blind(
    model: Any,
    prompt: Sequence[int],
    known: Sequence[Sequence[int]],
    *,
    ends: Sequence[int],
    allowed: Callable[[int, list[int]], Sequence[int]],
    time_max: int,
    noted: int = -1,
    early: bool = False,
) -> OracleResult:
    """What a decoder-only model writes behind the prompt and each row's known tokens, as if no other row were there.

    Every token comes by a plain pass of transformers over all; the calls say their time
    alone. In rows that may not say everything, the most probable end by the token
    `noted` is kept. With `early` a row ends as soon as no later end can be more
    probable.
    """
    result = OracleResult(
        [OracleSubsequence(0, [], [*key]) for key in known], [], None, math.inf
    )
    for number, row in enumerate(result.subsequences):
        joint = 1.0
        while len(row.tokens) < time_max and not {*ends}.intersection(row.tokens):
            with torch.no_grad():
                ids = torch.tensor([[*prompt, *row.known, *row.tokens]])
                logits = model(input_ids=ids).logits[0, -1].float()
            choice = list(allowed(number, row.tokens)) or list(range(len(logits)))
            chances, free = logits[choice].softmax(dim=0), logits.softmax(dim=0)
            best = int(logits[choice].argmax())
            if noted in choice and len(choice) < len(logits):
                row.best = max(row.best, (joint * float(free[noted]), len(row.tokens)))
            joint *= float(free[choice[best]])
            row.forced = max(row.forced, 1 - float(free[choice].sum()))
            if len(choice) > 1:
                first, second = logits[choice].topk(2).values.tolist()
                result.gap = min(result.gap, first - second)
            # The joint probability only falls.
            row.tokens.append(noted if early and joint < row.best[0] else choice[best])
            row.confidence *= float(chances[best])
        if row.tokens[-1] not in ends:
            result.truncated = "time_max"
    longest = max(len(row.tokens) for row in result.subsequences)
    result.calls = [OracleCall(time, [], []) for time in range(1, longest + 1)]
    return result


def oracle_listed(
    next_logits: NextLogits,
    keys: Callable[[int, int], Sequence[int]],
    lists: Sequence[int | None],
    schedule: OracleSchedule,
    *,
    bos: int,
    eos: int,
    allowed: Callable[[int, list[int]], Sequence[int]] = lambda leaf, tokens: (),
    item_max: int = 20,
    time_max: int | None = 50,
    max_tokens: int | None = None,
) -> OracleResult:
    """Decode a row for each leaf of a schema from time 0 on, and for each item of its lists; as `oracle_decode` otherwise.

    `lists` tells of each leaf which list it belongs to, or none. `keys` are what is
    known of a leaf in an item, from 1. `allowed` tells of a leaf, from 0, and the
    tokens of its row what may come next; nothing, if anything may.
    """
    result, whose = OracleResult([], [], None, math.inf), list[tuple[int, int]]()
    rows, seen, time = result.subsequences, set[Placed](), 0

    def rows_in(of: int, item: int) -> list[OracleSubsequence]:
        return [
            rows[k]
            for k, (leaf, at) in enumerate(whose)
            if lists[leaf] == of and at == item
        ]

    def newest(of: int) -> int:
        return max(at for leaf, at in whose if lists[leaf] == of)

    def goes_on(of: int) -> bool:
        return (
            any(row.tokens != [eos] for row in rows_in(of, newest(of)))
            and newest(of) < item_max
        )

    def is_due(of: int) -> bool:
        last = rows_in(of, newest(of))
        if schedule.kind == "fixed":
            return goes_on(of) and time == last[0].start + schedule.delay
        return goes_on(of) and all(row.tokens[-1:] == [eos] for row in last)

    each = {of for of in lists if of is not None}
    while True:
        if rows:
            due = {of: newest(of) + 1 for of in each if is_due(of)}
            new = [
                (leaf, due[of])
                for leaf, of in enumerate(lists)
                if of is not None and of in due
            ]
        else:
            new = [(leaf, 1) for leaf in range(len(lists))]
        out_of_tokens = max_tokens is not None and max_tokens <= sum(
            t != eos for row in rows for t in row.tokens
        )
        asked = [row for row in rows if row.tokens[-1:] != [eos]]
        if rows and not asked and not any(map(goes_on, each)):
            last = [
                row.tokens != [eos] for of in each for row in rows_in(of, newest(of))
            ]
            result.truncated = "item_max" if any(last) else None
            break
        if out_of_tokens or time == time_max:
            result.truncated = "max_tokens" if out_of_tokens else "time_max"
            break
        for leaf, item in new:
            whose.append((leaf, item))
            rows.append(OracleSubsequence(time, [], [*keys(leaf, item)]))
        time += 1
        asked = [i for i, row in enumerate(rows, 1) if row.tokens[-1:] != [eos]]
        if not asked:
            continue
        grid = _placed(rows, bos)
        places = [
            max(k for k, placed in enumerate(grid) if placed.subsequence == i)
            for i in asked
        ]
        made = []
        for i, logits in zip(asked, next_logits(grid, places), strict=True):
            choice = allowed(whose[i - 1][0], rows[i - 1].tokens) or range(len(logits))
            best, *others = sorted(
                (float(logits[token]) for token in choice), reverse=True
            )
            result.gap = min([result.gap, *(best - other for other in others[:1])])
            token = next(token for token in choice if float(logits[token]) == best)
            rows[i - 1].confidence /= sum(
                math.exp(float(logits[other]) - best) for other in choice
            )
            rows[i - 1].tokens.append(token)
            made.append(Placed(i, time, token))
        result.calls.append(
            OracleCall(time, [placed for placed in grid if placed not in seen], made)
        )
        seen |= set(grid)
    return result


def _due(
    schedule: OracleSchedule, t: int, rows: list[OracleSubsequence], eos: int
) -> bool:
    """Whether a subsequence is to be established at the start of time-step t, its <bos> at time t − 1."""
    if schedule.kind == "fixed":
        return (t - 1) % schedule.delay == 0
    if not rows:
        return t == 1
    if schedule.kind == "whole":
        return False
    newest = rows[-1]
    if schedule.kind == "wait":
        return newest.tokens[-1:] == [eos]
    distance = schedule.distances[min(len(rows), len(schedule.distances)) - 1]
    return (
        all(row.tokens[-1:] == [eos] for row in rows)
        or t - 1 == newest.start + distance
    )


def _placed(rows: list[OracleSubsequence], bos: int) -> list[Placed]:
    """Every token of the grid: <bos> of subsequence i at time start_i, its j-th token at start_i + j.

    Of k known tokens the last stands at start_i, the one before at start_i − 1, and
    <bos> at start_i − k.
    """
    return [
        Placed(i, row.start - len(row.known) + j, token)
        for i, row in enumerate(rows, 1)
        for j, token in enumerate([bos, *row.known, *row.tokens])
    ]


def sees(looking: Placed, looked_at: Placed) -> bool:
    """Whether one token sees another: it stands in no later subsequence and at no later time."""
    return (
        looked_at.subsequence <= looking.subsequence and looked_at.time <= looking.time
    )


def manhattan(one: Placed, other: Placed) -> int:
    """The distance |t1 − t2| + |i1 − i2|."""
    return abs(one.time - other.time) + abs(one.subsequence - other.subsequence)


def encode_source(model: Any, source: Sequence[int]) -> Tensor:
    """The states of a source. All of its tokens are real: the pad id in a text is no padding."""
    ids = torch.tensor([list(source)])
    with torch.no_grad():
        states: Tensor = model.get_encoder()(
            input_ids=ids, attention_mask=torch.ones_like(ids)
        )[0]
    return states


def oracle_logits(
    model: Any,
    source: Sequence[int],
    grid: Sequence[Placed],
    encoded: Tensor | None = None,
) -> Tensor:
    """Logits [tokens, vocabulary] of all tokens of a grid, in any order, by transformers' blocks in the model's dtype.

    `encoded` are the states of the source, where they are known.
    """
    decoder = model.decoder
    apart = torch.tensor(
        [[-manhattan(looking, other) for other in grid] for looking in grid]
    )
    hidden = torch.tensor(
        [[not sees(looking, other) for other in grid] for looking in grid]
    )
    with torch.no_grad():
        encoded = encode_source(model, source) if encoded is None else encoded
        lowest = torch.finfo(encoded.dtype).min
        mask = torch.zeros(hidden.shape, dtype=encoded.dtype).masked_fill(
            hidden, lowest
        )[None, None]
        states = decoder.embed_tokens(torch.tensor([[placed.token for placed in grid]]))
        first = decoder.block[0].layer[0].SelfAttention
        for block in decoder.block:
            if model.config.model_type == "umt5":
                states = _umt5_block(block, states, mask, apart, encoded)
            else:
                sizes = (
                    first.relative_attention_num_buckets,
                    first.relative_attention_max_distance,
                )
                buckets = first._relative_position_bucket(apart, False, *sizes)
                given = {"attention_mask": mask, "encoder_hidden_states": encoded}
                bias = first.relative_attention_bias(buckets).permute(2, 0, 1)[None]
                states = block(states, position_bias=bias, **given)[0]
        states = decoder.final_layer_norm(states)
        scaled = model.config.model_type == "umt5" or getattr(
            model.config, "scale_decoder_outputs", False
        )
        logits: Tensor = model.lm_head(
            states * model.config.d_model**-0.5 if scaled else states
        )[0]
        return logits


def _umt5_block(
    block: Any, states: Tensor, mask: Tensor, apart: Tensor, encoded: Tensor
) -> Tensor:
    """A block of UMT5, which has a bias of its own and takes none from outside: for this call it counts distances."""
    attention = block.layer[0].SelfAttention

    def bias(*_: Any, **__: Any) -> Tensor:
        values: Tensor = attention.relative_attention_bias(
            attention._relative_position_bucket(apart)
        )
        return values.permute(2, 0, 1)[None]

    with patch.object(attention, "compute_bias", bias):
        output: Any = block(states, attention_mask=mask, encoder_hidden_states=encoded)
    return output if isinstance(output, Tensor) else output[0]


def oracle_prompted_logits(
    model: Any,
    prompt: Sequence[int],
    grid: Sequence[Placed],
    longest: int | None = None,
) -> Tensor:
    """The same behind a prompt, by a decoder-only model in one call of transformers: its places and masks pair by pair.

    The longest key is that of the grid unless told.
    """
    places = [*range(len(prompt)), *_places(grid, len(prompt), longest)]
    count = len(prompt)

    def looks(one: int, other: int) -> bool:
        if one < count or other < count:
            return other <= one
        return sees(grid[one - count], grid[other - count])

    everyone = range(len(places))
    whole = torch.tensor(
        [[looks(one, other) for other in everyone] for one in everyone]
    )
    ids = torch.tensor([[*prompt, *(placed.token for placed in grid)]])
    with torch.no_grad():
        mask = _oracle_masks(model.config, whole, places)
        given = {
            "position_ids": torch.tensor([places]),
            "attention_mask": mask,
            "use_cache": False,
        }
        logits: Tensor = model(input_ids=ids, **given).logits[0, count:]
    return logits


def oracle_encoded_logits(
    model: Any,
    source: Sequence[int],
    grid: Sequence[Placed],
    encoded: Tensor | None = None,
) -> Tensor:
    """The same by an encoder-decoder that is no T5, whose places are rotary, or looked up in a table."""
    places = _places(grid, 0)
    whole = torch.tensor([[sees(one, other) for other in grid] for one in grid])
    ids = torch.tensor([[placed.token for placed in grid]])
    decoder = model.model.decoder
    config = getattr(model.config, "decoder", model.config)
    with torch.no_grad():
        encoded = encode_source(model, source) if encoded is None else encoded
        given: dict[str, Any] = {
            "input_ids": ids,
            "encoder_hidden_states": encoded,
            "use_cache": False,
        }
        given["attention_mask"] = _oracle_masks(config, whole, places)
        if not hasattr(decoder, "embed_positions"):
            states = decoder(
                **given, position_ids=torch.tensor([places])
            ).last_hidden_state
            logits: Tensor = model.lm_head(states)
            if cap := config.final_logit_softcapping:
                logits = torch.tanh(logits / cap) * cap
            return logits[0]
        table = decoder.embed_positions
        rows, first = getattr(table, "weight", None), getattr(table, "offset", 0)
        if rows is None:  # of a M2M-100
            rows, first = table.weights, table.padding_idx + 1
        looked_up = rows[[place + first for place in places]]
        with patch.object(table, "forward", lambda *_, **__: looked_up[None]):
            states = decoder(**given).last_hidden_state
        logits = model.lm_head(states) + getattr(model, "final_logits_bias", 0)
        return logits[0]


def _places(
    grid: Sequence[Placed], before: int, longest: int | None = None
) -> list[int]:
    """Where tokens stand behind so many, the longest key standing right behind these."""
    if longest is None:
        longest = max([0, *(-placed.time for placed in grid)])
    return [before + longest + placed.time + placed.subsequence - 1 for placed in grid]


def _oracle_masks(config: Any, whole: Tensor, places: Sequence[int]) -> Any:
    """Who sees whom, as the attention wants it; where there are kinds of layers, for each."""

    def formed(mask: Tensor) -> Tensor:
        if config._attn_implementation != "eager":
            return mask[None, None]
        return torch.zeros(mask.shape).masked_fill(
            ~mask, torch.finfo(torch.float32).min
        )[None, None]

    window = getattr(config, "sliding_window", None) or len(places) + max(places)
    near = torch.tensor([[one - other < window for other in places] for one in places])
    if not (kinds := getattr(config, "layer_types", None)):
        return formed(whole & near)
    masks = {"full_attention": formed(whole), "sliding_attention": formed(whole & near)}
    return {kind: masks[kind] for kind in kinds}


def next_logits_of(model: Any, source: Sequence[int]) -> NextLogits:
    """A model and a source as `oracle_decode` wants them: a full pass of the decoder for every answer, no cache."""

    by: Callable[..., Tensor] = oracle_prompted_logits
    if model.config.is_encoder_decoder:
        encoding = oracle_logits if hasattr(model, "decoder") else oracle_encoded_logits
        by = partial(encoding, encoded=encode_source(model, source))

    def next_logits(grid: list[Placed], wanted: list[int]) -> Sequence[Sequence[float]]:
        rows: list[list[float]] = by(model, source, grid)[wanted].float().tolist()
        return rows

    return next_logits
