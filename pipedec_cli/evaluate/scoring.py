"""Scores of a set of predictions: corpus values, per-example values, and what they were computed with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from pipedec_cli.data.errors import UserError
from pipedec_cli.evaluate.items import ScoringItem, Task
from pipedec_cli.evaluate.keyphrases import Chan2019, Meng2017
from pipedec_cli.evaluate.measure import Floats, Measure
from pipedec_cli.evaluate.multispan import MultiSpanQA
from pipedec_cli.evaluate.rouge import Rouge

#: The protocols of each task; the first is its default.
PROTOCOLS: Final[Mapping[Task, tuple[type[Measure], ...]]] = {
    "summarization": (Rouge,),
    "keyphrases": (Chan2019, Meng2017),
    "multispan": (MultiSpanQA,),
}


@dataclass(frozen=True, eq=False)
class Scores:
    """What a protocol says of a set of predictions.

    Attributes:
        measure: the protocol with its settings.
        ids: the scored examples, in input order.
        statistics: their rows of `Measure.columns`; float64, shape [scored, columns].
        not_scorable: the ids that the protocol could not score; they are in no mean.
    """

    measure: Measure
    ids: tuple[str, ...]
    statistics: Floats
    not_scorable: tuple[str, ...] = ()

    @property
    def task(self) -> Task:
        """The task that was scored."""
        return self.measure.task

    @property
    def protocol(self) -> str:
        """The protocol's name."""
        return self.measure.name

    @property
    def signature(self) -> str:
        """Protocol, settings and versions on one line."""
        return self.measure.signature

    @property
    def values(self) -> dict[str, float | None]:
        """Each metric over all scored examples, in per cent; None where not one could be scored."""
        return self.values_of(self.ids)

    def values_of(self, ids: Collection[str]) -> dict[str, float | None]:
        """Each metric over some of the examples, such as those with a certain number of target subsequences."""
        wanted = set(ids)
        rows = self.statistics[[example in wanted for example in self.ids]]
        if not len(rows):
            return dict.fromkeys(self.measure.metrics)
        return dict(zip(self.measure.metrics, self.measure.corpus(rows.mean(axis=0)).tolist(), strict=True))

    @property
    def examples(self) -> dict[str, dict[str, float | None]]:
        """Each metric of each example alone, in per cent, by id; those that are not scorable last, with None."""
        metrics = self.measure.metrics
        rows: dict[str, dict[str, float | None]] = {
            example: dict(zip(metrics, values, strict=True))
            for example, values in zip(self.ids, self.measure.corpus(self.statistics).tolist(), strict=True)
        }
        return rows | {example: dict.fromkeys(metrics) for example in self.not_scorable}

    @property
    def counts(self) -> dict[str, int]:
        """How many examples there were and could not be scored, and what else the protocol counted."""
        sums = dict(zip(self.measure.columns, self.statistics.sum(axis=0).tolist(), strict=True))
        return {
            "examples": len(self.ids) + len(self.not_scorable),
            "not_scorable": len(self.not_scorable),
            **{name: int(sums[name]) for name in self.measure.counted},
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the scores must be told."""
        return self.measure.notes(self.counts)


def score(
    items: Iterable[ScoringItem],
    task: Task,
    protocol: str | Measure | None = None,
    *,
    on_example: Callable[[], None] | None = None,
) -> Scores:
    """Score predictions.

    Args:
        items: the predictions, each with what it is held against.
        task: the task.
        protocol: the protocol's name, for its usual settings, or one from `make_protocol`; None for the task's usual.
        on_example: called after each example, for a progress bar.

    Raises:
        ValueError: there are no items, two have the same id, or one has nothing to be held against.
        UserError: the task has no such protocol.
    """
    measure = protocol if isinstance(protocol, Measure) else make_protocol(task, protocol)
    if measure.task != task:
        raise ValueError(f"{measure.name} scores {measure.task}, not {task}")
    rows: dict[str, tuple[float, ...] | None] = {}
    for item in items:
        if item.id in rows:
            raise ValueError(f"two items have the id {item.id!r}")
        rows[item.id] = measure.statistics(item)
        if on_example is not None:
            on_example()
    if not rows:
        raise ValueError("there is nothing to score")
    scored = {example: row for example, row in rows.items() if row is not None}
    return Scores(
        measure=measure,
        ids=tuple(scored),
        statistics=np.array(list(scored.values()), dtype=np.float64).reshape(-1, len(measure.columns)),
        not_scorable=tuple(example for example, row in rows.items() if row is None),
    )


def make_protocol(task: Task, name: str | None = None, **settings: Any) -> Measure:
    """A protocol with its settings.

    Args:
        task: the task to score.
        name: the protocol; None for the task's usual one.
        settings: fields of the protocol's class, such as ``stemmer`` of `Rouge`; None stands for the usual value.

    Raises:
        UserError: the task has no such protocol, or the protocol no such setting.
    """
    known = {kind.name: kind for kind in PROTOCOLS[task]}
    kind = known.get(name) if name else PROTOCOLS[task][0]
    if kind is None:
        raise UserError(f"{task} has no protocol {name!r}", todo=f"choose from {', '.join(known)}")
    given = {key: value for key, value in settings.items() if value is not None}
    allowed = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # every protocol is a dataclass
    for key in given:
        if key not in allowed:
            raise UserError(
                f"the setting `{key}` does not belong to the protocol {kind.name}",
                todo=f"it has {', '.join(sorted(allowed)) or 'none'}",
            )
    return kind(**given)


def task_of_protocol(name: str) -> Task:
    """The task that a protocol scores.

    Raises:
        UserError: there is no such protocol.
    """
    for task, kinds in PROTOCOLS.items():
        if name in (kind.name for kind in kinds):
            return task
    known = ", ".join(kind.name for kinds in PROTOCOLS.values() for kind in kinds)
    raise UserError(f"no protocol {name!r}", todo=f"choose from {known}")


def ids_by_size(items: Iterable[ScoringItem]) -> dict[int, list[str]]:
    """The ids of the items by number of target subsequences, for `Scores.values_of`; unknown ones are left out."""
    groups: dict[int, list[str]] = {}
    for item in items:
        if item.gold is not None:
            groups.setdefault(len(item.gold), []).append(item.id)
    return dict(sorted(groups.items()))
