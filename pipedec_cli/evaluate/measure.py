"""What every scoring protocol offers: statistics of one example, and the corpus value from their means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.metadata import version
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pipedec_cli.evaluate.items import ScoringItem, Task

Floats = NDArray[np.float64]

#: Scores are printed and saved as per cent.
PERCENT = 100.0


class Measure(ABC):
    """A scoring protocol with its settings.

    Each protocol here gives an example a row of statistics and is, for a corpus, a function of the means of these
    rows: the mean of an F1, the harmonic mean of two means, a ratio of two sums. So one pair of methods serves the
    corpus, a single example, a subset and, over thousands of resamples at once, the bootstrap.

    Attributes:
        task: the task that it scores.
        name: the protocol's name.
        columns: what each number of a row of statistics is.
        counted: the columns whose sums are told beside the scores.
        metrics: what each number of `corpus` is.
        headline: the metrics that stand for the protocol in a table.
        precision_recall: the precision and the recall beside a headline F1, where there are such.
    """

    task: ClassVar[Task]
    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    counted: ClassVar[tuple[str, ...]] = ()
    metrics: ClassVar[tuple[str, ...]]
    headline: ClassVar[tuple[str, ...]]
    precision_recall: ClassVar[Mapping[str, tuple[str, str]]] = {}

    @property
    @abstractmethod
    def signature(self) -> str:
        """Protocol, settings and versions on one line: two scores compare only if theirs are equal."""

    @abstractmethod
    def statistics(self, item: ScoringItem) -> tuple[float, ...] | None:
        """One example's row of `columns`; None if this protocol cannot score it."""

    @abstractmethod
    def corpus(self, means: Floats) -> Floats:
        """The `metrics`, in per cent, of corpora whose rows have these means.

        Args:
            means: float64, shape [..., columns].

        Returns:
            float64, shape [..., metrics].
        """

    def notes(self, counts: Mapping[str, int]) -> tuple[str, ...]:
        """What a reader of these scores must be told, if anything; `counts` as in `Scores`."""
        return ()


def signature(protocol: str, settings: Mapping[str, object], *packages: str) -> str:
    """A one-line signature after sacrebleu's manner: ``rouge|stem:yes|…|rouge-score:0.1.2|pipedec:0.1.0``."""
    parts = [f"{key}:{_setting(value)}" for key, value in settings.items()]
    versions = [f"{package}:{version(package)}" for package in (*packages, "pipedec")]
    return "|".join([protocol, *parts, *versions])


def harmonic_mean(precision: Floats, recall: Floats) -> Floats:
    """F1 of precision and recall, elementwise; 0 where both are 0."""
    both = precision + recall
    return np.divide(2 * precision * recall, both, out=np.zeros_like(both), where=both > 0)


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
