"""Models without weights, behind the same `StepModel` protocol as T5.

`ScriptedModel` says what it was told to say. `HashedModel` computes each answer from everything that the token may
see, as a cached transformer does: from the states of the tokens fed so far and their distances. A token that is fed
too late, twice, in the wrong order or in the wrong place changes what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot
from tests.oracle import NextLogits, Placed, manhattan, sees

BOS, EOS = 0, 1
VOCABULARY = 12

#: The texts of an example: the i-th one is the answer to the i-th <bos>, <eos> left out; () is a failed exploration.
Texts = Sequence[Sequence[int]]


def scripted_token(texts: Texts, subsequence: int, following: int) -> int:
    """The token that stands `following` places after the <bos> of a subsequence; <eos> where the text is over."""
    text = texts[subsequence - 1] if subsequence <= len(texts) else ()
    return text[following - 1] if following <= len(text) else EOS


@dataclass
class Books:
    """Keeps the books of a model's sequences, and fails where the loop breaks the protocol.

    Attributes:
        sources: what is in each sequence.
        admissions: (sequence, source) of every admission, in order.
        releases: every released sequence, in order.
        calls: the rows of every decoder call.
    """

    sources: dict[int, tuple[int, ...]] = field(default_factory=dict)
    admissions: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    releases: list[int] = field(default_factory=list)
    calls: list[list[Row]] = field(default_factory=list)

    def admit(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Take newcomers in; none may come to a sequence that is not free."""
        assert newcomers, "an admission of nobody"
        for sequence, source in newcomers:
            assert sequence not in self.sources, f"sequence {sequence} is not free"
            self.sources[sequence] = tuple(source)
            self.admissions.append((sequence, tuple(source)))

    def enter(self, rows: Sequence[Row]) -> None:
        """Take down the rows of a call; they come by sequence, subsequence and time."""
        assert rows, "a decoder call without rows"
        order = [(row.sequence, row.slot.subsequence, row.slot.time) for row in rows]
        assert order == sorted(set(order)), f"rows out of order: {order}"
        assert {row.sequence for row in rows} <= set(self.sources), "rows of a sequence with nobody in it"
        self.calls.append(list(rows))

    def release(self, sequence: int) -> None:
        """Free a sequence that is taken."""
        del self.sources[sequence]
        self.releases.append(sequence)


class ScriptedModel:
    """Answers from a script: a source is one id, which names the texts to be told.

    Attributes:
        books: who is where, and what was asked.
    """

    def __init__(self, scripts: Sequence[Texts], garbage: int = 7) -> None:
        self.books = Books()
        self._scripts = scripts
        self._garbage = garbage
        self._starts: dict[int, dict[int, int]] = {}

    def admit(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """See `StepModel`."""
        self.books.admit(newcomers)
        self._starts |= {sequence: {} for sequence, _ in newcomers}

    def step(self, rows: Sequence[Row]) -> list[int]:
        """See `StepModel`; a row that does not answer gets a token that must not turn up anywhere."""
        self.books.enter(rows)
        return [self._answer(row.sequence, row.slot) for row in rows]

    def release(self, sequence: int) -> None:
        """See `StepModel`."""
        self.books.release(sequence)
        del self._starts[sequence]

    def _answer(self, sequence: int, slot: Slot) -> int:
        if not slot.answers:
            return self._garbage
        start = self._starts[sequence].setdefault(slot.subsequence, slot.time)
        (script,) = self.books.sources[sequence]
        return scripted_token(self._scripts[script], slot.subsequence, slot.time - start + 1)


class HashedModel:
    """A cached model: the state of a token is a number made of its id, the source and all that it sees.

    Attributes:
        books: who is where, and what was asked.
    """

    def __init__(self) -> None:
        self.books = Books()
        self._cache: dict[int, list[tuple[Placed, int]]] = {}

    def admit(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """See `StepModel`."""
        self.books.admit(newcomers)
        self._cache |= {sequence: [] for sequence, _ in newcomers}

    def step(self, rows: Sequence[Row]) -> list[int]:
        """See `StepModel`."""
        self.books.enter(rows)
        answers = []
        for sequence, slot in rows:
            placed = Placed(slot.subsequence, slot.time, slot.token)
            seen = [
                (manhattan(placed, other), state)
                for other, state in self._cache[sequence]
                if sees(placed, other)
            ]
            state = _state(self.books.sources[sequence], placed.token, seen)
            self._cache[sequence].append((placed, state))
            logits = _logits(state)
            answers.append(logits.index(max(logits)))
        return answers

    def release(self, sequence: int) -> None:
        """See `StepModel`."""
        self.books.release(sequence)
        del self._cache[sequence]


def hashed_next_logits(source: Sequence[int]) -> NextLogits:
    """What `HashedModel` computes, without a cache: for `oracle_decode`."""

    def next_logits(grid: list[Placed], wanted: list[int]) -> list[list[float]]:
        states: dict[Placed, int] = {}
        for placed in sorted(grid, key=lambda placed: (placed.time, placed.subsequence)):
            seen = [
                (manhattan(placed, other), state) for other, state in states.items() if sees(placed, other)
            ]
            states[placed] = _state(tuple(source), placed.token, seen)
        return [_logits(states[grid[k]]) for k in wanted]

    return next_logits


def _state(source: tuple[int, ...], token: int, seen: list[tuple[int, int]]) -> int:
    """A number that depends on everything it is given, though not on the order of what is seen."""
    return hash((source, token, *(number for pair in sorted(seen) for number in pair)))


def _logits(state: int) -> list[float]:
    """Scores over the vocabulary, of which <bos> is never the best and <eos> often."""
    scores = [float(hash((state, token)) % 10_007) for token in range(VOCABULARY)]
    scores[BOS] = -1.0
    scores[EOS] *= 1.3
    return scores
