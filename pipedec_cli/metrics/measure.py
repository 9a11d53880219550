"""What every metric has: the statistics of an example, and the value of a corpus.

An example is a prediction with its record. Its `segments`, and the record's
`target_segments` and `references`, are the predicted and the right answers as the task
compares them; see `answers.for_task`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pipedec_cli.data.records import Generated, Record
from pipedec_cli.data.writing import package_version

Floats = NDArray[np.float64]
#: The metrics and counts of parts of the answers, by the names of the parts.
Parts = dict[str, dict[str, float]]

#: Scores are printed and saved as per cent.
PERCENT = 100.0


def record_beside(example: Generated) -> Record:
    """The record of a prediction, with its right answers."""
    assert example.record is not None, "a prediction is scored against its record"
    return example.record


def right_segments(example: Generated) -> tuple[str, ...]:
    """The right answers of a task that compares lists."""
    right = record_beside(example).target_segments
    assert right is not None, "an example without right answers is refused before"
    return right


class Measure(ABC):
    """A scoring protocol with its settings.

    Each protocol gives an example a row of statistics. The value of a corpus is a
    function of the means of these rows: the mean of an F1, the harmonic mean of two
    means, a ratio of two sums. So one pair of methods serves a corpus, one example, a
    subset, and the bootstrap over thousands of resamples at once.
    """

    name: ClassVar[str]
    #: The metrics in a table, with their labels.
    headline: ClassVar[Mapping[str, str]]
    #: The headline metric of curves and advice.
    primary: ClassVar[str]
    #: The name of a part of an answer.
    part: ClassVar[str] = "subsequence"
    #: The names of the numbers of `corpus`.
    columns: ClassVar[tuple[str, ...]]
    #: The counts at the end of a row of statistics.
    counted: ClassVar[tuple[str, ...]] = ()
    #: Precision and recall of a headline F1.
    precision_recall: ClassVar[Mapping[str, tuple[str, str]]] = {}
    #: Why an example may have no statistics.
    unscorable: ClassVar[str] = ""

    @property
    @abstractmethod
    def _settings(self) -> str:
        """Everything that affects a score, with versions of packages: ``stem:yes|…|rouge-score:0.1.2``."""

    @property
    def signature(self) -> str:
        """Protocol, settings and versions, as sacrebleu has it: two scores compare only if their signatures are equal."""
        version = package_version("pipedec") or "source"
        return f"{self.name}|{self._settings}|pipedec:{version}"

    @abstractmethod
    def statistics(self, example: Generated) -> tuple[float, ...] | None:
        """The row of one example, with `counted` at its end.

        None if it is not scorable.
        """

    def corpus(self, means: Floats) -> Floats:
        """The metrics, per cent [..., metrics], of corpora whose rows have these means [..., numbers in a row]."""
        return PERCENT * means[..., : len(self.columns)]

    def parts(self, examples: Iterable[Generated]) -> Parts:
        """The metrics and counts of parts of the answers, by the names of the parts.

        {} if answers have no parts.
        """
        return {}


def set_f1(ours: AbstractSet[str], theirs: AbstractSet[str]) -> float:
    """F1 of two sets, in [0, 1]; 0 if both are empty."""
    common = len(ours & theirs)
    total = len(ours) + len(theirs)
    return 2 * common / max(1, total)


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
    numbers in a row]. Examples that are `not_scorable` are in no mean. `items` are
    all of them, in input order.
    """

    measure: Measure
    ids: tuple[str, ...]
    statistics: Floats
    not_scorable: tuple[str, ...] = ()
    items: tuple[Generated, ...] = ()

    @property
    def values(self) -> dict[str, float | None]:
        """Each metric over all scored examples, in per cent; None if there are none."""
        return self.values_of(self.ids)

    def values_of(self, ids: Collection[str]) -> dict[str, float | None]:
        """Each metric over some of the examples; None if none of them is scored."""
        wanted = set(ids)
        rows = self.statistics[[example in wanted for example in self.ids]]
        if not len(rows):
            return dict.fromkeys(self.measure.columns)
        values = self.measure.corpus(rows.mean(axis=0)).tolist()
        return dict(zip(self.measure.columns, values, strict=True))

    @property
    def examples(self) -> dict[str, dict[str, float | None]]:
        """Each metric of each example, in per cent, by id.

        Examples that are not scorable come last, with None.
        """
        metrics = self.measure.columns
        values = {}
        if self.ids:
            rows = self.measure.corpus(self.statistics).tolist()
            for example, row in zip(self.ids, rows, strict=True):
                values[example] = dict(zip(metrics, row, strict=True))
        for example in self.not_scorable:
            values[example] = dict.fromkeys(metrics)
        return values

    @property
    def counts(self) -> dict[str, int]:
        """The number of examples, of those not scorable, and what is counted."""
        names = self.measure.counted
        lost = len(self.not_scorable)
        counts = {"examples": len(self.ids) + lost, "not_scorable": lost}
        if not self.ids:
            return counts | dict.fromkeys(names, 0)
        sums = self.statistics.sum(axis=0).tolist()
        counted = sums[len(sums) - len(names) :]
        return counts | dict(zip(names, map(int, counted), strict=True))

    @property
    def notes(self) -> list[str]:
        """What a reader of the scores must know."""
        lost = len(self.not_scorable)
        if not lost:
            return []
        of = f"{lost} of {len(self.ids) + lost} examples"
        return [f"{of} are not scorable and left out: {self.measure.unscorable}"]


def score_examples(
    examples: Iterable[Generated],
    measure: Measure,
    *,
    on_example: Callable[[], None] = lambda: None,
) -> Scores:
    """Score predictions, each beside the right answers of its record; call `on_example` after each.

    Examples to which the measure gives no statistics are not scorable. A ValueError if
    there is no prediction, or two have the same id.
    """
    scored = {}
    not_scorable = []
    taken = {}
    for example in examples:
        if example.id in taken:
            raise ValueError(f"two examples have the id {example.id!r}")
        _require_lists(example)
        taken[example.id] = example
        row = measure.statistics(example)
        if row is None:
            not_scorable.append(example.id)
        else:
            scored[example.id] = row
        on_example()
    if not taken:
        raise ValueError("there is nothing to score")
    return Scores(
        measure,
        ids=tuple(scored),
        statistics=np.array(list(scored.values()), dtype=np.float64),
        not_scorable=tuple(not_scorable),
        items=tuple(taken.values()),
    )


def _require_lists(example: Generated) -> None:
    """Refuse a string for a list: its letters would give a score that looks real."""
    record = record_beside(example)
    lists: dict[str, object] = {
        "segments": example.segments,
        "target_segments": record.target_segments,
        "references": record.references,
    }
    for name, value in lists.items():
        if isinstance(value, str):
            what = f"{name} must be a list of strings, not the string {value[:40]!r}"
            raise TypeError(what)
