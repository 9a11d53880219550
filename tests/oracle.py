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
from typing import Literal, NamedTuple
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
    def steps(self):
        return len(self.calls)

    @property
    def rows(self):
        return [(row.start, row.tokens) for row in self.subsequences]


def oracle_decode(
    next_logits,
    schedule,
    *,
    bos,
    eos,
    empty_rows="retry",
    stop_on_repeat=False,
    time_max=50,
    sub_max=20,
    max_tokens=None,
):
    """Decode greedily, recomputing everything at every time-step; `max_tokens` leaves out <eos>."""
    calls = _Calls(next_logits, bos)
    result = calls.result
    grid = _Grid(result.subsequences, schedule, eos, empty_rows, sub_max)
    time = 0
    while time_max is None or time < time_max:
        time += 1
        grid.begin_row(time)
        asked = grid.live()
        if not asked:
            continue  # the clock runs on to the next establishing time
        calls.answer(time, asked)
        if stop_on_repeat:
            grid.drop_repeats()
        if grid.is_complete():
            break
        if max_tokens is not None and _count(result, eos) >= max_tokens:
            result.truncated = "max_tokens"
            return result
    result.truncated = grid.cut_by()
    return result


class _Calls:
    """Decoder calls, and what came of them."""

    def __init__(self, next_logits, bos):
        self.next_logits, self.bos = next_logits, bos
        self.result = OracleResult([], [], None, math.inf)
        self.seen = set()

    def answer(
        self,
        time,
        asked,
        allowed=lambda number: (),
    ):
        """Each row that is asked gets the best of the tokens that may come next, if not all may."""
        grid = _placed(self.result.subsequences, self.bos)
        newest = {placed.subsequence: place for place, placed in enumerate(grid)}
        made = []
        answers = self.next_logits(grid, [newest[number] for number in asked])
        for number, logits in zip(asked, answers, strict=True):
            choice = allowed(number) or range(len(logits))
            token = self.choose(self.result.subsequences[number - 1], logits, choice)
            made.append(Placed(number, time, token))
        fed = [placed for placed in grid if placed not in self.seen]
        self.result.calls.append(OracleCall(time, fed, made))
        self.seen |= set(grid)

    def choose(self, row, logits, choice):
        """Append the best token of a choice; of equals the first."""
        best, *others = sorted(choice, key=lambda token: -logits[token])
        top = float(logits[best])
        if others:
            gap = top - float(logits[others[0]])
            self.result.gap = min(self.result.gap, gap)
        shares = [math.exp(float(logits[token]) - top) for token in choice]
        row.confidence /= sum(shares)
        row.tokens.append(best)
        return best


@dataclass
class _Grid:
    """The rows of a text, and when another begins."""

    rows: list[OracleSubsequence]
    schedule: OracleSchedule
    eos: int
    empty_rows: str
    sub_max: int | None
    repeated: bool = False
    given_up: bool = False

    def live(self):
        return _live(self.rows, self.eos)

    def begin_row(self, time):
        """Establish a row at the start of a time-step, if one is due."""
        is_empty = any(row.tokens == [self.eos] for row in self.rows)
        self.given_up = self.repeated or (self.empty_rows == "stop" and is_empty)
        has_place = self.sub_max is None or len(self.rows) < self.sub_max
        is_due = _due(self.schedule, time, self.rows, self.eos)
        if is_due and has_place and not self.given_up:
            self.rows.append(OracleSubsequence(start=time - 1))

    def drop_repeats(self):
        count = _before_repeats(self.rows, self.eos)
        self.repeated = self.repeated or count < len(self.rows)
        del self.rows[count:]

    def is_complete(self):
        if self.live():
            return False
        if self.rows[-1].tokens == [self.eos] or self.repeated:
            return True
        return len(self.rows) == self.sub_max or self.schedule.kind == "whole"

    def cut_by(self):
        """What cut the text: the time if a row was live or could not start, or the number of rows."""
        if self.live() or not (self.is_complete() or self.given_up):
            return "time_max"
        is_last_filled = self.rows[-1].tokens != [self.eos]
        if len(self.rows) == self.sub_max and is_last_filled and not self.repeated:
            return "sub_max"
        return None


def _live(rows, eos):
    """The numbers of the rows that have not ended."""
    return [number for number, row in enumerate(rows, 1) if row.tokens[-1:] != [eos]]


def _count(result, eos):
    """The number of tokens, without <eos>."""
    return sum(token != eos for row in result.subsequences for token in row.tokens)


def _before_repeats(rows, eos):
    """How many rows there are before one comes again at once, or two that came before come again."""

    def said(i):
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


def oracle_together(next_logits, known, **bounds):
    """Decode a row for each key, all of them from time 0 on: leaves of no list, with the bounds of `oracle_listed`."""
    nowhere, schedule = [None] * len(known), OracleSchedule("wait")
    return oracle_listed(
        next_logits, lambda row, _: known[row], nowhere, schedule, **bounds
    )


def oracle_blind(
    model,
    prompt,
    known,
    *,
    ends,
    allowed,
    time_max,
    noted=-1,
    early=False,
):
    """What a decoder-only model writes behind the prompt and each row's known tokens, as if no other row were there.

    Every token comes by a plain pass of transformers over all; the calls say their time
    alone. In rows that may not say everything, the most probable end by the token
    `noted` is kept. With `early` a row ends as soon as no later end can be more
    probable.
    """
    rows = [OracleSubsequence(0, [], [*key]) for key in known]
    result = OracleResult(rows, [], None, math.inf)
    for number, row in enumerate(rows):
        joint = 1.0
        while len(row.tokens) < time_max and not {*ends}.intersection(row.tokens):
            with torch.no_grad():
                ids = torch.tensor([[*prompt, *row.known, *row.tokens]])
                logits = model(input_ids=ids).logits[0, -1].float()
            choice = list(allowed(number, row.tokens)) or list(range(len(logits)))
            token, share = _likeliest(row, logits, choice, joint, noted)
            if len(choice) > 1:
                first, second = logits[choice].topk(2).values.tolist()
                result.gap = min(result.gap, first - second)
            # The joint probability only falls.
            joint *= share
            row.tokens.append(noted if early and joint < row.best[0] else token)
        if row.tokens[-1] not in ends:
            result.truncated = "time_max"
    longest = max(len(row.tokens) for row in rows)
    result.calls = [OracleCall(time, [], []) for time in range(1, longest + 1)]
    return result


def _likeliest(
    row,
    logits,
    choice,
    joint,
    noted,
):
    """The best token of a choice, with its probability among all tokens; the row keeps what else is told of it."""
    free = logits.softmax(dim=0)
    best = int(logits[choice].argmax())
    if noted in choice and len(choice) < len(logits):
        row.best = max(row.best, (joint * float(free[noted]), len(row.tokens)))
    row.forced = max(row.forced, 1 - float(free[choice].sum()))
    row.confidence *= float(logits[choice].softmax(dim=0)[best])
    return choice[best], float(free[choice[best]])


def oracle_listed(
    next_logits,
    keys,
    lists,
    schedule,
    *,
    bos,
    eos,
    allowed=lambda leaf, tokens: (),
    item_max=20,
    time_max=50,
    max_tokens=None,
):
    """Decode a row for each leaf of a schema from time 0 on, and for each item of its lists; as `oracle_decode` otherwise.

    `lists` tells of each leaf which list it belongs to, or none. `keys` are what is
    known of a leaf in an item, from 1. `allowed` tells of a leaf, from 0, and the
    tokens of its row what may come next; nothing, if anything may.
    """
    calls = _Calls(next_logits, bos)
    result = calls.result
    items = _Items(result.subsequences, lists, schedule, eos, item_max)

    def allowed_in(number):
        row = result.subsequences[number - 1]
        return allowed(items.whose[number - 1][0], row.tokens)

    time = 0
    while not items.are_complete():
        if max_tokens is not None and _count(result, eos) >= max_tokens:
            result.truncated = "max_tokens"
            return result
        if time == time_max:
            result.truncated = "time_max"
            return result
        for leaf, item in items.due(time):
            items.whose.append((leaf, item))
            row = OracleSubsequence(time, [], [*keys(leaf, item)])
            result.subsequences.append(row)
        time += 1
        if asked := _live(result.subsequences, eos):
            calls.answer(time, asked, allowed_in)
    result.truncated = "item_max" if items.are_cut() else None
    return result


@dataclass
class _Items:
    """The rows of a schema's leaves, and the leaf and the item that each is for."""

    rows: list[OracleSubsequence]
    lists: Sequence[int | None]
    schedule: OracleSchedule
    eos: int
    item_max: int
    whose: list[tuple[int, int]] = field(default_factory=list)

    def newest(self, of):
        """The number of the last item of a list."""
        return max(item for leaf, item in self.whose if self.lists[leaf] == of)

    def last_rows(self, of):
        """The rows of the last item of a list."""
        newest = self.newest(of)
        rows = []
        for row, (leaf, item) in zip(self.rows, self.whose, strict=True):
            if self.lists[leaf] == of and item == newest:
                rows.append(row)
        return rows

    def is_empty(self, of):
        """Whether the last item of a list has no value, which closes the list."""
        return all(row.tokens == [self.eos] for row in self.last_rows(of))

    def goes_on(self, of):
        return self.newest(of) < self.item_max and not self.is_empty(of)

    def is_due(self, of, time):
        if not self.goes_on(of):
            return False
        last = self.last_rows(of)
        if self.schedule.kind == "fixed":
            return time == last[0].start + self.schedule.delay
        return not _live(last, self.eos)

    def all_lists(self):
        return {of for of in self.lists if of is not None}

    def due(self, time):
        """The leaves and items whose rows begin at a time: all leaves at first, then those of the next items."""
        if not self.rows:
            return [(leaf, 1) for leaf in range(len(self.lists))]
        items = {}
        for of in self.all_lists():
            if self.is_due(of, time):
                items[of] = self.newest(of) + 1
        return [(leaf, items[of]) for leaf, of in enumerate(self.lists) if of in items]

    def are_complete(self):
        if not self.rows or _live(self.rows, self.eos):
            return False
        return not any(map(self.goes_on, self.all_lists()))

    def are_cut(self):
        """Whether the last item of a list has a value."""
        return not all(map(self.is_empty, self.all_lists()))


def _due(schedule, t, rows, eos):
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


def _placed(rows, bos):
    """Every token of the grid: <bos> of subsequence i at time start_i, its j-th token at start_i + j.

    Of k known tokens the last stands at start_i, the one before at start_i − 1, and
    <bos> at start_i − k.
    """
    return [
        Placed(i, row.start - len(row.known) + j, token)
        for i, row in enumerate(rows, 1)
        for j, token in enumerate([bos, *row.known, *row.tokens])
    ]


def sees(looking, looked_at):
    """Whether one token sees another: it stands in no later subsequence and at no later time."""
    return (
        looked_at.subsequence <= looking.subsequence and looked_at.time <= looking.time
    )


def manhattan(one, other):
    """The distance |t1 − t2| + |i1 − i2|."""
    return abs(one.time - other.time) + abs(one.subsequence - other.subsequence)


def encode_source(model, source):
    """The states of a source. All of its tokens are real: the pad id in a text is no padding."""
    ids = torch.tensor([list(source)])
    with torch.no_grad():
        return model.get_encoder()(input_ids=ids, attention_mask=torch.ones_like(ids))[
            0
        ]


def oracle_logits(
    model,
    source,
    grid,
    encoded=None,
):
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
        return model.lm_head(states * model.config.d_model**-0.5 if scaled else states)[
            0
        ]


def _umt5_block(block, states, mask, apart, encoded):
    """A block of UMT5, which has a bias of its own and takes none from outside: for this call it counts distances."""
    attention = block.layer[0].SelfAttention

    def bias(*_, **__):
        values = attention.relative_attention_bias(
            attention._relative_position_bucket(apart)
        )
        return values.permute(2, 0, 1)[None]

    with patch.object(attention, "compute_bias", bias):
        output = block(states, attention_mask=mask, encoder_hidden_states=encoded)
    return output if isinstance(output, Tensor) else output[0]


def oracle_prompted_logits(
    model,
    prompt,
    grid,
    longest=None,
):
    """The same behind a prompt, by a decoder-only model in one call of transformers: its places and masks pair by pair.

    The longest key is that of the grid unless told.
    """
    places = [*range(len(prompt)), *_places(grid, len(prompt), longest)]
    count = len(prompt)

    def looks(one, other):
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
        return model(input_ids=ids, **given).logits[0, count:]


def oracle_encoded_logits(
    model,
    source,
    grid,
    encoded=None,
):
    """The same by an encoder-decoder that is no T5, whose places are rotary, or looked up in a table."""
    places = _places(grid, 0)
    whole = torch.tensor([[sees(one, other) for other in grid] for one in grid])
    ids = torch.tensor([[placed.token for placed in grid]])
    decoder = model.model.decoder
    config = getattr(model.config, "decoder", model.config)
    with torch.no_grad():
        encoded = encode_source(model, source) if encoded is None else encoded
        given = {
            "input_ids": ids,
            "encoder_hidden_states": encoded,
            "use_cache": False,
        }
        given["attention_mask"] = _oracle_masks(config, whole, places)
        if not hasattr(decoder, "embed_positions"):
            states = decoder(
                **given, position_ids=torch.tensor([places])
            ).last_hidden_state
            logits = model.lm_head(states)
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


def _places(grid, before, longest=None):
    """Where tokens stand behind so many, the longest key standing right behind these."""
    if longest is None:
        longest = max([0, *(-placed.time for placed in grid)])
    return [before + longest + placed.time + placed.subsequence - 1 for placed in grid]


def _oracle_masks(config, whole, places):
    """Who sees whom, as the attention wants it; where there are kinds of layers, for each."""

    def formed(mask):
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


def next_logits_of(model, source):
    """A model and a source as `oracle_decode` wants them: a full pass of the decoder for every answer, no cache."""

    by = oracle_prompted_logits
    if model.config.is_encoder_decoder:
        encoding = oracle_logits if hasattr(model, "decoder") else oracle_encoded_logits
        by = partial(encoding, encoded=encode_source(model, source))

    def next_logits(grid, wanted):
        return by(model, source, grid)[wanted].float().tolist()

    return next_logits
