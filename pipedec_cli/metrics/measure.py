"""What every metric has: the statistics of one example, and the value of a corpus from their means."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pipedec_cli.data.writing import package_version

Floats = NDArray[np.float64]

#: Scores are printed and saved as per cent.
PERCENT = 100.0


@dataclass(frozen=True, slots=True)
class ScoringItem:
    """One prediction and its right answers.

    `target` is the right answer as one string, `gold` its subsequences (sentences,
    phrases, spans); None if not known. `references` are all right answers, for tasks
    that score text; `truncated` and `stopped_on_repeat` are as in `Generated`.
    `confidence` and `forced` are those of the values of an object, by the names of
    their paths.
    """

    id: str
    prediction: str
    segments: tuple[str, ...]
    target: str | None = None
    gold: tuple[str, ...] | None = None
    references: tuple[str, ...] = ()
    source: str = ""
    truncated: str | None = None
    stopped_on_repeat: bool = False
    confidence: Mapping[str, float] = field(default_factory=dict)
    forced: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A string is a sequence of strings, its letters. As a list it would give a
        # score that looks real.
        for name in ("segments", "gold", "references"):
            if isinstance(value := getattr(self, name), str):
                raise TypeError(
                    f"{name} must be a list of strings, not the string {value[:40]!r}"
                )

    @property
    def right(self) -> tuple[object, ...]:
        """Its right answers, to compare with another item's."""
        return self.references, self.gold


class Measure(ABC):
    """A scoring protocol with its settings.

    Each protocol gives an example a row of statistics. The value of a corpus is a
    function of the means of these rows: the mean of an F1, the harmonic mean of two
    means, a ratio of two sums. So one pair of methods serves a corpus, one example, a
    subset, and the bootstrap over thousands of resamples at once.
    """

    name: ClassVar[str]
    headline: ClassVar[Mapping[str, str]]  # the metrics in a table, with their labels
    primary: ClassVar[str]  # the headline metric of curves and advice
    part: ClassVar[str] = "subsequence"  # the name of a part of an answer
    columns: ClassVar[tuple[str, ...]]  # the names of the numbers of `corpus`
    counted: ClassVar[
        tuple[str, ...]
    ] = ()  # the counts at the end of a row of statistics
    precision_recall: ClassVar[
        Mapping[str, tuple[str, str]]
    ] = {}  # precision and recall of a headline F1
    unscorable: ClassVar[str] = ""  # why an example may have no statistics

    @property
    @abstractmethod
    def _settings(self) -> str:
        """Everything that affects a score, with versions of packages: ``stem:yes|…|rouge-score:0.1.2``."""

    @property
    def signature(self) -> str:
        """Protocol, settings and versions, as sacrebleu has it: two scores compare only if their signatures are equal."""
        return f"{self.name}|{self._settings}|pipedec:{package_version('pipedec') or 'source'}"

    @abstractmethod
    def statistics(self, item: ScoringItem) -> tuple[float, ...] | None:
        """The row of one example, with `counted` at its end; None if it is not scorable."""

    def corpus(self, means: Floats) -> Floats:
        """The metrics, per cent [..., metrics], of corpora whose rows have these means [..., numbers in a row]."""
        return PERCENT * means[..., : len(self.columns)]

    def parts(self, items: Iterable[ScoringItem]) -> dict[str, dict[str, float]]:
        """The metrics and counts of parts of the answers, by the names of the parts; {} if answers have no parts."""
        return {}


def harmonic_mean(precision: Floats, recall: Floats) -> Floats:
    """F1 of precision and recall, elementwise; 0 where both are 0."""
    both = precision + recall
    return np.divide(
        2 * precision * recall, both, out=np.zeros_like(both), where=both > 0
    )


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of predictions by a protocol.

    `ids` are the scored examples in input order, `statistics` their rows [scored,
    numbers in a row]. Examples that are `not_scorable` are in no mean.
    """

    measure: Measure
    ids: tuple[str, ...]
    statistics: Floats
    not_scorable: tuple[str, ...] = ()

    @property
    def values(self) -> dict[str, float | None]:
        """Each metric over all scored examples, in per cent; None if there are none."""
        return self.values_of(self.ids)

    def values_of(self, ids: Collection[str]) -> dict[str, float | None]:
        """Each metric over some of the examples, in per cent; None if none of them is scored."""
        wanted = set(ids)
        rows = self.statistics[[example in wanted for example in self.ids]]
        if not len(rows):
            return dict.fromkeys(self.measure.columns)
        return dict(
            zip(
                self.measure.columns,
                self.measure.corpus(rows.mean(axis=0)).tolist(),
                strict=True,
            )
        )

    @property
    def examples(self) -> dict[str, dict[str, float | None]]:
        """Each metric of each example, in per cent, by id; examples that are not scorable come last, with None."""
        metrics = self.measure.columns
        values = self.measure.corpus(self.statistics).tolist() if self.ids else []
        rows = (dict(zip(metrics, row, strict=True)) for row in values)
        found = dict(zip(self.ids, rows, strict=True))
        return {**found, **{name: dict.fromkeys(metrics) for name in self.not_scorable}}

    @property
    def counts(self) -> dict[str, int]:
        """The number of examples, of those not scorable, and what the protocol counted."""
        names = self.measure.counted
        lost = len(self.not_scorable)
        counts = {"examples": len(self.ids) + lost, "not_scorable": lost}
        if not self.ids:
            return counts | dict.fromkeys(names, 0)
        sums = self.statistics.sum(axis=0).tolist()
        own = sums[len(sums) - len(names) :]
        return counts | dict(zip(names, map(int, own), strict=True))

    @property
    def notes(self) -> list[str]:
        """What a reader of the scores must know."""
        lost, of = (
            len(self.not_scorable),
            f"of {len(self.ids) + len(self.not_scorable)} examples",
        )
        return (
            [f"{lost} {of} are not scorable and left out: {self.measure.unscorable}"]
            if lost
            else []
        )


def score(
    items: Iterable[ScoringItem],
    measure: Measure,
    *,
    on_example: Callable[[], None] = lambda: None,
) -> Scores:
    """Score predictions; call `on_example` after each. A ValueError if there are none, or two have the same id."""
    rows: dict[str, tuple[float, ...] | None] = {}
    for item in items:
        if item.id in rows:
            raise ValueError(f"two items have the id {item.id!r}")
        rows[item.id] = measure.statistics(item)
        on_example()
    if not rows:
        raise ValueError("there is nothing to score")
    scored = {example: row for example, row in rows.items() if row is not None}
    statistics = np.array(list(scored.values()), dtype=np.float64)
    return Scores(
        measure,
        tuple(scored),
        statistics,
        tuple(name for name in rows if name not in scored),
    )
