"""What `pipedec score` does between its options and its tables: find, read, score, compare, save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipedec_cli.data.answers import Format, load_predictions
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.recipes import RECIPES
from pipedec_cli.data.records import Generated
from pipedec_cli.data.workspace import Workspace, load_segmentation, recipe_of
from pipedec_cli.data.writing import manifest, read_json, write_json, write_json_lines
from pipedec_cli.evaluate.failures import count_failures
from pipedec_cli.evaluate.items import ANSWER_FIELDS, TASKS, ScoringItem, Task, scoring_item
from pipedec_cli.evaluate.measure import Measure
from pipedec_cli.evaluate.runs import ScoredPair, ScoredRun
from pipedec_cli.evaluate.scoring import score
from pipedec_cli.evaluate.significance import method, score_differences
from pipedec_cli.terminal.console import Talk, many
from pipedec_cli.terminal.progress import stage

_TASK_OF_LEVEL: dict[str, Task] = {
    "sentence": "summarization",
    "clause": "summarization",
    "phrase": "keyphrases",
}


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A file of predictions as it was read.

    Attributes:
        path: where they stand.
        name: what the run is called.
        predictions: in file order.
        form: the file's format.
        manifest: what `generate` says of the run; {} where it says nothing.
    """

    path: Path
    name: str
    predictions: Sequence[Generated]
    form: Format
    manifest: dict[str, Any]

    @property
    def expected(self) -> int | None:
        """How many predictions the run set out to make, if its manifest says so."""
        count = self.manifest.get("examples")
        return count if isinstance(count, int) and not isinstance(count, bool) else None


def newest_predictions(workspace: Workspace) -> Path:
    """The workspace's predictions that were written to last.

    Raises:
        UserError: there are none yet.
    """
    folder = workspace.generations("any").parent
    files = sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime) if folder.is_dir() else []
    if not files:
        raise UserError(
            f"no predictions in {folder} yet",
            todo="run `pipedec generate` first, or give a file of predictions",
        )
    return files[-1]


def load_runs(paths: Sequence[Path], gold: Path | None, sources: Path | None) -> list[LoadedRun]:
    """Read each file of predictions, and give each a name of its own.

    Raises:
        UserError: a file is not as it must be.
    """
    runs = []
    for path, name in zip(paths, _names(paths), strict=True):
        predictions, form = load_predictions(path, gold=gold, sources=sources)
        beside = path.with_name(f"{_stem(path)}.manifest.json")
        content = read_json(beside) if beside.is_file() else {}
        runs.append(LoadedRun(path, name, predictions, form, content if isinstance(content, dict) else {}))
    return runs


def guess_task(run: LoadedRun, workspace: Workspace) -> tuple[Task, str]:
    """The task that a run is most likely of, and why."""
    named = run.manifest.get("task")
    if named in TASKS:
        return named, "the run's manifest says so"
    return (
        _task_of_form(run)
        or _task_of_recipe(workspace)
        or _task_of_segmentation(run, workspace)
        or ("summarization", "nothing says otherwise")
    )


def _task_of_form(run: LoadedRun) -> tuple[Task, str] | None:
    """What the file's format tells, or the fields of its first record."""
    if run.form == "answers":
        return "multispan", "the file is {id: [answers]}"
    if run.form == "lines":
        return "keyphrases", "the file is lines of text"
    record = run.predictions[0].record
    fields = record.fields if record else {}
    for task, field in ANSWER_FIELDS.items():
        if isinstance(fields.get(field), list):
            return task, f"the records have a list `{field}`"
    return None


def _task_of_recipe(workspace: Workspace) -> tuple[Task, str] | None:
    """What the workspace's data were segmented as."""
    name = recipe_of(workspace.segmentation)
    known = RECIPES.get(name) if name is not None else None
    task = known.settings_for("score").get("task") if known else None
    return None if task is None else (task, f"the workspace's data were segmented with the recipe {name}")


def _task_of_segmentation(run: LoadedRun, workspace: Workspace) -> tuple[Task, str] | None:
    """What the level of the subsequences tells: that of the run's manifest, else of the workspace's data."""
    segmentation = run.manifest.get("segmentation")
    level = segmentation.get("level") if isinstance(segmentation, dict) else None
    if level in _TASK_OF_LEVEL:
        return _TASK_OF_LEVEL[level], f"the run's data were segmented at level {level}"
    if not workspace.segmentation.is_file():
        return None
    level = load_segmentation(workspace.segmentation).level
    return _TASK_OF_LEVEL[level], f"the workspace's data are segmented at level {level}"


def score_run(run: LoadedRun, measure: Measure, talk: Talk) -> tuple[ScoredRun, list[ScoringItem]]:
    """Score one run.

    Returns:
        the scored run, and what was scored.

    Raises:
        UserError: a prediction has nothing to be scored against.
    """
    items = [scoring_item(prediction, measure.task) for prediction in run.predictions]
    with stage(talk, f"scoring {run.name}", len(items)) as advance:
        scores = score(items, measure.task, measure, on_example=advance)
    scored = ScoredRun(run.name, str(run.path), scores, count_failures(items), run.expected)
    for note in scores.notes:
        talk.warn(f"{run.name}: {note}")
    limit = (run.manifest.get("settings") or {}).get("limit")
    if limit is not None:
        talk.warn(f"{run.name}: a run of the first {many(limit, 'example')} only, made with --limit")
    if run.expected is not None and run.expected != len(items):
        talk.warn(
            f"{run.name}: {len(items)} of {run.expected} rows are there and were scored; "
            "the `pipedec generate` that began the run finishes it with --resume"
        )
    return scored, items


def compare_runs(
    first: tuple[ScoredRun, Sequence[ScoringItem]],
    second: tuple[ScoredRun, Sequence[ScoringItem]],
    *,
    resamples: int,
    seed: int,
) -> ScoredPair:
    """The difference of two scored runs, example by example.

    Raises:
        UserError: they are not of the same examples, or not held against the same answers.
    """
    (one, items), (other, others) = first, second
    right = {item.id: (item.references, item.gold) for item in others}
    for item in items:
        if item.id not in right:
            raise _not_paired(f"id {item.id!r} of {one.file} is not in {other.file}")
        if right.pop(item.id) != (item.references, item.gold):
            raise _not_paired(f"id {item.id!r} has other right answers in {other.file} than in {one.file}")
    if right:
        raise _not_paired(f"id {next(iter(right))!r} of {other.file} is not in {one.file}")
    differences = score_differences(one.scores, other.scores, resamples=resamples, seed=seed)
    theirs = {item.id: item.prediction for item in others}
    identical = sum(item.prediction == theirs[item.id] for item in items)
    return ScoredPair(one, other, differences, method(resamples, seed=seed), identical)


def save(
    result: ScoredRun | ScoredPair,
    out: Path | None,
    workspace: Workspace,
    *,
    inputs: Sequence[Path],
    settings: Mapping[str, Any],
) -> list[Path]:
    """Save scores as JSON, each with its manifest, and each run's examples beside them as JSON lines.

    In the workspace a run is ``scores/NAME.json`` and ``NAME.examples.jsonl``, a comparison ``scores/A-vs-B.json`` with
    both its runs' files; under ``out`` the same stands in and beside that file, named after it.

    Args:
        result: what was scored.
        out: the file to save in; None for the workspace.
        workspace: where scores have their place.
        inputs: the files that were read; none of them is written over.
        settings: the resolved options, for the manifest.

    Returns:
        the files that were written.

    Raises:
        UserError: one of the files is an input.
    """
    runs = [result] if isinstance(result, ScoredRun) else [result.first, result.second]
    content: dict[Path, ScoredRun | ScoredPair] = {}
    for run in runs:
        if out is None:
            content[workspace.scores / f"{run.name}.json"] = run
        else:
            content[out if len(runs) == 1 else out.with_name(f"{out.stem}.{run.name}.json")] = run
    if isinstance(result, ScoredPair):
        content[out or workspace.scores / f"{runs[0].name}-vs-{runs[1].name}.json"] = result
    examples = {
        path.with_name(f"{path.stem}.examples.jsonl"): scored
        for path, scored in content.items()
        if isinstance(scored, ScoredRun)
    }
    for path in (*content, *examples):
        if any(path.resolve() == file.resolve() for file in inputs):
            raise UserError("would be written over", where=str(path), todo="give another file as --out")
    made_by = manifest(settings, inputs=inputs)
    for path, scored in content.items():
        write_json(path, {**scored.as_json(), "manifest": made_by})
    for path, run in examples.items():
        write_json_lines(path, run.example_rows())
    return [*content, *examples]


def _names(paths: Sequence[Path]) -> list[str]:
    """The files' names without their endings; with their folders' where these are the same."""
    stems = [_stem(path) for path in paths]
    if len(set(stems)) == len(stems):
        return stems
    names = [f"{path.absolute().parent.name}-{_stem(path)}" for path in paths]
    if len(set(names)) == len(names):
        return names
    return [f"{name}-{number}" for number, name in enumerate(names, start=1)]


def _stem(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).stem


def _not_paired(what: str) -> UserError:
    return UserError(
        f"the two runs cannot be paired: {what}",
        todo="compare predictions for the same examples of the same data",
    )
