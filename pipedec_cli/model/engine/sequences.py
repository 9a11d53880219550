"""The sequences of a stepper, and the positions of tokens behind the prompt of a decoder-only model."""

from collections.abc import Sequence
from typing import Final

from pipedec_cli.pipeline.attention import PROMPT_TIME, apart, behind
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot

#: Columns for which a cache has room in each sequence at first. The room doubles when it is full.
FIRST_ROOM: Final = 128


class Sequences:
    """The sequences of a stepper: how many columns each has filled, and its prompt.

    A subclass runs the calls. It has the methods of `Engine`, with `read` and `remember` in the place of `admit`.

    A prompt has S tokens, with K places for known tokens behind them. Prompt tokens have the positions 0 … S − 1, a later
    token has S + K + time + subsequence − 1. K is how far before time 0 the first call after the prompt begins; later calls
    do not change it. Token j of a blind row, from 0, has S + j.
    """

    def __init__(self, sequences: int) -> None:
        self.sequences = sequences
        self.filled = [0] * sequences  # columns in use
        #: The tokens that all prompts begin with. Every sequence keeps their keys and values in its first columns.
        self.beginning: tuple[int, ...] = ()
        self._lengths = [0] * sequences  # of the prompts
        self._known = [0] * sequences
        self._new = set(range(sequences))  # their first call is still to come

    def read(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Read prompts, which may be empty, into sequences that start anew: they become row 0 of their grids."""
        raise NotImplementedError

    def copy_first(self) -> None:
        """Copy the columns of the first sequence into all others."""
        raise NotImplementedError

    def keep(self, beginning: Sequence[int]) -> None:
        """Read the beginning of all prompts, and keep it in every sequence; all sequences start anew."""
        self.beginning = ()
        for sequence in range(self.sequences):
            self.release(sequence)
        self.read([(0, beginning)])
        self.copy_first()
        self.beginning = tuple(beginning)
        self.filled = [len(beginning)] * self.sequences

    def take_back(self, sequence: int, count: int) -> None:
        """Forget the newest `count` rows of a sequence; a ValueError if it has fewer."""
        if not 0 <= count <= self.filled[sequence]:
            raise ValueError(f"{count} rows cannot be taken back from {self.filled[sequence]}")
        self.filled[sequence] -= count

    def release(self, sequence: int) -> None:
        """Forget a sequence's grid and source, but for the beginning of all prompts."""
        self.take_back(sequence, self.filled[sequence] - len(self.beginning))
        self._lengths[sequence] = self._known[sequence] = 0
        self._new.add(sequence)

    def settle(self, rows: Sequence[Row]) -> None:
        """Set K of the sequences that have none yet, by all rows of a call."""
        if not self._new:
            return
        first = [row for row in rows if row.sequence in self._new]
        for row in first:
            self._known[row.sequence] = max(self._known[row.sequence], -row.slot.time)
        self._new.difference_update(row.sequence for row in first)

    def place(self, sequence: int, slot: Slot) -> tuple[int, int]:
        """The time at which a slot's token stands in the cache, and its position; its sequence is settled."""
        before = self._lengths[sequence]
        if slot.number >= 0:
            return apart(slot.subsequence, slot.number), before + slot.number
        return slot.time, behind(slot.subsequence, slot.time, before + self._known[sequence])

    def begin(self, sequence: int, prompt: Sequence[int]) -> list[tuple[Row, int]]:
        """Start a sequence anew: the tokens of its prompt behind the beginning of all prompts, as rows with positions.

        The rows want no answer. Token j has position j, whatever K is. A ValueError if the prompt begins in another way.
        """
        self.release(sequence)
        self._lengths[sequence] = len(prompt)
        if tuple(prompt[: len(self.beginning)]) != self.beginning:
            raise ValueError("a prompt does not begin as all prompts do")
        numbered = [*enumerate(prompt)][len(self.beginning) :]
        return [(Row(sequence, Slot(0, PROMPT_TIME + j, token, answers=False)), j) for j, token in numbered]
