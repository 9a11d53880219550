"""Timing decoders against one another: the same sources, one process, alternating, warmed up, medians of repeats.

Whatever decodes can be timed: it is a `Runner`. The clock and the pause come from the caller, so that the loop can be
tested without waiting, and so that a GPU's clock can wait for the GPU.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any, Final, NamedTuple, Protocol

#: Seconds since some moment in the past, once the device has done all that it was given to do.
Clock = Callable[[], float]
Source = Sequence[int]

PAUSE_SECONDS: Final = 0.25  # a library's worker threads go on spinning for a while: Intel's OpenMP for 0.2 s


def pause() -> None:
    """Let the worker threads of the last decoder come to rest: they would take the cores from the next one."""
    time.sleep(PAUSE_SECONDS)


def took(clock: Clock, work: Callable[[], object]) -> float:
    """The seconds of a piece of work."""
    began = clock()
    work()
    return clock() - began


class Output(NamedTuple):
    """What a decoder made of a source: ids without <bos> and <eos>, its calls, whether explorations used up sub_max."""

    tokens: tuple[int, ...]
    steps: int
    row_budget_exhausted: bool = False


class Pass(NamedTuple):
    """One run over some sources: an output a source, decoder calls in all, seconds (None if not told apart).

    The encoder's are those of reading the prompt where there is none. Set-up makes the keys and values of the sources; `seconds` are taken from outside, each source's or those of all at once.
    So many calls made a draft (in exact mode); the others had so many `rows` in all, 0 if not counted.
    """

    outputs: Sequence[Output]
    calls: int
    encoder_seconds: float | None = None
    setup_seconds: float | None = None
    seconds: tuple[float, ...] = ()
    draft_calls: int = 0
    rows: int = 0


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

    def spec(self) -> tuple[str, dict[str, Any]]:
        """``module:function`` and arguments, as JSON can carry them, that make the same in a child process."""


class Timing(NamedTuple):
    """One decoder at one batch size: seconds are the medians of the passes, None where a part is not told apart.

    Decoding is all outside encoder and set-up; calls and tokens are those of one pass, steps the calls that an example took
    part in; `rows_per_call` are those of calls that make no draft. `repeats` are in the order of the passes, `example_seconds` in that of the sources, () at batch sizes above 1.
    """

    batch_size: int
    examples: int
    seconds: float
    examples_per_second: float
    encoder_seconds: float | None
    setup_seconds: float | None
    decoding_seconds: float | None
    decoder_calls: int
    draft_calls: int
    rows_per_call: float | None
    seconds_per_call: float | None
    steps_per_example: float
    tokens_per_step: float
    tokens: int
    repeats: tuple[float, ...]
    example_seconds: tuple[float, ...]
    outputs: Sequence[Output]

    @classmethod
    def of(cls, batch_size: int, passes: Sequence[Pass]) -> Timing:
        """Sum up passes over the same sources."""
        totals, (outputs, calls, *_, drafting, rows) = [sum(one.seconds) for one in passes], passes[-1]
        encoder, setup = [one.encoder_seconds for one in passes], [one.setup_seconds for one in passes]
        parts = zip(totals, encoder, setup, strict=True)
        rest = [first if first is None else total - first - (more or 0.0) for total, first, more in parts]
        seconds, decoding = median(totals), of_known(rest, median)
        tokens, steps = sum(len(one.tokens) for one in outputs), sum(one.steps for one in outputs)
        alone = zip(*(one.seconds for one in passes), strict=True) if batch_size == 1 else ()
        return cls(
            batch_size,
            len(outputs),
            seconds,
            len(outputs) / seconds,
            of_known(encoder, median),
            of_known(setup, median),
            decoding,
            decoder_calls=calls,
            draft_calls=drafting,
            rows_per_call=rows / (calls - drafting) if rows else None,
            seconds_per_call=decoding / calls if decoding and calls else None,
            steps_per_example=steps / len(outputs),
            tokens_per_step=tokens / max(1, steps),
            tokens=tokens,
            repeats=tuple(totals),
            example_seconds=tuple(map(median, alone)),
            outputs=outputs,
        )

    def as_json(self) -> dict[str, Any]:
        """All but the outputs, as plain values."""
        return {name: value for name, value in self._asdict().items() if name != "outputs"}


class Gain(NamedTuple):
    """One decoder's speed over another's, with the smallest and the largest ratio of two passes of the same repeat.

    decoding (None where one does not tell it apart) = faster calls (kernels, and what more rows a call cost) × fewer calls
    (the schedule).
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
    paired = [other / mine * share for mine, other in zip(timing.repeats, over.repeats, strict=True)]
    mine, others = timing.decoding_seconds, over.decoding_seconds
    decoding, fewer = others / mine if mine and others else None, over.decoder_calls / timing.decoder_calls
    faster = None if decoding is None else decoding / fewer
    speedup = timing.examples_per_second / over.examples_per_second
    return Gain(speedup, min(paired), max(paired), decoding, faster, fewer)


def time_together(
    contest: Mapping[str, tuple[Runner, Sequence[Source]]],
    *,
    batch_size: int = 1,
    repeats: int = 3,
    clock: Clock = time.perf_counter,
    rest: Callable[[], None] = pause,
    on_pass: Callable[[str], None] = lambda _: None,
) -> dict[str, Timing]:
    """Time decoders in turn, each on its own sources; who cannot have `batch_size` in flight is left out.

    Each makes a pass first that does not count, then `repeats` that do, after a `rest`; who begins a round changes. At batch
    sizes above 1 the longest source is handed over first. `on_pass` is told the decoder's name after any pass.
    """
    timed = {name: one for name, one in contest.items() if batch_size <= (one[0].largest_batch or batch_size)}
    passes: dict[str, list[Pass]] = {name: [] for name in timed}
    order = deque(timed)
    for number in range(-1, repeats):
        for name in tuple(order):
            if number >= 0:
                rest()
            passes[name].append(_pass(*timed[name], batch_size, clock))
            on_pass(name)
        order.rotate(-1 if number >= 0 else 0)
    return {name: Timing.of(batch_size, passes[name][1:]) for name in timed}


def _pass(runner: Runner, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
    """One pass over the sources: all of them in batches, or one after the other."""
    places = range(len(sources))
    order = sorted(places, key=lambda at: -len(sources[at])) if batch_size > 1 else places
    seconds, passes = [], []
    for portion in [order] if batch_size > 1 else [[at] for at in order]:
        began = clock()
        passes.append(runner.run([sources[at] for at in portion], batch_size, clock))
        seconds.append(clock() - began)
    outputs = dict(zip(order, (output for one in passes for output in one.outputs), strict=True))
    return Pass(
        [outputs[at] for at in places],
        sum(one.calls for one in passes),
        of_known([one.encoder_seconds for one in passes], sum),
        of_known([one.setup_seconds for one in passes], sum),
        tuple(seconds),
        sum(one.draft_calls for one in passes),
        sum(one.rows for one in passes),
    )


def of_known(parts: Sequence[float | None], combine: Callable[[list[float]], float]) -> float | None:
    """Parts combined, None if one of them is not known."""
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


@contextmanager
def watched(module: Any, clock: Clock = lambda: 0.0) -> Iterator[list[float]]:
    """The seconds of each call of a torch module that does not call itself; without a clock they are only counted.

    None of a module that is None.
    """
    began, seconds = list[float](), list[float]()
    handles = (
        []
        if module is None
        else [
            module.register_forward_pre_hook(lambda *_: began.append(clock())),
            module.register_forward_hook(lambda *_: seconds.append(clock() - began.pop())),
        ]
    )
    try:
        yield seconds
    finally:
        for handle in handles:
            handle.remove()
