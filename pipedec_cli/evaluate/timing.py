"""Timing decoders against one another: the same sources, one process, alternating, warmed up, medians of repeats.

Whatever decodes can be timed: it is a `TimedDecoder`. The clock and the pause come from the caller, so that the loop
can be tested without waiting, and so that a GPU's clock can wait for the GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class Output:
    """What a decoder made of one source.

    Attributes:
        tokens: the ids, without <bos> and <eos>, subsequences one after the other.
        steps: decoder calls that this example took part in.
        used_up: whether failed explorations took up the places that sub_max bounds.
    """

    tokens: tuple[int, ...]
    steps: int
    used_up: bool = False


@dataclass(frozen=True, slots=True)
class Pass:
    """What one run over some sources gave.

    Attributes:
        outputs: one a source, in their order.
        calls: decoder calls in all; in batches fewer than the examples' steps added up.
        encoder_seconds: time in the encoder; None where a decoder does not tell it apart.
        setup_seconds: time for the keys and values of the source; None likewise.
    """

    outputs: tuple[Output, ...]
    calls: int
    encoder_seconds: float | None = None
    setup_seconds: float | None = None


class TimedDecoder(Protocol):
    """Something that generates from token ids and can be timed."""

    @property
    def name(self) -> str:
        """How tables call it."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Version and settings that bear on its speed or its output, for the table."""

    @property
    def largest_batch(self) -> int | None:
        """The most examples that it can have in flight; None for no bound."""

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Generate from all sources.

        Args:
            sources: token ids, each with its <eos>.
            batch_size: how many examples are in flight at once.
            clock: for the parts that it times itself.
        """


class Contestant(NamedTuple):
    """A decoder and what it is given: the same texts as the others, in the ids of its own tokenizer."""

    decoder: TimedDecoder
    sources: Sequence[Source]


@dataclass(frozen=True, slots=True)
class Lap:
    """The times of one pass over the sample, in seconds; parts are None where they are not told apart."""

    total: float
    encoder: float | None
    setup: float | None

    @property
    def decoding(self) -> float | None:
        """What is neither encoder nor set-up: the decoder calls and what is done between them."""
        return None if self.encoder is None else self.total - self.encoder - (self.setup or 0.0)


@dataclass(frozen=True, slots=True)
class Timing:
    """One decoder at one batch size.

    Attributes:
        decoder: its name.
        batch_size: examples in flight.
        laps: the repeats, in the order in which they were run.
        calls: decoder calls of one pass.
        outputs: what the sources gave, in their order.
        example_seconds: the median of each example's repeats, in the sources' order; () at batch sizes above 1,
            where examples share their calls.
    """

    decoder: str
    batch_size: int
    laps: tuple[Lap, ...]
    calls: int
    outputs: tuple[Output, ...]
    example_seconds: tuple[float, ...] = ()

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
        return _median([lap.encoder for lap in self.laps])

    @property
    def setup_seconds(self) -> float | None:
        """Median time of a pass for the keys and values of the sources."""
        return _median([lap.setup for lap in self.laps])

    @property
    def decoding_seconds(self) -> float | None:
        """Median time of a pass outside encoder and set-up."""
        return _median([lap.decoding for lap in self.laps])

    @property
    def seconds_per_call(self) -> float | None:
        """Decoding time of a decoder call, what is done between two calls included."""
        decoding = self.decoding_seconds
        return None if decoding is None or not self.calls else decoding / self.calls

    @property
    def tokens(self) -> int:
        """Tokens made in a pass."""
        return sum(len(output.tokens) for output in self.outputs)

    @property
    def steps_per_example(self) -> float:
        """Mean decoder calls that an example took part in."""
        return sum(output.steps for output in self.outputs) / self.examples

    @property
    def tokens_per_step(self) -> float:
        """Tokens that an example gets from a decoder call it takes part in, on average."""
        return self.tokens / max(1, sum(output.steps for output in self.outputs))

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
            "steps_per_example": self.steps_per_example,
            "tokens_per_step": self.tokens_per_step,
            "tokens": self.tokens,
            "repeats": [lap.total for lap in self.laps],
            "example_seconds": list(self.example_seconds),
        }


@dataclass(slots=True)
class _Record:
    """What has been seen of one decoder so far."""

    laps: list[Lap] = field(default_factory=list)
    examples: list[list[float]] = field(default_factory=list)
    calls: int = 0
    outputs: tuple[Output, ...] = ()


def time_decoders(
    contestants: Sequence[Contestant],
    *,
    batch_size: int = 1,
    repeats: int = 3,
    clock: Clock = time.perf_counter,
    rest: Callable[[], None] = pause,
    on_pass: Callable[[str], None] = lambda _: None,
) -> dict[str, Timing]:
    """Time decoders against one another.

    Each makes a pass over all sources first that does not count, then `repeats` that do; the decoders take turns, and
    who begins a round changes from round to round. At batch sizes above 1 the sources are handed over longest first.

    Args:
        contestants: with names of their own; those that cannot have `batch_size` in flight are left out.
        batch_size: how many examples are in flight at once.
        repeats: how many passes count.
        clock: reads the time once the device has finished.
        rest: called before each pass.
        on_pass: told the decoder's name after each pass, the first ones included.

    Returns:
        Timings by the decoders' names.
    """
    timed = [
        (decoder, sources)
        for decoder, sources in contestants
        if decoder.largest_batch is None or batch_size <= decoder.largest_batch
    ]
    records = {decoder.name: _Record() for decoder, _ in timed}
    for decoder, sources in timed:
        _pass(decoder, sources, batch_size, clock)
        on_pass(decoder.name)
    for number in range(repeats):
        first = number % len(timed) if timed else 0
        for decoder, sources in [*timed[first:], *timed[:first]]:
            rest()
            lap, made, examples = _pass(decoder, sources, batch_size, clock)
            record = records[decoder.name]
            record.laps.append(lap)
            record.examples.append(examples)
            record.calls, record.outputs = made.calls, made.outputs
            on_pass(decoder.name)
    return {
        name: Timing(
            decoder=name,
            batch_size=batch_size,
            laps=tuple(record.laps),
            calls=record.calls,
            outputs=record.outputs,
            example_seconds=tuple(map(median, zip(*record.examples, strict=True))),
        )
        for name, record in records.items()
    }


def device_clock(device: str) -> Clock:
    """A clock that waits for what the device has been given to do.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:N``.
    """
    if not device.startswith("cuda"):
        return time.perf_counter
    import torch

    def synchronised() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return synchronised


def _pass(
    decoder: TimedDecoder, sources: Sequence[Source], batch_size: int, clock: Clock
) -> tuple[Lap, Pass, list[float]]:
    """One pass: its times, what it gave, and at batch size 1 the seconds of each example."""
    if batch_size == 1:
        return _one_at_a_time(decoder, sources, clock)
    order = sorted(range(len(sources)), key=lambda place: -len(sources[place]))
    began = clock()
    made = decoder.run([sources[place] for place in order], batch_size, clock)
    total = clock() - began
    outputs = dict(zip(order, made.outputs, strict=True))
    back = Pass(tuple(outputs[place] for place in range(len(sources))), made.calls)
    return Lap(total, made.encoder_seconds, made.setup_seconds), back, []


def _one_at_a_time(
    decoder: TimedDecoder, sources: Sequence[Source], clock: Clock
) -> tuple[Lap, Pass, list[float]]:
    seconds: list[float] = []
    passes: list[Pass] = []
    for source in sources:
        began = clock()
        passes.append(decoder.run([source], 1, clock))
        seconds.append(clock() - began)
    lap = Lap(
        sum(seconds),
        _sum([made.encoder_seconds for made in passes]),
        _sum([made.setup_seconds for made in passes]),
    )
    outputs = tuple(output for made in passes for output in made.outputs)
    return lap, Pass(outputs, sum(made.calls for made in passes)), seconds


def _sum(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _median(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return median(known) if known and len(known) == len(parts) else None
