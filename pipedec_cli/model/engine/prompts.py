"""Positions of the tokens of a decoder-only model: they stand behind the prompt of their sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipedec_cli.pipeline.attention import PROMPT_TIME, apart, behind
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot

#: Columns for which a cache has room in each sequence at first. The room doubles when it is full.
FIRST_ROOM: Final = 128


class Prompts:
    """The prompts of all sequences: S tokens each, with K places for known tokens behind them.

    Prompt tokens have the positions 0 … S − 1, a later token has S + K + time + subsequence − 1. K is how far before time 0
    the first call after the prompt begins; later calls do not change it. Token j of a blind row, from 0, has S + j.
    """

    def __init__(self, sequences: int) -> None:
        #: The tokens that all prompts begin with. Every sequence keeps their keys and values in its first columns.
        self.beginning: tuple[int, ...] = ()
        self._lengths = [0] * sequences
        self._known = [0] * sequences
        self._new = set(range(sequences))  # their first call is still to come

    def begin(self, sequence: int, length: int) -> None:
        """Start a sequence anew, with a prompt of `length` tokens, which may be 0."""
        self._lengths[sequence], self._known[sequence] = length, 0
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

    def prompt_rows(self, sequence: int, prompt: Sequence[int]) -> list[tuple[Row, int]]:
        """The tokens of a prompt behind the beginning of all prompts, as rows that want no answer, each with its position.

        Token j has position j, whatever K is. A ValueError if the prompt begins in another way.
        """
        if tuple(prompt[: len(self.beginning)]) != self.beginning:
            raise ValueError("a prompt does not begin as all prompts do")
        numbered = [*enumerate(prompt)][len(self.beginning) :]
        return [(Row(sequence, Slot(0, PROMPT_TIME + j, token, answers=False)), j) for j, token in numbered]
