"""Files of predictions, the protocol that suits them, and their scores."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec import structs, to_builtins

from pipedec_cli.data.answers import Format, load_predictions
from pipedec_cli.data.errors import UserError, many
from pipedec_cli.data.fields import leaves, path_name, text_of
from pipedec_cli.data.paper import RECIPES, recipe
from pipedec_cli.data.predictions import PredictionsFile
from pipedec_cli.data.reading import some_names
from pipedec_cli.data.records import Generated
from pipedec_cli.data.workspace import Workspace, load_segmentation, segmented_with
from pipedec_cli.metrics import TASK_OF, Task
from pipedec_cli.metrics.answers import ANSWER_FIELDS, for_task
from pipedec_cli.metrics.choices import ChoiceScores, Decided, choice_scores
from pipedec_cli.metrics.differences import Difference, score_differences
from pipedec_cli.metrics.failures import Failures, count_failures, right_answers
from pipedec_cli.metrics.fields import Fields
from pipedec_cli.metrics.keyphrases import Chan2019, Meng2017
from pipedec_cli.metrics.measure import Measure, Scores, score_examples
from pipedec_cli.metrics.multispan import MultiSpanQA
from pipedec_cli.metrics.reliability import Judged, Reliability, reliability
from pipedec_cli.metrics.rouge import Rouge

#: The measures of all protocols, in the order of `TASK_OF`.
MEASURES: Final[Sequence[type[Measure]]] = (
    Rouge,
    Chan2019,
    Meng2017,
    MultiSpanQA,
    Fields,
)
#: The names of metrics in tables.
LABELS: Final = {
    metric: label for measure in MEASURES for metric, label in measure.headline.items()
}
#: The tasks that suit the levels of segmentation, the likeliest first.
_OF_LEVEL: Final[Mapping[str | None, tuple[Task, ...]]] = {
    "sentence": ("summarization",),
    "clause": ("summarization",),
    "phrase": ("keyphrases", "multispan"),
    "field": ("fields",),
}


@dataclass(frozen=True, slots=True)
class Predictions:
    """A file of predictions.

    Tables and score files use the `name`; the `manifest` is that of `generate`, or {}.
    """

    path: Path
    name: str
    predictions: Sequence[Generated]
    form: Format
    manifest: Mapping[str, Any]

    @property
    def level(self) -> str | None:
        """The level at which the data were segmented, if the manifest tells."""
        return (self.manifest.get("segmentation") or {}).get("level")


@dataclass(frozen=True)
class Scored:
    """A file of predictions with its scores."""

    run: Predictions
    scores: Scores

    @property
    def items(self) -> tuple[Generated, ...]:
        """What was scored, in file order: the answers as the metrics compare them."""
        return self.scores.items

    @property
    def is_unscored(self) -> bool:
        """Whether no example has a right answer."""
        return not (self.scores.ids or self.scores.not_scorable)

    @property
    def expected(self) -> int | None:
        """The number of predictions that the run began with, if the manifest tells."""
        return self.run.manifest.get("examples")

    @cached_property
    def failures(self) -> Failures:
        """What goes wrong with pipelined decoding in particular."""
        return count_failures(self.items)

    @cached_property
    def parts(self) -> Mapping[str, Mapping[str, float]]:
        """The scores of parts of the answers by name, such as an object's keys."""
        if self.is_unscored:
            return {}
        return self.scores.measure.parts(self.items)

    @cached_property
    def judged(self) -> list[Judged]:
        """The confidence of each value, where known, and whether the value is right."""
        return self._judged(self.items)

    @cached_property
    def reliability(self) -> Reliability | None:
        """How well the confidence of values tells right from wrong, if it is known."""
        return reliability(self.judged)

    @cached_property
    def choices(self) -> dict[str, ChoiceScores]:
        """What the probabilities of each key are worth that chooses among known values."""
        decided = defaultdict[str, list[Decided]](list)
        for item in self.items:
            target = item.record.target_fields if item.record else None
            if target is None:
                continue
            right = {path_name(keys): text_of(value) for keys, value in leaves(target)}
            for path, shares in item.probabilities.items():
                key = re.sub(r"\[[0-9]+\]", "[]", path)
                decided[key].append(Decided(shares, right.get(path, "")))
        return {key: choice_scores(values) for key, values in decided.items()}

    @cached_property
    def unforced(self) -> Reliability | None:
        """The reliability of 1 − `forced` in place of the confidence.

        `forced` is how much of a value's probability the schema gave it.
        """
        items = list[Generated]()
        for item in self.items:
            free = {path: 1 - share for path, share in (item.forced or {}).items()}
            items.append(structs.replace(item, confidence=free))
        return reliability(self._judged(items))

    def _judged(self, items: Iterable[Generated]) -> list[Judged]:
        measure = self.scores.measure
        judged = list[Judged]()
        if isinstance(measure, Fields) and not self.is_unscored:
            for item in items:
                judged += measure.judged(item)
        return judged

    def warnings(self, limit: int | None) -> list[str]:
        """What a reader of the scores must know.

        The user knows the command's `limit`.
        """
        warnings = list(self.scores.notes)
        first = (self.run.manifest.get("settings") or {}).get("limit")
        if first not in (None, limit):
            examples = many(first, "example")
            warnings.append(f"a run of the first {examples} only, made with --limit")
        level, task = self.run.level, TASK_OF[self.scores.measure.name]
        if task not in _OF_LEVEL.get(level, (task,)):
            other = f"but the data are segmented at level {level}: see --task"
            warnings.append(f"scored as {task}, {other}")
        count = len(self.items)
        if self.expected not in (None, count):
            there = f"{count} of {self.expected} rows are there and were scored"
            rest = "the `pipedec generate` that began the run finishes it with --resume"
            warnings.append(f"{there}; {rest}")
        parts = self.parts.items()
        unwritten = [key for key, part in parts if not part["predicted_pairs"]]
        if 0 < len(unwritten) < len(parts):
            what = f"no prediction has a value for {some_names(unwritten)}"
            warnings.append(f"{what}: a key that was not asked for counts as dropped")
        return [f"{self.run.name}: {warning}" for warning in warnings]

    @property
    def summary(self) -> dict[str, Any]:
        """Corpus values and how they were computed, as plain values for JSON."""
        scores, measure = self.scores, self.scores.measure
        summary: dict[str, Any] = {
            "name": self.run.name,
            "predictions": str(self.run.path),
            "task": TASK_OF[measure.name],
            "protocol": measure.name,
            "signature": measure.signature,
            "values": scores.values,
            "counts": scores.counts,
            "rows": {"scored": len(scores.ids), "expected": self.expected},
            "failures": asdict(self.failures),
            "notes": scores.notes,
        }
        if self.parts:
            summary["parts"] = self.parts
        if self.reliability is not None:
            summary["reliability"] = to_builtins(self.reliability)
        if self.choices:
            summary["choices"] = to_builtins(self.choices)
        return summary


def load_runs(
    paths: Sequence[Path], gold: Path | None = None, sources: Path | None = None
) -> list[Predictions]:
    """Read files of predictions, and give each its own name."""
    plain = [path.with_name(path.name.removesuffix(".gz")) for path in paths]
    names = [path.stem for path in plain]
    if len(set(names)) < len(names):
        names = [f"{path.absolute().parent.name}-{path.stem}" for path in plain]
    if len(set(names)) < len(names):
        names = [f"{name}-{number}" for number, name in enumerate(names, start=1)]
    runs = []
    for path, unpacked, name in zip(paths, plain, names, strict=True):
        predictions, form = load_predictions(path, gold=gold, sources=sources)
        manifest = PredictionsFile(unpacked).manifest
        runs.append(Predictions(path, name, predictions, form, manifest))
    return runs


def guess_task(run: Predictions, workspace: Workspace) -> tuple[Task, str]:
    """The likeliest task of a run, and why."""
    for task, why in _hints(run, workspace):
        if task in TASK_OF.values():
            return task, why
    return "summarization", "nothing says otherwise"


def _hints(run: Predictions, workspace: Workspace) -> Iterator[tuple[Any, str]]:
    """Possible tasks with the reason, the surest first. A hint may be no task."""
    yield run.manifest.get("task"), "the run's manifest says so"
    if run.form == "answers":
        yield "multispan", "the file is {id: [answers]}"
    if run.form == "lines":
        yield "keyphrases", "the file is lines of text"
    record = run.predictions[0].record
    if record is not None:
        for task, name in ANSWER_FIELDS.items():
            if isinstance(record.fields.get(name), list):
                yield task, f"the records have a list `{name}`"
        if record.target_fields is not None:
            yield "fields", "the targets are objects"
    segmentation = workspace.segmentation
    name = segmented_with(segmentation, "recipe") or ""
    if name in RECIPES:
        why = f"the workspace's data were segmented with the recipe {name}"
        yield recipe(name, "score").get("task"), why
    if run.level in _OF_LEVEL:
        why = f"the run's data were segmented at level {run.level}"
        yield _OF_LEVEL[run.level][0], why
    if segmentation.is_file():
        level = load_segmentation(segmentation).level
        why = f"the workspace's data are segmented at level {level}"
        yield _OF_LEVEL[level][0], why


def dev_measure(level: str) -> Measure:
    """The metric of the dev score in training: of objects F1 of their pairs, else ROUGE."""
    return Fields() if level == "field" else Rouge()


def make_protocol(task: Task, name: str | None = None, **settings: Any) -> Measure:
    """A protocol of the task, by default its first.

    None is the default of a setting. A UserError for a setting of another protocol.
    """
    of_task = {}
    for measure in MEASURES:
        if TASK_OF[measure.name] == task:
            of_task[measure.name] = measure
    chosen = of_task.get(name or next(iter(of_task)))
    if chosen is None:
        what = f"{task} has no protocol {name!r}"
        raise UserError(what, todo=f"choose from {', '.join(of_task)}")
    allowed = {field.name for field in fields(chosen)}  # type: ignore[arg-type]  # each is a dataclass
    given = {key: value for key, value in settings.items() if value is not None}
    for key in given:
        if key not in allowed:
            what = f"the setting `{key}` does not belong to the protocol {chosen.name}"
            has = ", ".join(sorted(allowed)) or "none"
            raise UserError(what, todo=f"it has {has}")
    return chosen(**given)


def score_run(
    run: Predictions, measure: Measure, *, on_example: Callable[[], None]
) -> Scored:
    """Score a file; call `on_example` after each prediction.

    A UserError if a record has no right answer.
    """
    scores = score_predictions(run.predictions, measure, on_example=on_example)
    return Scored(run, scores)


def score_predictions(
    predictions: Iterable[Generated],
    measure: Measure,
    *,
    on_example: Callable[[], None] = lambda: None,
) -> Scores:
    """Score predictions against their records."""
    task = TASK_OF[measure.name]
    items = [for_task(prediction, task) for prediction in predictions]
    return score_examples(items, measure, on_example=on_example)


def unscored_run(run: Predictions) -> Scored | None:
    """A run without any right answer; None if it has one for any task."""
    for prediction in run.predictions:
        record = prediction.record
        if record is None:
            continue
        given = [record.target, record.target_segments, record.references]
        given += [record.fields.get(name) for name in ANSWER_FIELDS.values()]
        if record.target is not None or any(given):
            return None
    items = tuple(item for item in run.predictions if item.record is not None)
    return Scored(run, Scores(Rouge(), (), np.empty(0), items=items))


def compare_runs(first: Scored, second: Scored) -> dict[str, Difference]:
    """First minus second by metric.

    Both runs must have the same examples with the same right answers.
    """
    mine, others = first.run.path, second.run.path
    right = {item.id: right_answers(item) for item in second.items}
    for item in first.items:
        if item.id not in right:
            raise _unpaired(f"id {item.id!r} of {mine} is not in {others}")
        if right.pop(item.id) != right_answers(item):
            what = f"id {item.id!r} has other right answers in {others} than in {mine}"
            raise _unpaired(what)
    for left in right:
        raise _unpaired(f"id {left!r} of {others} is not in {mine}")
    return score_differences(first.scores, second.scores)


def _unpaired(why: str) -> UserError:
    todo = "compare predictions for the same examples of the same data"
    return UserError(f"the two runs cannot be paired: {why}", todo=todo)
