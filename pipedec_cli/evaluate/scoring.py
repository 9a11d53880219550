"""What `score` and `report` share: runs of predictions, the protocol that suits them, their scores, and two compared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from pipedec_cli.data.answers import Format, load_predictions
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.paper import RECIPES
from pipedec_cli.data.records import Generated, Record
from pipedec_cli.data.workspace import Workspace, load_segmentation, recipe_of
from pipedec_cli.data.writing import read_json
from pipedec_cli.evaluate.failures import Failures, count_failures
from pipedec_cli.evaluate.metrics import TASK_OF, ProtocolName, Task
from pipedec_cli.evaluate.metrics.keyphrases import Chan2019, Meng2017
from pipedec_cli.evaluate.metrics.measure import Measure, Scores, ScoringItem, score
from pipedec_cli.evaluate.metrics.multispan import MultiSpanQA
from pipedec_cli.evaluate.metrics.rouge import Rouge
from pipedec_cli.evaluate.significance import Difference, score_differences

_KINDS: Final[Sequence[type[Measure]]] = (Rouge, Chan2019, Meng2017, MultiSpanQA)
#: What the metrics are called in tables.
LABELS: Final = {metric: label for kind in _KINDS for metric, label in kind.headline.items()}
#: Where a record may keep its right answers as a list, before `segment` merged any of them: asked for first.
ANSWER_FIELDS: Final[Mapping[Task, str]] = {"keyphrases": "keyphrases", "multispan": "answers"}


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A file of predictions as it was read.

    Attributes:
        name: what it is called in tables and in the files of its scores.
        manifest: what `generate` says of the run; {} where it says nothing.
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
    def expected(self) -> int | None:
        """How many predictions the run set out to make; None if its manifest does not say."""
        count = self.run.manifest.get("examples")
        return count if isinstance(count, int) and not isinstance(count, bool) else None

    @property
    def warnings(self) -> list[str]:
        """What a reader of the scores must be told: what is not in them, and whether the run is a whole one."""
        found = self.scores.notes
        limit = (self.run.manifest.get("settings") or {}).get("limit")
        if limit is not None:
            found.append(
                f"a run of the first {limit:,} example{'' if limit == 1 else 's'} only, made with --limit"
            )
        if self.expected is not None and self.expected != len(self.items):
            found.append(
                f"{len(self.items)} of {self.expected} rows are there and were scored; "
                "the `pipedec generate` that began the run finishes it with --resume"
            )
        return [f"{self.run.name}: {line}" for line in found]

    def as_json(self) -> dict[str, Any]:
        """Corpus values and what they were computed with, as plain values."""
        scores, measure = self.scores, self.scores.measure
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
        }


def load_runs(
    paths: Sequence[Path], gold: Path | None = None, sources: Path | None = None
) -> list[LoadedRun]:
    """Read each file of predictions, and give each a name of its own.

    Raises:
        UserError: a file is not as it must be.
    """
    stems = [Path(path.name.removesuffix(".gz")).stem for path in paths]
    names = stems
    if len(set(names)) < len(names):
        names = [f"{path.absolute().parent.name}-{stem}" for path, stem in zip(paths, stems, strict=True)]
    if len(set(names)) < len(names):
        names = [f"{name}-{number}" for number, name in enumerate(names, start=1)]
    runs = []
    for path, stem, name in zip(paths, stems, names, strict=True):
        predictions, form = load_predictions(path, gold=gold, sources=sources)
        beside = path.with_name(f"{stem}.manifest.json")
        content = read_json(beside) if beside.is_file() else {}
        runs.append(LoadedRun(path, name, predictions, form, content if isinstance(content, dict) else {}))
    return runs


def settle_metrics(
    task: Task | None, protocol: ProtocolName | None, typed: Collection[str]
) -> tuple[Task | None, ProtocolName | None]:
    """Task and protocol as they go together: a protocol tells its task, and what was typed wins over a recipe.

    Where both were typed, or neither, they stay as they are: that they do not fit is for `make_protocol` to say.
    """
    if protocol is None:
        return task, None
    if task is None or ("protocol" in typed and "task" not in typed):
        return TASK_OF[protocol], protocol
    if task != TASK_OF[protocol] and "task" in typed and "protocol" not in typed:
        return task, None
    return task, protocol


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
    recipe = recipe_of(workspace.segmentation) or ""
    settings = RECIPES[recipe].settings_for("score") if recipe in RECIPES else {}
    yield settings.get("task"), f"the workspace's data were segmented with the recipe {recipe}"
    of_level = {"sentence": "summarization", "clause": "summarization", "phrase": "keyphrases"}
    segmentation = run.manifest.get("segmentation")
    level = segmentation.get("level") if isinstance(segmentation, dict) else None
    yield of_level.get(str(level)), f"the run's data were segmented at level {level}"
    if workspace.segmentation.is_file():
        level = load_segmentation(workspace.segmentation).level
        yield of_level[level], f"the workspace's data are segmented at level {level}"
    yield "summarization", "nothing says otherwise"


def make_protocol(task: Task, name: str | None = None, **settings: Any) -> Measure:
    """A task's protocol, its usual one by default, with settings such as ``stemmer``; None is a setting's usual value.

    Raises:
        UserError: the task has no such protocol, or the protocol no such setting.
    """
    known = {kind.name: kind for kind in _KINDS if TASK_OF[kind.name] == task}
    kind = known.get(name or next(iter(known)))
    if kind is None:
        raise UserError(f"{task} has no protocol {name!r}", todo=f"choose from {', '.join(known)}")
    given = {key: value for key, value in settings.items() if value is not None}
    allowed = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # each is a dataclass
    for key in given:
        if key not in allowed:
            raise UserError(
                f"the setting `{key}` does not belong to the protocol {kind.name}",
                todo=f"it has {', '.join(sorted(allowed)) or 'none'}",
            )
    return kind(**given)


def score_run(
    run: LoadedRun, measure: Measure, *, on_example: Callable[[], None] = lambda: None
) -> ScoredRun:
    """Score one run, calling `on_example` after each prediction.

    Raises:
        UserError: a prediction has nothing to be scored against.
    """
    items = [scoring_item(prediction, TASK_OF[measure.name]) for prediction in run.predictions]
    return ScoredRun(run, items, score(items, measure, on_example=on_example), count_failures(items))


def scoring_item(prediction: Generated, task: Task) -> ScoringItem:
    """What the metrics of a task need of a prediction and of the record that it was generated from.

    The right answers of ``keyphrases`` are the record's list ``keyphrases``, of ``multispan`` its list ``answers``;
    where there is none, a ``target`` that is a list; else ``target_segments``. A keyphrase never holds a ``;``:
    segments, predicted or right, are split there, and so is a target that is one string. The right answers of
    ``summarization`` are the references, or the target where there are none.

    Raises:
        UserError: the record has nothing to score against, or a string where a list of answers belongs.
    """
    record = prediction.record
    assert record is not None, "a prediction is scored against its record"
    segments, gold, references = prediction.segments, record.target_segments, record.references
    if task == "summarization":
        if not references and record.target is not None:
            references = (record.target,)
        lacking = "" if references else "neither `target` nor `references`"
    else:
        gold = _answers(record, task)
        lacking = f"no `{ANSWER_FIELDS[task]}`, `target` or `target_segments`" if gold is None else ""
    if lacking:
        raise UserError(
            f"nothing to score against: the record has {lacking}",
            where=record.where,
            todo="give the right answers with --gold FILE",
        )
    if task == "keyphrases":
        segments, gold = _phrases(segments), _phrases(gold or ())
        if not record.source.strip():
            raise UserError(
                "the record has no `source`, which tells present from absent keyphrases",
                where=record.where,
                todo="give sources and right answers with --gold FILE",
            )
    right = (record.target, gold, references)
    return ScoringItem(prediction.id, prediction.text, segments, *right, record.source, prediction.truncated)


def _answers(record: Record, task: Task) -> tuple[str, ...] | None:
    """The right phrases or spans of a record; None if it has none."""
    for field in (ANSWER_FIELDS[task], "target"):
        value = record.fields.get(field)
        if isinstance(value, list) or (field != "target" and value is not None):
            if isinstance(value, str):
                wrong = f"be a list of strings, not the string {value[:40]!r}"
            elif not isinstance(value, list):
                wrong = f"be a list of strings, not {value!r}"
            elif other := [item for item in value if not isinstance(item, str)]:
                wrong = f"hold strings, not {type(other[0]).__name__}"
            else:
                return tuple(value)
            raise UserError(f"`{field}` must {wrong}", where=record.where)
    if record.target_segments is not None or record.target is None:
        return record.target_segments
    if task == "multispan":
        raise UserError(
            "`target` is a string where a list of answers belongs",
            where=record.where,
            todo="give the answers as a list, or give --gold FILE",
        )
    return (record.target,)


def _phrases(segments: Iterable[str]) -> tuple[str, ...]:
    """Phrases without those that two or more of them were merged into, and without empty ones."""
    parts = (part.strip() for segment in segments for part in segment.split(";"))
    return tuple(part for part in parts if part)


def compare_runs(first: ScoredRun, second: ScoredRun, *, resamples: int, seed: int) -> dict[str, Difference]:
    """First minus second by metric, from the examples in pairs.

    Raises:
        UserError: they are not of the same examples, or not held against the same answers.
    """
    one, other = first.run.path, second.run.path
    right = {item.id: (item.references, item.gold) for item in second.items}
    unpaired = []
    for item in first.items:
        if item.id not in right:
            unpaired.append(f"id {item.id!r} of {one} is not in {other}")
        elif right.pop(item.id) != (item.references, item.gold):
            unpaired.append(f"id {item.id!r} has other right answers in {other} than in {one}")
    unpaired += [f"id {left!r} of {other} is not in {one}" for left in right]
    if unpaired:
        raise UserError(
            f"the two runs cannot be paired: {unpaired[0]}",
            todo="compare predictions for the same examples of the same data",
        )
    return score_differences(first.scores, second.scores, resamples=resamples, seed=seed)
