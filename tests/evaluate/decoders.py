"""A clock that only work moves, and decoders whose work takes what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipedec_cli.evaluate.timing import Clock, Output, Pass, Source


@dataclass
class FakeClock:
    """Stands still until it is moved."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class FakeDecoder:
    """Answers each source with its own tokens, `per_call` of them a decoder call, and takes time for it.

    Attributes:
        step: seconds of a call, pass by pass; the last one serves all that follow.
        encode: seconds of the encoder for each source; None if it is not told apart.
        seen: (sources, batch size) of every run.
    """

    name: str
    clock: FakeClock
    step: Sequence[float] = (1.0,)
    encode: float | None = 0.0
    setup: float | None = None
    per_call: int = 1
    largest_batch: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    seen: list[tuple[list[Source], int]] = field(default_factory=list)

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        number = len(self.seen)
        self.seen.append((list(sources), batch_size))
        steps = [-(-len(source) // self.per_call) for source in sources]
        calls = sum(steps) if batch_size == 1 else max(steps)
        self.clock.pass_by((self.encode or 0.0) * len(sources) + (self.setup or 0.0))
        self.clock.pass_by(self.step[min(number, len(self.step) - 1)] * calls)
        outputs = tuple(Output(tuple(s), n) for s, n in zip(sources, steps, strict=True))
        encoder = None if self.encode is None else self.encode * len(sources)
        return Pass(outputs, calls, encoder, self.setup)
