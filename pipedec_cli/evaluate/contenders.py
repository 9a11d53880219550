"""Our own decoders as contenders: the pipelined one at some delay, the sequential schedule, the plain T5.

All run on the same engine, in the same loop, with the same weights laid out once for a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from pipedec_cli.data.records import Delay
from pipedec_cli.evaluate.forced import ForcedAnswers, Lengths
from pipedec_cli.evaluate.timing import Clock, Output, Pass, Source
from pipedec_cli.evaluate.watch import watched
from pipedec_cli.model.decoder import Decoder, load
from pipedec_cli.pipeline.decode import Finished, Method, Row, StepModel, decode
from pipedec_cli.pipeline.grid import Explore
from pipedec_cli.pipeline.schedule import Whole

#: What a child process calls to rebuild one of these decoders; see `memory.measure_peak`.
FACTORY: Final = "pipedec_cli.evaluate.contenders:workload"


@dataclass(frozen=True, slots=True)
class DecodingChoice:
    """How a checkpoint is to decode, in plain values; None is the checkpoint's own, as in `Decoder.method`.

    Attributes:
        delay: Δt, or ``wait`` for the schedule that waits; a sequential checkpoint takes none.
        explore: the exploration rule.
        time_max: the last time-step.
        sub_max: the most subsequences.
        max_tokens: the most tokens.
        untrained: allow a delay that the checkpoint was not trained for.
    """

    delay: Delay | None = None
    explore: Explore = "retry"
    time_max: int | None = None
    sub_max: int | None = None
    max_tokens: int | None = None
    untrained: bool = False


class EngineDecoder:
    """A checkpoint on our engine, decoding in one way; a `TimedDecoder`."""

    largest_batch: int | None = None

    def __init__(
        self,
        name: str,
        decoder: Decoder,
        choice: DecodingChoice,
        *,
        lengths: Lengths | None = None,
    ) -> None:
        """Choose the method.

        Args:
            name: how tables call it.
            decoder: the loaded checkpoint; what decodes in several ways shares it.
            choice: how to decode.
            lengths: force them, whatever the model says and was trained for; of the choice, the delay (None for the
                whole target as one string) and the exploration rule hold.

        Raises:
            UserError: the checkpoint was not trained for the delay.
        """
        self.name = name
        self.decoder = decoder
        self.checkpoint = decoder.checkpoint
        self.choice = choice
        self.lengths = lengths
        self.method = self._method()

    @property
    def settings(self) -> Mapping[str, str]:
        """Schedule, bounds and dtype."""
        limits = self.method.limits
        bounds = {"time_max": limits.time_max, "sub_max": limits.sub_max, "max_tokens": limits.max_tokens}
        explores = not isinstance(self.method.schedule, Whole)
        return {
            "kernels": self.decoder.engine().kernels,
            "schedule": self.method.schedule.name,
            **({"explore": self.method.explore} if explores else {}),
            **{name: str(bound) for name, bound in bounds.items() if bound is not None},
            "dtype": str(self.decoder.weights.dtype).removeprefix("torch."),
        }

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Decode; see `TimedDecoder.run`."""
        model: StepModel = self.decoder.engine(batch_size)
        if self.lengths is not None:
            whole = isinstance(self.method.schedule, Whole)
            targets = (self.lengths.tokens,) if whole else self.lengths.targets
            model = ForcedAnswers(model, targets, self.checkpoint.eos)
        meter = _Meter(model, clock)
        outputs: dict[int, Output] = {}
        with watched(self.decoder.weights.encoder, clock) as encoder:
            for event in decode(meter, enumerate(sources), self.method, batch_size):
                if isinstance(event, Finished):
                    outputs[event.example] = self._output(event)
        return Pass(
            outputs=tuple(outputs[place] for place in range(len(sources))),
            calls=meter.calls,
            encoder_seconds=encoder.seconds if encoder.calls else meter.admitting,
            setup_seconds=meter.admitting - encoder.seconds if encoder.calls else None,
        )

    def blueprint(self, sources: Sequence[Source], batch_size: int) -> tuple[str, dict[str, Any]]:
        """The factory and payload with which `memory.measure_peak` does the same in a child process."""
        import torch

        return FACTORY, {
            "name": self.name,
            "checkpoint": self.checkpoint.name,
            "dtype": str(self.decoder.weights.dtype).removeprefix("torch."),
            "device": str(self.checkpoint.device),
            "threads": torch.get_num_threads(),
            "choice": asdict(self.choice),
            "lengths": self.lengths.as_json() if self.lengths else None,
            "sources": [list(source) for source in sources],
            "batch_size": batch_size,
        }

    def _method(self) -> Method:
        if self.lengths is None:
            return self.decoder.method(**asdict(self.choice))
        delay = self.choice.delay if isinstance(self.choice.delay, int) else None
        return self.lengths.method(self.checkpoint.bos, self.checkpoint.eos, delay, self.choice.explore)

    def _output(self, event: Finished) -> Output:
        return Output(
            tokens=tuple(token for text in event.texts for token in text),
            steps=event.steps,
            used_up=event.used_up,
        )


def workload(
    *,
    name: str,
    checkpoint: str,
    dtype: str,
    device: str,
    threads: int,
    choice: Mapping[str, Any],
    lengths: Mapping[str, Any] | None,
    sources: Sequence[Source],
    batch_size: int,
) -> Callable[[], object]:
    """Load a checkpoint and give back the decoding of some sources as a piece of work; see `EngineDecoder.blueprint`."""
    import time

    import torch

    torch.set_num_threads(threads)
    forced = None if lengths is None else Lengths.from_json(lengths)
    decoder = EngineDecoder(
        name, load(checkpoint, dtype=dtype, device=device), DecodingChoice(**choice), lengths=forced
    )
    return lambda: decoder.run(sources, batch_size, time.perf_counter)


class _Meter:
    """A `StepModel` that passes all on to another, counts its calls, and times the admissions.

    Attributes:
        calls: decoder calls so far.
        admitting: seconds in encoder and set-up so far.
    """

    def __init__(self, model: StepModel, clock: Clock) -> None:
        self.model = model
        self.clock = clock
        self.calls = 0
        self.admitting = 0.0

    def admit(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Pass on, and add to `admitting`."""
        began = self.clock()
        self.model.admit(newcomers)
        self.admitting += self.clock() - began

    def step(self, rows: Sequence[Row]) -> Sequence[int]:
        """Pass on, and count."""
        self.calls += 1
        return self.model.step(rows)

    def release(self, sequence: int) -> None:
        """Pass on."""
        self.model.release(sequence)
