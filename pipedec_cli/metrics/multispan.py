"""Exact-match and partial-match F1 of answers that are several spans: protocol ``multispanqa``.

After Li et al., "MultiSpanQA: A Dataset for Multi-Span Question Answering" (NAACL
2022), and their evaluation script.
"""

import platform
import re
import string
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import ClassVar

import numpy as np

from pipedec_cli.data.records import Generated
from pipedec_cli.metrics.measure import (
    PERCENT,
    Floats,
    Measure,
    harmonic_mean,
    right_segments,
)

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


@dataclass(frozen=True)
class MultiSpanQA(Measure):
    """EM and PM F1, micro: precision and recall are ratios of sums over all questions.

    `autojunk` is difflib's heuristic, on in the published script: in a prediction of
    200 characters or more, a character that makes up over 1 % of it starts no match, so
    long common runs can be missed.
    """

    autojunk: bool = True

    name: ClassVar[str] = "multispanqa"
    headline: ClassVar[Mapping[str, str]] = {
        "em_f1": "exact match F1",
        "pm_f1": "partial match F1",
    }
    primary: ClassVar[str] = "em_f1"
    columns: ClassVar[tuple[str, ...]] = (
        "em_f1",
        "pm_f1",
        "em_p",
        "em_r",
        "pm_p",
        "pm_r",
    )
    counted: ClassVar[tuple[str, ...]] = ("predicted_spans", "gold_spans")
    precision_recall: ClassVar = {"em_f1": ("em_p", "em_r"), "pm_f1": ("pm_p", "pm_r")}

    @property
    def _settings(self) -> str:
        autojunk = "yes" if self.autojunk else "no"  # difflib comes with Python
        return f"norm:squad|avg:micro|autojunk:{autojunk}|python:{platform.python_version()}"

    def statistics(self, example: Generated) -> tuple[float, ...]:
        """The question's share in each sum: hits, best partial matches, their divisors, and counts."""
        # An answer that normalises to nothing stays: it costs precision, as a wrong
        # answer does.
        gold = frozenset(map(normalise_answer, right_segments(example)))
        predicted = frozenset(map(normalise_answer, example.segments))
        hits = len(gold & predicted) if gold or predicted else 1
        partial = partial_match(gold, predicted, autojunk=self.autojunk)
        return (
            hits,
            *partial,
            max(len(predicted), 1),
            max(len(gold), 1),
            len(predicted),
            len(gold),
        )

    def corpus(self, means: Floats) -> Floats:
        """Ratios of sums."""
        hits, pm_precision, pm_recall, predicted, gold = np.moveaxis(
            means[..., :5], -1, 0
        )
        em_p = PERCENT * hits / predicted
        em_r = PERCENT * hits / gold
        pm_p = PERCENT * pm_precision / predicted
        pm_r = PERCENT * pm_recall / gold
        em_f1 = harmonic_mean(em_p, em_r)
        pm_f1 = harmonic_mean(pm_p, pm_r)
        return np.stack([em_f1, pm_f1, em_p, em_r, pm_p, pm_r], axis=-1)


def normalise_answer(text: str) -> str:
    """An answer as in SQuAD: lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def partial_match(
    gold: AbstractSet[str], predicted: AbstractSet[str], *, autojunk: bool = True
) -> tuple[float, float]:
    """The partial precision and recall of one question with normalised answers.

    For a pair of answers, ℓ is the length of their longest common run of characters.
    The precision of the pair is ℓ over the prediction's length, its recall ℓ over the
    right answer's. A prediction counts with its best precision, a right answer with its
    best recall.
    """
    # As published, a single empty prediction is no answer.
    answered = bool(predicted - {""})
    if not gold and not answered:
        return 1.0, 1.0
    if not gold or not answered:
        return 0.0, 0.0
    # In a fixed order, so that sums of floats are always the same.
    best_recall = dict.fromkeys(sorted(gold), 0.0)
    precision = 0.0
    for guess in sorted(predicted):
        matcher = SequenceMatcher(None, "", guess, autojunk=autojunk)
        longest = 0
        for answer, best in best_recall.items():
            matcher.set_seq1(answer)
            run = matcher.find_longest_match(0, len(answer), 0, len(guess)).size
            longest = max(longest, run)
            if run:
                best_recall[answer] = max(best, run / len(answer))
        if longest:
            precision += longest / len(guess)
    return precision, sum(best_recall.values())
