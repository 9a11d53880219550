"""An entry of a comparison: a decoder, how fast it is, and in a report how good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from msgspec import to_builtins

from pipedec_cli.compare.child import Memory
from pipedec_cli.compare.timing import Gain, Output, Runner, Source, Timing, gain
from pipedec_cli.data.records import Generated, Record
from pipedec_cli.metrics.differences import Difference
from pipedec_cli.metrics.measure import PERCENT
from pipedec_cli.metrics.rouge import Rouge, is_scorable
from pipedec_cli.metrics.scoring import Scored
from pipedec_cli.metrics.useless import Fault, faults


@dataclass(frozen=True, slots=True)
class TokenAgreement:
    """The number of examples with exactly the baseline's tokens, and of examples."""

    equal: int
    of: int

    @classmethod
    def between(
        cls, outputs: Sequence[Output], baseline: Sequence[Output]
    ) -> TokenAgreement:
        """Compare the tokens of two decoders."""
        pairs = zip(outputs, baseline, strict=True)
        equal = sum(output.tokens == usual.tokens for output, usual in pairs)
        return cls(equal, len(baseline))


@dataclass(frozen=True, slots=True)
class TextAgreement:
    """How far texts agree with the baseline's: ROUGE-L F1, per cent, and equal texts.

    The mean leaves out examples that ROUGE cannot score; it is None if there are no
    others. White space is ignored.
    """

    rouge_l: float | None
    equal: int
    of: int

    @property
    def line(self) -> str:
        """Both in words."""
        equal = f"{self.equal / max(1, self.of):.0%} equal"
        if self.rouge_l is None:
            return equal
        return f"ROUGE-L {self.rouge_l:.1f}, {equal}"

    @classmethod
    def between(
        cls, predictions: Sequence[Generated], baseline: Sequence[Generated]
    ) -> TextAgreement:
        """Compare the texts of two decoders for the same sources."""
        scores = []
        equal = 0
        for prediction, usual in zip(predictions, baseline, strict=True):
            text = " ".join(prediction.text.split())
            wanted = " ".join(usual.text.split())
            equal += text == wanted
            if not is_scorable(wanted):
                continue
            # Equal texts may be empty, and ROUGE gives them 0.
            scores.append(1.0 if text == wanted else _rouge_l(text, wanted))
        mean = PERCENT * sum(scores) / len(scores) if scores else None
        return cls(mean, equal, len(baseline))


def _rouge_l(text: str, wanted: str) -> float:
    """ROUGE-L F1, 0 to 1, of a text against the `wanted` one."""
    record = Record("", "", None, None, (wanted,), "")
    values = Rouge().statistics(Generated(text=text, segments=(text,), record=record))
    assert values is not None
    return values[Rouge.columns.index(Rouge.primary)]


Role = Literal["baseline", "pipelined", "exact", "ordinary", "peer"]


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all examples, and means.

    Steps are the decoder calls of each example, added up. In exact mode `draft_steps`
    of the steps made drafts; the others checked them. Of objects `keys_per_step` are
    the keys that are answered, with a value or without.
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
    keys_per_step: float | None = None

    @classmethod
    def of(
        cls, examples: int, steps: int, tokens: int, draft_steps: int | None = None
    ) -> Totals:
        """The sums with their means; `draft_steps` is None but in exact mode."""
        count = max(1, examples)
        totals = cls(
            examples,
            steps,
            tokens,
            steps_per_example=steps / count,
            tokens_per_example=tokens / count,
            tokens_per_step=tokens / max(1, steps),
        )
        if draft_steps is None:
            return totals
        checks = steps - draft_steps
        return replace(
            totals,
            draft_steps=draft_steps,
            draft_steps_per_example=draft_steps / count,
            checks_per_example=checks / count,
            tokens_per_check=tokens / max(1, checks),
        )

    @classmethod
    def over(
        cls, predictions: Sequence[Generated], *, keys: int = 0, drafts: bool = False
    ) -> Totals:
        """Add predictions up.

        `keys` is the number of keys of an object, 0 of texts. With `drafts`, in exact
        mode, the steps that made drafts are counted apart.
        """
        count = len(predictions)
        steps = sum(prediction.steps for prediction in predictions)
        tokens = sum(prediction.tokens for prediction in predictions)
        draft_steps = None
        if drafts:
            draft_steps = sum(prediction.draft_steps or 0 for prediction in predictions)
        totals = cls.of(count, steps, tokens, draft_steps)
        answered = keys * count / max(1, steps)
        return replace(totals, keys_per_step=answered or None)


@dataclass(frozen=True, slots=True)
class Quality:
    """The quality of a decoder on one split.

    Scores, their differences to the baseline by metric, and equal texts.
    """

    scored: Scored | None = None
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
    """A decoder that takes part. It is planned first; `filled` adds all results."""

    # Planned.
    name: str
    role: Role
    runner: Runner
    command: str | None = None  # generates the same texts; None for a peer
    #: Of pipelined decoders, and of exact mode with their drafts: in time-steps, or
    #: ``together`` for objects.
    delay: int | Literal["together"] | None = None
    runs: tuple[Any, ...] = ()  # of jobs.run: they generate its predictions, by split
    sources: Sequence[Source] = ()  # to time, as ids of its own tokenizer

    # Measured.
    timings: Mapping[int, Timing] = field(default_factory=dict)  # by batch size
    gains: Mapping[int, Gain] = field(default_factory=dict)  # over the baseline, so too
    memory: Memory | None = None
    agreement: TokenAgreement | None = None  # with the baseline's tokens

    # Scored.
    quality: Quality = field(default_factory=Quality)  # on the last split
    other_splits: Mapping[str, Quality] = field(default_factory=dict)
    totals: Totals | None = None
    #: The share of timed examples in which empty rows used up sub_max.
    row_budget_exhausted: float | None = None
    faults: tuple[Fault, ...] = ()  # why its texts are useless

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
        gains = {}
        for size in sorted(self.timings.keys() & other.timings.keys()):
            gains[size] = gain(self.timings[size], other.timings[size])
        return gains

    def filled(
        self,
        baseline: Entry | None,
        *,
        timings: Mapping[int, Timing],
        memory: Memory | None = None,
        qualities: Mapping[str, Quality] | None = None,
        keys: int = 0,
        forced: bool = False,
    ) -> Entry:
        """A copy of this entry with all results: those that are given, and those computed of them.

        Computed are quality and totals, where there are `qualities`; the gains over the
        baseline; and, unless lengths were forced, one more: of peers and exact mode, how
        many texts have the baseline's tokens; of the others how often empty rows used up
        sub_max.

        Args:
            baseline: the filled baseline; None if this is the baseline itself.
            timings: by batch size.
            memory: the peak; None if it was not measured.
            qualities: by split; the one that everything is measured on comes last. None
                if nothing was scored.
            keys: the number of keys of an object; 0 for texts.
            forced: whether lengths were forced; then the tokens say nothing.
        """
        entry = replace(self, timings=timings, memory=memory)
        if qualities:
            entry = entry._with_quality(qualities, keys)
        if baseline is None:
            return entry
        entry = replace(entry, gains=entry.gains_over(baseline))
        if forced or not timings:
            return entry
        if self.role in ("peer", "exact"):
            size = min(timings)
            usual = baseline.timings[size].outputs
            agreement = TokenAgreement.between(timings[size].outputs, usual)
            return replace(entry, agreement=agreement)
        if self.role != "pipelined" or self.delay == "together":
            return entry
        outputs = next(iter(timings.values())).outputs
        exhausted = sum(output.row_budget_exhausted for output in outputs)
        return replace(entry, row_budget_exhausted=exhausted / len(outputs))

    def _with_quality(self, qualities: Mapping[str, Quality], keys: int) -> Entry:
        """A copy with the qualities by split, the totals on the last of them, and the faults of its texts there."""
        *others, last = qualities
        scored = qualities[last].scored
        assert scored is not None
        predictions = scored.run.predictions
        return replace(
            self,
            quality=qualities[last],
            other_splits={split: qualities[split] for split in others},
            totals=Totals.over(predictions, keys=keys, drafts=self.role == "exact"),
            faults=tuple(faults(scored)),
        )

    def values(self, *, scored: bool) -> dict[str, Any]:
        """Plain values for JSON: what was measured and, if `scored`, quality and totals."""
        values: dict[str, Any] = {
            "name": self.name,
            "role": self.role,
            "settings": dict(self.runner.settings),
            "delay": self.delay,
            "speed": [self._speed(size) for size in self.timings],
            "memory": to_builtins(self.memory),
        }
        if not scored:
            return values
        splits = self.other_splits.items()
        return {
            **values,
            **self.quality.values(),
            "other_splits": {split: quality.values() for split, quality in splits},
            "command": self.command,
            "totals": to_builtins(self.totals),
            "row_budget_exhausted": self.row_budget_exhausted,
            "agreement": to_builtins(self.agreement),
            "faults": [fault.words for fault in self.faults],
        }

    def _speed(self, size: int) -> dict[str, Any]:
        """The timing at a batch size, without the outputs."""
        values: dict[str, Any] = to_builtins(replace(self.timings[size], outputs=()))
        del values["outputs"]
        values["over_baseline"] = to_builtins(self.gains.get(size))
        return values
