"""Time decoders against one another: the same sources, one process, in turns.

Medians of repeats after a warm-up.

Anything that decodes can be timed: it is a `Runner`. The caller gives the clock and the
pause. So a test need not wait, and the clock of a GPU can wait for the GPU.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Any, Final, Protocol

from msgspec import Struct, structs

#: Seconds since some moment in the past, read after the device has finished its work.
Clock = Callable[[], float]
Source = Sequence[int]

#: The worker threads of a library spin on for a while: Intel's OpenMP for 0.2 s.
PAUSE_SECONDS: Final = 0.25


def pause() -> None:
    """Let the worker threads of the last decoder come to rest: they would take cores from the next decoder."""
    time.sleep(PAUSE_SECONDS)


def time_of(clock: Clock, work: Callable[[], object]) -> float:
    """The seconds that a piece of work takes."""
    began = clock()
    work()
    return clock() - began


class RunnerError(RuntimeError):
    """A runner failed, and the others can go on without it; the message says why."""


class Output(Struct, frozen=True, array_like=True):
    """The output for one source: ids without <bos> and <eos>, decoder calls, and whether empty rows used up sub_max."""

    tokens: tuple[int, ...]
    steps: int
    row_budget_exhausted: bool = False


class Pass(Struct, frozen=True):
    """One run over some sources. Seconds are None where a runner does not measure them."""

    outputs: tuple[Output, ...]  # for each source
    calls: int  # decoder calls in all
    encoder_seconds: float | None = None  # without an encoder, to read the prompt
    setup_seconds: float | None = None  # to make keys and values of the sources
    seconds: tuple[float, ...] = ()  # from outside: of each source, or of all together
    draft_calls: int = 0  # in exact mode, those of the calls that made drafts
    rows: int = 0  # of the other calls in all; 0: not counted
    parts: tuple[Pass, ...] = ()  # the passes over single sources that it is the sum of


class Runner(Protocol):
    """Something that generates from token ids and can be timed."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Version and settings that affect its speed or its output, for the table."""

    @property
    def largest_batch(self) -> int | None:
        """The most examples that it can decode at the same time; None for no bound."""

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Generate from sources, each with its <eos>.

        The clock is for the parts that the runner measures itself.
        """

    def spec(self) -> tuple[str, dict[str, Any]]:
        """``module:function`` and JSON arguments that make the same runner in a child process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One decoder at one batch size.

    Seconds are medians of its passes, at batch size 1 of each source, added up; None:
    not measured. Calls and tokens are those of one pass.
    """

    batch_size: int
    examples: int
    seconds: float
    examples_per_second: float
    encoder_seconds: float | None
    setup_seconds: float | None
    decoding_seconds: float | None  # all outside encoder and set-up
    decoder_calls: int
    draft_calls: int
    rows_per_call: float | None  # without the calls that draft
    seconds_per_call: float | None
    steps_per_example: float  # the calls that an example took part in
    tokens_per_step: float
    tokens: int
    repeats: tuple[float, ...]  # seconds of each pass
    example_seconds: tuple[float, ...]  # of each source; () at batch sizes above 1
    outputs: tuple[Output, ...]

    @property
    def calls_per_example(self) -> float:
        """Decoder calls for each example; a call serves a whole batch."""
        return self.decoder_calls / self.examples

    def seconds_per_example(self, part: str = "seconds") -> float | None:
        """Seconds for each example: of all its time, or of a part by the name of its attribute."""
        seconds: float | None = getattr(self, part)
        return None if seconds is None else seconds / self.examples

    @classmethod
    def of(cls, batch_size: int, passes: Sequence[Pass]) -> Timing:
        """The timing of passes over the same sources, each of which ran all of them."""
        last = passes[-1]
        # For each source the parts of the passes that ran it; else the passes.
        parts = [one_pass.parts or (one_pass,) for one_pass in passes]
        portions = list(zip(*parts, strict=True))

        def typical(seconds: Callable[[Pass], float | None]) -> float | None:
            """The median over the passes, added up over the sources."""
            medians = [
                combine_known([*map(seconds, portion)], median) for portion in portions
            ]
            return sum_known(medians)

        seconds = typical(lambda part: sum(part.seconds))
        assert seconds is not None
        decoding = typical(_decoding_seconds)
        examples = len(last.outputs)
        tokens = sum(len(output.tokens) for output in last.outputs)
        steps = sum(output.steps for output in last.outputs)
        each: tuple[float, ...] = ()
        if batch_size == 1:
            by_source = zip(*(one_pass.seconds for one_pass in passes), strict=True)
            each = tuple(map(median, by_source))
        return cls(
            batch_size=batch_size,
            examples=examples,
            seconds=seconds,
            examples_per_second=examples / seconds,
            encoder_seconds=typical(lambda part: part.encoder_seconds),
            setup_seconds=typical(lambda part: part.setup_seconds),
            decoding_seconds=decoding,
            decoder_calls=last.calls,
            draft_calls=last.draft_calls,
            rows_per_call=_quotient(last.rows, last.calls - last.draft_calls),
            seconds_per_call=_quotient(decoding, last.calls),
            steps_per_example=steps / examples,
            tokens_per_step=tokens / max(1, steps),
            tokens=tokens,
            repeats=tuple(sum(one_pass.seconds) for one_pass in passes),
            example_seconds=each,
            outputs=last.outputs,
        )


def _decoding_seconds(part: Pass) -> float | None:
    """The time of a pass outside encoder and set-up; None if that of the encoder was not measured."""
    if part.encoder_seconds is None:
        return None
    return sum(part.seconds) - part.encoder_seconds - (part.setup_seconds or 0.0)


def _quotient(amount: float | None, of: float | None) -> float | None:
    """A quotient of measured amounts; None if one is not known, or 0."""
    return amount / of if amount and of else None


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times as fast one decoder is as another.

    decoding = `fewer_calls` (the schedule) × `faster_calls` (kernels, and the cost of
    more rows in a call).
    """

    speedup: float
    low: float  # the smallest ratio, also of two passes of the same repeat
    high: float  # the largest one
    decoding: float | None  # outside encoder and set-up; None: not measured
    faster_calls: float | None
    fewer_calls: float


def gain(timing: Timing, over: Timing) -> Gain:
    """How much faster one decoder is than another that was timed beside it."""
    speedup = timing.examples_per_second / over.examples_per_second
    share = timing.examples / over.examples
    ratios = [speedup]
    for seconds, others in zip(timing.repeats, over.repeats, strict=True):
        ratios.append(others / seconds * share)
    decoding = _quotient(over.decoding_seconds, timing.decoding_seconds)
    fewer = over.decoder_calls / timing.decoder_calls
    return Gain(
        speedup,
        low=min(ratios),
        high=max(ratios),
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
    on_failure: Callable[[str, RunnerError], None] = lambda _, __: None,
    on_interrupt: Callable[[KeyboardInterrupt], None] | None = None,
) -> dict[str, Timing]:
    """Time decoders in turns, each on its own sources.

    Each makes one pass to warm up, then `repeats` passes that count, each after a
    `rest`. The decoder that begins changes with each round. At batch sizes above 1 the
    longest source comes first.

    Args:
        contest: runners and their sources, by name. One that cannot decode `batch_size`
            at a time is left out.
        batch_size: the examples that are decoded at the same time.
        repeats: the passes that count.
        clock: seconds since some moment.
        rest: called before each pass that counts.
        on_pass: gets the name after every pass.
        on_failure: gets the name of a runner that fails, and the reason. It is left out
            from then on.
        on_interrupt: gets a KeyboardInterrupt that comes behind the first round that
            counts; then the rounds before it are all. Without it, it is raised.
    """
    passes: dict[str, list[Pass]] = {}
    for name, (runner, _) in contest.items():
        if batch_size <= (runner.largest_batch or batch_size):
            passes[name] = []
    order = deque(passes)
    whole = 0  # passes of whole rounds
    try:
        while whole <= repeats:
            for name in tuple(order):
                if whole:
                    rest()
                try:
                    measured = _one_pass(*contest[name], batch_size, clock)
                except RunnerError as error:
                    on_failure(name, error)
                    order.remove(name)
                    del passes[name]
                else:
                    passes[name].append(measured)
                on_pass(name)
            if whole:
                order.rotate(-1)
            whole += 1
    except KeyboardInterrupt as interrupt:
        if on_interrupt is None or whole < 2:
            raise
        on_interrupt(interrupt)
    timings = {}
    for name, its_passes in passes.items():
        warmed_up = its_passes[1:whole]
        timings[name] = Timing.of(batch_size, warmed_up)
    return timings


def _one_pass(
    runner: Runner, sources: Sequence[Source], batch_size: int, clock: Clock
) -> Pass:
    """One pass over the sources: all of them in batches or, at batch size 1, one after the other."""
    # Positions of sources, in groups that are timed apart.
    order = list(range(len(sources)))
    portions = [[number] for number in order]
    if batch_size > 1:
        order.sort(key=lambda number: -len(sources[number]))
        portions = [order]
    parts = []
    outputs = dict[int, Output]()
    for portion in portions:
        began = clock()
        part = runner.run([sources[number] for number in portion], batch_size, clock)
        parts.append(structs.replace(part, seconds=(clock() - began,)))
        outputs.update(zip(portion, part.outputs, strict=True))
    return Pass(
        outputs=tuple(outputs[number] for number in range(len(sources))),
        calls=sum(part.calls for part in parts),
        encoder_seconds=sum_known([part.encoder_seconds for part in parts]),
        setup_seconds=sum_known([part.setup_seconds for part in parts]),
        seconds=tuple(chain(*(part.seconds for part in parts))),
        draft_calls=sum(part.draft_calls for part in parts),
        rows=sum(part.rows for part in parts),
        parts=tuple(parts),
    )


def combine_known(
    parts: Sequence[float | None], combine: Callable[[list[float]], float]
) -> float | None:
    """The parts combined; None if one of them is None, or there are none."""
    known = [part for part in parts if part is not None]
    return combine(known) if known and len(known) == len(parts) else None


def sum_known(parts: Sequence[float | None]) -> float | None:
    """The sum of the parts; None if one of them is None, or there are none."""
    return combine_known(parts, sum)


def device_clock(device: str) -> Clock:
    """A clock that waits until the device (``cpu``, ``cuda`` or ``cuda:N``) has finished its work."""
    if not device.startswith("cuda"):
        return time.perf_counter
    import torch

    def synchronised() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return synchronised


@contextmanager
def watched(module: Any, clock: Clock = lambda: 0.0) -> Iterator[list[float]]:
    """Collect, in the list that is yielded, the seconds of each call of a torch module that does not call itself.

    With None, where there is no such module, the list stays empty.
    """
    seconds = list[float]()
    if module is None:
        yield seconds
        return
    began = []
    before = module.register_forward_pre_hook(lambda *_: began.append(clock()))
    after = module.register_forward_hook(
        lambda *_: seconds.append(clock() - began.pop())
    )
    try:
        yield seconds
    finally:
        before.remove()
        after.remove()
