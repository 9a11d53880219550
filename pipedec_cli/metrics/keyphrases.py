"""F1@5 and F1@M of present and absent keyphrases: protocols ``chan2019`` and ``meng2017``.

chan2019 is Chan et al., "Neural Keyphrase Generation via Reinforcement Learning with
Adaptive Rewards" (ACL 2019), as Chen et al. (ACL 2020) and the pipelined decoder's
paper use it. meng2017 is Meng et al., "Deep Keyphrase Generation" (ACL 2017), as in the
authors' later evaluation script.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from itertools import chain
from typing import ClassVar, Final, Literal

import numpy as np
import regex

from pipedec_cli.data.records import Generated
from pipedec_cli.metrics.measure import (
    PERCENT,
    Floats,
    Measure,
    harmonic_mean,
    record_beside,
    right_segments,
)

#: ``edges``: at white space, with punctuation split off the ends of words.
#: ``meng2017``: punctuation split off everywhere. ``whitespace``: at white space alone,
#: for tokenised text.
Tokenizer = Literal["edges", "meng2017", "whitespace"]
Stems = tuple[str, ...]

CUTOFF: Final = 5
#: A prediction with one of these words is dropped: two phrases in one, or a word that
#: the model does not know.
INVALID_WORDS: Final = frozenset({",", ".", "<unk>"})

# A full stop or comma at the start of a word stays: `.net` and `.5` are words.
_OPENING = frozenset("([{\"'“‘„«¿¡")
_CLOSING = frozenset(".,;:!?)]}\"'”’»…")
_ABBREVIATION = re.compile(r"(?:[^\W\d_]\.){2,}")  # u.s., e.g.
_POSSESSIVE = re.compile(r"(.+)(['’]s)")

# Meng et al. pad the marks _ < > , ( ) . ' with spaces, and cut at everything but
# letters, digits, # & + and *. Their letters are ASCII. Ours are Unicode's with their
# marks: a word cut at its accents could match a wrong one.
_MENG = regex.compile(r"<\w+>|[_<>,().']|(?:[\p{L}\p{N}]\p{M}*|[#&+*])+")


@dataclass
class Split:
    """Phrases by whether they are contiguous runs of the source's stems.

    Duplicates and invalid phrases are in neither list.
    """

    present: list[Stems]
    absent: list[Stems]
    duplicates: int = 0
    invalid: int = 0


@dataclass(frozen=True)
class _Keyphrases(Measure):
    """Keyphrases by either protocol.

    With `pretokenized`, text, targets and predictions are cut at white space alone.
    With `hard`, precision at 5 divides by 5 even if fewer phrases were predicted.
    """

    pretokenized: bool = False

    headline: ClassVar[Mapping[str, str]] = {
        f"{kind}_f1@{cut}": f"{kind} F1@{cut}"
        for kind in ("present", "absent")
        for cut in ("5", "M")
    }
    primary: ClassVar[str] = "present_f1@M"
    precision_recall: ClassVar = {
        f1: (f1.replace("f1", "p"), f1.replace("f1", "r")) for f1 in headline
    }
    columns: ClassVar[tuple[str, ...]] = (
        *headline,
        *chain.from_iterable(precision_recall.values()),
    )
    counted: ClassVar[tuple[str, ...]] = (
        "present_targets",
        "present_predictions",
        "absent_targets",
        "absent_predictions",
        "duplicate_predictions",
        "invalid_predictions",
    )
    hard: ClassVar[bool] = True
    deduplicate_targets: ClassVar[bool]
    raw_tokenizer: ClassVar[Tokenizer]
    macro: ClassVar[str]

    @property
    def _settings(self) -> str:
        kept = "+targets" if self.deduplicate_targets else ""
        divisor = "5" if self.hard else "min"
        words = f"tok:{self._tokenizer}|lower:yes|stem:porter|dedup:predictions{kept}"
        return f"{words}|p@5:of-{divisor}|macro:{self.macro}|nltk:{version('nltk')}"

    @property
    def _tokenizer(self) -> Tokenizer:
        return "whitespace" if self.pretokenized else self.raw_tokenizer

    def statistics(self, example: Generated) -> tuple[float, ...]:
        """The `_row` of the document's precision and recall at 5 and at M, and counts."""
        source = stems(record_beside(example).source, self._tokenizer)
        predicted = self.split(example.segments, source, predicted=True)
        right = self.split(right_segments(example), source, predicted=False)
        parts = [
            *self._at_both_cuts(predicted.present, right.present),
            *self._at_both_cuts(predicted.absent, right.absent),
        ]
        return (
            *self._row(parts),
            len(right.present),
            len(predicted.present),
            len(right.absent),
            len(predicted.absent),
            predicted.duplicates,
            predicted.invalid,
        )

    def _at_both_cuts(
        self, guesses: Sequence[Stems], targets: Sequence[Stems]
    ) -> list[tuple[float, float]]:
        """Precision and recall, in [0, 1], of the first five guesses, and of all (M)."""
        divisor = CUTOFF if self.hard else min(CUTOFF, len(guesses))
        return [
            precision_and_recall(guesses[:CUTOFF], targets, divisor),
            precision_and_recall(guesses, targets, len(guesses)),
        ]

    def split(
        self, phrases: Iterable[str], source: Sequence[str], *, predicted: bool
    ) -> Split:
        """Stem phrases, and split them into those that are present in a source and those that are absent.

        `source` is its stems. A phrase without a word is no phrase. Repeats are left out
        and counted; of the `predicted` ones, also those with a word of `INVALID_WORDS`.
        """
        # Stems have no spaces, so with spaces around each, a run of stems is a
        # substring.
        haystack = f" {' '.join(source)} "
        split = Split([], [])
        seen = set[Stems]()
        for text in phrases:
            phrase = tuple(stems(text, self._tokenizer))
            if not phrase:
                continue
            if phrase in seen and (predicted or self.deduplicate_targets):
                split.duplicates += 1
            elif predicted and not INVALID_WORDS.isdisjoint(phrase):
                split.invalid += 1
            elif f" {' '.join(phrase)} " in haystack:
                split.present.append(phrase)
            else:
                split.absent.append(phrase)
            seen.add(phrase)
        return split

    def _row(self, parts: Sequence[tuple[float, float]]) -> Iterable[float]:
        """The numbers to average over documents: precision and recall in [0, 1], in the order of `precision_recall`."""
        return chain.from_iterable(parts)


@dataclass(frozen=True)
class Chan2019(_Keyphrases):
    """Macro F1: the harmonic mean of precision and of recall, each averaged over all documents.

    P@5 always divides by 5, P@M by the number of predictions. A document without a
    target or a prediction counts as 0.
    """

    name: ClassVar[str] = "chan2019"
    deduplicate_targets: ClassVar[bool] = True
    raw_tokenizer: ClassVar[Tokenizer] = "edges"
    macro: ClassVar[str] = "f1-of-means"

    def corpus(self, means: Floats) -> Floats:
        """F1 is the harmonic mean of mean precision and mean recall."""
        parts = PERCENT * means[..., : -len(self.counted)]
        return np.concatenate(
            [harmonic_mean(parts[..., 0::2], parts[..., 1::2]), parts], axis=-1
        )


@dataclass(frozen=True)
class Meng2017(_Keyphrases):
    """Macro F1: the mean over all documents of each document's own F1.

    Targets keep their duplicates.
    """

    hard: bool = False  # type: ignore[misc]  # a setting here

    name: ClassVar[str] = "meng2017"
    deduplicate_targets: ClassVar[bool] = False
    raw_tokenizer: ClassVar[Tokenizer] = "meng2017"
    macro: ClassVar[str] = "mean-f1"

    def _row(self, parts: Sequence[tuple[float, float]]) -> Iterable[float]:
        return (
            *(2 * p * r / (p + r) if p + r else 0.0 for p, r in parts),
            *super()._row(parts),
        )


def precision_and_recall(
    guesses: Sequence[Stems], targets: Sequence[Stems], divisor: int
) -> tuple[float, float]:
    """The guesses that are among the targets: their number over the `divisor`, and over that of the targets.

    0 where what it is divided by is 0.
    """
    hits = sum(guess in targets for guess in guesses)
    precision = hits / divisor if divisor else 0.0
    recall = hits / len(targets) if targets else 0.0
    return precision, recall


def stems(text: str, tokenizer: Tokenizer) -> list[str]:
    """The stems of a text's lower-cased words, by nltk's Porter stemmer in its default mode."""
    stemmed = list[str]()
    for word in text.lower().split():
        stemmed += _word_stems(word, tokenizer)
    return stemmed


@lru_cache(maxsize=1 << 18)
def _word_stems(word: str, tokenizer: Tokenizer) -> tuple[str, ...]:
    """The stems of one run of non-space characters.

    They are cached: texts repeat their words, and stemming is slow.
    """
    from nltk.stem.porter import PorterStemmer

    parts = [word]
    if tokenizer == "meng2017":
        parts = _MENG.findall(word)
    elif tokenizer == "edges":
        parts = _without_edges(word)
    return tuple(map(PorterStemmer().stem, parts))


def _without_edges(word: str) -> list[str]:
    """A word with the punctuation at its ends split off: ``(data,`` is three parts.

    Hyphens and slashes within it stay.
    """
    start = 0
    end = len(word)
    while start < end and word[start] in _OPENING:
        start += 1
    while end > start and word[end - 1] in _CLOSING:
        if _ABBREVIATION.fullmatch(word, start, end):
            break
        end -= 1
    core = word[start:end]
    inner = [core] if core else []
    possessive = _POSSESSIVE.fullmatch(core)
    if possessive:
        inner = list(possessive.groups())
    return [*word[:start], *inner, *word[end:]]
