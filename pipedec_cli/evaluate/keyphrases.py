"""F1@5 and F1@M of present and absent keyphrases: protocols ``chan2019`` and ``meng2017``.

chan2019 is Chan et al., "Neural Keyphrase Generation via Reinforcement Learning with Adaptive Rewards" (ACL 2019), as
Chen et al. (ACL 2020) and the pipelined decoder's paper use it; meng2017 is Meng et al., "Deep Keyphrase Generation"
(ACL 2017), as its authors' later evaluation script has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from pipedec_cli.evaluate.items import ScoringItem, Task, list_of_strings
from pipedec_cli.evaluate.measure import PERCENT, Floats, Measure, harmonic_mean, signature
from pipedec_cli.evaluate.words import Tokenizer, stems

Stems = tuple[str, ...]

CUTOFF: Final = 5
#: A prediction with one of these for a word is dropped: two phrases in one, or a word that the model does not know.
INVALID_WORDS: Final = frozenset({",", ".", "<unk>"})

_GROUPS: Final = tuple(f"{kind}_%s@{cut}" for kind in ("present", "absent") for cut in (str(CUTOFF), "M"))
_F1: Final = tuple(group % "f1" for group in _GROUPS)
_PRECISION_RECALL: Final = tuple((group % "p", group % "r") for group in _GROUPS)
_COUNTED: Final = (
    "present_targets",
    "present_predictions",
    "absent_targets",
    "absent_predictions",
    "duplicate_predictions",
    "invalid_predictions",
)


@dataclass(frozen=True, slots=True)
class Phrases:
    """The stemmed phrases of one document after filtering, each present in the source or absent from it.

    Attributes:
        present: those whose stems stand in the source as one contiguous run, in order.
        absent: the others, in order.
        duplicates: how many were left out as the same, once stemmed, as an earlier one.
        invalid: how many were left out for a word of `INVALID_WORDS`.
    """

    present: tuple[Stems, ...]
    absent: tuple[Stems, ...]
    duplicates: int = 0
    invalid: int = 0


def sort_phrases(
    phrases: Sequence[str],
    source_stems: Sequence[str],
    tokenizer: Tokenizer,
    *,
    deduplicate: bool,
    drop_invalid: bool,
) -> Phrases:
    """Stem phrases, filter them and split them into present and absent ones.

    A phrase without any word is none at all: it is neither predicted nor a target.

    Args:
        phrases: the phrases of one document.
        source_stems: the stems of the source, from the same tokenizer.
        tokenizer: how words are cut.
        deduplicate: keep only the first of those that are equal once stemmed.
        drop_invalid: leave out those with a word of `INVALID_WORDS`.

    Raises:
        TypeError: `phrases` is one string.
    """
    # Stems hold no space, so a run of whole stems is a substring once spaces stand around all.
    haystack = f" {' '.join(source_stems)} "
    present: list[Stems] = []
    absent: list[Stems] = []
    seen: set[Stems] = set()
    duplicates = invalid = 0
    for text in list_of_strings(phrases, "phrases"):
        phrase = tuple(stems(text, tokenizer))
        if not phrase:
            continue
        if deduplicate and phrase in seen:
            duplicates += 1
            continue
        seen.add(phrase)
        if drop_invalid and not INVALID_WORDS.isdisjoint(phrase):
            invalid += 1
            continue
        (present if f" {' '.join(phrase)} " in haystack else absent).append(phrase)
    return Phrases(tuple(present), tuple(absent), duplicates, invalid)


@dataclass(frozen=True)
class _Keyphrases(Measure):
    """What the two protocols share.

    Attributes:
        pretokenized: the text, targets and predictions are tokenised already: cut them at white space alone.
    """

    pretokenized: bool = False

    task: ClassVar[Task] = "keyphrases"
    counted: ClassVar[tuple[str, ...]] = _COUNTED
    metrics: ClassVar[tuple[str, ...]] = (*_F1, *(name for pair in _PRECISION_RECALL for name in pair))
    headline: ClassVar[tuple[str, ...]] = _F1
    precision_recall: ClassVar = dict(zip(_F1, _PRECISION_RECALL, strict=True))

    deduplicate_targets: ClassVar[bool]
    raw_tokenizer: ClassVar[Tokenizer]

    @property
    def tokenizer(self) -> Tokenizer:
        """How words are cut."""
        return "whitespace" if self.pretokenized else self.raw_tokenizer

    def _sorted(self, item: ScoringItem) -> tuple[Phrases, Phrases]:
        """The item's predictions and its targets.

        Raises:
            ValueError: the targets are not known.
        """
        if item.gold is None:
            raise ValueError(f"item {item.id!r} has no keyphrases to score against")
        source = stems(item.source, self.tokenizer)
        predicted = sort_phrases(item.segments, source, self.tokenizer, deduplicate=True, drop_invalid=True)
        right = sort_phrases(
            item.gold, source, self.tokenizer, deduplicate=self.deduplicate_targets, drop_invalid=False
        )
        return predicted, right

    @staticmethod
    def _counts(predicted: Phrases, right: Phrases) -> tuple[float, ...]:
        """The numbers of `_COUNTED`."""
        return (
            len(right.present),
            len(predicted.present),
            len(right.absent),
            len(predicted.absent),
            predicted.duplicates,
            predicted.invalid,
        )


@dataclass(frozen=True)
class Chan2019(_Keyphrases):
    """Macro F1: the harmonic mean of precision and of recall, each averaged over all documents.

    P@5 divides by 5 whatever was predicted; P@M by the number of predictions. A document without a target of a kind,
    or without a prediction, counts with 0.
    """

    name: ClassVar[str] = "chan2019"
    columns: ClassVar[tuple[str, ...]] = (*(name for pair in _PRECISION_RECALL for name in pair), *_COUNTED)
    deduplicate_targets: ClassVar[bool] = True
    raw_tokenizer: ClassVar[Tokenizer] = "edges"

    @property
    def signature(self) -> str:
        """Protocol, settings and versions on one line."""
        settings = {
            "tok": self.tokenizer,
            "lower": True,
            "stem": "porter",
            "dedup": "predictions+targets",
            "p@5": "of-5",
            "macro": "f1-of-means",
        }
        return signature(self.name, settings, "nltk")

    def statistics(self, item: ScoringItem) -> tuple[float, ...]:
        """Precision and recall at 5 and at M of present and of absent keyphrases, in [0, 1], and what was counted."""
        predicted, right = self._sorted(item)
        row: list[float] = []
        for guesses, targets in ((predicted.present, right.present), (predicted.absent, right.absent)):
            for cut, divisor in ((CUTOFF, CUTOFF), (len(guesses), len(guesses))):
                row += _precision_recall(guesses[:cut], targets, divisor)
        return (*row, *self._counts(predicted, right))

    def corpus(self, means: Floats) -> Floats:
        """F1 as the harmonic mean of mean precision and mean recall; shapes as in `Measure.corpus`."""
        parts = PERCENT * means[..., : 2 * len(_F1)]
        f1 = harmonic_mean(parts[..., 0::2], parts[..., 1::2])
        return np.concatenate([f1, parts], axis=-1)


@dataclass(frozen=True)
class Meng2017(_Keyphrases):
    """Macro F1: the mean over all documents of each document's own F1. Targets keep their duplicates.

    Attributes:
        hard: divide precision at 5 by 5 even where fewer were predicted, rather than by their number.
    """

    hard: bool = False

    name: ClassVar[str] = "meng2017"
    columns: ClassVar[tuple[str, ...]] = (*_Keyphrases.metrics, *_COUNTED)
    deduplicate_targets: ClassVar[bool] = False
    raw_tokenizer: ClassVar[Tokenizer] = "meng2017"

    @property
    def signature(self) -> str:
        """Protocol, settings and versions on one line."""
        settings = {
            "tok": self.tokenizer,
            "lower": True,
            "stem": "porter",
            "dedup": "predictions",
            "p@5": "of-5" if self.hard else "of-min",
            "macro": "mean-f1",
        }
        return signature(self.name, settings, "nltk")

    def statistics(self, item: ScoringItem) -> tuple[float, ...]:
        """F1, precision and recall of the document, in [0, 1] and in the order of `metrics`, and what was counted."""
        predicted, right = self._sorted(item)
        parts: list[tuple[float, float]] = []
        for guesses, targets in ((predicted.present, right.present), (predicted.absent, right.absent)):
            at_five = CUTOFF if self.hard else min(CUTOFF, len(guesses))
            for cut, divisor in ((CUTOFF, at_five), (len(guesses), len(guesses))):
                parts.append(_precision_recall(guesses[:cut], targets, divisor))
        f1 = (2 * p * r / (p + r) if p + r else 0.0 for p, r in parts)
        return (*f1, *(value for part in parts for value in part), *self._counts(predicted, right))

    def corpus(self, means: Floats) -> Floats:
        """The means, in per cent; shapes as in `Measure.corpus`."""
        return PERCENT * means[..., : len(self.metrics)]


def _precision_recall(
    guesses: Iterable[Stems], targets: Sequence[Stems], divisor: int
) -> tuple[float, float]:
    """Precision and recall of distinct guesses; 0 where there is nothing to divide by."""
    hits = sum(guess in targets for guess in guesses)
    return (hits / divisor if divisor else 0.0, hits / len(targets) if targets else 0.0)
