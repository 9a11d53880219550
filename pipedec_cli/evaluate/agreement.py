"""How far a decoder's texts and tokens are the baseline's, whatever the right answers are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipedec_cli.data.records import Generated
from pipedec_cli.evaluate.metrics.measure import PERCENT, ScoringItem
from pipedec_cli.evaluate.metrics.rouge import Rouge, is_scorable
from pipedec_cli.evaluate.timing import Output


@dataclass(frozen=True, slots=True)
class TokenAgreement:
    """The number of examples with exactly the baseline's tokens, and the number of examples."""

    equal: int
    of: int

    @classmethod
    def between(cls, outputs: Sequence[Output], baseline: Sequence[Output]) -> TokenAgreement:
        """Compare the tokens of two decoders."""
        equal = sum(one.tokens == other.tokens for one, other in zip(outputs, baseline, strict=True))
        return cls(equal, len(baseline))


@dataclass(frozen=True, slots=True)
class TextAgreement:
    """The mean ROUGE-L F1 in per cent against the baseline's texts, the number of equal texts, and the number of texts.

    The mean leaves out examples that ROUGE cannot score; it is None if there are no others. White space is ignored.
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
    def between(cls, made: Sequence[Generated], baseline: Sequence[Generated]) -> TextAgreement:
        """Compare the texts of two decoders for the same sources."""
        rouge, place = Rouge(), Rouge.metrics.index(Rouge.primary)
        mine, theirs = ([" ".join(one.text.split()) for one in each] for each in (made, baseline))
        pairs, found = list(zip(mine, theirs, strict=True)), []
        for one, other in pairs:
            item = ScoringItem("", one, (one,), references=(other,))
            if is_scorable(other):  # equal texts may be empty, and ROUGE gives them 0
                found.append(1.0 if one == other else (rouge.statistics(item) or ())[place])
        mean = PERCENT * sum(found) / len(found) if found else None
        return cls(mean, sum(one == other for one, other in pairs), len(pairs))
