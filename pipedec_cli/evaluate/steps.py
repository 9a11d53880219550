"""Single decoder steps beside the limit that memory sets.

A step reads every weight once, whatever the number of rows. Machines in a cloud are shared, so the speed of the memory
changes from minute to minute: it is probed beside each measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from pipedec_cli.evaluate.timing import Clock, pause, time_of
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot

if TYPE_CHECKING:
    from pipedec_cli.model.engine.engine import Engine

PROBE_BYTES: Final = 1 << 30  # read at once: several times the largest cache of a processor
PASSES: Final = 3  # the fastest one counts: other work on the machine can only slow a pass down
CACHED: Final = 160  # tokens in the grid while a step is timed, on average
STEPS: Final = 8  # timed one after the other
_FILLING: Final = 16  # rows in a call that only fills the grid
_WORD: Final = 4  # bytes
_KEY_BYTES: Final = 2  # the least bytes of a number in keys and values, beside int8 and int4 weights
_TOKEN: Final = 3  # any token


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """How fast the probe read memory, in bytes a second: every reading in order, the median, and what read it."""

    reader: str
    bytes_per_second: tuple[float, ...]
    median: float


class MemoryProbe:
    """A buffer that all threads read from front to back: `readings` in bytes a second, by the `reader`."""

    def __init__(self, clock: Clock, size: int = PROBE_BYTES, device: str = "cpu") -> None:
        """Fill `size` bytes on ``cpu``, ``cuda`` or ``cuda:N``; the clock waits for the device."""
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
        self.readings.append(self.size / min(time_of(self._clock, self._read) for _ in range(PASSES)))
        return self.readings[-1]

    def bandwidth(self) -> Bandwidth:
        """All readings so far, at least one."""
        return Bandwidth(self.reader, tuple(self.readings), median(self.readings))


def step_bytes(model: Any, *, item: float, source: int, cached: int, head_item: float | None = None) -> int:
    """Bytes that a decoder step must read, at `item` bytes a number (the output matrix at `head_item`): its matrices once, and one example's keys and values.

    The source or prompt has `source` tokens, the grid `cached`. A layer with a window reads no more tokens of a prompt and
    the grid than the window has; an encoder's output it reads whole.
    """
    from torch import nn

    from pipedec_cli.model.families import backbone_of

    backbone = backbone_of(model.config)
    unread = {
        *chain.from_iterable(backbone.parts.source_projections(model))
    }  # the source's are computed before
    read = [module for module in model.get_decoder().modules() if isinstance(module, nn.Linear)]
    head = model.get_output_embeddings()
    matrices: int = sum(module.weight.numel() for module in {*read} - unread - {head})
    sizes, config = backbone.sizes(model.config), model.config.get_text_config(decoder=True)
    kinds = getattr(config, "layer_types", None) or [""] * sizes.layers
    beside, tokens = (0, source + cached) if backbone.prompted else (source, cached)
    windowed = min(tokens, getattr(config, "sliding_window", None) or tokens)
    seen = sum(beside + (windowed if kind == "sliding_attention" else tokens) for kind in kinds)
    remembered = 2 * sizes.heads * sizes.head_width * seen
    needed = item * matrices + (head_item or item) * head.weight.numel()
    return int(needed + max(item, _KEY_BYTES) * remembered)


@dataclass(frozen=True, slots=True)
class StepSpeed:
    """Steps with one number of rows, all of one example: medians over the repeats.

    A step must read `bytes`. Its limit is the time that the probe took for as many; `fraction` is the limit over the step.
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
    rest: Callable[[], None] = pause,
    on_repeat: Callable[[], None] = lambda: None,
) -> list[StepSpeed]:
    """Time steps of each (engine, model) at each number of rows, on one source; they take turns.

    The probe is read beside each repeat, after a rest. `on_repeat` is called after each engine and number of rows.
    """
    import torch

    from pipedec_cli.model.engine.native.kinds import INTEGERS

    cases: list[tuple[Engine, int, int, list[tuple[float, float, float]]]] = []
    for (engine, model), count in product(engines, rows):
        dtype = engine.weights.dtype
        item = INTEGERS.get(dtype, float(dtype.itemsize))
        head_item = INTEGERS[torch.int8] if dtype in INTEGERS else None  # in int4, too
        needed = step_bytes(model, item=item, source=len(source), cached=CACHED, head_item=head_item)
        cases.append((engine, count, needed, []))
    for _ in range(1 + repeats):
        for engine, count, needed, found in cases:
            rest()
            limit = needed / probe.measure()
            seconds = _step_seconds(engine, count, source, clock)
            found.append((seconds, limit, limit / seconds))
            on_repeat()
    made = []
    for engine, count, needed, (_, *found) in cases:  # the first one warms up
        seconds, limit, fraction = map(median, zip(*found, strict=True))
        dtype = str(engine.weights.dtype).removeprefix("torch.")
        made.append(StepSpeed(dtype, count, seconds, needed, limit, fraction))
    return made


def _step_seconds(engine: Engine, count: int, source: Sequence[int], clock: Clock) -> float:
    """The median time of a few steps, with about `CACHED` tokens in the grid."""

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
    seconds = median([time_of(clock, step) for step in each])
    engine.release(0)
    return seconds
