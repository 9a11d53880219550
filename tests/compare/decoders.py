"""A clock that only work moves, decoders with a given speed, and entries with given figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipedec_cli.compare.entry import Entry, Quality
from pipedec_cli.compare.timing import Clock, Output, Pass, Source, Timing
from pipedec_cli.metrics.measure import score_examples
from pipedec_cli.metrics.rouge import Rouge
from pipedec_cli.metrics.scoring import Predictions, Scored
from tests.metrics.documents import example


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

    clock: FakeClock = field(default_factory=FakeClock)
    step: Sequence[float] = (1.0,)
    encode: float | None = 0.0
    setup: float | None = None
    per_call: int = 1
    largest_batch: int | None = None
    settings: Mapping[str, str] = field(default_factory=lambda: {"dtype": "float32"})
    seen: list[tuple[list[Source], int]] = field(default_factory=list)

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        number = len(self.seen)
        self.seen.append((list(sources), batch_size))
        steps = [-(-len(source) // self.per_call) for source in sources]
        calls = sum(steps) if batch_size == 1 else max(steps)
        self.clock.pass_by((self.encode or 0.0) * len(sources) + (self.setup or 0.0))
        self.clock.pass_by(self.step[min(number, len(self.step) - 1)] * calls)
        outputs = tuple(
            Output(tuple(s), n) for s, n in zip(sources, steps, strict=True)
        )
        encoder = None if self.encode is None else self.encode * len(sources)
        return Pass(outputs, calls, encoder, self.setup)


def timing(
    totals, calls, encoder=0.0, *, examples=1, tokens=2, steps=2, size=1
) -> Timing:
    """The timing of passes with these seconds."""
    outputs = (Output((5,) * tokens, steps),) * examples
    return Timing.of(
        size, [Pass(outputs, calls, encoder, None, (total,)) for total in totals]
    )


def entry(
    name="x",
    role="pipelined",
    *,
    scored=None,
    differences=None,
    text_agreement=None,
    dtype="float32",
    **more,
) -> Entry:
    """An entry with the given figures, whose decoder does not run."""
    quality = Quality(scored, differences or {}, text_agreement)
    runner = FakeDecoder(settings={"dtype": dtype})
    return Entry(
        **{"name": name, "role": role, "runner": runner, "quality": quality, **more}
    )


def scored(
    segments, *, steps=(), gold=("a b", "c d"), truncated=None, name="x"
) -> Scored:
    """Predictions of these segments, each of 2 tokens, scored against one target."""
    predictions = []
    for number, parts in enumerate(segments):
        prediction = example(
            parts,
            gold,
            references=(" ".join(gold),),
            source="s",
            name=f"{number}",
            steps=steps[number] if steps else 1,
            tokens=2,
            truncated=truncated,
        )
        predictions.append(prediction)
    run = Predictions(Path("x.jsonl"), name, predictions, "records", {})
    return Scored(run, score_examples(predictions, Rouge()))
