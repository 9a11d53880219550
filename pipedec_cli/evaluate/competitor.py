"""A decoder that is compared with others: how it decodes, what was measured of it, and both as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pipedec_cli.evaluate.child import Memory
from pipedec_cli.evaluate.forced import ForcedAnswers, Lengths
from pipedec_cli.evaluate.timing import Clock, Gain, Output, Pass, Runner, Source, Timing, gain, watched
from pipedec_cli.pipeline.decode import Finished, Row, StepModel, decode
from pipedec_cli.pipeline.schedule import Whole

if TYPE_CHECKING:
    from pipedec_cli.evaluate.scoring import ScoredRun
    from pipedec_cli.evaluate.significance import Difference
    from pipedec_cli.model.decoder import Decoder

Role = Literal["baseline", "pipelined", "peer"]


class Totals(NamedTuple):
    """What a decoder did on all examples that were generated from: decoder calls are each example's own, added up."""

    examples: int
    steps: int
    tokens: int

    def as_json(self) -> dict[str, float]:
        """Sums and means."""
        examples, steps, tokens = self
        return {
            **self._asdict(),
            "steps_per_example": steps / examples if examples else 0.0,
            "tokens_per_example": tokens / examples if examples else 0.0,
            "tokens_per_step": tokens / steps if steps else 0.0,
        }


class Agreement(NamedTuple):
    """How many examples have the very tokens of our sequential decoder, of how many."""

    equal: int
    of: int

    @classmethod
    def between(cls, outputs: Sequence[Output], ours: Sequence[Output]) -> Agreement:
        """Compare the tokens of two decoders."""
        return cls(sum(one.tokens == mine.tokens for one, mine in zip(outputs, ours, strict=True)), len(ours))


@dataclass(slots=True)
class Competitor:
    """A decoder from the plan to the table; what has not been measured, or is for others only, is None or empty.

    Attributes:
        options: the options of `pipedec generate` that give it; None for peers.
        delay: its Δt; None for all but the pipelined ones.
        sources: what is timed, in the ids of its own tokenizer.
        scored: its quality on all examples, as are the totals; None for peers, whose tokens are compared instead.
        used_up: share of the timed examples in which explorations used up sub_max; of the pipelined ones.
        differences: its scores minus the baseline's, by metric.
        gains: over the baseline, by batch size.
        agreement: a peer's tokens against those of our sequential decoder.
    """

    name: str
    role: Role
    runner: Runner
    options: str | None = None
    delay: int | None = None
    sources: Sequence[Source] = ()
    scored: ScoredRun | None = None
    totals: Totals | None = None
    used_up: float | None = None
    differences: Mapping[str, Difference] = field(default_factory=dict)
    timings: dict[int, Timing] = field(default_factory=dict)
    gains: Mapping[int, Gain] = field(default_factory=dict)
    memory: Memory | None = None
    agreement: Agreement | None = None

    @property
    def settings(self) -> Mapping[str, str]:
        """Version and settings that bear on speed or output."""
        return self.runner.settings

    @property
    def speedup(self) -> float:
        """Over the baseline, at the smallest batch size."""
        return self.gains[min(self.gains)].speedup

    def gains_over(self, other: Competitor) -> dict[int, Gain]:
        """How much faster it is, by batch size, where both were timed."""
        both = self.timings.keys() & other.timings.keys()
        return {size: gain(self.timings[size], other.timings[size]) for size in sorted(both)}

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        gains = {size: one._asdict() for size, one in self.gains.items()}
        return {
            "name": self.name,
            "role": self.role,
            "settings": dict(self.settings),
            "options": self.options,
            "delay": self.delay,
            "quality": self.scored and self.scored.as_json(),
            "differences": {metric: asdict(difference) for metric, difference in self.differences.items()},
            "totals": self.totals and self.totals.as_json(),
            "used_up_sub_max": self.used_up,
            "speed": [one.as_json() | {"over_baseline": gains.get(at)} for at, one in self.timings.items()],
            "memory": self.memory and self.memory._asdict(),
            "agreement": self.agreement and self.agreement._asdict(),
        }


class EngineRunner:
    """A checkpoint on our engine, decoding in one way: pipelined at some delay, waiting, or as the plain T5 that it is."""

    largest_batch: int | None = None

    def __init__(self, decoder: Decoder, choice: Mapping[str, Any], lengths: Lengths | None = None) -> None:
        """Choose a method by the arguments of `Decoder.method`; a UserError if the checkpoint was not trained for the delay.

        Lengths are forced whatever the model says and was trained for; of the choice, the delay (None for the whole target
        as one string) and the exploration rule hold. What decodes in several ways shares the decoder.
        """
        self.decoder, self.choice, self.lengths = decoder, dict(choice), lengths
        ends = (decoder.checkpoint.bos, decoder.checkpoint.eos)
        self.method = decoder.method(**choice) if lengths is None else lengths.method(*ends, **choice)
        self._whole = isinstance(self.method.schedule, Whole)

    @property
    def settings(self) -> Mapping[str, str]:
        """Kernels, schedule, bounds and dtype."""
        bounds, weights = asdict(self.method.limits), self.decoder.weights
        return {
            "kernels": weights.kernels,
            "schedule": self.method.schedule.name,
            **({} if self._whole else {"explore": self.method.explore}),
            **{name: str(bound) for name, bound in bounds.items() if bound is not None},
            "dtype": str(weights.dtype).removeprefix("torch."),
        }

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Decode; see `Runner.run`."""
        model: StepModel = self.decoder.engine(batch_size)
        if self.lengths is not None:
            targets = (self.lengths.tokens,) if self._whole else self.lengths.targets
            model = ForcedAnswers(model, targets, self.decoder.checkpoint.eos)
        meter = _Meter(model, clock)
        outputs: dict[int, Output] = {}
        with watched(self.decoder.weights.encoder, clock) as encoder:
            for event in decode(meter, enumerate(sources), self.method, batch_size):
                if isinstance(event, Finished):
                    tokens = tuple(chain(*event.texts))
                    outputs[event.example] = Output(tokens, event.steps, event.used_up)
        encoding, admitting = sum(encoder), meter.admitting
        parts = (encoding, admitting - encoding) if encoder else (admitting, None)
        return Pass(tuple(outputs[place] for place in range(len(sources))), meter.calls, *parts)

    def blueprint(self) -> tuple[str, dict[str, Any]]:
        """The same for a child process."""
        import torch

        return "pipedec_cli.evaluate.competitor:remake", {
            "name": self.decoder.checkpoint.name,
            "dtype": self.settings["dtype"],
            "device": str(self.decoder.checkpoint.device),
            "threads": torch.get_num_threads(),
            "choice": self.choice,
            "lengths": asdict(self.lengths) if self.lengths else None,
        }


def remake(
    *, threads: int, choice: dict[str, Any], lengths: dict[str, Any] | None, **loaded: Any
) -> EngineRunner:
    """Load a checkpoint anew, as `pipedec generate` does; see `EngineRunner.blueprint`."""
    import torch

    from pipedec_cli.model.decoder import load

    torch.set_num_threads(threads)
    return EngineRunner(load(**loaded), choice, None if lengths is None else Lengths(**lengths))


class _Meter:
    """A `StepModel` that passes all on to another, counts its calls, and times the admissions."""

    def __init__(self, model: StepModel, clock: Clock) -> None:
        self.model, self.clock, self.calls = model, clock, 0
        self.admitting = 0.0  # seconds in encoder and set-up
        self.release = model.release

    def admit(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        began = self.clock()
        self.model.admit(newcomers)
        self.admitting += self.clock() - began

    def step(self, rows: Sequence[Row]) -> Sequence[int]:
        self.calls += 1
        return self.model.step(rows)
