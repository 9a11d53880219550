"""The sequences of a stepper: what stands in them, and the positions of tokens behind the prompt of a decoder-only model."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import torch
from torch import Tensor

from pipedec_cli.model.engine.prompt_cache import Columns, Ids, Kept, common
from pipedec_cli.pipeline.answers import branched
from pipedec_cli.pipeline.attention import PROMPT_TIME, apart, behind
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot

#: Columns for which a cache has room in each sequence at first. The room doubles when
#: it is full.
FIRST_ROOM: Final = 128
#: So many tokens more must a prompt have in common with one that is about to be read:
#: it waits for that one.
WORTH_WAITING: Final = 64
#: From the ids of sources to the states of an encoder, [sources, longest, d_model].
Encode = Callable[[Sequence[Sequence[int]]], Tensor]


class Sequences:
    """The sequences of a stepper: how many columns each has filled, and its prompt.

    A subclass runs the calls. It has the methods of `Engine`, and `read`, `remember`
    and `columns`, which `admit` asks for.

    A prompt has S tokens, with K places for known tokens behind them. Prompt tokens
    have the positions 0 … S − 1, a later token has S + K + time + subsequence − 1. K is
    how far before time 0 the first call after the prompt begins; later calls do not
    change it. Token j of a blind row, from 0, has S + j.

    A prompt depends on its own tokens alone, and so do the keys and values of a source
    as a whole. They stay in the sequence until another one takes its place, and then,
    as far as there is room, in `kept`.
    """

    def __init__(self, sequences: int) -> None:
        """Make so many sequences, all of them free."""
        self.sequences = sequences
        self.filled = [0] * sequences  # columns in use
        self.kept = Kept()
        #: The prompt or source whose keys and values stand in each sequence, also after
        #: its release.
        self.there: list[Ids] = [()] * sequences
        self._lengths = [0] * sequences  # of the prompts
        self._known = [0] * sequences  # how far before time 0 each begins: K
        self._new = set(range(sequences))  # their first call is still to come

    def read(self, newcomers: Sequence[tuple[int, Ids, int]]) -> None:
        """Compute the keys and values of prompts, given as (sequence, token ids, how many of these the sequence has already)."""
        raise NotImplementedError

    def remember(self, memory: Tensor, newcomers: Sequence[tuple[int, Ids]]) -> None:
        """Compute and keep the keys and values of encoded sources, given as (sequence, token ids).

        `memory` has the encoder's states of them, [n, longest, d_model].
        """
        raise NotImplementedError

    def columns(self, sequence: int, tokens: int, *, encoded: bool) -> Columns:
        """Views of the keys and values of the first tokens of a sequence's prompt, or of its `encoded` source.

        It makes room for so many.
        """
        raise NotImplementedError

    def show(self, sequence: int, tokens: int, *, encoded: bool) -> None:
        """Let later rows of a sequence see that many tokens of its prompt, or of its `encoded` source."""
        raise NotImplementedError

    @torch.inference_mode()
    def admit(
        self,
        newcomers: Sequence[tuple[int, Sequence[int]]],
        encode: Encode | None = None,
    ) -> list[int]:
        """Start sequences anew with prompts, which may be empty, or with sources to `encode`.

        `newcomers` are (sequence, token ids). Keys and values of a text that was read
        before are taken over, as far as the new one begins like it. Returns how many
        tokens of each were taken over.
        """
        # The texts that are still to be read: sequence, ids, and tokens taken over.
        due = list[tuple[int, Ids, int]]()
        taken_over = list[int]()
        encoded = encode is not None
        for sequence, source in newcomers:
            ids = tuple(source)
            # States of an encoder depend on the whole source, a prompt's on the tokens
            # before.
            alike = partial(common, ids, whole=encoded)
            known, columns = self._known_of(sequence, ids, alike, encoded=encoded)
            if any(alike(other) >= known + WORTH_WAITING for _, other, _ in due):
                # Much of it stands in a text that is due: that one is read first.
                self._fill(due, encode)
                due = []
                known, columns = self._known_of(sequence, ids, alike, encoded=encoded)
            self._put_aside(sequence, ids, encoded=encoded)
            self.release(sequence)
            self.there[sequence] = ()
            if known:
                self._take_over(sequence, known, columns, encoded=encoded)
            self.kept.hits += known
            taken_over.append(known)
            due.append((sequence, ids, known))
        self._fill(due, encode)
        return taken_over

    def _take_over(
        self,
        sequence: int,
        tokens: int,
        columns: Columns,
        *,
        encoded: bool,
    ) -> None:
        """Have a sequence begin with so many tokens that were read before.

        Their `columns` (keys and values) are copied into it; () if they stand there
        already.
        """
        own = self.columns(sequence, tokens, encoded=encoded)
        for empty, column in zip(own, columns, strict=False):
            of_tokens = tuple(slice(size) for size in empty.shape)
            empty.copy_(column[of_tokens])
        self.show(sequence, tokens, encoded=encoded)

    def _known_of(
        self,
        sequence: int,
        ids: Ids,
        alike: Callable[[Ids], int],
        *,
        encoded: bool,
    ) -> tuple[int, Columns]:
        """How many tokens of a text were read before, and their columns (keys and values).

        They stand in a sequence, if possible in this one, or were kept aside. The
        columns are () if they stand in this one, since nothing is to be copied.
        `alike` says how many tokens another text has in common with this one.
        """
        texts = []
        for other, there in enumerate(self.there):
            texts.append((alike(there), other == sequence, other))
        known, _, best = max(texts)
        kept = self.kept.find(ids)
        stored = alike(kept)
        if stored > known:
            return stored, self.kept.take(kept)
        if not known or best == sequence:
            return known, ()
        return known, self.columns(best, known, encoded=encoded)

    def _fill(self, due: Sequence[tuple[int, Ids, int]], encode: Encode | None) -> None:
        """Read the prompts, or encode the sources, that are `due`: (sequence, token ids, how many the sequence has)."""
        if encode is None:
            if due:
                self.read(due)
        else:
            new = [(sequence, ids) for sequence, ids, known in due if not known]
            if new:
                states = encode([ids for _, ids in new])
                self.remember(states, new)
        for sequence, ids, _ in due:
            self._lengths[sequence] = 0 if encode else len(ids)
            self.there[sequence] = ids

    def _put_aside(self, sequence: int, ids: Ids, *, encoded: bool) -> None:
        """Keep the text that stands in a sequence, unless `ids`, the text that takes its place, begins with it."""
        there = self.there[sequence]
        if self.kept.most and there and common(there, ids) < len(there):
            columns = self.columns(sequence, len(there), encoded=encoded)
            self.kept.add(there, columns)

    def take_back(self, sequence: int, count: int) -> None:
        """Forget the newest `count` rows of a sequence; a ValueError if it has fewer."""
        if not 0 <= count <= self.filled[sequence]:
            raise ValueError(
                f"{count} rows cannot be taken back from {self.filled[sequence]}"
            )
        self.filled[sequence] -= count

    def release(self, sequence: int) -> None:
        """Forget a sequence's grid; its source stays until another one takes its place."""
        self.take_back(sequence, self.filled[sequence])
        self._lengths[sequence] = 0
        self._known[sequence] = 0
        self._new.add(sequence)

    def settle(self, rows: Sequence[Row]) -> None:
        """Set K of the sequences whose first call this is, by all `rows` of the call: how far before time 0 they begin."""
        if not self._new:
            return
        first = [row for row in rows if row.sequence in self._new]
        for row in first:
            known = self._known[row.sequence]
            self._known[row.sequence] = max(known, -row.slot.time)
        self._new.difference_update(row.sequence for row in first)

    def place(self, sequence: int, slot: Slot) -> tuple[int, int, int]:
        """Where a slot's token stands: the row and the time by which others see it, and its position.

        K of the sequence must have been set by `settle`.
        """
        row = branched(slot.subsequence, slot.branch)
        before = self._lengths[sequence]
        if slot.number >= 0:  # in a blind row, which sees the prompt and itself alone
            time = apart(slot.subsequence, slot.number) + slot.lift
            return row, time, before + slot.number
        position = behind(slot.subsequence, slot.time, before + self._known[sequence])
        return row, slot.time + slot.lift, position

    def begin(
        self, sequence: int, prompt: Sequence[int], known: int
    ) -> list[tuple[Row, int]]:
        """Start a sequence with a prompt, of which it has the first `known` tokens already.

        Returns the other tokens as rows, each with its position, which is its number in
        the prompt. They want no answer.
        """
        self.filled[sequence] = known
        rows = []
        for position, token in enumerate(prompt[known:], known):
            slot = Slot(0, PROMPT_TIME + position, token, answers=False)
            rows.append((Row(sequence, slot), position))
        return rows
