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
#: The weight of older counts after a call.
_FADE: Final = 0.8


@dataclass(slots=True)
class Counts:
    """How many of the recent guesses of a kind were made, and how many of them were kept.

    Older guesses count less and less. What they fade to is no zero, so that guesses
    are tried again.
    """

    kept: float
    made: float

    def update(self, kept: int, made: int) -> None:
        """Add the guesses of a call."""
        self.kept = _FADE * self.kept + (1 - _FADE) * 0.5 + kept
        self.made = _FADE * self.made + (1 - _FADE) * 1.0 + made

    @property
    def chance(self) -> float:
        """How probable it is that a guess is kept."""
        return min(self.kept / self.made, 0.999)


class Grams:
    """Tokens in which n-grams are looked up."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.tokens: list[int] = []
        # One character for each token, because strings are searched fast.
        self._letters = ""
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Add tokens at the end."""
        self.tokens.extend(tokens)
        self._letters += "".join(map(chr, tokens))

    def find(self, text: Grams, after: int | None = None) -> int | None:
        """Look up the last 3, else 2, else 1 tokens of `text` in these tokens, and return the index right behind them.

        There is a token at that index. Without `after` it is the last such index, else
        the first one beyond `after`. None if these tokens do not occur.
        """
        end = len(self.tokens) - 1
        for n in GRAMS:
            if len(text.tokens) < n:
                continue
            gram = text._letters[-n:]
            if after is None:
                start = self._letters.rfind(gram, 0, end)
            else:
                start = self._letters.find(gram, max(0, after + 1 - n), end)
            if start >= 0:
                return start + n
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
        """The grid of a text of which nothing is written yet, with the draft of the `example` and its source to guess from."""
        draft = Grams(self.drafts.pop(example, ()))
        _, bos = split_opener(self.bos, source)
        return Verification(
            self,
            bos,
            source=Grams(source),
            draft=draft,
        )


@dataclass(slots=True)
class Verification(Grid):
    """The grid of one text while its draft is checked. It has one row, from the beginning."""

    method: Verify
    source: Grams
    draft: Grams
    subsequences: list[Subsequence] = field(
        default_factory=lambda: [Subsequence(0)],
        init=False,
    )
    wrong: int = field(default=0, init=False)  # guesses that were taken back
    _text: Grams = field(default_factory=Grams, init=False)
    #: The place of the draft's next token; None while the draft is of no use.
    _place: int | None = field(default=0, init=False)
    #: The place up to which the draft has been used.
    _used: int = field(default=0, init=False)
    #: The model's answers behind a wrong guess.
    _answers: tuple[int, ...] = field(default=(), init=False)
    #: Whether the planned guesses are the draft's.
    _drafted: bool = field(default=False, init=False)
    _draft_counts: Counts = field(
        default_factory=lambda: Counts(kept=3.0, made=4.0),
        init=False,
    )
    #: Those of all other guesses: n-grams and the model's own answers.
    _other_counts: Counts = field(
        default_factory=lambda: Counts(kept=1.0, made=3.0),
        init=False,
    )

    @property
    def _counts(self) -> Counts:
        """The counts of guesses such as the planned ones."""
        return self._draft_counts if self._drafted else self._other_counts

    @property
    def empty(self) -> int:
        """Always 0: nothing is explored."""
        return 0

    def plan(self) -> tuple[Slot, ...]:
        """The slots of the next call: the last agreed token and the guesses behind it; none once the text has ended."""
        left = (self.method.limits.max_tokens or 0) - self.tokens
        self._planned = ()
        if left <= 0 or self.subsequences[0].ended:
            return ()
        text = self._text.tokens
        most = min(len(self.method.costs), left) - 1
        guesses = self._guesses(most)
        last = text[-1] if text else self.bos
        before = [*text, *guesses]
        slots = []
        for time, token in enumerate([last, *guesses], len(text)):
            allowed = self.method.free.allowed(before[:time])
            slots.append(Slot(1, time, token, allowed=allowed))
        self._planned = tuple(slots)
        return self._planned

    def commit(self, answers: Sequence[int], odds: Sequence[Odds] = ()) -> Step:
        """Keep the guesses that equal the model's answers, and its answer behind the last of them; take back the others.

        `answers` has the model's own token behind each planned slot; `odds` are not
        looked at. Returns what the call did.
        """
        fed = self._take_planned(answers)
        guesses = [slot.token for slot in fed[1:]]
        kept = _alike(guesses, answers)
        agreed = self._up_to_end(answers[: kept + 1])
        self._counts.update(kept, min(kept + 1, len(guesses)))
        self._answers = tuple(answers[kept + 1 :])
        self._add_agreed(agreed)
        self._follow(agreed)
        self.steps += 1
        self.wrong += len(fed) - len(agreed)
        made = []
        for time, token in enumerate(agreed, fed[0].time + 1):
            made.append(Slot(1, time, token))
        taken_back = fed[len(agreed) :]
        return Step(self.steps, self.time, fed, tuple(made), taken_back)

    def _is_end(self, token: int) -> bool:
        """Whether a token ends the text."""
        return token == self.method.eos or token in self.method.ends

    def _up_to_end(self, tokens: Sequence[int]) -> list[int]:
        """The tokens up to the first one that ends the text, that one included; all if none does."""
        for count, token in enumerate(tokens, start=1):
            if self._is_end(token):
                return list(tokens[:count])
        return list(tokens)

    def _add_agreed(self, agreed: Sequence[int]) -> None:
        """Add tokens to the text, end it if the last one ends it, and set the clock."""
        row = self.subsequences[0]
        self._text.extend(agreed)
        row.tokens.extend(agreed)
        row.ended = self._is_end(agreed[-1])
        self.time = len(self._text.tokens)

    def _follow(self, agreed: Sequence[int]) -> None:
        """Set where the draft goes on after the `agreed` tokens of a call.

        As long as the draft has said just these, it goes on behind them; else behind
        the next occurrence of the text's last tokens in it, if there is one.
        """
        if self._place is not None:
            end = self._place + len(agreed)
            following = self.draft.tokens[self._place : end]
            right = _alike(following, agreed)
            self._used = self._place + right
            if right == len(agreed):
                self._place = self._used
                return
        self._place = self.draft.find(self._text, after=self._used)

    def _guesses(self, most: int) -> Sequence[int]:
        """Guess the next tokens: at most `most`, as many as are worth their cost, or none.

        They come from the draft; where it is of no use, from the model's own last
        answers (`jacobi`), else from the source or the text so far, where the text's
        last tokens occur. Sets `_drafted`: whether the draft has given them.
        """
        self._drafted = self._place is not None and self._place < len(self.draft.tokens)
        if self._drafted:
            guesses: Sequence[int] = self.draft.tokens[self._place :]
        elif self.method.jacobi and self._answers:
            padding = [self._answers[-1]] * most
            guesses = [*self._answers, *padding]
        elif (place := self.source.find(self._text)) is not None:
            guesses = self.source.tokens[place:]
        elif (place := self._text.find(self._text)) is not None:
            guesses = self._text.tokens[place:]
        elif self.method.jacobi:
            text = self._text.tokens
            guesses = [text[-1] if text else self.bos] * most
        else:
            guesses = []
        most = min(most, len(guesses))
        return guesses[: self._worth(most)]

    def _worth(self, most: int) -> int:
        """The number of guesses, at most `most`, that promises the most tokens for its cost, if as many are kept as lately.

        A call gives one token without guesses. A guess adds one if it and all guesses
        before it are kept.
        """
        chance = self._counts.chance
        expected = 1.0  # tokens of the call
        best = 0
        best_rate = 0.0
        for guesses in range(most + 1):
            rate = expected / self.method.costs[guesses]
            if rate >= best_rate:  # of two that are as good, the one of more guesses
                best = guesses
                best_rate = rate
            expected += chance ** (guesses + 1)
        return best


def _alike(text: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts have in common before they differ or one ends."""
    number = 0
    for token, other_token in zip(text, other, strict=False):
        if token != other_token:
            break
        number += 1
    return number
