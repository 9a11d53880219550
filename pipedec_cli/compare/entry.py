"""An entry of a comparison: a decoder, how fast it is, and in a report how good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from msgspec import to_builtins

from pipedec_cli.compare.child import Memory
from pipedec_cli.compare.timing import Gain, Output, Runner, Source, Timing, gain
from pipedec_cli.data.records import Generated
from pipedec_cli.metrics.measure import PERCENT, ScoringItem
from pipedec_cli.metrics.rouge import Rouge, is_scorable
from pipedec_cli.metrics.scoring import Difference, Fault, ScoredRun


@dataclass(frozen=True, slots=True)
class TokenAgreement:
    """The number of examples with exactly the baseline's tokens, and the number of examples."""

    equal: int
    of: int

    @classmethod
    def between(
        cls, outputs: Sequence[Output], baseline: Sequence[Output]
    ) -> TokenAgreement:
        """Compare the tokens of two decoders."""
        equal = sum(
            one.tokens == other.tokens
            for one, other in zip(outputs, baseline, strict=True)
        )
        return cls(equal, len(baseline))


@dataclass(frozen=True, slots=True)
class TextAgreement:
    """The mean ROUGE-L F1 in per cent against the baseline's texts, the number of equal texts, and the number of texts.

    The mean leaves out examples that ROUGE cannot score; it is None if there are no
    others. White space is ignored.
    """

    rouge_l: float | None
    equal: int
    of: int

    @property
    def line(self) -> str:
        """Both in words."""
        rouge = "" if self.rouge_l is None else f"ROUGE-L {self.rouge_l:.1f}, "
        return f"{rouge}{self.equal / max(1, self.of):.0%} equal"

    @classmethod
    def between(
        cls, made: Sequence[Generated], baseline: Sequence[Generated]
    ) -> TextAgreement:
        """Compare the texts of two decoders for the same sources."""
        rouge, place = Rouge(), Rouge.columns.index(Rouge.primary)
        mine, theirs = (
            [" ".join(prediction.text.split()) for prediction in run]
            for run in (made, baseline)
        )
        pairs, found = list(zip(mine, theirs, strict=True)), []
        for one, other in pairs:
            item = ScoringItem("", one, (one,), references=(other,))
            if is_scorable(other):  # equal texts may be empty, and ROUGE gives them 0
                found.append(
                    1.0 if one == other else (rouge.statistics(item) or ())[place]
                )
        mean = PERCENT * sum(found) / len(found) if found else None
        return cls(mean, sum(one == other for one, other in pairs), len(pairs))


Role = Literal["baseline", "pipelined", "exact", "peer"]


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all examples, and means. Steps are the decoder calls of each example, added up.

    In exact mode `draft_steps` of the steps made drafts; the others checked them.
    """

    examples: int
    steps: int
    tokens: int
    steps_per_example: float
    tokens_per_example: float
    tokens_per_step: float
    draft_steps: int | None = None
    draft_steps_per_example: float | None = None
    checks_per_example: float | None = None
    tokens_per_check: float | None = None
    keys_per_step: float | None = (
        None  # of objects: the keys that are answered, with a value or without
    )

    @classmethod
    def of(
        cls, examples: int, steps: int, tokens: int, draft_steps: int | None = None
    ) -> Totals:
        """The sums with their means."""
        count, exact = max(1, examples), tuple[Any, ...]()
        if draft_steps is not None:
            checks = steps - draft_steps
            exact = (
                draft_steps,
                draft_steps / count,
                checks / count,
                tokens / max(1, checks),
            )
        means = (steps / count, tokens / count, tokens / max(1, steps))
        return cls(examples, steps, tokens, *means, *exact)


@dataclass(frozen=True, slots=True)
class Quality:
    """The quality of a decoder on one split: scores, their differences to the baseline by metric, and equal texts."""

    scored: ScoredRun | None = None
    differences: Mapping[str, Difference] = field(default_factory=dict)
    agreement: TextAgreement | None = None

    def values(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "quality": self.scored and self.scored.summary,
            "differences": to_builtins(self.differences),
            "text_agreement": to_builtins(self.agreement),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A decoder that takes part. It is planned first; its results are filled in as they come.

    Planned: `command` generates the same texts (None for the decoders of others).
    Pipelined decoders, and exact mode with their drafts, have a `delay`, ``together``
    for fields. `runs` generate its predictions, by split. `sources` are the ids to
    time, by its own tokenizer.

    Measured: `timings`, and `gains` over the baseline, by batch size. `agreement`
    counts the baseline's tokens, on real input.

    Scored: `quality` is on the split that everything is measured on; `other_splits` has
    the quality on others. `faults` say why its texts are useless.
    `row_budget_exhausted` is the share of timed examples in which empty rows used up
    sub_max.
    """

    name: str
    role: Role
    runner: Runner
    command: str | None = None
    delay: int | Literal["together"] | None = None
    runs: tuple[Any, ...] = ()  # of jobs.run
    sources: Sequence[Source] = ()
    timings: Mapping[int, Timing] = field(default_factory=dict)
    gains: Mapping[int, Gain] = field(default_factory=dict)
    memory: Memory | None = None
    agreement: TokenAgreement | None = None
    quality: Quality = field(default_factory=Quality)
    other_splits: Mapping[str, Quality] = field(default_factory=dict)
    totals: Totals | None = None
    row_budget_exhausted: float | None = None
    faults: tuple[Fault, ...] = ()

    @property
    def faults_in_words(self) -> str:
        """Why its texts are useless; "" if they may be of use."""
        return "; ".join(fault.words for fault in self.faults)

    @property
    def gain(self) -> Gain:
        """The gain over the baseline at the smallest batch size."""
        return self.gains[min(self.gains)]

    def gains_over(self, other: Entry) -> dict[int, Gain]:
        """How much faster it is, by batch size, where both were timed."""
        both = self.timings.keys() & other.timings.keys()
        return {
            size: gain(self.timings[size], other.timings[size]) for size in sorted(both)
        }

    def beside(self, baseline: Entry, *, forced: bool = False) -> Entry:
        """The measured entry with what follows of its timings and the baseline's. Tokens of `forced` lengths say nothing."""
        agreement = exhausted = None
        if self.timings and not forced:
            size, first = min(self.timings), next(iter(self.timings.values()))
            if self.role in ("peer", "exact"):
                outputs = self.timings[size].outputs
                agreement = TokenAgreement.between(
                    outputs, baseline.timings[size].outputs
                )
            elif self.delay != "together":
                exhausted = (
                    sum(output.row_budget_exhausted for output in first.outputs)
                    / first.examples
                )
        gains = self.gains_over(baseline)
        return replace(
            self, gains=gains, agreement=agreement, row_budget_exhausted=exhausted
        )

    def values(self, *, scored: bool) -> dict[str, Any]:
        """Plain values for JSON: what was measured and, of a report, what was `scored`."""
        speed = []
        for size, timing in self.timings.items():
            values = to_builtins(replace(timing, outputs=()))
            del values["outputs"]
            speed.append({**values, "over_baseline": to_builtins(self.gains.get(size))})
        measured: dict[str, Any] = {"name": self.name, "role": self.role}
        measured |= {
            "settings": dict(self.runner.settings),
            "delay": self.delay,
            "speed": speed,
        }
        measured["memory"] = to_builtins(self.memory)
        if not scored:
            return measured
        splits = {
            split: quality.values() for split, quality in self.other_splits.items()
        }
        plain = ("command", "totals", "row_budget_exhausted", "agreement")
        results = {name: to_builtins(getattr(self, name)) for name in plain}
        results["faults"] = [fault.words for fault in self.faults]
        return {**measured, **self.quality.values(), "other_splits": splits, **results}
