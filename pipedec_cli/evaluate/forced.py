"""Forced lengths: every decoder step is computed, and each subsequence gets the number of tokens that it should have.

So the speed of the method can be measured without training. A model with fresh weights would never end a text.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.paper import TARGET_LENGTHS
from pipedec_cli.pipeline.decode import Row, StepModel
from pipedec_cli.pipeline.grid import EmptyRows, Limits, Method, Opening
from pipedec_cli.pipeline.schedule import Fixed, Together, Whole

TOKENS_A_WORD: Final = 4 / 3  # of English prose in T5's vocabulary, about: the paper's Table 1 counts words
_WORD: Final = 4  # any token


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of the source with its <eos>, tokens of each subsequence without, and where these lengths are from.

    With fields, each subsequence is a value after a key with `keys` tokens; the sequential model writes `plain` tokens.
    """

    source: int
    targets: tuple[int, ...]
    origin: str
    keys: tuple[int, ...] = ()
    plain: int | None = None

    @classmethod
    def even(cls, source: int, subsequences: int, tokens: int, origin: str = "as given") -> Self:
        """Divide tokens among subsequences that differ by at most one, the longer first; a UserError if one would be empty."""
        if source < 2 or subsequences < 1 or tokens < subsequences:
            wanted = f"{tokens} tokens in {subsequences} subsequences from {source} source tokens"
            todo = "give at least one token a subsequence, and two source tokens"
            raise UserError(f"{wanted} cannot be had", todo=todo)
        each, left = divmod(tokens, subsequences)
        return cls(source, tuple(each + (place < left) for place in range(subsequences)), origin)

    @classmethod
    def of_dataset(cls, name: str, source: int) -> Self:
        """The mean lengths of one of the paper's data sets: the words of its Table 1, as tokens."""
        if name not in TARGET_LENGTHS:
            todo = f"the shapes are {', '.join(TARGET_LENGTHS)}"
            raise UserError(f"no shape is called {name!r}", todo=todo)
        row = TARGET_LENGTHS[name]
        words, subsequences = row.words_per_target, row.subsequences_per_target
        origin = f"{name}: the paper's {row.table}, {words} words in {subsequences} subsequences, 4 tokens for 3 words"
        return cls.even(source, round(subsequences), round(words * TOKENS_A_WORD), origin)

    @classmethod
    def of_fields(cls, source: int, keys: int = 12, tokens: int = 3) -> Self:
        """The lengths of an object whose values have so many tokens. As one text each has 4 more."""
        origin = f"fields: {keys} keys of 2 tokens, values of {tokens}"
        return cls(source, (tokens,) * keys, origin, keys=(2,) * keys, plain=keys * (tokens + 4))

    @property
    def tokens(self) -> int:
        """All tokens of the target; with fields, of the sequential model's text."""
        return self.plain or sum(self.targets)

    @property
    def line(self) -> str:
        """The lengths in words."""
        each = " to ".join(map(str, sorted({min(self.targets), max(self.targets)})))
        written = f"{sum(self.targets):,} target tokens in {len(self.targets)} subsequences of {each}"
        plain = f"; {self.plain:,} in the plain text" if self.plain else ""
        return f"{self.source:,} source tokens, {written}{plain} ({self.origin})"

    def method(
        self,
        bos: int | None,
        eos: int,
        delay: int | Literal["together", "blind"] | None,
        empty_rows: EmptyRows = "retry",
    ) -> Method:
        """A method that only these lengths end. Without a delay the target is one string; fields start ``together``, also ``blind``."""
        if delay is None:
            return Method(Whole(), bos, eos, Limits(None, None, self.tokens + 1), empty_rows)
        if not isinstance(delay, int):
            limits, is_blind = Limits(max(self.targets) + 1, None), delay == "blind"
            openings = tuple(Opening((_WORD,) * count) for count in self.keys)
            return Method(
                Together(), eos if is_blind else bos, eos, limits, openings=openings, blind=is_blind
            )
        usual, needed = Limits(), delay * len(self.targets) + max(self.targets) + 2
        limits = Limits(max(usual.time_max or 0, needed), max(usual.sub_max or 0, len(self.targets) + 1))
        return Method(Fixed(delay), bos, eos, limits, empty_rows)

    def sources(self, count: int, vocabulary: int, eos: int | None, seed: int = 0) -> list[list[int]]:
        """Sources of random tokens below `vocabulary`, without special ones, each with its <eos>; without eos, prompts."""
        rng, end = random.Random(seed), [] if eos is None else [eos]  # noqa: S311  # chance, not secrecy
        words = self.source - len(end)
        return [[*rng.choices(range(3, vocabulary), k=words), *end] for _ in range(count)]


class ForcedAnswers:
    """A `StepModel` that runs another one, and ends its subsequences after the given numbers of tokens.

    The model's own token stays unless it would end a subsequence too early. Later subsequences are empty.
    """

    def __init__(self, model: StepModel, targets: Sequence[int], eos: int) -> None:
        self._model, self._targets, self._eos = model, targets, eos
        self._made: dict[int, Counter[int]] = {}
        self.release, self.take_back = model.release, model.take_back

    def admit(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Pass examples on."""
        self._made.update({sequence: Counter() for sequence, _ in newcomers})
        self._model.admit(newcomers)

    def step(self, rows: Sequence[Row]) -> list[int]:
        """Compute, then force; rows that do not answer are not counted."""
        return list(map(self._forced, rows, self._model.step(rows)))

    def step_with_probabilities(self, rows: Sequence[Row]) -> tuple[list[int], Sequence[float]]:
        """The same; the probabilities are the model's."""
        answers, probabilities = self._model.step_with_probabilities(rows)
        return list(map(self._forced, rows, answers)), probabilities

    def _forced(self, row: Row, token: int) -> int:
        made, number = self._made[row.sequence], row.slot.subsequence
        if not row.slot.answers:
            return token
        made[number] += 1
        wanted = self._targets[number - 1] if number <= len(self._targets) else 0
        if made[number] > wanted:
            return self._eos
        other = 4 if self._eos == 3 else 3
        return other if token == self._eos else token
