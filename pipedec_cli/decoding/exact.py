"""Exact mode: a sequential model's own greedy text in fewer calls, because a draft guesses it; see `pipeline.exact`."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

import numpy as np
from msgspec.structs import replace

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Generated
from pipedec_cli.decoding.decoder import Decoder, window_of
from pipedec_cli.model.arguments import check_texts
from pipedec_cli.model.choice import Choice
from pipedec_cli.model.engine.engine import Engine
from pipedec_cli.pipeline.decode import Event, Row
from pipedec_cli.pipeline.exact import Verify
from pipedec_cli.pipeline.grid import SEQUENTIAL_LIMITS, Limits, Method, Slot

#: To measure what guesses cost: the rows of a call for each example, the most rounds,
#: the most seconds of all rounds, and the tokens of the source.
_ROWS: Final = (1, 2, 4, 8, 16)
_ROUNDS, _SECONDS, _SOURCE = 12, 0.5, 128


@dataclass
class Drafter:
    """What guesses the text of a sequential model: a pipelined decoder, n-grams (``source``), or the model (``jacobi``).

    `costs` are what guesses cost, from `measured`. A run that goes on has the costs
    that it began with.
    """

    kind: Literal["pipelined", "source", "jacobi"]  # as --draft names it
    plain: Decoder  # the sequential model
    decoder: Decoder | None = None
    costs: tuple[float, ...] | None = None

    def run(
        self, exact: Decoder, sources: Iterable[str], method: Method, batch_size: int
    ) -> Iterator[Event | Generated]:
        """Draft and check; see `Decoder.run`. `method` says how drafts are made; its max_tokens bounds the text."""
        self.costs = self.costs or measured(exact, batch_size)
        check = self.check(method.limits.max_tokens, self.costs)
        drafts: dict[int, Generated] = {}

        def drafted(decoder: Decoder) -> Iterator[str]:
            numbered = enumerate(check_texts(sources))
            while window := list(islice(numbered, window_of(batch_size))):
                made = decoder.texts([text for _, text in window], method, batch_size)
                for (index, text), draft in zip(window, made, strict=True):
                    drafts[index], check.drafts[index] = draft, self.ids(draft)
                    yield text

        for item in exact.run(
            drafted(self.decoder) if self.decoder else sources, check, batch_size
        ):
            if isinstance(item, Generated) and (draft := drafts.pop(item.index, None)):
                steps, seconds = item.steps + draft.steps, item.seconds + draft.seconds
                yield replace(
                    item, steps=steps, seconds=seconds, draft_steps=draft.steps
                )
            else:
                yield item

    def check(self, max_tokens: int | None, costs: Sequence[float]) -> Verify:
        """How to decode on the model's engine, with guesses of these costs and, so far, no drafts."""
        limits = Limits(None, None, max_tokens or SEQUENTIAL_LIMITS.max_tokens)
        checkpoint = self.plain.checkpoint
        jacobi, free = self.kind == "jacobi", self.plain.plan.method(Choice()).free
        ends = frozenset(checkpoint.ends)
        return Verify(
            checkpoint.bos,
            checkpoint.eos,
            limits,
            ends=ends,
            jacobi=jacobi,
            costs=costs,
            free=free,
        )

    def guess(
        self, source: str, turns: Sequence[tuple[str, str]], method: Method
    ) -> list[int]:
        """Draft one text: ids as of `ids`. A decoder that reads no chat drafts from the source without its earlier turns."""
        assert self.decoder is not None
        text = self.decoder.text
        text = text.after(turns) if text.prompt and text.prompt.chat else text
        (draft,) = self.decoder.sharing(text=text).texts([source], method, 1)
        return self.ids(draft)

    def ids(self, draft: Generated) -> list[int]:
        """What the drafting decoder wrote, as ids of the sequential model with <eos>."""
        assert self.decoder is not None
        fields = self.decoder.fields  # an object is written in words, not as JSON
        text = fields.plain(draft.fields) if fields and draft.fields else draft.text
        return [
            *self.plain.text.ids([text], written=True)[0],
            self.plain.checkpoint.eos,
        ]


def exact_decoder(
    plain: Decoder, draft: Decoder | Literal["source", "jacobi"]
) -> Decoder:
    """A sequential model that checks drafts and writes its own text whatever they are.

    Drafts are the texts of another decoder, n-grams of the source and of the text so
    far (``source``), or the model's own answers behind a wrong guess (``jacobi``).
    `method` says how drafts are made; without a drafting decoder only max_tokens
    counts. `Generated` counts the draft's decoder calls and seconds, too. The weights
    are those of `plain`. Raises a UserError unless `plain` is a sequential model and
    the drafting decoder is not.
    """
    if plain.settings.decoder != "sequential":
        what = f"{plain.checkpoint.name} is a pipelined decoder, and exact mode gives the text of a sequential model"
        raise UserError(what, todo="give the model whose text is wanted")
    if draft in ("source", "jacobi"):
        return plain.sharing(drafter=Drafter(draft, plain))
    if not isinstance(draft, Decoder):
        raise UserError(
            f"the draft is {draft!r}", todo="give a decoder, 'source' or 'jacobi'"
        )
    if draft.settings.decoder == "sequential":
        slow = "is a sequential model, which drafts no faster than the text is written"
        todo = "give a checkpoint that `pipedec train` made, or draft from the source"
        raise UserError(f"{draft.checkpoint.name} {slow}", todo=todo)
    return plain.sharing(plan=draft.plan, drafter=Drafter("pipelined", plain, draft))


ExactDecoder = exact_decoder  # the name in the public interface


def measured(decoder: Decoder, batch_size: int) -> tuple[float, ...]:
    """The cost of a decoder call with 0 to 15 guesses for each of `batch_size` examples, relative to none."""
    with decoder.engine_alone(batch_size) as engine:
        return _measured(decoder, engine, batch_size)


def _measured(decoder: Decoder, engine: Engine, batch_size: int) -> tuple[float, ...]:
    source = [decoder.checkpoint.eos] * _SOURCE
    engine.admit([(number, source) for number in range(batch_size)])
    bos, began = decoder.checkpoint.opener, time.perf_counter()
    calls = [
        [Row(n, Slot(1, t, bos)) for n in range(batch_size) for t in range(rows)]
        for rows in _ROWS
    ]
    rounds: list[list[float]] = []
    while len(rounds) < _ROUNDS and (
        len(rounds) < 3 or time.perf_counter() - began < _SECONDS
    ):
        rounds.append([])
        for call, rows in zip(calls, _ROWS, strict=True):
            start = time.perf_counter()
            engine.step(call)
            rounds[-1].append(time.perf_counter() - start)
            for number in range(batch_size):
                engine.take_back(number, rows)
    for number in range(batch_size):
        engine.release(number)
    # The first round warms up. More rows cost no less, whatever else the machine did in
    # the meantime.
    took = np.maximum.accumulate(np.array(rounds[1:]).min(axis=0))
    each = np.interp(range(1, _ROWS[-1] + 1), _ROWS, took / took[0])
    return tuple(round(float(cost), 2) for cost in each)
