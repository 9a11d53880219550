"""A decoder that is compared with others: how it decodes, and what was measured of it, from the plan to the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pipedec_cli.evaluate.agreement import TextAgreement
from pipedec_cli.evaluate.child import Memory
from pipedec_cli.evaluate.forced import ForcedAnswers, Lengths
from pipedec_cli.evaluate.timing import Clock, Gain, Output, Pass, Runner, Source, Timing, gain, took, watched
from pipedec_cli.pipeline.decode import Finished, Row, StepModel, decode
from pipedec_cli.pipeline.grid import Method
from pipedec_cli.pipeline.schedule import Whole
from pipedec_cli.pipeline.verify import Verify

if TYPE_CHECKING:
    from pipedec_cli.evaluate.scoring import ScoredRun
    from pipedec_cli.evaluate.significance import Difference
    from pipedec_cli.model.decoder import Decoder

Role = Literal["baseline", "pipelined", "exact", "peer"]


class Totals(NamedTuple):
    """What a decoder did on all examples that were generated from: decoder calls are each example's own, added up.

    In exact mode so many of them made drafts; the others checked these.
    """

    examples: int
    steps: int
    tokens: int
    draft_steps: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Sums and means."""
        examples, steps = max(1, self.examples), max(1, self.steps)
        drafting, checks = self.draft_steps, self.steps - (self.draft_steps or 0)
        exact = {
            "draft_steps_per_example": (drafting or 0) / examples,
            "checks_per_example": checks / examples,
            "tokens_per_check": self.tokens / max(1, checks),
        }
        return {
            **self._asdict(),
            "steps_per_example": self.steps / examples,
            "tokens_per_example": self.tokens / examples,
            "tokens_per_step": self.tokens / steps,
            **(exact if drafting is not None else {}),
        }


class Agreement(NamedTuple):
    """How many examples have the very tokens of our sequential decoder, of how many."""

    equal: int
    of: int

    @classmethod
    def between(cls, outputs: Sequence[Output], ours: Sequence[Output]) -> Agreement:
        """Compare the tokens of two decoders."""
        return cls(sum(one.tokens == mine.tokens for one, mine in zip(outputs, ours, strict=True)), len(ours))


class Quality(NamedTuple):
    """How good a decoder is on one split: its scores, by metric what they are over the baseline's, and if it says the same."""

    scored: ScoredRun | None = None
    differences: Mapping[str, Difference] = {}
    agreement: TextAgreement | None = None

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        differences = {metric: asdict(difference) for metric, difference in self.differences.items()}
        return {
            "quality": self.scored and self.scored.as_json(),
            "differences": differences,
            "text_agreement": self.agreement and self.agreement._asdict(),
        }


@dataclass(slots=True)
class Competitor:
    """A decoder from the plan to the table; what has not been measured, or is for others only, is None or empty.

    Ours have `options` of `pipedec generate` that give them and are `scored`, with `totals`, on all examples; `faults` are
    why their texts are of no use. Peers and exact mode have their tokens compared, too (`agreement`). The pipelined ones,
    and exact mode with their drafts, have a `delay`, ``together`` for fields; explorations `row_budget_exhausted` sub_max in a share of the timed examples.
    `sources` are what is timed, in ids of its own tokenizer. `differences` of scores, by metric, and `gains`, by batch size,
    are those over the baseline, with whose texts there is `text_agreement`; `beside` has the quality on other splits.
    """

    name: str
    role: Role
    runner: Runner
    options: str | None = None
    delay: int | Literal["together"] | None = None
    sources: Sequence[Source] = ()
    scored: ScoredRun | None = None
    faults: tuple[str, ...] = ()
    totals: Totals | None = None
    row_budget_exhausted: float | None = None
    differences: Mapping[str, Difference] = field(default_factory=dict)
    text_agreement: TextAgreement | None = None
    beside: dict[str, Quality] = field(default_factory=dict)
    timings: dict[int, Timing] = field(default_factory=dict)
    gains: Mapping[int, Gain] = field(default_factory=dict)
    memory: Memory | None = None
    agreement: Agreement | None = None

    @property
    def quality(self) -> Quality:
        """On the split that all else is measured on."""
        return Quality(self.scored, self.differences, self.text_agreement)

    @property
    def gain(self) -> Gain:
        """Over the baseline, at the smallest batch size."""
        return self.gains[min(self.gains)]

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
            "settings": dict(self.runner.settings),
            "options": self.options,
            "delay": self.delay,
            **self.quality.as_json(),
            "faults": self.faults,
            "other_splits": {split: quality.as_json() for split, quality in self.beside.items()},
            "totals": self.totals and self.totals.as_json(),
            "row_budget_exhausted": self.row_budget_exhausted,
            "speed": [one.as_json() | {"over_baseline": gains.get(at)} for at, one in self.timings.items()],
            "memory": self.memory and self.memory._asdict(),
            "agreement": self.agreement and self.agreement._asdict(),
        }


class EngineRunner:
    """A checkpoint on our engine, decoding in one way: pipelined at some delay, waiting, or as the plain model that it is."""

    largest_batch: int | None = None

    def __init__(self, decoder: Decoder, choice: Mapping[str, Any], lengths: Lengths | None = None) -> None:
        """Choose a method by the arguments of `Decoder.method`; a UserError if the checkpoint was not trained for the delay.

        Lengths are forced whatever the model was trained for, at a delay (None for the whole target as one string).
        """
        self.decoder, self.choice, self.lengths = decoder, dict(choice), lengths
        self.method = decoder.method(**choice) if lengths is None else self._forced(lengths)
        self._whole = isinstance(self.method.schedule, Whole)

    def _forced(self, lengths: Lengths) -> Method:
        """The method that lengths are forced in, on what may be the same model, whichever way it decodes."""
        checkpoint, plain = self.decoder.checkpoint, self.choice.get("delay") is None
        bos = None if plain and checkpoint.backbone.prompted else checkpoint.opener
        return lengths.method(bos, checkpoint.eos, **self.choice)

    @property
    def settings(self) -> Mapping[str, str]:
        """Kernels, schedule, bounds and dtype."""
        method, weights = self.method, self.decoder.weights
        return {
            "kernels": weights.kernels,
            "schedule": method.schedule.name,
            **({} if self._whole or method.openings else {"empty_rows": method.empty_rows}),
            **({"stop_on_repeat": "yes"} if method.stop_on_repeat else {}),
            **({"min_start_prob": f"{method.min_start_prob:g}"} if method.min_start_prob else {}),
            **{name: str(bound) for name, bound in asdict(method.limits).items() if bound is not None},
            "dtype": str(weights.dtype).removeprefix("torch."),
        }

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Decode; see `Runner.run`."""
        return self.decode(sources, self.method, batch_size, clock)[0]

    def decode(
        self, sources: Sequence[Source], method: Method | Verify, batch_size: int, clock: Clock
    ) -> tuple[Pass, list[Finished]]:
        """The same in another way, with how each example ended."""
        model: StepModel = self.decoder.engine(batch_size)
        if self.lengths is not None:
            targets = (self.lengths.tokens,) if self._whole else self.lengths.targets
            model = ForcedAnswers(model, targets, self.decoder.checkpoint.eos)
        meter = _Meter(model, clock)
        ends: dict[int, Finished] = {}
        with watched(self.decoder.weights.encoder, clock) as encoder:
            for event in decode(meter, enumerate(sources), method, batch_size):
                if isinstance(event, Finished):
                    ends[event.example] = event
        told, set_up = (sum(encoder), meter.admitting - sum(encoder)) if encoder else (meter.admitting, None)
        ended = [ends[place] for place in range(len(sources))]
        outputs = [
            Output(tuple(chain(*end.texts)), end.grid.steps, end.grid.row_budget_exhausted) for end in ended
        ]
        return Pass(outputs, meter.calls, told, set_up, rows=meter.rows), ended

    def spec(self) -> tuple[str, dict[str, Any]]:
        """The same for a child process."""
        import torch

        return "pipedec_cli.evaluate.competitor:from_spec", {
            "name": self.decoder.checkpoint.name,
            "eos": self.decoder.checkpoint.eos,
            "dtype": self.settings["dtype"],
            "device": str(self.decoder.checkpoint.device),
            "threads": torch.get_num_threads(),
            "choice": self.choice,
            "lengths": self.lengths and asdict(self.lengths),
        }


def from_spec(
    *, threads: int, eos: int, choice: dict[str, Any], lengths: dict[str, Any] | None, **loaded: Any
) -> EngineRunner:
    """Load a checkpoint anew, as `pipedec generate` does; see `EngineRunner.spec`.

    Texts end with the id `eos`, which is another in a chat that the checkpoint does not tell of.
    """
    import torch

    from pipedec_cli.model.decoder import load

    torch.set_num_threads(threads)
    decoder = load(**loaded)
    decoder.checkpoint.eos = eos
    return EngineRunner(decoder, choice, Lengths(**lengths) if lengths else None)


class _Meter:
    """A `StepModel` that passes all on to another, counts its calls, and times the admissions."""

    def __init__(self, model: StepModel, clock: Clock) -> None:
        self.model, self.clock, self.calls, self.rows = model, clock, 0, 0
        self.admitting = 0.0  # seconds in encoder and set-up
        self.release, self.take_back = model.release, model.take_back

    def admit(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        self.admitting += took(self.clock, lambda: self.model.admit(newcomers))

    def step(self, rows: Sequence[Row]) -> Sequence[int]:
        self._count(rows)
        return self.model.step(rows)

    def step_with_probabilities(self, rows: Sequence[Row]) -> tuple[Sequence[int], Sequence[float]]:
        self._count(rows)
        return self.model.step_with_probabilities(rows)

    def _count(self, rows: Sequence[Row]) -> None:
        self.calls, self.rows = self.calls + 1, self.rows + len(rows)
