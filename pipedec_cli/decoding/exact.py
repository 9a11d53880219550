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
_ROUNDS: Final = 12
_SECONDS: Final = 0.5
_SOURCE: Final = 128


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
        """Draft the texts of sources, and check the drafts by the sequential model.

        Args:
            exact: A decoder of the sequential model, which checks.
            sources: The texts to generate from.
            method: How the drafting decoder decodes; its max_tokens bounds the text.
            batch_size: The examples decoded at a time.

        Yields the events of checking, and each result with the draft's steps and
        seconds added to its own. What guesses cost is measured if it is not known.
        """
        self.costs = self.costs or measured(exact, batch_size)
        check = self.check(method.limits.max_tokens, self.costs)
        drafts: dict[int, Generated] = {}

        def drafted(decoder: Decoder) -> Iterator[str]:
            """Pass on the sources. When one is given, its draft is in `drafts` and, as ids, in `check.drafts`."""
            numbered = enumerate(check_texts(sources))
            while window := dict(islice(numbered, window_of(batch_size))):
                texts = decoder.texts(window.values(), method, batch_size)
                for (index, text), draft in zip(window.items(), texts, strict=True):
                    drafts[index] = draft
                    check.drafts[index] = self.ids(draft)
                    yield text

        drafted_sources = drafted(self.decoder) if self.decoder else sources
        for event in exact.run(drafted_sources, check, batch_size):
            if isinstance(event, Generated) and event.index in drafts:
                yield _with_costs(event, drafts.pop(event.index))
            else:
                yield event

    def check(self, max_tokens: int | None, costs: Sequence[float]) -> Verify:
        """How to decode on the sequential model's engine: guess and check. It has no drafts so far.

        `max_tokens` bounds the text (None: 512), and `costs` are those of a call by its
        number of guesses.
        """
        checkpoint = self.plain.checkpoint
        return Verify(
            checkpoint.bos,
            checkpoint.eos,
            Limits(None, None, max_tokens or SEQUENTIAL_LIMITS.max_tokens),
            ends=frozenset(checkpoint.ends),
            jacobi=self.kind == "jacobi",
            costs=costs,
            free=self.plain.plan.method(Choice()).free,
        )

    def guess(
        self, source: str, turns: Sequence[tuple[str, str]], method: Method
    ) -> list[int]:
        """Draft the text of one source, as token ids of the sequential model with <eos>.

        `turns` are the earlier turns of a chat, each a role and a text. A decoder that
        reads no chat drafts from the source without them. `method` says how the
        drafting decoder decodes.
        """
        assert self.decoder is not None
        text = self.decoder.text
        if text.prompt and text.prompt.chat:
            text = text.after(turns)
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


def _with_costs(checked: Generated, draft: Generated) -> Generated:
    """A checked text that also counts the decoder calls and seconds of its draft."""
    steps = checked.steps + draft.steps
    seconds = checked.seconds + draft.seconds
    return replace(checked, steps=steps, seconds=seconds, draft_steps=draft.steps)


def exact_decoder(
    plain: Decoder, draft: Decoder | Literal["source", "jacobi"]
) -> Decoder:
    """A decoder in exact mode: the sequential model `plain` writes its own text in fewer calls, because drafts guess it.

    A `draft` is the text of another decoder, n-grams of the source and of the text so
    far (``source``), or the model's own answers behind a wrong guess (``jacobi``). The
    method that a run is given says how drafts are made; without a drafting decoder only
    its max_tokens counts. `Generated` counts the draft's decoder calls and seconds,
    too. The weights are those of `plain`. Raises a UserError unless `plain` is a
    sequential model (it writes a text as one string) and the drafting decoder is not.
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
    """The cost of a call with 0 to 15 guesses for each example, relative to none, on an engine that is free.

    It is measured with made-up sources, which the engine forgets again.
    """
    source = [decoder.checkpoint.eos] * _SOURCE
    engine.admit([(number, source) for number in range(batch_size)])
    began = time.perf_counter()
    rounds: list[list[float]] = []
    while len(rounds) < 3 or (
        len(rounds) < _ROUNDS and time.perf_counter() - began < _SECONDS
    ):
        seconds = [_seconds_of_call(decoder, engine, batch_size, n) for n in _ROWS]
        rounds.append(seconds)
    for number in range(batch_size):
        engine.release(number)
    # The first round warms up. More rows cost no less, whatever else the machine did in
    # the meantime.
    took = np.maximum.accumulate(np.array(rounds[1:]).min(axis=0))
    relative = np.interp(range(1, _ROWS[-1] + 1), _ROWS, took / took[0])
    return tuple(round(float(cost), 2) for cost in relative)


def _seconds_of_call(
    decoder: Decoder, engine: Engine, batch_size: int, rows: int
) -> float:
    """The seconds of a decoder call with so many rows for each example, which the engine then forgets."""
    slots = [Slot(1, time_step, decoder.checkpoint.opener) for time_step in range(rows)]
    call = [Row(number, slot) for number in range(batch_size) for slot in slots]
    start = time.perf_counter()
    engine.step(call)
    took = time.perf_counter() - start
    for number in range(batch_size):
        engine.take_back(number, rows)
    return took
