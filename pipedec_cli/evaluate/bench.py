"""Speed without training: what a bench holds, and single decoder steps beside the limit that memory sets.

A step reads every weight once, whatever the number of rows. Machines in a cloud are shared, so the speed at which
memory is read changes from minute to minute: it is probed beside each measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, product
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipedec_cli.evaluate.competitor import Competitor
from pipedec_cli.evaluate.forced import Lengths
from pipedec_cli.evaluate.projection import Projection
from pipedec_cli.evaluate.report import Comparison
from pipedec_cli.evaluate.timing import Clock, Gain, took
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot

if TYPE_CHECKING:
    from pipedec_cli.model.engine.engine import Engine

PROBE_BYTES: Final = 1 << 30  # read at once: several times the largest cache of a processor
PASSES: Final = 3  # of which the fastest counts: others on the machine can only slow one down
CACHED: Final = 160  # tokens in the grid while a step is timed, on average
STEPS: Final = 8  # that are timed one after the other
_FILLING: Final = 16  # rows in a call that only fills the grid
_WORD: Final = 4
_HALF: Final = 2
_TOKEN: Final = 3


class MemoryProbe:
    """A buffer, how fast all threads read it from front to back (`readings`, bytes a second), and with what (`reader`)."""

    def __init__(self, clock: Clock, size: int = PROBE_BYTES, device: str = "cpu") -> None:
        """Fill so many bytes on ``cpu``, ``cuda`` or ``cuda:N``; the clock waits for the device."""
        import torch

        from pipedec_cli.model.engine.native.build import BuildError
        from pipedec_cli.model.engine.native.library import library

        self.size, self.readings, self._clock = size, list[float](), clock
        buffer = torch.ones(size // _WORD, dtype=torch.int32, device=device)
        floats, bytes_ = buffer.view(torch.float32), buffer.numel() * _WORD
        self._read: Callable[[], object] = lambda: floats.sum().item()
        self.reader = "torch.sum, which may be slower than the memory"
        with suppress(BuildError):
            if device == "cpu":
                kernels, self.reader = library(), "compiled kernels"
                self._read = lambda: kernels.read(buffer.data_ptr(), bytes_, torch.get_num_threads())

    def measure(self) -> float:
        """Bytes a second, the fastest of a few passes."""
        self.readings.append(self.size / min(took(self._clock, self._read) for _ in range(PASSES)))
        return self.readings[-1]


def step_bytes(model: Any, *, item: int, source: int, cached: int) -> int:
    """Bytes, `item` a number, that a decoder step must read: its matrices once, an example's keys and values.

    There are so many tokens in the source, or prompt, and, cached, in the grid; a layer with a window reads no more of them than
    that, but all of a source. Beside int8, keys and values have two bytes.
    """
    from torch import nn

    from pipedec_cli.model.families import backbone_of

    backbone = backbone_of(model.config)
    unread = {*chain.from_iterable(backbone.parts.source_projections(model))}  # its keys and values are there
    read = [module for module in model.get_decoder().modules() if isinstance(module, nn.Linear)]
    head = model.get_output_embeddings()
    matrices: int = sum(module.weight.numel() for module in {head, *read} - unread)
    sizes, config = backbone.sizes(model.config), model.config.get_text_config(decoder=True)
    kinds = getattr(config, "layer_types", None) or [""] * sizes.layers
    beside, tokens = (0, source + cached) if backbone.prompted else (source, cached)
    windowed = min(tokens, getattr(config, "sliding_window", None) or tokens)
    seen = sum(beside + (windowed if kind == "sliding_attention" else tokens) for kind in kinds)
    remembered = 2 * sizes.heads * sizes.head_width * seen
    return item * matrices + max(item, _HALF) * int(remembered)


class StepSpeed(NamedTuple):
    """Steps with one number of rows, all of one example: medians over the repeats.

    A step must read so many `bytes`: its limit is what that alone took by the probes, `fraction` the limit over the step.
    """

    dtype: str
    rows: int
    seconds: float
    bytes: int
    limit_seconds: float
    fraction: float


def time_steps(
    engines: Sequence[tuple[Engine, Any]],
    rows: Sequence[int],
    source: Sequence[int],
    probe: MemoryProbe,
    repeats: int,
    clock: Clock,
    rest: Callable[[], None],
    on_repeat: Callable[[], None] = lambda: None,
) -> list[StepSpeed]:
    """Time steps of each engine, which stands with its model, at each number of rows, on one source; they take turns.

    The probe is read beside each repeat, after a rest. `on_repeat` is told when an engine was timed at a number of rows.
    """
    cases: list[tuple[Engine, int, int, list[tuple[float, float, float]]]] = []
    for (engine, model), count in product(engines, rows):
        item = engine.weights.dtype.itemsize
        cases.append((engine, count, step_bytes(model, item=item, source=len(source), cached=CACHED), []))
    for _ in range(1 + repeats):
        for engine, count, needed, found in cases:
            rest()
            limit = needed / probe.measure()
            seconds = _steps(engine, count, source, clock)
            found.append((seconds, limit, limit / seconds))
            on_repeat()
    made = []
    for engine, count, needed, (_, *found) in cases:  # the first one warms up
        seconds, limit, fraction = map(median, zip(*found, strict=True))
        dtype = str(engine.weights.dtype).removeprefix("torch.")
        made.append(StepSpeed(dtype, count, seconds, needed, limit, fraction))
    return made


def _steps(engine: Engine, count: int, source: Sequence[int], clock: Clock) -> float:
    """The median time of a few steps around `CACHED` tokens."""

    def rows(time: int, count: int) -> list[Row]:
        return [Row(0, Slot(number, time, _TOKEN)) for number in range(1, 1 + count)]

    engine.release(0)
    engine.admit([(0, source)])
    before = max(0, CACHED - count * STEPS // 2)
    for first in range(0, before, _FILLING):
        engine.step(rows(first // _FILLING, min(_FILLING, before - first)))
    time = 1 + before // _FILLING
    engine.step(rows(time, count))
    each = [partial(engine.step, rows(time + number, count)) for number in range(1, 1 + STEPS)]
    seconds = median([took(clock, step) for step in each])
    engine.release(0)
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench(Comparison):
    """Speed without training: for each dtype our sequential decoder and the pipelined ones, then the peers.

    So exact mode, whose calls depend on texts, is a `projection` at most. `bandwidth` is what the probes read, bytes a
    second, in their order, with the `reader`.
    """

    model: str
    lengths: Lengths
    steps: tuple[StepSpeed, ...]
    bandwidth: tuple[float, ...]
    reader: str
    repeats: int
    projection: Projection | None = None

    @property
    def ratios(self) -> Iterator[tuple[Competitor, Competitor, int, Gain]]:
        """Each of ours over our sequential decoder of the same dtype and over every peer, by batch size."""
        for size, one, other in product(self.batch_sizes, self.entries, self.entries):
            plain = (one.role, other.role) == ("pipelined", "baseline")
            same = one.runner.settings["dtype"] == other.runner.settings["dtype"]
            compared = one.role != "peer" and (other.role == "peer" or (plain and same))
            if compared and size in (gains := one.gains_over(other)):
                yield one, other, size, gains[size]

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        middle = median(self.bandwidth) if self.bandwidth else None
        return {
            "model": self.model,
            "lengths": asdict(self.lengths) | {"forced": True, "line": self.lengths.line},
            "decoders": [
                {
                    "name": entry.name,
                    "kind": "sequential" if entry.role == "baseline" else entry.role,
                    "dtype": entry.runner.settings["dtype"],
                    "settings": dict(entry.runner.settings),
                    "speed": [timing.as_json() for timing in entry.timings.values()],
                    "memory": entry.memory and entry.memory._asdict(),
                }
                for entry in self.entries
            ],
            "ratios": [
                {"decoder": one.name, "over": other.name, "batch_size": size, **gain._asdict()}
                for one, other, size, gain in self.ratios
            ],
            "steps": [step._asdict() for step in self.steps],
            "projection": self.projection and self.projection.as_json(),
            "bandwidth": {"reader": self.reader, "bytes_per_second": list(self.bandwidth), "median": middle},
            "repeats": self.repeats,
            "disturbed": self.disturbed,
            **self.conditions,
        }
