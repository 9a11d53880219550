"""Exact mode: a plain T5's own greedy text, faster, since a draft tells what may follow; see `pipeline.exact`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final, Literal

import numpy as np

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.decoder import Decoder, Opened
from pipedec_cli.model.steps.engine import DecoderWeights, Engine
from pipedec_cli.pipeline.decode import Method, Row
from pipedec_cli.pipeline.exact import Verify
from pipedec_cli.pipeline.grid import SEQUENTIAL_LIMITS, Limits, Slot

#: What is timed to know what guesses cost: rows a call of each example, each so often, beside a source of so many tokens.
_ROWS: Final = (1, 2, 4, 8, 16)
_TIMES, _SOURCE = 3, 128


class ExactDecoder(Decoder):
    """A plain T5 whose text is checked against drafts, and is its own whatever they are; used as a `Decoder` is.

    Drafts are texts of another decoder, n-grams of the source and of the text so far (``source``), or the T5's own answers
    behind a wrong guess (``jacobi``). Its `Generated` count the drafter's decoder calls and seconds, too.
    """

    def __init__(
        self,
        plain: Decoder,
        draft: Decoder | Literal["source", "jacobi"],
        drafting: Method | None = None,
        *,
        max_tokens: int | None = None,
        costs: Mapping[int, tuple[float, ...]] = {},
    ) -> None:
        """Share the weights of `plain`; a UserError unless it is an ordinary T5 and the drafter, if any, is none.

        `drafting` is the drafter's method; at most `max_tokens` are written, 512 by default. `costs` are what `costs` gives by
        batch size, where they are known; else they are measured.
        """
        if plain.settings.decoder != "sequential":
            what = f"{plain.checkpoint.name} is a pipelined decoder, and exact mode gives the text of an ordinary T5"
            raise UserError(what, todo="give the T5 whose text is wanted")
        self.drafter = draft if isinstance(draft, Decoder) else None
        if self.drafter is not None and self.drafter.settings.decoder == "sequential":
            what = f"{self.drafter.checkpoint.name} is an ordinary T5, which drafts no faster than the text is written"
            raise UserError(
                what, todo="give a checkpoint that `pipedec train` made, or draft from the source"
            )
        super().__init__(
            plain.checkpoint, batch_size=plain.batch_size, max_source_tokens=plain.text.max_source_tokens
        )
        self.plain, self.jacobi = plain, draft == "jacobi"
        self.drafting = drafting or (self.drafter.method() if self.drafter else None)
        self.max_tokens = max_tokens
        self._costs = dict(costs)

    @cached_property
    def weights(self) -> DecoderWeights:
        """Those of the plain T5."""
        return self.plain.weights

    def usual_method(self, batch_size: int) -> Verify:
        """Exact mode; what guesses cost is measured when a batch size is first used."""
        limits = Limits(None, None, self.max_tokens or SEQUENTIAL_LIMITS.max_tokens)
        return Verify(self.checkpoint.bos, self.checkpoint.eos, limits, self.jacobi, self.costs(batch_size))

    def open(self, numbered: Sequence[tuple[int, str]], how: Method | Verify) -> dict[int, Opened]:
        """Make some numbered sources ready to be decoded: their drafts are written first."""
        opened = super().open(numbered, how)
        if self.drafter is not None and isinstance(how, Verify):
            texts = self.drafter.texts([text for _, text in numbered], self.drafting, self.batch_size)
            for (index, _), drafted in zip(numbered, texts, strict=True):
                opened[index].draft = drafted
                how.drafts[index] = [*self.text.ids([drafted.text])[0], self.checkpoint.eos]
        return opened

    def costs(self, batch_size: int) -> tuple[float, ...]:
        """What a decoder call costs by the guesses, 0 to 15, that each of so many examples has in it, relative to none."""
        if batch_size not in self._costs:
            engine, source = self.engine(batch_size), [self.checkpoint.eos] * _SOURCE
            engine.admit([(number, source) for number in range(batch_size)])
            took = [0.0]
            for rows in _ROWS:
                call = [
                    Row(n, Slot(1, t, self.checkpoint.bos)) for n in range(batch_size) for t in range(rows)
                ]
                # More rows cost no less, whatever else the machine was at in the meantime.
                took.append(max(took[-1], min(_seconds(engine, call, rows) for _ in range(_TIMES))))
            for number in range(batch_size):
                engine.release(number)
            each = np.interp(range(1, _ROWS[-1] + 1), _ROWS, np.array(took[1:]) / took[1])
            self._costs[batch_size] = tuple(round(float(cost), 2) for cost in each)
        return self._costs[batch_size]


def _seconds(engine: Engine, call: Sequence[Row], rows: int) -> float:
    """How long a call takes, of so many rows of each sequence, which are taken back again."""
    began = time.perf_counter()
    engine.step(call)
    took = time.perf_counter() - began
    for number in {row.sequence for row in call}:
        engine.take_back(number, rows)
    return took
