"""Where the tokens of a decoder-only model stand: behind the prompt of their sequence."""

from __future__ import annotations

from collections.abc import Sequence

from pipedec_cli.pipeline.attention import PROMPT_TIME, behind
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot


class Prompts:
    """The prompts of a number of sequences, S tokens each, and the K places that known tokens take behind them.

    Prompt tokens stand at positions 0 … S − 1, a later token at S + K + time + subsequence − 1. K is how far before time 0 the
    first call after the prompt begins: later calls do not move what stands.
    """

    def __init__(self, sequences: int) -> None:
        self._lengths = [0] * sequences
        self._known = [0] * sequences
        self._new = set(range(sequences))  # those whose first call is still to come

    def begin(self, sequence: int, length: int) -> None:
        """A sequence starts anew, with a prompt of so many tokens, 0 included."""
        self._lengths[sequence], self._known[sequence] = length, 0
        self._new.add(sequence)

    def settle(self, rows: Sequence[Row]) -> None:
        """Take K from these rows for the sequences that have none yet: before the rows of a call are taken in parts."""
        if not self._new:
            return
        first = [row for row in rows if row.sequence in self._new]
        for sequence, slot in first:
            self._known[sequence] = max(self._known[sequence], -slot.time)
        self._new.difference_update(sequence for sequence, _ in first)

    def position(self, sequence: int, slot: Slot) -> int:
        """Where a slot's token stands; the sequence is settled."""
        return behind(slot.subsequence, slot.time, self._lengths[sequence] + self._known[sequence])

    def prompt_rows(self, sequence: int, prompt: Sequence[int]) -> list[Row]:
        """A prompt's tokens as rows of the grid that want no answer; token j stands at position j, whatever K is."""
        return [
            Row(sequence, Slot(0, PROMPT_TIME + j, token, answers=False)) for j, token in enumerate(prompt)
        ]
