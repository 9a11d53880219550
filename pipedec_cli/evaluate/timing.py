"""Timing decoders against one another: the same sources, one process, alternating, warmed up, medians of repeats.

Whatever decodes can be timed: it is a `Runner`. The clock and the pause come from the caller, so that the loop can be
tested without waiting, and so that a GPU's clock can wait for the GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, NamedTuple, Protocol

#: Seconds since some moment in the past, once the device has done all that it was given to do.
Clock = Callable[[], float]
Source = Sequence[int]

#: Rest between two passes: the worker threads of a library go on spinning for a while (Intel's OpenMP for 0.2 s) and
#: would take the cores from the next decoder.
PAUSE_SECONDS: Final = 0.25


def pause() -> None:
    """Let the worker threads of the last decoder come to rest."""
    time.sleep(PAUSE_SECONDS)


class Output(NamedTuple):
    """What a decoder made of one source.

    Attributes:
        tokens: the ids, without <bos> and <eos>, subsequences one after the other.
        steps: decoder calls that this example took part in.
        used_up: whether failed explorations took up the places that sub_max bounds.
    """

    tokens: tuple[int, ...]
    steps: int
    used_up: bool = False


class Pass(NamedTuple):
    """What one run over some sources gave.

    Attributes:
        outputs: one a source, in their order.
        calls: decoder calls in all; in batches fewer than the examples' steps added up.
        encoder_seconds: time in the encoder; None where a decoder does not tell it apart.
        setup_seconds: time for the keys and values of the source; None likewise.
    """

    outputs: Sequence[Output]
    calls: int
    encoder_seconds: float | None = None
    setup_seconds: float | None = None


class Runner(Protocol):
    """Something that generates from token ids and can be timed."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Version and settings that bear on its speed or its output, for the table."""

    @property
    def largest_batch(self) -> int | None:
        """The most examples that it can have in flight; None for no bound."""

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Generate from sources, each with its <eos>; the clock is for the parts that it times itself."""

    def blueprint(self) -> tuple[str, dict[str, Any]]:
        """``module:function`` and arguments, as JSON can carry them, that make the same in a child process."""


class Lap(NamedTuple):
    """The times of one pass over the sample, in seconds; parts are None where they are not told apart."""

    total: float
    encoder: float | None
    setup: float | None

    @property
    def decoding(self) -> float | None:
        """What is neither encoder nor set-up: the decoder calls and what is done between them."""
        return None if self.encoder is None else self.total - self.encoder - (self.setup or 0.0)


@dataclass(slots=True)
class Timing:
    """One decoder at one batch size.

    Attributes:
        laps: the repeats, in the order in which they were run.
        calls: decoder calls of one pass.
        outputs: what the sources gave, in their order.
        seconds_of_examples: of each repeat, the seconds of each example; [] at batch sizes above 1, where examples
            share their calls.
    """

    batch_size: int
    laps: list[Lap] = field(default_factory=list)
    calls: int = 0
    outputs: Sequence[Output] = ()
    seconds_of_examples: list[list[float]] = field(default_factory=list)

    @property
    def examples(self) -> int:
        """How many sources there were."""
        return len(self.outputs)

    @property
    def seconds(self) -> float:
        """Median time of a pass."""
        return median(lap.total for lap in self.laps)

    @property
    def throughput(self) -> float:
        """Examples per second."""
        return self.examples / self.seconds

    @property
    def encoder_seconds(self) -> float | None:
        """Median time in the encoder of a pass."""
        return _of_known([lap.encoder for lap in self.laps], median)

    @property
    def setup_seconds(self) -> float | None:
        """Median time of a pass for the keys and values of the sources."""
        return _of_known([lap.setup for lap in self.laps], median)

    @property
    def decoding_seconds(self) -> float | None:
        """Median time of a pass outside encoder and set-up."""
        return _of_known([lap.decoding for lap in self.laps], median)

    @property
    def seconds_per_call(self) -> float | None:
        """Decoding time of a decoder call, what is done between two calls included."""
        decoding = self.decoding_seconds
        return None if decoding is None or not self.calls else decoding / self.calls

    @property
    def example_seconds(self) -> tuple[float, ...]:
        """The median of each example's repeats, in the sources' order; () at batch sizes above 1."""
        return tuple(map(median, zip(*self.seconds_of_examples, strict=True)))

    @property
    def tokens(self) -> int:
        """Tokens made in a pass."""
        return sum(len(output.tokens) for output in self.outputs)

    @property
    def steps(self) -> int:
        """Decoder calls that the examples took part in, added up."""
        return sum(output.steps for output in self.outputs)

    @property
    def tokens_per_step(self) -> float:
        """Tokens that an example gets from a decoder call it takes part in, on average."""
        return self.tokens / max(1, self.steps)

    def as_json(self) -> dict[str, Any]:
        """Medians and each repeat, as plain values."""
        return {
            "batch_size": self.batch_size,
            "examples": self.examples,
            "seconds": self.seconds,
            "examples_per_second": self.throughput,
            "encoder_seconds": self.encoder_seconds,
            "setup_seconds": self.setup_seconds,
            "decoding_seconds": self.decoding_seconds,
            "decoder_calls": self.calls,
            "seconds_per_call": self.seconds_per_call,
            "steps_per_example": self.steps / self.examples,
            "tokens_per_step": self.tokens_per_step,
            "tokens": self.tokens,
            "repeats": [lap.total for lap in self.laps],
            "example_seconds": list(self.example_seconds),
        }


class Gain(NamedTuple):
    """One decoder's speed over another's, and where it comes from.

    Attributes:
        speedup: throughput over the other's.
        low: the smallest ratio of two passes of the same repeat.
        high: the largest one.
        decoding: decoding time alone; None where one of the two does not tell it apart, like the next.
        faster_calls: time per call, the other's over this one's: what kernels give, and what more rows a call cost.
        fewer_calls: decoder calls, the other's over this one's: what the schedule gives.
    """

    speedup: float
    low: float
    high: float
    decoding: float | None
    faster_calls: float | None
    fewer_calls: float


def gain(timing: Timing, over: Timing) -> Gain:
    """How much faster one decoder is than another that was timed beside it."""
    share = timing.examples / over.examples
    paired = [other.total / lap.total * share for lap, other in zip(timing.laps, over.laps, strict=True)]
    mine, others = timing.decoding_seconds, over.decoding_seconds
    decoding = others / mine if mine and others else None
    fewer = over.calls / timing.calls
    return Gain(
        speedup=timing.throughput / over.throughput,
        low=min(paired),
        high=max(paired),
        decoding=decoding,
        faster_calls=None if decoding is None else decoding / fewer,
        fewer_calls=fewer,
    )


def time_together(
    contest: Mapping[str, tuple[Runner, Sequence[Source]]],
    *,
    batch_size: int = 1,
    repeats: int = 3,
    clock: Clock = time.perf_counter,
    rest: Callable[[], None] = pause,
    on_pass: Callable[[str], None] = lambda _: None,
) -> dict[str, Timing]:
    """Time decoders against one another.

    Each makes a pass over all its sources first that does not count, then `repeats` that do; the decoders take turns,
    and who begins a round changes from round to round. At batch sizes above 1 the sources are handed over longest first.

    Args:
        contest: decoders and their sources by name; who cannot have `batch_size` in flight is left out.
        batch_size: how many examples are in flight at once.
        repeats: how many passes count.
        clock: reads the time once the device has finished.
        rest: called before each pass that counts.
        on_pass: told the decoder's name after each pass, the first ones included.
    """
    names = [
        name for name, (runner, _) in contest.items() if batch_size <= (runner.largest_batch or batch_size)
    ]
    timings = {name: Timing(batch_size) for name in names}
    for name in names:
        _pass(*contest[name], Timing(batch_size), clock)
        on_pass(name)
    for number in range(repeats if names else 0):
        first = number % len(names)
        for name in [*names[first:], *names[:first]]:
            rest()
            _pass(*contest[name], timings[name], clock)
            on_pass(name)
    return timings


def _pass(runner: Runner, sources: Sequence[Source], timing: Timing, clock: Clock) -> None:
    """Add one pass over the sources to a timing: all of them in batches, or one after the other."""
    if timing.batch_size == 1:
        order, portions = list(range(len(sources))), [[source] for source in sources]
    else:
        order = sorted(range(len(sources)), key=lambda place: -len(sources[place]))
        portions = [[sources[place] for place in order]]
    seconds, passes = [], []
    for portion in portions:
        began = clock()
        passes.append(runner.run(portion, timing.batch_size, clock))
        seconds.append(clock() - began)
    made = dict(zip(order, (output for one in passes for output in one.outputs), strict=True))
    timing.outputs = tuple(made[place] for place in range(len(sources)))
    timing.calls = sum(one.calls for one in passes)
    encoder = _of_known([one.encoder_seconds for one in passes], sum)
    setup = _of_known([one.setup_seconds for one in passes], sum)
    timing.laps.append(Lap(sum(seconds), encoder, setup))
    if timing.batch_size == 1:
        timing.seconds_of_examples.append(seconds)


def _of_known(parts: Sequence[float | None], combine: Callable[[list[float]], float]) -> float | None:
    """The parts put together; None if one of them is not known."""
    known = [part for part in parts if part is not None]
    return combine(known) if known and len(known) == len(parts) else None


def device_clock(device: str) -> Clock:
    """A clock that waits for what the device, ``cpu``, ``cuda`` or ``cuda:N``, has been given to do."""
    if not device.startswith("cuda"):
        return time.perf_counter
    import torch

    def synchronised() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return synchronised


@dataclass(slots=True)
class Watch:
    """How often a module was called, and how long that took in all; 0.0 without a clock."""

    calls: int = 0
    seconds: float = 0.0


@contextmanager
def watched(module: Any, clock: Clock | None = None) -> Iterator[Watch]:
    """Watch the calls of a torch module that does not call itself; without a clock they are only counted."""
    watch = Watch()
    began = 0.0

    def before(*_: object) -> None:
        nonlocal began
        began = clock() if clock else 0.0

    def after(*_: object) -> None:
        watch.calls += 1
        watch.seconds += clock() - began if clock else 0.0

    handles = [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    try:
        yield watch
    finally:
        for handle in handles:
            handle.remove()
