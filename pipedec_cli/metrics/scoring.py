"""Runs of predictions, the protocol that suits them, their scores, and whether two runs differ by more than chance."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec import to_builtins
from numpy.typing import NDArray

from pipedec_cli.data.answers import Format, load_predictions
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import (
    by_path,
    kind_of,
    leaves,
    mapped,
    pairs_of,
    path_name,
)
from pipedec_cli.data.paper import RECIPES, recipe
from pipedec_cli.data.predictions import PredictionsFile
from pipedec_cli.data.reading import as_json, some_names
from pipedec_cli.data.records import Generated, Record
from pipedec_cli.data.workspace import Workspace, load_segmentation, segmented_with
from pipedec_cli.metrics import PROTOCOLS, TASK_OF, Task, measure_of
from pipedec_cli.metrics.failures import Failures, count_failures
from pipedec_cli.metrics.fields import Fields, Judged, Reliability, reliability
from pipedec_cli.metrics.measure import (
    Floats,
    Measure,
    Scores,
    ScoringItem,
    score,
)
from pipedec_cli.metrics.rouge import Rouge

CONFIDENCE: Final = 0.95
RESAMPLES: Final = 9999  # draws of the bootstrap


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference on the given examples, with the percentile interval of its bootstrap; one example has none."""

    value: float
    low: float | None
    high: float | None

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval is on one side of zero. Equal runs, with the interval 0 to 0, do not differ."""
        return (
            self.low is not None
            and self.high is not None
            and (self.low > 0 or self.high < 0)
        )


def method() -> str:
    """How `score_differences` makes its intervals, with library and version."""
    import scipy

    interval = f"percentile interval at {CONFIDENCE:.0%}, {RESAMPLES} resamples, seed 0"
    return f"paired bootstrap, {interval}, scipy.stats.bootstrap {scipy.__version__}"


def score_differences(
    first: Scores, second: Scores, resamples: int = RESAMPLES
) -> dict[str, Difference]:
    """First minus second by metric, in points of per cent; {} if nothing was scorable.

    The intervals are the same each time. Raises a ValueError if the two do not have the
    same examples (in any order) and the same protocol.
    """
    measure, place = (
        first.measure,
        {example: row for row, example in enumerate(second.ids)},
    )
    if measure.signature != second.measure.signature or place.keys() != set(first.ids):
        raise ValueError(
            "the two runs are not of the same examples by the same protocol"
        )
    if not first.ids:
        return {}
    examples, columns = first.statistics.shape
    rows = np.hstack(
        [first.statistics, second.statistics[[place[example] for example in first.ids]]]
    )

    def difference(means: Floats) -> Floats:
        return measure.corpus(means[..., :columns]) - measure.corpus(
            means[..., columns:]
        )

    def of_draws(draws: NDArray[np.intp], axis: int = -1) -> Floats:  # noqa: ARG001  # scipy passes it
        """The differences [metrics, …] of draws [..., examples]; scipy joins batches along the last axis."""
        flat = draws.reshape(-1, examples)
        apart = (
            flat + examples * np.arange(len(flat))[:, None]
        )  # each draw counts in places of its own
        drawn = (
            np.bincount(apart.ravel(), minlength=flat.size)
            .reshape(flat.shape)
            .astype(np.float64)
        )
        return np.moveaxis(difference(drawn @ rows / examples), -1, 0).reshape(
            -1, *draws.shape[:-1]
        )

    values = difference(rows.mean(axis=0)).tolist()
    ends: list[list[Any]] = [[None] * len(values)] * 2
    if examples > 1:
        from scipy.stats import bootstrap

        result: Any = bootstrap(
            (np.arange(examples),),
            of_draws,
            n_resamples=resamples,
            batch=max(1, 4_000_000 // examples),  # draws × examples counts of 8 bytes
            vectorized=True,
            confidence_level=CONFIDENCE,
            method="percentile",
            rng=np.random.default_rng(0),
        )
        ends = [np.ravel(end).tolist() for end in result.confidence_interval]
    return dict(zip(measure.columns, map(Difference, values, *ends), strict=True))


_KINDS: Final = [measure_of(name) for name in PROTOCOLS]
#: The names of metrics in tables.
LABELS: Final = {
    metric: label for kind in _KINDS for metric, label in kind.headline.items()
}
#: The field of a record that may hold its right answers as a list, from before
#: `segment` merged any of them.
ANSWER_FIELDS: Final[Mapping[Task, str]] = {
    "keyphrases": "keyphrases",
    "multispan": "answers",
}
#: The tasks that suit the levels of segmentation, the likeliest first.
_OF_LEVEL: Final[Mapping[str | None, tuple[Task, ...]]] = {
    "sentence": ("summarization",),
    "clause": ("summarization",),
    "phrase": ("keyphrases", "multispan"),
    "field": ("fields",),
}


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A file of predictions. Tables and score files use the `name`; the `manifest` is that of `generate`, or {}."""

    path: Path
    name: str
    predictions: Sequence[Generated]
    form: Format
    manifest: Mapping[str, Any]

    @property
    def level(self) -> str | None:
        """The level at which the data of the run were segmented, if the manifest tells."""
        return (self.manifest.get("segmentation") or {}).get("level")


@dataclass(frozen=True)
class ScoredRun:
    """The scores of one run, with the items that were scored, in file order."""

    run: LoadedRun
    items: Sequence[ScoringItem]
    scores: Scores
    failures: Failures

    @property
    def is_unscored(self) -> bool:
        """Whether no example has a right answer."""
        return not (self.scores.ids or self.scores.not_scorable)

    @property
    def expected(self) -> int | None:
        """The number of predictions that the run began with; None if its manifest does not say."""
        return self.run.manifest.get("examples")

    @cached_property
    def parts(self) -> Mapping[str, Mapping[str, float]]:
        """The scores of parts of the answers, such as an object's keys, by name; {} if answers have no parts."""
        return self.scores.measure.parts(self.items)

    @cached_property
    def judged(self) -> list[Judged]:
        """The confidence of each value of the objects, where it is known, and whether the value is right."""
        return self._judged(self.items)

    @cached_property
    def reliability(self) -> Reliability | None:
        """How well the confidence of values tells right from wrong; None without confidences."""
        return reliability(self.judged)

    @cached_property
    def unforced(self) -> Reliability | None:
        """The same of 1 − `forced`."""
        items = [
            replace(
                one, confidence={key: 1 - share for key, share in one.forced.items()}
            )
            for one in self.items
        ]
        return reliability(self._judged(items))

    def _judged(self, items: Iterable[ScoringItem]) -> list[Judged]:
        measure, known = (
            self.scores.measure,
            (item for item in items if item.gold is not None),
        )
        return (
            [value for item in known for value in measure.judged(item)]
            if isinstance(measure, Fields)
            else []
        )

    def warnings(self, limit: int | None) -> list[str]:
        """What a reader of the scores must know: examples that are missing. The user knows the `limit` of this command."""
        found, count = [*self.scores.notes], len(self.items)
        first = (self.run.manifest.get("settings") or {}).get("limit")
        if first not in (None, limit):
            examples = f"example{'' if first == 1 else 's'}"
            found.append(
                f"a run of the first {first:,} {examples} only, made with --limit"
            )
        level, task = self.run.level, TASK_OF[self.scores.measure.name]
        if task not in _OF_LEVEL.get(level, (task,)):
            found.append(
                f"scored as {task}, but the data are segmented at level {level}: see --task"
            )
        if self.expected not in (None, count):
            rest = "the `pipedec generate` that began the run finishes it with --resume"
            found.append(
                f"{count} of {self.expected} rows are there and were scored; {rest}"
            )
        unwritten = [
            key for key, part in self.parts.items() if not part["predicted_pairs"]
        ]
        if 0 < len(unwritten) < len(self.parts):
            what = f"no prediction has a value for {some_names(unwritten)}"
            found.append(f"{what}: a key that was not asked for counts as dropped")
        return [f"{self.run.name}: {line}" for line in found]

    @property
    def summary(self) -> dict[str, Any]:
        """Corpus values and how they were computed, as plain values for JSON."""
        scores, measure = self.scores, self.scores.measure
        parts, reliable = self.parts, to_builtins(self.reliability)
        return {
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
            **({"parts": parts} if parts else {}),
            **({"reliability": reliable} if reliable else {}),
        }


def load_runs(
    paths: Sequence[Path], gold: Path | None = None, sources: Path | None = None
) -> list[LoadedRun]:
    """Read files of predictions, and give each its own name."""
    stems = [Path(path.name.removesuffix(".gz")).stem for path in paths]
    longer = [
        f"{path.absolute().parent.name}-{stem}"
        for path, stem in zip(paths, stems, strict=True)
    ]
    numbered = [f"{name}-{number}" for number, name in enumerate(longer, start=1)]
    names = next(
        names for names in (stems, longer, numbered) if len(set(names)) == len(names)
    )
    runs = []
    for path, name in zip(paths, names, strict=True):
        predictions, form = load_predictions(path, gold=gold, sources=sources)
        content = PredictionsFile(
            path.with_name(path.name.removesuffix(".gz"))
        ).manifest
        runs.append(LoadedRun(path, name, predictions, form, content))
    return runs


def guess_task(run: LoadedRun, workspace: Workspace) -> tuple[Task, str]:
    """The likeliest task of a run, and why."""
    return next(
        (task, why) for task, why in _hints(run, workspace) if task in TASK_OF.values()
    )


def _hints(run: LoadedRun, workspace: Workspace) -> Iterator[tuple[Any, str]]:
    """Possible tasks with the reason, the surest first. A hint may be no task; the last is one."""
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
    name = segmented_with(workspace.segmentation, "recipe") or ""
    if name in RECIPES:
        yield (
            recipe(name, "score").get("task"),
            f"the workspace's data were segmented with the recipe {name}",
        )
    yield (
        _OF_LEVEL.get(run.level, (None,))[0],
        f"the run's data were segmented at level {run.level}",
    )
    if workspace.segmentation.is_file():
        level = load_segmentation(workspace.segmentation).level
        yield (
            _OF_LEVEL[level][0],
            f"the workspace's data are segmented at level {level}",
        )
    yield "summarization", "nothing says otherwise"


def dev_measure(level: str) -> Measure:
    """The metric of the dev score in training: of objects the F1 of their pairs, of everything else ROUGE."""
    return Fields() if level == "field" else Rouge()


def make_protocol(task: Task, name: str | None = None, **settings: Any) -> Measure:
    """A protocol of the task, by default its first; None is the default of a setting. A UserError if one is foreign."""
    known = {kind.name: kind for kind in _KINDS if TASK_OF[kind.name] == task}
    kind = known.get(name or next(iter(known)))
    if kind is None:
        raise UserError(
            f"{task} has no protocol {name!r}", todo=f"choose from {', '.join(known)}"
        )
    given = {key: value for key, value in settings.items() if value is not None}
    allowed = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # each is a dataclass
    if foreign := [key for key in given if key not in allowed]:
        wrong = (
            f"the setting `{foreign[0]}` does not belong to the protocol {kind.name}"
        )
        raise UserError(wrong, todo=f"it has {', '.join(sorted(allowed)) or 'none'}")
    return kind(**given)


def score_run(
    run: LoadedRun, measure: Measure, *, on_example: Callable[[], None]
) -> ScoredRun:
    """Score one run; call `on_example` after each prediction. A UserError if a record has no right answer."""
    items, scores = score_predictions(run.predictions, measure, on_example=on_example)
    return ScoredRun(run, items, scores, count_failures(items))


def score_predictions(
    predictions: Iterable[Generated],
    measure: Measure,
    *,
    on_example: Callable[[], None] = lambda: None,
) -> tuple[list[ScoringItem], Scores]:
    """Score predictions against their records, and return the items that were scored, too."""
    items = [
        scoring_item(prediction, TASK_OF[measure.name]) for prediction in predictions
    ]
    return items, score(items, measure, on_example=on_example)


def unscored_run(run: LoadedRun) -> ScoredRun | None:
    """A run without any right answer, with its failures counted; None if it has a right answer for any task."""
    items = []
    for prediction in run.predictions:
        record = prediction.record
        if record is None:
            continue
        answers = (record.fields.get(name) for name in ANSWER_FIELDS.values())
        if record.target is not None or any(
            (record.target_segments, record.references, *answers)
        ):
            return None
        items.append(_item(prediction, record))
    return ScoredRun(
        run, items, Scores(Rouge(), (), np.empty(0)), count_failures(items)
    )


def scoring_item(prediction: Generated, task: Task) -> ScoringItem:
    """What the metrics of a task need to know of a prediction and its record.

    The right answers of ``keyphrases`` are the record's list ``keyphrases``, of
    ``multispan`` its list ``answers``; without one, a ``target`` that is a list; else
    ``target_segments``. A keyphrase never holds a ``;``: predicted and right segments
    are split there, and so is a target that is one string. The right answers of
    ``summarization`` are the references, or else the target; of ``fields`` the target,
    an object.
    """
    record = prediction.record
    assert record is not None, "a prediction is scored against its record"
    segments, gold, references, lacking = (
        prediction.segments,
        record.target_segments,
        record.references,
        "",
    )
    if task == "fields":
        segments = pairs_of(written_fields(prediction))
        gold = None if record.target_fields is None else pairs_of(record.target_fields)
        lacking = "no `target` that is an object" if gold is None else ""
    elif task != "summarization":
        gold = _answers(record, task)
        lacking = (
            f"no `{ANSWER_FIELDS[task]}`, `target` or `target_segments`"
            if gold is None
            else ""
        )
    elif not references:
        references = () if record.target is None else (record.target,)
        lacking = "" if references else "neither `target` nor `references`"
    if lacking:
        lacking = f"nothing to score against: the record has {lacking}"
        raise UserError(
            lacking, where=record.where, todo="give the right answers with --gold FILE"
        )
    if task == "keyphrases":
        segments, gold = _phrases(segments), _phrases(gold or ())
        if not record.source.strip():
            lacking = (
                "the record has no `source`, which tells present from absent keyphrases"
            )
            todo = "give sources and right answers with --gold FILE"
            raise UserError(lacking, where=record.where, todo=todo)
    item = _item(prediction, record)
    if task == "fields":
        sure, forced = (
            shares_of(prediction, prediction.confidence),
            shares_of(prediction, prediction.forced),
        )
        item = replace(item, confidence=sure, forced=forced)
    return replace(item, segments=segments, gold=gold, references=references)


def _item(prediction: Generated, record: Record) -> ScoringItem:
    right = (record.target, record.target_segments, record.references)
    ended = (prediction.truncated, prediction.stopped_on_repeat)
    return ScoringItem(
        prediction.id,
        prediction.text,
        prediction.segments,
        *right,
        record.source,
        *ended,
    )


def written_fields(prediction: Generated) -> Mapping[str, Any]:
    """The predicted object: ``fields``, or the text read as JSON; {} if that is no object."""
    value: Any = prediction.fields
    with suppress(UserError):
        value = (
            as_json(prediction.text.encode("utf-8", "surrogatepass"), "")
            if value is None
            else value
        )
    return value if isinstance(value, Mapping) else {}


def shares_of(
    prediction: Generated, given: Mapping[str, Any] | None
) -> dict[str, float]:
    """A share of each value of a predicted object, such as its confidence, by the name of its path; of some values none."""
    sure = by_path(given or {})
    # The items of a list are counted as those of `pairs_of` are: without items whose
    # values are all null.
    written = written_fields(prediction)
    values = mapped(
        written, lambda keys, value: sure.get(keys, -1) if kind_of(value) else None
    )
    return {
        path_name(keys): float(share)
        for keys, share in leaves(values)
        if kind_of(share) in ("integer", "number") and 0 <= share <= 1
    }


def _answers(record: Record, task: Task) -> tuple[str, ...] | None:
    """The right phrases or spans of a record; None if there are none."""
    field, target = ANSWER_FIELDS[task], record.fields.get("target")
    answers = record.fields.get(field)
    if answers is None and isinstance(target, list):
        field, answers = "target", target
    if isinstance(answers, list):
        others = [item for item in answers if not isinstance(item, str)]
        if not others:
            return tuple(answers)
        raise UserError(
            f"`{field}` must hold strings, not {type(others[0]).__name__}",
            where=record.where,
        )
    if answers is not None and (
        record.target_segments is None or answers != record.target
    ):  # which is cut
        found = (
            f"the string {answers[:40]!r}"
            if isinstance(answers, str)
            else repr(answers)
        )
        raise UserError(
            f"`{field}` must be a list of strings, not {found}", where=record.where
        )
    if record.target_segments is not None or record.target is None:
        return record.target_segments
    if task == "keyphrases":
        return (record.target,)
    what = "`target` is a string where a list of answers belongs"
    todo = "give the answers as a list, or give --gold FILE"
    raise UserError(what, where=record.where, todo=todo)


def _phrases(segments: Iterable[str]) -> tuple[str, ...]:
    """Phrases, split where several were merged into one, without empty ones."""
    return tuple(
        part.strip()
        for segment in segments
        for part in segment.split(";")
        if part.strip()
    )


def compare_runs(first: ScoredRun, second: ScoredRun) -> dict[str, Difference]:
    """First minus second by metric. Both runs must have the same examples with the same right answers."""
    one, other = first.run.path, second.run.path
    right = {item.id: item.right for item in second.items}
    unpaired = []
    for item in first.items:
        if item.id not in right:
            unpaired.append(f"id {item.id!r} of {one} is not in {other}")
        elif right.pop(item.id) != item.right:
            unpaired.append(
                f"id {item.id!r} has other right answers in {other} than in {one}"
            )
    unpaired += [f"id {left!r} of {other} is not in {one}" for left in right]
    if unpaired:
        todo = "compare predictions for the same examples of the same data"
        raise UserError(f"the two runs cannot be paired: {unpaired[0]}", todo=todo)
    return score_differences(first.scores, second.scores)


MOSTLY: Final = 0.5  # of the texts, as a share of 1
ENOUGH: Final = 300  # examples, to tell a decoder from chance
#: Points of 100 that texts must score more for their own sources than for others; an
#: untrained model's do not.
ABOVE_CHANCE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the texts of a run are useless, in words. More examples may clear a fault of `few_examples`."""

    words: str
    few_examples: bool = False


def faults(run: ScoredRun) -> Iterator[Fault]:
    """The reasons why the texts of a run are useless; none if they may be of use."""
    failures = run.failures
    if failures.truncated_rate > MOSTLY:
        cut = f"{failures.truncated_rate:.0%} of its texts are cut short by {' or '.join(failures.truncated)}"
        yield Fault(f"{cut}: it does not find the end, or the limit is too low")
    if failures.alike_rate > MOSTLY:
        which = "sources" if run.is_unscored else "right answers"
        alike = (
            f"{failures.alike_rate:.0%} of its texts are the same as another example's"
        )
        yield Fault(f"{alike}, though the {which} differ")
    yield from as_good_when_exchanged(run.items, run.scores)


def as_good_when_exchanged(
    scored: Sequence[ScoringItem], scores: Scores
) -> Iterator[Fault]:
    """Whether the texts score hardly better than the same texts exchanged between examples: the fault, if so."""
    scorable = set(scores.ids)
    items = [item for item in scored if item.id in scorable]
    items = random.Random(0).sample(items, min(len(items), ENOUGH))  # noqa: S311  # chance, not secrecy
    pairs = zip(items, items[1:] + items[:1], strict=True)
    apart = [(one, other) for one, other in pairs if one.right != other.right]
    if not apart:
        return
    exchanged = [
        replace(one, prediction=other.prediction, segments=other.segments)
        for one, other in apart
    ]
    measure = scores.measure
    own, others = score((one for one, _ in apart), measure), score(exchanged, measure)
    name = measure.primary
    difference = score_differences(own, others, resamples=999)[name]
    values = f"{measure.headline[name]} is {own.values[name]:.1f}, and {others.values[name]:.1f} with the texts of other inputs"
    if difference.value < ABOVE_CHANCE:
        yield Fault(f"the model ignores its input: {values}")
    elif not difference.excludes_zero:
        what = f"{len(apart)} examples do not tell it from chance: {values}"
        yield Fault(what, few_examples=True)
