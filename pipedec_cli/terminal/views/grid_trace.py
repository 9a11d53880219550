"""What has been seen of one example's grid, and its tokens as text that is safe to show in a cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pipedec_cli.pipeline.decode import Finished
from pipedec_cli.pipeline.grid import Step, Truncated
from pipedec_cli.terminal.console import visible

#: Token ids to text, special tokens left out.
Words = Callable[[Sequence[int]], str]

#: Stands before a token that goes on with the word before it.
CONTINUES: Final = "·"
#: A token of white space, or of nothing that can be seen.
BLANK: Final = "␣"


@dataclass(slots=True)
class RowTrace:
    """One subsequence: a row of the grid.

    Attributes:
        start: the time-step at which its <bos> stands.
        tokens: the ids made so far, <eos> included; the j-th one (from 1) stands at start + j.
        ended: whether the newest one is <eos>.
    """

    start: int
    tokens: list[int] = field(default_factory=list)
    ended: bool = False
    _text: str = ""
    _pieces: list[str] = field(default_factory=list)

    @property
    def newest(self) -> int:
        """The time-step of its newest token, or of its <bos>."""
        return self.start + len(self.tokens)

    @property
    def empty(self) -> bool:
        """Whether it is a failed exploration: <bos> answered at once by <eos>."""
        return self.ended and len(self.tokens) == 1

    def pieces(self, words: Words) -> list[str]:
        """The text of each token but <eos>, for its cell; only what came since the last call is decoded."""
        count = len(self.tokens) - self.ended
        for end in range(len(self._pieces) + 1, count + 1):
            text = words(self.tokens[:end])
            self._pieces.append(_piece(self._text, text, partial(words, self.tokens[end - 1 : end])))
            self._text = text
        return self._pieces

    def text(self, words: Words) -> str:
        """What the row says so far, in one safe line."""
        self.pieces(words)
        return one_line(self._text)


@dataclass(slots=True)
class GridTrace:
    """One example: its rows, and where its clock stands.

    Attributes:
        example: the index that its events carry.
        rows: the subsequences established so far.
        time: the newest time-step.
        steps: decoder calls so far.
        finished: whether it has left the decoder.
        truncated: what cut it short, once finished.
    """

    example: int
    rows: list[RowTrace] = field(default_factory=list)
    time: int = 0
    steps: int = 0
    finished: bool = False
    truncated: Truncated | None = None

    def add(self, step: Step, eos: int) -> None:
        """Put the tokens of one decoder call in their places; takes time in proportion to the live rows."""
        for slot in step.fed:
            if slot.subsequence > len(self.rows):
                self.rows.append(RowTrace(slot.time))
        for slot in step.made:
            row = self.rows[slot.subsequence - 1]
            row.tokens.append(slot.token)
            row.ended = slot.token == eos
        self.time, self.steps = step.time, step.number

    def finish(self, event: Finished) -> None:
        """Take over what the decoder says of the finished example, which needs none of its steps."""
        del self.rows[len(event.subsequences) :]
        for number, subsequence in enumerate(event.subsequences):
            if number == len(self.rows):
                self.rows.append(RowTrace(subsequence.start))
            self.rows[number].tokens = list(subsequence.tokens)
            self.rows[number].ended = subsequence.ended
        self.time = max((row.newest for row in self.rows), default=0)
        self.steps, self.truncated, self.finished = event.steps, event.truncated, True

    @property
    def tokens(self) -> int:
        """Tokens made so far, <eos> not counted."""
        return sum(len(row.tokens) - row.ended for row in self.rows)

    def made_at(self, time: int) -> int | None:
        """How many tokens stand at a time-step, <bos> and <eos> not counted; None if the clock passed it without a call."""
        answered = [row for row in self.rows if row.start < time <= row.newest]
        return sum(time <= row.newest - row.ended for row in answered) if answered else None


def one_line(text: str) -> str:
    """The text without anything that could move the cursor, break the line, turn its direction or fail to encode."""
    return visible(text.translate(_LINE_PICTURES))


def _piece(before: str, after: str, alone: Callable[[], str]) -> str:
    """What a token adds to the text of its row: told from the whole, since a tokenizer may drop a space at the start."""
    added = after[len(before) :] if after.startswith(before) else ""
    if not added.strip():
        added = alone()
    elif before[-1:].isalnum() and added[0].isalnum():
        added = CONTINUES + added
    return one_line(added.strip()) or BLANK


_LINE_PICTURES: Final[dict[int, str]] = {
    9: "␉",
    10: "␊",
    **dict.fromkeys([0x2028, 0x2029], "␊"),
    # marks, embeddings, overrides and isolates of direction, which would reorder the cells beside them
    **dict.fromkeys([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "�"),
    **dict.fromkeys(range(0xD800, 0xE000), "�"),
}
