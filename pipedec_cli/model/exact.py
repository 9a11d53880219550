"""Exact mode: a sequential model's own greedy text in fewer calls, because a draft guesses it; see `pipeline.verify`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, Final, Literal

import numpy as np
from msgspec.structs import replace

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Generated
from pipedec_cli.model.arguments import check_positive_int, check_texts
from pipedec_cli.model.decoder import Decoder, window_of
from pipedec_cli.model.engine.engine import DecoderWeights, Engine
from pipedec_cli.pipeline.decode import Event, Row
from pipedec_cli.pipeline.exact import Verify
from pipedec_cli.pipeline.grid import SEQUENTIAL_LIMITS, Limits, Method, Slot

#: To measure what guesses cost: the rows of a call for each example, the most rounds, the most seconds of all rounds,
#: and the tokens of the source.
_ROWS: Final = (1, 2, 4, 8, 16)
_ROUNDS, _SECONDS, _SOURCE = 12, 0.5, 128


class ExactDecoder(Decoder):
    """A sequential model that checks drafts and writes its own text whatever they are. It is used as a `Decoder` is.

    Drafts are the texts of another decoder, n-grams of the source and of the text so far (``source``), or the model's
    own answers behind a wrong guess (``jacobi``). The method of `run` says how drafts are made; its max_tokens bounds
    the text. `Generated` counts the drafter's decoder calls and seconds, too.
    """

    def __init__(self, plain: Decoder, draft: Decoder | Literal["source", "jacobi"]) -> None:
        """Share the weights of `plain`; a UserError unless it is a sequential model and a drafter is not."""
        if plain.settings.decoder != "sequential":
            what = f"{plain.checkpoint.name} is a pipelined decoder, and exact mode gives the text of a sequential model"
            raise UserError(what, todo="give the model whose text is wanted")
        if isinstance(draft, Decoder) and draft.settings.decoder == "sequential":
            slow = "is a sequential model, which drafts no faster than the text is written"
            todo = "give a checkpoint that `pipedec train` made, or draft from the source"
            raise UserError(f"{draft.checkpoint.name} {slow}", todo=todo)
        if not isinstance(draft, Decoder) and draft not in ("source", "jacobi"):
            raise UserError(f"the draft is {draft!r}", todo="give a decoder, 'source' or 'jacobi'")
        super().__init__(plain.checkpoint, batch_size=plain.batch_size)
        self.text, self.unconstrained = plain.text, plain.unconstrained
        self.plain, self.drafter = plain, draft if isinstance(draft, Decoder) else None
        self.kind = "pipelined" if isinstance(draft, Decoder) else draft  # as --draft names it
        #: What guesses cost, from `measured`. A run that is resumed gets the costs that it began with.
        self.costs: tuple[float, ...] | None = None

    @cached_property
    def weights(self) -> DecoderWeights:
        """The weights of the sequential model."""
        return self.plain.weights

    def method(self, *args: Any, **chosen: Any) -> Method:
        """How the drafter decodes; without one, only max_tokens counts. See `Decoder.method`."""
        return self.drafter.method(*args, **chosen) if self.drafter else super().method(*args, **chosen)

    def run(
        self, sources: Iterable[str], method: Method | Verify | None = None, batch_size: int | None = None
    ) -> Iterator[Event | Generated]:
        """As `Decoder.run`; the events are those of checking."""
        how, size = method or self.method(), check_positive_int("batch_size", batch_size) or self.batch_size
        self.costs = self.costs or self.measured(size)
        check = self.check(how.limits.max_tokens, self.costs)
        drafts: dict[int, Generated] = {}

        def drafted(drafter: Decoder) -> Iterator[str]:
            numbered = enumerate(check_texts(sources))
            while window := list(islice(numbered, window_of(size))):
                made = drafter.texts([text for _, text in window], how, size)
                for (index, text), drafts[index] in zip(window, made, strict=True):
                    check.drafts[index] = self.draft(drafter.worded(drafts[index]))
                    yield text

        for item in super().run(drafted(self.drafter) if self.drafter else sources, check, size):
            if isinstance(item, Generated) and (draft := drafts.pop(item.index, None)):
                steps, seconds = item.steps + draft.steps, item.seconds + draft.seconds
                yield replace(item, steps=steps, seconds=seconds, draft_steps=draft.steps)
            else:
                yield item

    def check(self, max_tokens: int | None, costs: Sequence[float]) -> Verify:
        """How to decode on the model's engine, with guesses of these costs and, so far, no drafts."""
        limits = Limits(None, None, max_tokens or SEQUENTIAL_LIMITS.max_tokens)
        return Verify(self.checkpoint.bos, self.checkpoint.eos, limits, self.kind == "jacobi", costs)

    def draft(self, text: str) -> list[int]:
        """A text as a draft: ids of the model's tokenizer, with <eos>."""
        return [*self.text.ids([text])[0], self.checkpoint.eos]

    def measured(self, batch_size: int) -> tuple[float, ...]:
        """The cost of a decoder call with 0 to 15 guesses for each of `batch_size` examples, relative to none."""
        engine, source = self.engine(batch_size), [self.checkpoint.eos] * _SOURCE
        engine.admit([(number, source) for number in range(batch_size)])
        bos, began = self.checkpoint.opener, time.perf_counter()
        calls = [[Row(n, Slot(1, t, bos)) for n in range(batch_size) for t in range(rows)] for rows in _ROWS]
        rounds: list[list[float]] = []
        while len(rounds) < _ROUNDS and (len(rounds) < 3 or time.perf_counter() - began < _SECONDS):
            rounds.append([_seconds(engine, call, rows) for call, rows in zip(calls, _ROWS, strict=True)])
        for number in range(batch_size):
            engine.release(number)
        # The first round warms up. More rows cost no less, whatever else the machine did in the meantime.
        took = np.maximum.accumulate(np.array(rounds[1:]).min(axis=0))
        each = np.interp(range(1, _ROWS[-1] + 1), _ROWS, took / took[0])
        return tuple(round(float(cost), 2) for cost in each)


def _seconds(engine: Engine, call: Sequence[Row], rows: int) -> float:
    """The seconds of a call with so many rows of each sequence, which are taken back."""
    began = time.perf_counter()
    engine.step(call)
    took = time.perf_counter() - began
    for number in {row.sequence for row in call}:
        engine.take_back(number, rows)
    return took
