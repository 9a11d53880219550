"""Models without weights, behind the same `StepModel` protocol as T5.

`ScriptedModel` says what it was told to say. `HashedModel` computes each answer from
everything that the token may see, as a cached transformer does: from the states of the
tokens fed so far and their distances. A token that is fed too late, twice, in the wrong
order or in the wrong place changes what follows. `drive` fills a grid from a script,
and `ask_oracle` puts the same question to the oracle.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict

import torch

from pipedec_cli.pipeline.decode import Finished, decode
from pipedec_cli.pipeline.grid import Limits, Method, Odds
from pipedec_cli.pipeline.schedule import Fixed, RandomStarts, Waiting, Whole
from tests.oracle import (
    OracleSchedule,
    Placed,
    manhattan,
    oracle_decode,
    sees,
)

BOS, EOS = 0, 1
VOCABULARY = 12

#: The texts of an example: the i-th one is the answer to the i-th <bos>, <eos> left
#: out; () is a failed exploration.
Texts = Sequence[Sequence[int]]


def scripted_token(texts, subsequence, following):
    """The token that stands `following` places after the <bos> of a subsequence; <eos> where the text is over."""
    text = texts[subsequence - 1] if subsequence <= len(texts) else ()
    return text[following - 1] if following <= len(text) else EOS


def tokens_in(mask):
    """The tokens of a bit mask, in rising order; see `Allowed`."""
    return [
        token for token in range(8 * len(mask)) if mask[token // 8] >> token % 8 & 1
    ]


class Fake:
    """Keeps the books of a model, and fails where the loop breaks the protocol; `memory` is what a sequence keeps."""

    def __init__(self):
        self.sources = {}
        self.memory = {}
        self.admissions = []
        self.releases = []
        self.calls = []

    def admit(self, newcomers):
        assert newcomers, "an admission of nobody"
        for sequence, source in newcomers:
            assert sequence not in self.sources, f"sequence {sequence} is not free"
            self.sources[sequence], self.memory[sequence] = tuple(source), {}
            self.admissions.append((sequence, tuple(source)))

    def step(self, rows):
        assert rows, "a decoder call without rows"
        order = [(row.sequence, row.slot.subsequence, row.slot.time) for row in rows]
        assert order == sorted(set(order)), f"rows out of order: {order}"
        self.calls.append(list(rows))
        answers = []
        for number, slot in rows:
            source, memory = self.sources[number], self.memory[number]
            answers.append(self.answer(source, memory, slot))
        return answers

    def step_with_odds(self, rows, top=0):
        answers = self.step(rows)
        odds = []
        for number, slot in rows:
            certainty = self.certainty(self.memory[number], slot)
            odds.append(Odds(certainty))
        return answers, odds

    def take_back(self, sequence, count):
        slots = [row.slot for row in self.calls[-1] if row.sequence == sequence]
        for slot in slots[-count:]:
            self.forget(self.memory[sequence], slot)

    def release(self, sequence):
        del self.sources[sequence], self.memory[sequence]
        self.releases.append(sequence)


class ScriptedModel(Fake):
    """Answers from a script: a source is one id, which names the texts to be told."""

    def __init__(self, scripts, garbage=7):
        super().__init__()
        self._scripts, self._garbage = scripts, garbage

    def answer(self, source, memory, slot):
        """A row that does not answer gets a token that must not turn up anywhere."""
        if not slot.answers:
            return self._garbage
        start = memory.setdefault(slot.subsequence, slot.time)
        return scripted_token(
            self._scripts[source[0]], slot.subsequence, slot.time - start + 1
        )

    def certainty(self, memory, slot):
        return 1.0

    def forget(self, memory, slot):
        if memory[slot.subsequence] == slot.time:
            del memory[slot.subsequence]


class HashedModel(Fake):
    """A cached model: the state of a token is a number made of its id, the source and all that it sees."""

    def answer(self, source, memory, slot):
        placed = Placed(slot.subsequence, slot.time, slot.token)
        memory[placed] = _state(source, placed, memory)
        logits = _logits(memory[placed])
        return max(tokens_in(slot.allowed) or range(VOCABULARY), key=logits.__getitem__)

    def certainty(self, memory, slot):
        logits = _logits(memory[Placed(slot.subsequence, slot.time, slot.token)])
        return float(torch.tensor(logits).softmax(dim=0).max())

    def forget(self, memory, slot):
        del memory[Placed(slot.subsequence, slot.time, slot.token)]


def hashed_next_logits(source):
    """What `HashedModel` computes, without a cache: for `oracle_decode`."""

    def next_logits(grid, wanted):
        states = {}
        for placed in sorted(
            grid, key=lambda placed: (placed.time, placed.subsequence)
        ):
            states[placed] = _state(tuple(source), placed, states)
        return [_logits(states[grid[k]]) for k in wanted]

    return next_logits


def _state(source, placed, states):
    """A number that depends on everything that the token sees, though not on the order of it."""
    seen = []
    for other, state in states.items():
        if sees(placed, other):
            seen.append((manhattan(placed, other), state))
    return hash((source, placed.token, *sorted(seen)))


def _logits(state):
    """Scores over the vocabulary, of which <bos> is never the best and <eos> often."""
    scores = [hash((state, token)) % 10_007 / 1_000 for token in range(VOCABULARY)]
    scores[BOS] = -1.0
    scores[EOS] *= 1.3
    return scores


#: What a row that does not answer is told; it must not turn up anywhere.
GARBAGE = 99


def drive(texts, schedule, limits=None, empty_rows="retry", stop_on_repeat=False):
    """Decode one example whose i-th established subsequence is texts[i - 1]; beyond the last one, nothing follows."""
    grid = Method(
        schedule, BOS, EOS, limits or Limits(), empty_rows, stop_on_repeat
    ).new_grid()

    def answer(slot):
        start = grid.subsequences[slot.subsequence - 1].start
        return (
            scripted_token(texts, slot.subsequence, slot.time - start + 1)
            if slot.answers
            else GARBAGE
        )

    steps = []
    while rows := grid.plan():
        steps.append(grid.commit(list(map(answer, rows))))
    assert grid.plan() == (), "a grid that has ended starts again"
    return grid, steps


def scripted_next_logits(texts, known=()):
    """The same script for the oracle, which counts the tokens of a subsequence itself, but for those `known`."""

    def next_logits(grid, wanted):
        rows = []
        for k in wanted:
            number = grid[k].subsequence
            following = sum(placed.subsequence == number for placed in grid)
            following -= len(known[number - 1]) if known else 0
            token = scripted_token(texts, grid[k].subsequence, following)
            rows.append([float(token == candidate) for candidate in range(VOCABULARY)])
        return rows

    return next_logits


#: The oracle's words for the schedules.
KINDS = {Fixed: "fixed", Waiting: "wait", RandomStarts: "drawn", Whole: "whole"}


def ask_oracle(
    next_logits, schedule, limits=None, empty_rows="retry", stop_on_repeat=False, **ids
):
    """`oracle_decode` under the settings of a grid."""
    given = OracleSchedule(KINDS[type(schedule)], **asdict(schedule))
    settings = (
        {"bos": BOS, "eos": EOS, "stop_on_repeat": stop_on_repeat}
        | ids
        | asdict(limits or Limits())
    )
    return oracle_decode(next_logits, given, empty_rows=empty_rows, **settings)


def finished(model, sources, method, sequences=1):
    """How each source ended, by its number."""
    events = decode(model, enumerate(sources), method, sequences)
    return {event.example: event for event in events if isinstance(event, Finished)}


def outcome_of(result):
    """Rows, steps and what cut the text, of a grid or of the oracle."""
    rows = result.rows if hasattr(result, "rows") else rows_of(result)
    return rows, result.steps, result.truncated


def rows_of(grid):
    """(start, tokens) of every subsequence of a grid, <eos> kept."""
    return [(row.start, row.tokens) for row in grid.subsequences]


def fed_and_made(steps):
    """What went into every decoder call and what came out, with its time."""

    def places(slots):
        return [Placed(slot.subsequence, slot.time, slot.token) for slot in slots]

    return [(step.time, places(step.fed), places(step.made)) for step in steps]


#: A distance that waits for the end.
NEVER = math.inf
