"""The time of one decoder step by its number of rows, beside the limit that memory sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from pipedec_cli.evaluate.bandwidth import MemoryProbe, step_bytes
from pipedec_cli.evaluate.timing import Clock
from pipedec_cli.model.steps.engine import DecoderWeights, Engine
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot

#: Tokens in the grid while a step is timed, on average.
CACHED: Final = 160
#: Steps that are timed one after the other.
STEPS: Final = 8
#: Rows in a call that only fills the grid.
_FILLING: Final = 16
_TOKEN: Final = 3


@dataclass(frozen=True, slots=True)
class StepSpeed:
    """Steps with one number of rows.

    Attributes:
        dtype: of the weights.
        rows: rows of a step, all of one example.
        seconds: the median of a step.
        bytes: what it must read.
        limit_seconds: the median of what reading alone would have taken, by the probes beside each repeat.
        fraction: the median of limit over step, repeat by repeat.
    """

    dtype: str
    rows: int
    seconds: float
    bytes: int
    limit_seconds: float
    fraction: float

    def as_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)


def time_steps(
    models: Sequence[tuple[Any, DecoderWeights]],
    rows: Sequence[int],
    source: Sequence[int],
    probe: MemoryProbe,
    *,
    repeats: int,
    clock: Clock,
    rest: Callable[[], None],
    on_repeat: Callable[[], None] = lambda: None,
) -> list[StepSpeed]:
    """Time steps of each model at each number of rows; models and numbers take turns.

    Args:
        models: T5s with their weights laid out.
        rows: numbers of rows.
        source: one source, in token ids.
        probe: read beside each repeat.
        repeats: how often.
        clock: reads the time once the device has finished.
        rest: called before each probe.
        on_repeat: told when one model has been timed at one number of rows.
    """
    engines = [(Engine(model, weights=weights), model.config) for model, weights in models]
    seen: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for number in range(1 + repeats):  # the first one warms up
        for place, (engine, config) in enumerate(engines):
            for count in rows:
                rest()
                needed = step_bytes(
                    config, item=engine.weights.dtype.itemsize, source=len(source), cached=CACHED
                )
                limit = needed / probe.measure()
                seconds = _steps(engine, count, source, clock)
                if number:
                    seen.setdefault((place, count), []).append((seconds, limit))
                on_repeat()
    return [
        StepSpeed(
            dtype=str(engine.weights.dtype).removeprefix("torch."),
            rows=count,
            seconds=median(seconds for seconds, _ in seen[place, count]),
            bytes=step_bytes(config, item=engine.weights.dtype.itemsize, source=len(source), cached=CACHED),
            limit_seconds=median(limit for _, limit in seen[place, count]),
            fraction=median(limit / seconds for seconds, limit in seen[place, count]),
        )
        for place, (engine, config) in enumerate(engines)
        for count in rows
    ]


def _steps(engine: Engine, count: int, source: Sequence[int], clock: Clock) -> float:
    """The median time of a few steps around `CACHED` tokens."""
    engine.release(0)
    engine.admit([(0, source)])
    before = max(0, CACHED - count * STEPS // 2)
    for first in range(0, before, _FILLING):
        engine.step(_rows(first // _FILLING, min(_FILLING, before - first)))
    time = 1 + before // _FILLING
    engine.step(_rows(time, count))
    seconds = []
    for number in range(1, 1 + STEPS):
        rows = _rows(time + number, count)
        began = clock()
        engine.step(rows)
        seconds.append(clock() - began)
    engine.release(0)
    return median(seconds)


def _rows(time: int, count: int) -> list[Row]:
    """A token for each of so many subsequences, all at one time-step."""
    return [Row(0, Slot(number, time, _TOKEN)) for number in range(1, 1 + count)]
