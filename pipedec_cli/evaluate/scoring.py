"""What `score` and `report` share: runs of predictions, the protocol that suits them, their scores, and two compared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from pipedec_cli.data.answers import Format, load_predictions
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import pairs_of
from pipedec_cli.data.paper import RECIPES
from pipedec_cli.data.predictions import PredictionsFile
from pipedec_cli.data.reading import as_json
from pipedec_cli.data.records import Generated, Record
from pipedec_cli.data.workspace import Workspace, load_segmentation, segmented_with
from pipedec_cli.evaluate.failures import Failures, count_failures
from pipedec_cli.evaluate.metrics import TASK_OF, ProtocolName, Task
from pipedec_cli.evaluate.metrics.fields import Fields
from pipedec_cli.evaluate.metrics.keyphrases import Chan2019, Meng2017
from pipedec_cli.evaluate.metrics.measure import Measure, Scores, ScoringItem, score
from pipedec_cli.evaluate.metrics.multispan import MultiSpanQA
from pipedec_cli.evaluate.metrics.rouge import Rouge
from pipedec_cli.evaluate.significance import Difference, score_differences

_KINDS: Final[Sequence[type[Measure]]] = (Rouge, Chan2019, Meng2017, MultiSpanQA, Fields)
#: What the metrics are called in tables.
LABELS: Final = {metric: label for kind in _KINDS for metric, label in kind.headline.items()}
#: Where a record may keep its right answers as a list, before `segment` merged any of them: asked for first.
ANSWER_FIELDS: Final[Mapping[Task, str]] = {"keyphrases": "keyphrases", "multispan": "answers"}
#: The tasks that suit the levels of segmentation, the likeliest first.
_OF_LEVEL: Final[Mapping[str | None, tuple[Task, ...]]] = {
    "sentence": ("summarization",),
    "clause": ("summarization",),
    "phrase": ("keyphrases", "multispan"),
    "field": ("fields",),
}


class LoadedRun(NamedTuple):
    """A file of predictions as it was read.

    `name` is what tables and the files of its scores call it; `manifest` is what `generate` says of the run, or {}.
    """

    path: Path
    name: str
    predictions: Sequence[Generated]
    form: Format
    manifest: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """The scores of one run; `items` is what was scored, in file order."""

    run: LoadedRun
    items: Sequence[ScoringItem]
    scores: Scores
    failures: Failures

    @property
    def is_blind(self) -> bool:
        """Whether no example has a right answer."""
        return not (self.scores.ids or self.scores.not_scorable)

    @property
    def expected(self) -> int | None:
        """How many predictions the run set out to make; None if its manifest does not say."""
        return self.run.manifest.get("examples")

    @property
    def parts(self) -> Mapping[str, Mapping[str, float]]:
        """The scores of parts of the answers by name, such as an object's keys; {} where answers have no parts."""
        return self.scores.measure.parts(self.items)

    def warnings(self, asked: int | None) -> list[str]:
        """What a reader of the scores must be told: what is not in them, and whether the run is one of all examples.

        A limit that was `asked` for together with the scores is known.
        """
        found, count = [*self.scores.notes], len(self.items)
        if (limit := (self.run.manifest.get("settings") or {}).get("limit")) not in (None, asked):
            first = f"the first {limit:,} example{'' if limit == 1 else 's'}"
            found.append(f"a run of {first} only, made with --limit")
        level, task = _level(self.run), TASK_OF[self.scores.measure.name]
        if task not in _OF_LEVEL.get(level, (task,)):
            found.append(f"scored as {task}, but the data are segmented at level {level}: see --task")
        if self.expected not in (None, count):
            rest = "the `pipedec generate` that began the run finishes it with --resume"
            found.append(f"{count} of {self.expected} rows are there and were scored; {rest}")
        return [f"{self.run.name}: {line}" for line in found]

    def as_json(self) -> dict[str, Any]:
        """Corpus values and what they were computed with, as plain values."""
        scores, measure = self.scores, self.scores.measure
        parts = {"parts": found} if (found := self.parts) else {}
        return {
            "name": self.run.name,
            "predictions": str(self.run.path),
            "task": TASK_OF[measure.name],
            "protocol": measure.name,
            "signature": measure.signature,
            "values": scores.values,
            "counts": scores.counts,
            **parts,
            "rows": {"scored": len(scores.ids), "expected": self.expected},
            "failures": self.failures._asdict(),
            "notes": scores.notes,
        }


def load_runs(
    paths: Sequence[Path], gold: Path | None = None, sources: Path | None = None
) -> list[LoadedRun]:
    """Read each file of predictions, and give each a name of its own."""
    stems = [Path(path.name.removesuffix(".gz")).stem for path in paths]
    longer = [f"{path.absolute().parent.name}-{stem}" for path, stem in zip(paths, stems, strict=True)]
    numbered = [f"{name}-{number}" for number, name in enumerate(longer, start=1)]
    names = next(names for names in (stems, longer, numbered) if len(set(names)) == len(names))
    runs = []
    for path, name in zip(paths, names, strict=True):
        predictions, form = load_predictions(path, gold=gold, sources=sources)
        content = PredictionsFile(path.with_name(path.name.removesuffix(".gz"))).manifest
        runs.append(LoadedRun(path, name, predictions, form, content))
    return runs


def settle_metrics(
    task: Task | None, protocol: ProtocolName | None, typed: Collection[str]
) -> tuple[Task | None, ProtocolName | None]:
    """Task and protocol as they go together: a protocol tells its task, and what was typed wins over a recipe.

    Where both were typed, or neither, they stay as they are: that they do not fit is for `make_protocol` to say.
    """
    given = {"task", "protocol"}.intersection(typed)
    if protocol and (task is None or given == {"protocol"}):
        return TASK_OF[protocol], protocol
    other = protocol and task != TASK_OF[protocol] and given == {"task"}
    return task, None if other else protocol


def guess_task(run: LoadedRun, workspace: Workspace) -> tuple[Task, str]:
    """The task that a run is most likely of, and why."""
    return next((task, why) for task, why in _hints(run, workspace) if task in TASK_OF.values())


def _hints(run: LoadedRun, workspace: Workspace) -> Iterator[tuple[Any, str]]:
    """What may tell the task, the surest first; whatever tells none is passed over."""
    yield run.manifest.get("task"), "the run's manifest says so"
    yield run.form == "answers" and "multispan", "the file is {id: [answers]}"
    yield run.form == "lines" and "keyphrases", "the file is lines of text"
    record = run.predictions[0].record
    for task, name in ANSWER_FIELDS.items():
        listed = record is not None and isinstance(record.fields.get(name), list)
        yield listed and task, f"the records have a list `{name}`"
    yield record is not None and record.target_fields is not None and "fields", "the targets are objects"
    recipe = segmented_with(workspace.segmentation, "recipe") or ""
    settings = RECIPES[recipe].get("score", {}) if recipe in RECIPES else {}
    yield settings.get("task"), f"the workspace's data were segmented with the recipe {recipe}"
    level = _level(run)
    yield _OF_LEVEL.get(level, (None,))[0], f"the run's data were segmented at level {level}"
    if workspace.segmentation.is_file():
        level = load_segmentation(workspace.segmentation).level
        yield _OF_LEVEL[level][0], f"the workspace's data are segmented at level {level}"
    yield "summarization", "nothing says otherwise"


def _level(run: LoadedRun) -> str | None:
    """At which the run's data were segmented, if its manifest tells."""
    level: str | None = (run.manifest.get("segmentation") or {}).get("level")
    return level


def dev_measure(level: str) -> Measure:
    """What a model is looked at by while it is trained: objects by their pairs, whatever else it writes as text."""
    return Fields() if level == "field" else Rouge()


def make_protocol(task: Task, name: str | None = None, **settings: Any) -> Measure:
    """A task's protocol, its usual one by default, with settings such as ``stemmer``; None is a setting's usual value.

    A UserError if the task has no such protocol, or the protocol no such setting.
    """
    known = {kind.name: kind for kind in _KINDS if TASK_OF[kind.name] == task}
    kind = known.get(name or next(iter(known)))
    if kind is None:
        raise UserError(f"{task} has no protocol {name!r}", todo=f"choose from {', '.join(known)}")
    given = {key: value for key, value in settings.items() if value is not None}
    allowed = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # each is a dataclass
    if foreign := [key for key in given if key not in allowed]:
        wrong = f"the setting `{foreign[0]}` does not belong to the protocol {kind.name}"
        raise UserError(wrong, todo=f"it has {', '.join(sorted(allowed)) or 'none'}")
    return kind(**given)


def score_run(run: LoadedRun, measure: Measure, *, on_example: Callable[[], None]) -> ScoredRun:
    """Score one run, calling `on_example` after each prediction; each must have something to be held against."""
    items = [scoring_item(prediction, TASK_OF[measure.name]) for prediction in run.predictions]
    return ScoredRun(run, items, score(items, measure, on_example=on_example), count_failures(items))


def unscored(run: LoadedRun) -> ScoredRun | None:
    """A run with no right answer of whatever task, of which only what goes wrong is counted; None if there is any."""
    items = []
    for one, record in ((one, one.record) for one in run.predictions if one.record):
        lists = (record.fields.get(name) for name in ANSWER_FIELDS.values())
        if record.target is not None or any((record.target_segments, record.references, *lists)):
            return None
        how: Any = {"truncated": one.truncated, "stopped_on_repeat": one.stopped_on_repeat}
        items.append(ScoringItem(one.id, one.text, one.segments, source=record.source, **how))
    return ScoredRun(run, items, Scores(Rouge(), (), np.empty(0)), count_failures(items))


def scoring_item(prediction: Generated, task: Task) -> ScoringItem:
    """What the metrics of a task need of a prediction and of the record that it was generated from.

    The right answers of ``keyphrases`` are the record's list ``keyphrases``, of ``multispan`` its list ``answers``;
    where there is none, a ``target`` that is a list; else ``target_segments``. A keyphrase never holds a ``;``:
    segments, predicted or right, are split there, and so is a target that is one string. The right answers of
    ``summarization`` are the references, or the target where there are none, and of ``fields`` the target, an object.
    """
    record = prediction.record
    assert record is not None, "a prediction is scored against its record"
    segments, gold, references, lacking = prediction.segments, record.target_segments, record.references, ""
    if task == "fields":
        segments, gold = pairs_of(written_fields(prediction)), None
        if record.target_fields is None:
            lacking = "no `target` that is an object"
        else:
            gold = pairs_of(record.target_fields)
    elif task != "summarization":
        gold = _answers(record, task)
        lacking = f"no `{ANSWER_FIELDS[task]}`, `target` or `target_segments`" if gold is None else ""
    elif not references:
        references = () if record.target is None else (record.target,)
        lacking = "" if references else "neither `target` nor `references`"
    if lacking:
        lacking = f"nothing to score against: the record has {lacking}"
        raise UserError(lacking, where=record.where, todo="give the right answers with --gold FILE")
    if task == "keyphrases":
        segments, gold = _phrases(segments), _phrases(gold or ())
        if not record.source.strip():
            lacking = "the record has no `source`, which tells present from absent keyphrases"
            todo = "give sources and right answers with --gold FILE"
            raise UserError(lacking, where=record.where, todo=todo)
    right = (record.target, gold, references)
    ended = (prediction.truncated, prediction.stopped_on_repeat)
    return ScoringItem(prediction.id, prediction.text, segments, *right, record.source, *ended)


def written_fields(prediction: Generated) -> Mapping[str, Any]:
    """The object that was predicted: ``fields``, or what the text says as JSON; {} where that is no object."""
    if prediction.fields is not None:
        return prediction.fields
    with suppress(UserError):
        value = as_json(prediction.text.encode("utf-8", "surrogatepass"), "")
        return value if isinstance(value, dict) else {}
    return {}


def _answers(record: Record, task: Task) -> tuple[str, ...] | None:
    """The right phrases or spans of a record; None if it has none."""
    field, target = ANSWER_FIELDS[task], record.fields.get("target")
    answers = record.fields.get(field)
    if answers is None and isinstance(target, list):
        field, answers = "target", target
    if isinstance(answers, list):
        others = [item for item in answers if not isinstance(item, str)]
        if not others:
            return tuple(answers)
        raise UserError(f"`{field}` must hold strings, not {type(others[0]).__name__}", where=record.where)
    if answers is not None and (record.target_segments is None or answers != record.target):  # which is cut
        found = f"the string {answers[:40]!r}" if isinstance(answers, str) else repr(answers)
        raise UserError(f"`{field}` must be a list of strings, not {found}", where=record.where)
    if record.target_segments is not None or record.target is None:
        return record.target_segments
    if task == "keyphrases":
        return (record.target,)
    what = "`target` is a string where a list of answers belongs"
    todo = "give the answers as a list, or give --gold FILE"
    raise UserError(what, where=record.where, todo=todo)


def _phrases(segments: Iterable[str]) -> tuple[str, ...]:
    """Phrases without those that two or more of them were merged into, and without empty ones."""
    parts = (part.strip() for segment in segments for part in segment.split(";"))
    return tuple(filter(None, parts))


def compare_runs(first: ScoredRun, second: ScoredRun, *, resamples: int, seed: int) -> dict[str, Difference]:
    """First minus second by metric, from the examples in pairs: both of the same ones, held against the same answers."""
    one, other = first.run.path, second.run.path
    right = {item.id: item.right for item in second.items}
    unpaired = []
    for item in first.items:
        if item.id not in right:
            unpaired.append(f"id {item.id!r} of {one} is not in {other}")
        elif right.pop(item.id) != item.right:
            unpaired.append(f"id {item.id!r} has other right answers in {other} than in {one}")
    unpaired += [f"id {left!r} of {other} is not in {one}" for left in right]
    if unpaired:
        todo = "compare predictions for the same examples of the same data"
        raise UserError(f"the two runs cannot be paired: {unpaired[0]}", todo=todo)
    return score_differences(first.scores, second.scores, resamples=resamples, seed=seed)
