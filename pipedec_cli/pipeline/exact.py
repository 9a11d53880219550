"""Exact mode: the greedy text of a sequential model, in fewer calls, because a draft guesses the next tokens.

A call feeds the last agreed token and k guesses as rows of one subsequence at
successive times. The guesses that equal the model's own choices are kept, its choice
behind the last of them comes free, and the other rows are taken back. So the text is
the model's own, token for token, whatever the draft is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from pipedec_cli.pipeline.grid import Grid, Method, Odds, Slot, Step, split_opener
from pipedec_cli.pipeline.schedule import Schedule, Subsequence, Whole

#: The lengths of the n-grams that are looked up, the longest first.
GRAMS: Final = (3, 2, 1)
#: The cost of a call by its number of guesses, where nothing was measured: the same for
#: up to 8 guesses.
FLAT: Final = (1.0,) * 9
#: The counts (guesses kept, guesses made) that every text starts with: n-grams and the
#: model's own answers, the draft.
_FIRST_COUNTS: Final = ((1.0, 3.0), (3.0, 4.0))
#: The weight of older counts after a call, and the counts that they fade to, so that
#: guesses are tried again.
_FADE, _FLOOR = 0.8, (0.5, 1.0)


class Grams:
    """Tokens in which n-grams are looked up."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.tokens: list[int] = []
        self._letters = (
            ""  # one character for each token, because strings are searched fast
        )
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Add tokens at the end."""
        self.tokens.extend(tokens)
        self._letters += "".join(map(chr, tokens))

    def find(self, text: Grams, after: int | None = None) -> int | None:
        """The place behind an occurrence of the text's last 3, else 2, else 1 tokens; a token stands at that place.

        It is the last such place, or the first one beyond `after`. None if there is
        none.
        """
        end = len(self.tokens) - 1
        for n in GRAMS:
            if len(text.tokens) < n:
                continue
            gram = text._letters[-n:]
            if after is None:
                at = self._letters.rfind(gram, 0, end)
            else:
                at = self._letters.find(gram, max(0, after + 1 - n), end)
            if at >= 0:
                return at + n
        return None


@dataclass(frozen=True, slots=True)
class Verify(Method):
    """How to decode in exact mode: a method with one row, whose drafts are checked.

    `drafts` are the drafts by example, each used once: token ids with <eos>. Where a
    draft is of no use, n-grams of the source and of the text so far are guessed. With
    `jacobi` the model's own answers behind a wrong guess are the next guesses (Santilli
    et al. 2023). `costs` are the relative costs of a call with 0, 1, 2, … guesses.
    """

    guesses: ClassVar[bool] = True
    schedule: Schedule = field(default_factory=Whole, init=False)
    jacobi: bool = False
    costs: Sequence[float] = FLAT
    drafts: dict[int, Sequence[int]] = field(default_factory=dict)

    def new_grid(self, example: int = 0, source: Sequence[int] = ()) -> Verification:
        """A text of which nothing is written yet."""
        draft, bos = (
            Grams(self.drafts.pop(example, ())),
            split_opener(self.bos, source)[1],
        )
        return Verification(self, bos, Grams(source), draft)


@dataclass(slots=True)
class Verification(Grid):
    """The grid of one text while its draft is checked. It has one row, from the beginning."""

    method: Verify
    source: Grams
    draft: Grams
    subsequences: list[Subsequence] = field(
        default_factory=lambda: [Subsequence(0)], init=False
    )
    wrong: int = field(default=0, init=False)  # guesses that were taken back
    _text: Grams = field(default_factory=Grams, init=False)
    #: The place of the draft's next token; None while the draft is of no use.
    _place: int | None = field(default=0, init=False)
    _used: int = field(
        default=0, init=False
    )  # the place up to which the draft has been used
    _answers: tuple[int, ...] = field(
        default=(), init=False
    )  # the model's answers behind a wrong guess
    _drafted: bool = field(
        default=False, init=False
    )  # whether the planned guesses are the draft's
    #: Counts (kept, made) of recent guesses: at 1 the draft's, at 0 all others.
    _counts: list[tuple[float, float]] = field(
        default_factory=lambda: list(_FIRST_COUNTS), init=False
    )

    @property
    def empty(self) -> int:
        """Always 0: nothing is explored."""
        return 0

    def plan(self) -> tuple[Slot, ...]:
        """The last agreed token and the guesses behind it; nothing once the text has ended."""
        left = (self.method.limits.max_tokens or 0) - self.tokens
        self._planned = ()
        if left > 0 and not self.subsequences[0].ended:
            text = self._text.tokens
            guesses = self._guesses(min(len(self.method.costs), left) - 1)
            fed = [text[-1] if text else self.bos, *guesses]
            before, allowed = [*text, *guesses], self.method.free.allowed
            self._planned = tuple(
                Slot(1, time, token, allowed=allowed(before[:time]))
                for time, token in enumerate(fed, len(text))
            )
        return self._planned

    def commit(self, answers: Sequence[int], odds: Sequence[Odds] = ()) -> Step:
        """Keep the guesses that equal the answers, and the answer behind the last of them; take the other rows back."""
        fed = self._take_planned(answers)
        guesses = [slot.token for slot in fed[1:]]
        kept = _alike(guesses, answers)
        agreed = list(answers[: kept + 1])
        ends = self.method.ends | {self.method.eos}
        first = next(
            (place for place, token in enumerate(agreed) if token in ends), len(agreed)
        )
        del agreed[first + 1 :]
        counts = zip(
            self._counts[self._drafted],
            _FLOOR,
            (kept, min(kept + 1, len(guesses))),
            strict=True,
        )
        right, tried = (
            _FADE * before + (1 - _FADE) * floor + new for before, floor, new in counts
        )
        self._counts[self._drafted] = right, tried
        self._text.extend(agreed)
        self.subsequences[0].tokens.extend(agreed)
        self.subsequences[0].ended = agreed[-1] in ends
        self._answers = tuple(answers[kept + 1 :])
        self._follow(agreed)
        self.time = len(self._text.tokens)
        self.steps += 1
        self.wrong += len(fed) - len(agreed)
        made = tuple(
            Slot(1, fed[0].time + number, token)
            for number, token in enumerate(agreed, start=1)
        )
        return Step(self.steps, self.time, fed, made, fed[len(agreed) :])

    def _follow(self, agreed: Sequence[int]) -> None:
        """Go on in the draft as long as it is right; else behind the next place where it has the agreed tokens."""
        if self._place is not None:
            right = _alike(
                self.draft.tokens[self._place : self._place + len(agreed)], agreed
            )
            self._used = self._place + right
            if right == len(agreed):
                self._place = self._used
                return
        self._place = self.draft.find(self._text, after=self._used)

    def _guesses(self, most: int) -> Sequence[int]:
        """The tokens that may follow, at most `most`, as many as are worth their cost."""
        text, jacobi = self._text.tokens, self.method.jacobi
        self._drafted = self._place is not None and self._place < len(self.draft.tokens)
        if self._drafted:
            guesses: Sequence[int] = self.draft.tokens[self._place :]
        elif jacobi and self._answers:
            guesses = [*self._answers, *[self._answers[-1]] * most]
        elif (place := self.source.find(self._text)) is not None:
            guesses = self.source.tokens[place:]
        elif (place := self._text.find(self._text)) is not None:
            guesses = text[place:]
        else:
            guesses = [text[-1] if text else self.bos] * most if jacobi else []
        return guesses[: self._worth(min(most, len(guesses)))]

    def _worth(self, most: int) -> int:
        """The number of guesses, at most `most`, that gives the most tokens for its cost, if as many are kept as lately."""
        kept, made = self._counts[self._drafted]
        chance, expected, best = min(kept / made, 0.999), 1.0, (0.0, 0)
        for guesses in range(most + 1):
            best = max(best, (expected / self.method.costs[guesses], guesses))
            expected += chance ** (guesses + 1)
        return best[1]


def _alike(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts have in common before they differ or one ends."""
    for number, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return number
    return min(len(one), len(other))
