"""One prompt a key, which is what blind rows do at once: on our engine behind a prompt that is read once, and by a peer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from pipedec_cli.evaluate.child import find_factory
from pipedec_cli.evaluate.runners import EngineRunner, from_spec
from pipedec_cli.evaluate.timing import Clock, Output, Pass, Runner, Source
from pipedec_cli.pipeline.decode import Row, StepModel

#: The blind rows of a decoder one after the other, as an entry, and the end of the name of a peer that reads a prompt a key.
IN_TURN: Final = "one key at a time"
KEYS: Final = ":keys"


class KeysInTurn(EngineRunner):
    """The blind rows of a decoder, one after the other. The prompt is read once, and its keys and values are kept."""

    largest_batch = 1

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Decode; see `Runner.run`."""
        each = [replace(self.method, openings=(opening,)) for opening in self.method.openings]
        asked = [source for source in sources for _ in each]
        made, _ = self.decode(asked, lambda example: each[example % len(each)], 1, clock)
        return _joined(made, len(each))

    def engine(self, batch_size: int) -> StepModel:
        """The engine. It keeps the keys and values of a prompt that comes again."""
        return _KeptPrompt(super().engine(batch_size))

    def spec(self) -> tuple[str, dict[str, Any]]:
        """The same for a child process."""
        return f"{__name__}:in_turn", super().spec()[1]


class EachKey:
    """Another runner that reads a prompt for each key: the source with the known tokens of its row."""

    def __init__(self, runner: Runner, known: Sequence[Sequence[int]]) -> None:
        """Take the runner, and the known tokens of each row."""
        self.runner, self.known, self.largest_batch = runner, known, runner.largest_batch

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of the runner."""
        return self.runner.settings

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Generate; see `Runner.run`."""
        asked = [(*source, *known) for source in sources for known in self.known]
        return _joined(self.runner.run(asked, batch_size, clock), len(self.known))

    def spec(self) -> tuple[str, dict[str, Any]]:
        """The same for a child process."""
        factory, payload = self.runner.spec()
        return f"{__name__}:each_key", {**payload, "factory": factory, "known": self.known}


def in_turn(**payload: Any) -> KeysInTurn:
    """Load the checkpoint anew; see `KeysInTurn.spec`."""
    made = from_spec(**payload)
    return KeysInTurn(made.decoder, made.choice, made.lengths)


def each_key(*, factory: str, known: Sequence[Sequence[int]], **payload: Any) -> EachKey:
    """Make the runner in this process; see `EachKey.spec`."""
    return EachKey(find_factory(factory)(**payload), known)


def _joined(made: Pass, rows: int) -> Pass:
    """The pass with one output for the rows of each source."""
    grouped = (made.outputs[first : first + rows] for first in range(0, len(made.outputs), rows))
    outputs = (
        Output(tuple(chain(*(one.tokens for one in each))), sum(one.steps for one in each))
        for each in grouped
    )
    return Pass(tuple(outputs), made.calls, made.encoder_seconds, made.setup_seconds, rows=made.rows)


class _KeptPrompt:
    """A `StepModel` of one sequence: if the next example has the same prompt, its rows alone are forgotten."""

    def __init__(self, model: StepModel) -> None:
        self._model, self.take_back = model, model.take_back
        self._prompt: Sequence[int] | None = None
        self._fed = 0

    def admit(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        ((sequence, prompt),) = newcomers
        if prompt == self._prompt:
            self._model.take_back(sequence, self._fed)
        else:
            self._model.admit(newcomers)
        self._prompt, self._fed = prompt, 0

    def step(self, rows: Sequence[Row]) -> Sequence[int]:
        self._fed += len(rows)
        return self._model.step(rows)

    def step_with_probabilities(self, rows: Sequence[Row]) -> tuple[Sequence[int], Sequence[float]]:
        self._fed += len(rows)
        return self._model.step_with_probabilities(rows)

    def release(self, sequence: int) -> None:
        """The prompt may come again."""
