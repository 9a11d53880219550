"""Lengths that are forced on a decoder.

A model with fresh weights never ends a text, and a trained one ends it where it likes; to see what the method can give
on a machine without training, every step is computed in earnest and each subsequence gets the tokens that it is to have.
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
SOURCE_TOKENS: Final = 512  # where the paper gives no number
_WORD: Final = 4  # any token


@dataclass(frozen=True, slots=True)
class Lengths:
    """What is read and written: tokens of the source with its <eos>, and of each subsequence without; whence, in words.

    Of fields, each subsequence is a value behind `keys` of so many tokens; then the plain model writes `plain` tokens.
    """

    source: int
    targets: tuple[int, ...]
    origin: str
    keys: tuple[int, ...] = ()
    plain: int | None = None

    @classmethod
    def even(cls, source: int, subsequences: int, tokens: int, origin: str = "as given") -> Self:
        """So many tokens in subsequences that differ by no more than one, the longer ones first; none is empty."""
        if source < 2 or subsequences < 1 or tokens < subsequences:
            wanted = f"{tokens} tokens in {subsequences} subsequences from {source} source tokens"
            todo = "give at least one token a subsequence, and two source tokens"
            raise UserError(f"{wanted} cannot be had", todo=todo)
        each, left = divmod(tokens, subsequences)
        return cls(source, tuple(each + (place < left) for place in range(subsequences)), origin)

    @classmethod
    def of_dataset(cls, name: str, source: int = SOURCE_TOKENS) -> Self:
        """Lengths as in one of the paper's data sets, from its Table 1: means, in words, made tokens."""
        if name not in TARGET_LENGTHS:
            todo = f"the shapes are {', '.join(TARGET_LENGTHS)}"
            raise UserError(f"no shape is called {name!r}", todo=todo)
        row = TARGET_LENGTHS[name]
        words, subsequences = row.words_per_target, row.subsequences_per_target
        origin = f"{name}: the paper's {row.table}, {words} words in {subsequences} subsequences, 4 tokens for 3 words"
        return cls.even(source, round(subsequences), round(words * TOKENS_A_WORD), origin)

    @classmethod
    def of_fields(cls, source: int) -> Self:
        """Lengths as of an object: 12 keys, and the same as one text of 84 tokens."""
        origin = "fields: 12 keys of 2 tokens, values of 3"
        return cls(source, (3,) * 12, origin, keys=(2,) * 12, plain=84)

    @property
    def tokens(self) -> int:
        """Target tokens in all; of fields those of the plain text."""
        return self.plain or sum(self.targets)

    @property
    def line(self) -> str:
        """What is forced, in words."""
        each = " to ".join(map(str, sorted({min(self.targets), max(self.targets)})))
        written = f"{sum(self.targets):,} target tokens in {len(self.targets)} subsequences of {each}"
        plain = f"; {self.plain:,} in the plain text" if self.plain else ""
        return f"{self.source:,} source tokens, {written}{plain} ({self.origin})"

    def method(
        self,
        bos: int | None,
        eos: int,
        delay: int | Literal["together"] | None,
        empty_rows: EmptyRows = "retry",
    ) -> Method:
        """How to decode so that nothing but these lengths ends it; without a delay, the whole target as one string.

        Fields start ``together``, behind keys of any tokens.
        """
        if delay is None:
            return Method(Whole(), bos, eos, Limits(None, None, self.tokens + 1), empty_rows)
        if delay == "together":
            limits, keys = Limits(max(self.targets) + 1, None), ((_WORD,) * count for count in self.keys)
            return Method(Together(), bos, eos, limits, openings=tuple(map(Opening, keys)))
        usual, needed = Limits(), delay * len(self.targets) + max(self.targets) + 2
        limits = Limits(max(usual.time_max or 0, needed), max(usual.sub_max or 0, len(self.targets) + 1))
        return Method(Fixed(delay), bos, eos, limits, empty_rows)

    def sources(self, count: int, vocabulary: int, eos: int | None, seed: int = 0) -> list[list[int]]:
        """Sources of random tokens below `vocabulary` and above the first few, which are special.

        Each has its <eos>; without one it is a prompt.
        """
        rng, end = random.Random(seed), [] if eos is None else [eos]  # noqa: S311  # chance, not secrecy
        words = self.source - len(end)
        return [[*rng.choices(range(3, vocabulary), k=words), *end] for _ in range(count)]


class ForcedAnswers:
    """A `StepModel` that runs another one and gives its answers the lengths that are asked for, in tokens by subsequence.

    The model's own token is kept wherever it does not end the subsequence too early; what comes after the last is empty.
    """

    def __init__(self, model: StepModel, targets: Sequence[int], eos: int) -> None:
        self._model, self._targets, self._eos = model, targets, eos
        self._made: dict[int, Counter[int]] = {}
        self.release, self.take_back = model.release, model.take_back

    def admit(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Pass on."""
        self._made.update({sequence: Counter() for sequence, _ in newcomers})
        self._model.admit(newcomers)

    def step(self, rows: Sequence[Row]) -> list[int]:
        """Compute, then force; what does not answer counts for nothing."""
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
        if made[number] > (self._targets[number - 1] if number <= len(self._targets) else 0):
            return self._eos
        return token if token != self._eos else 4 if self._eos == 3 else 3
