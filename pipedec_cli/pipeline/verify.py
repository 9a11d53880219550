"""Exact mode: the greedy text of a plain model, of which a draft tells the next tokens and one call checks several.

A call feeds the last agreed token and k guesses as rows of one subsequence at successive times. The guesses that equal
the model's own choices are kept, its choice behind the last of them comes free, and the rest is taken back: the text is
the model's own, token for token, whatever the draft is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from pipedec_cli.pipeline.grid import Limits, Slot, Step, Truncated
from pipedec_cli.pipeline.schedule import Subsequence

#: The n-grams by which a draft is taken up again, the longest first.
GRAMS: Final = (3, 2, 1)
#: What a call costs by the guesses that it checks, where nothing was measured: all the same, up to 8 of them.
FLAT: Final = (1.0,) * 9
#: Guesses kept and guesses made that every text is reckoned to begin with: n-grams' and those of the model itself, a draft's.
_BEGUN: Final = ((1.0, 3.0), (3.0, 4.0))
#: What is left of older ones after a call, and what they come to where none are made, so that some are again.
_OLDER, _NONE = 0.8, (0.5, 1.0)


class Grams:
    """Tokens, in which n-grams are looked up."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.tokens: list[int] = []
        self._signs = ""  # a character for each, whatever it looks like: strings are searched fast
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Add tokens at the end."""
        self.tokens.extend(tokens)
        self._signs += "".join(map(chr, tokens))

    def find(self, text: Grams, after: int | None = None) -> int | None:
        """The place behind the last 3, else 2, else 1 tokens of a text at which another token follows.

        It is the last such place, or the first beyond `after`.
        """
        end = len(self.tokens) - 1
        for n in GRAMS:
            if len(text.tokens) >= n:
                gram, first = text._signs[-n:], max(0, (after or 0) + 1 - n)
                at = self._signs.rfind(gram, 0, end) if after is None else self._signs.find(gram, first, end)
                if at >= 0:
                    return at + n
        return None


@dataclass(slots=True)
class Verification:
    """The text of one example while a draft of it is checked: what `Grid` is to the pipelined decoder.

    `draft` is a text with its <eos>, or empty; where it is of no use, n-grams of the `source` and of the text so far tell what may
    follow. With `jacobi` the model's own answers behind a wrong guess are the next guesses (Santilli et al. 2023).
    `costs` says how many to make: of a call that checks 0, 1, 2, … of them, relative to each other.
    """

    source: Grams
    limits: Limits
    draft: Grams
    bos: int
    eos: int
    jacobi: bool = False
    costs: Sequence[float] = FLAT
    subsequences: list[Subsequence] = field(default_factory=lambda: [Subsequence(0)], init=False)
    steps: int = field(default=0, init=False)
    wrong: int = field(default=0, init=False)  # guesses that were taken back
    _text: Grams = field(default_factory=Grams, init=False)
    _planned: tuple[Slot, ...] = field(default=(), init=False)
    _place: int | None = field(default=0, init=False)  # of the draft's next token; None where it is of no use
    _used: int = field(default=0, init=False)  # how far the draft has been used
    _answers: tuple[int, ...] = field(default=(), init=False)  # what the model said behind a wrong guess
    _drafted: bool = field(default=False, init=False)  # whether the guesses are the draft's
    _lately: list[tuple[float, float]] = field(
        default_factory=lambda: list(_BEGUN), init=False
    )  # kept and made

    empty: ClassVar[int] = 0  # nothing is explored
    row_budget_exhausted: ClassVar[bool] = False
    stopped_on_repeat: ClassVar[bool] = False

    @property
    def time(self) -> int:
        """That of the newest token."""
        return self.tokens + self.subsequences[0].ended

    @property
    def tokens(self) -> int:
        """Tokens agreed on, <eos> not counted."""
        return len(self.subsequences[0].text_tokens)

    @property
    def live(self) -> list[Subsequence]:
        """The text, until it has ended."""
        return [row for row in self.subsequences if not row.ended]

    @property
    def truncated(self) -> Truncated | None:
        """What cut the text short, once `plan` has returned nothing."""
        return "max_tokens" if self.live else None

    def plan(self) -> tuple[Slot, ...]:
        """The last agreed token and the guesses behind it; nothing once the text has ended. Planning again changes nothing."""
        left = (self.limits.max_tokens or 0) - self.tokens
        self._planned = ()
        if self.live and left > 0:
            text = self._text.tokens
            fed = [*(text or [self.bos])[-1:], *self._guesses(min(len(self.costs), left) - 1)]
            self._planned = tuple(Slot(1, len(text) + number, token) for number, token in enumerate(fed))
        return self._planned

    def commit(self, answers: Sequence[int], probabilities: Sequence[float] = ()) -> Step:
        """Keep the guesses that the answers confirm, and the answer behind the last of them; take the other rows back."""
        if len(answers) != len(self._planned) or not self._planned:
            raise ValueError(f"{len(answers)} answers to {len(self._planned)} planned rows")
        guesses = [slot.token for slot in self._planned[1:]]
        kept = _alike(guesses, answers)
        agreed = list(answers[: kept + 1])
        if self.eos in agreed:
            del agreed[agreed.index(self.eos) + 1 :]
        first, fed = self._planned[0].time, self._planned
        counted = zip(self._lately[self._drafted], _NONE, (kept, min(kept + 1, len(guesses))), strict=True)
        right, made = (_OLDER * before + (1 - _OLDER) * none + new for before, none, new in counted)
        self._lately[self._drafted] = right, made
        self._text.extend(agreed)
        self.subsequences[0].tokens.extend(agreed)
        self.subsequences[0].ended = agreed[-1] == self.eos
        self._answers = tuple(answers[kept + 1 :])
        self._follow(agreed)
        self.steps += 1
        self.wrong += len(fed) - len(agreed)
        new = tuple(Slot(1, first + number, token) for number, token in enumerate(agreed, start=1))
        self._planned = ()
        return Step(self.steps, self.time, fed, new, fed[len(agreed) :])

    def _follow(self, agreed: Sequence[int]) -> None:
        """Go on in the draft as far as it was right; after that, behind the next place where it has what was agreed on."""
        if self._place is not None:
            told = self.draft.tokens[self._place : self._place + len(agreed)]
            right = _alike(told, agreed)
            self._used = self._place + right
            if right == len(agreed):
                self._place = self._used
                return
        self._place = self.draft.find(self._text, after=self._used)

    def _guesses(self, most: int) -> Sequence[int]:
        """What may follow, as many tokens as are worth their cost."""
        text = self._text.tokens
        self._drafted = self._place is not None and self._place < len(self.draft.tokens)
        if self._drafted:
            told: Sequence[int] = self.draft.tokens[self._place :]
        elif self.jacobi and self._answers:
            told = [*self._answers, *[self._answers[-1]] * most]
        elif (place := self.source.find(self._text)) is not None:
            told = self.source.tokens[place:]
        elif (place := self._text.find(self._text)) is not None:
            told = text[place:]
        else:
            told = [(text or [self.bos])[-1]] * most if self.jacobi else []
        return told[: self._worth(min(most, len(told)))]

    def _worth(self, most: int) -> int:
        """How many guesses, at most so many, give the most tokens for their cost, if each is kept as often as lately."""
        kept, made = self._lately[self._drafted]
        chance, expected, best = min(kept / made, 0.999), 1.0, (0.0, 0)
        for guesses in range(most + 1):
            best = max(best, (expected / self.costs[guesses], guesses))
            expected += chance ** (guesses + 1)
        return best[1]


def _alike(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts have in common before they differ or one ends."""
    return next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


@dataclass(frozen=True, slots=True)
class Verify:
    """How to decode in exact mode: what `Method` is to the pipelined decoder. `drafts` are by example, each used once."""

    bos: int | None
    eos: int
    limits: Limits
    jacobi: bool = False
    costs: Sequence[float] = FLAT
    drafts: dict[int, Sequence[int]] = field(default_factory=dict)
    min_start_prob: float = 0.0

    def new_grid(self, example: int, source: Sequence[int]) -> Verification:
        """A text of which nothing is written yet."""
        draft, bos = Grams(self.drafts.pop(example, ())), source[-1] if self.bos is None else self.bos
        return Verification(Grams(source), self.limits, draft, bos, self.eos, self.jacobi, self.costs)
