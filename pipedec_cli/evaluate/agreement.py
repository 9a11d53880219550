"""How far a decoder's texts are those of the baseline, whatever the right answers may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pipedec_cli.data.records import Generated
from pipedec_cli.evaluate.metrics.measure import PERCENT, ScoringItem
from pipedec_cli.evaluate.metrics.rouge import Rouge, is_scorable


class TextAgreement(NamedTuple):
    """Texts held against the baseline's: the mean ROUGE-L F1 in per cent, and how many are equal, of how many.

    Examples that ROUGE cannot score are left out of its mean, which is None where none is left. White space does not count.
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
    def between(cls, made: Sequence[Generated], usual: Sequence[Generated]) -> TextAgreement:
        """Compare what two decoders made of the same sources."""
        rouge, place = Rouge(), Rouge.metrics.index(Rouge.primary)
        texts = ([" ".join(one.text.split()) for one in each] for each in (made, usual))
        pairs = list(zip(*texts, strict=True))
        found = []
        for one, other in pairs:
            item = ScoringItem("", one, (one,), references=(other,))
            if is_scorable(other):  # equal texts may be empty, of which ROUGE says 0
                found.append(1.0 if one == other else (rouge.statistics(item) or ())[place])
        mean = PERCENT * sum(found) / len(found) if found else None
        return cls(mean, sum(one == other for one, other in pairs), len(pairs))
