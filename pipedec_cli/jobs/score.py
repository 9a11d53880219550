"""`pipedec score`: how good predictions are, by the protocols that papers report."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins

from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.reading import keep_apart, real, require_place, require_writable
from pipedec_cli.events import Listen, silent, stage
from pipedec_cli.jobs.settings import WorkflowSettings, argument, key, option
from pipedec_cli.metrics import TASK_OF, ProtocolName, Task
from pipedec_cli.objects.keyword_values import METRICS
from pipedec_cli.objects.keywords import METRIC

if TYPE_CHECKING:
    from pipedec_cli.data.workspace import Workspace
    from pipedec_cli.metrics.differences import Difference
    from pipedec_cli.metrics.scoring import Predictions, Scored

#: Keys of objects and their metrics.
Metrics = tuple[tuple[str, str], ...]

#: The end of the name of predictions for training data.
_OF_TRAIN: Final = re.compile(r"-train-[0-9a-f]{8}$")


def parse_metrics(value: Any) -> tuple[tuple[str, str], ...]:
    """Keys and their metrics, typed as ``name words, menu[].price 5%``: ``exact``, ``words``, or a tolerance of numbers."""
    given = value
    if not isinstance(value, tuple):
        given = [pair.rpartition(" ")[::2] for pair in str(value).split(",")]
    pairs = tuple((name.strip(), str(metric).strip()) for name, metric in given)
    for name, metric in pairs:
        if not name or not METRICS.fullmatch(metric):
            raise ValueError(
                f"{name} {metric}: write KEY exact, KEY words, or a tolerance: KEY 0.5 or KEY 5%"
            )
    return pairs


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(WorkflowSettings):
    """The settings of one scoring."""

    predictions: Path | None = argument(
        "JSON lines of `pipedec generate`, MultiSpanQA's {id: [answers]}, or lines of phrases with ';' between them "
        "[default: the workspace's newest]."
    )
    other: Path | None = argument("Predictions for the same examples, to compare with.")
    task: Task | None = option(
        None, "The task to score [default: as the data suggest]."
    )
    protocol: ProtocolName | None = option(
        None, "The scoring protocol [default: the first of the task]."
    )
    gold: Path | None = option(
        None,
        "The right answers: JSON lines, MultiSpanQA's data file, or lines of phrases.",
    )
    sources: Path | None = option(
        None, "The sources of a --gold of lines, a document a line."
    )
    metrics: tuple[tuple[str, str], ...] | None = key(
        None,
        "fields: how values are compared, such as 'name words, price 5%' [default: the schema's x-metric; exact].",
        read=parse_metrics,
        metavar="KEY METRIC,KEY METRIC",
    )
    out: Path | None = option(
        None,
        "Save the scores in this file, those of each example beside it [default: scores/ in the workspace].",
        panel="General",
    )


@dataclass(frozen=True)
class ScoreResult:
    """Scored runs, their difference if there are two, and the scores as plain values."""

    runs: Sequence[Scored]
    differences: Mapping[str, Difference]
    content: Mapping[str, Any]


def score(settings: ScoreSettings, listen: Listen = silent) -> ScoreResult:
    """Score predictions, and save the scores."""
    # Late, so that `pipedec --help` does not wait for numpy.
    from pipedec_cli.metrics.scoring import compare_runs, load_runs

    require_place(settings.out)
    paths = [settings.predictions or _newest(settings.place)]
    _check_sources(settings)
    if settings.other is not None:
        paths.append(settings.other)
    loaded = load_runs(paths, settings.gold, settings.sources)
    runs = score_runs(settings, loaded, listen)
    contents = [run.summary for run in runs]
    differences: Mapping[str, Difference] = {}
    if settings.other is not None:
        differences = compare_runs(*runs)
        contents.append(_comparison(runs, contents, differences))
    _save(settings, runs, contents)
    return ScoreResult(runs, differences, contents[-1])


def _newest(workspace: Workspace) -> Path:
    """The newest predictions of a workspace.

    A teacher's texts for the training data are the last choice.
    """
    from pipedec_cli.data.predictions import INVALID

    folder = workspace.generations("any").parent
    paths = list(folder.glob("*.jsonl"))
    valid = [path for path in paths if not path.name.endswith(INVALID)]
    if not valid:
        todo = "run `pipedec generate` first, or give a file of predictions"
        raise UserError(f"no predictions in {folder} yet", todo=todo)
    others = [path for path in valid if not _OF_TRAIN.search(path.stem)]
    newest = max(others or valid, key=lambda path: path.stat().st_mtime)
    log.info(f"scoring {newest}, the newest of the workspace")
    return newest


def _check_sources(settings: ScoreSettings) -> None:
    """Refuse --sources without right answers that are lines of text: others hold their sources."""
    from pipedec_cli.data.answers import format_of

    if settings.sources is None:
        return
    if settings.gold is None or format_of(settings.gold) != "lines":
        raise UserError(
            "sources go with right answers in lines, and there are none",
            where=settings.sources,
            todo="leave sources out, or give such lines with --gold",
        )


def _comparison(
    runs: Sequence[Scored],
    contents: Sequence[Mapping[str, Any]],
    differences: Mapping[str, Difference],
) -> dict[str, Any]:
    """The scores of two runs, whose `contents` are given, and their differences, as plain values."""
    from pipedec_cli.metrics.differences import method

    first, second = ({(item.id, item.text) for item in run.items} for run in runs)
    return {
        "first": contents[0],
        "second": contents[1],
        "differences": to_builtins(differences),
        "method": method(),
        "identical_predictions": len(first & second),
    }


def score_runs(
    settings: ScoreSettings,
    runs: Sequence[Predictions],
    listen: Listen,
    limit: int | None = None,
) -> list[Scored]:
    """Score runs by one protocol: that of the settings, or else as the first run suggests.

    `limit` is the number of examples to which the user limited the runs: of another
    limit, which they were made with, they are warned.
    """
    from pipedec_cli.metrics.scoring import guess_task, make_protocol, score_run

    task = settings.task
    if task is None and settings.protocol:
        task = TASK_OF[settings.protocol]
    if task is None:
        task, why = guess_task(runs[0], settings.place)
        todo = "`pipedec score --task NAME` scores another"
        log.info(f"task: {task}, since {why}; {todo}")
    given = _of_protocol(settings)
    if task == "fields":
        given["metrics"] = _metrics(runs[0], given.get("metrics", ()))
    measure = make_protocol(task, settings.protocol, **given)
    scored = []
    for run in runs:
        with stage(listen, f"scoring {run.name}", len(run.predictions)) as advance:
            scored.append(score_run(run, measure, on_example=advance))
        for warning in scored[-1].warnings(limit):
            log.warning(warning)
    if task == "fields":
        _check_keys(settings.metrics or (), scored)
    return scored


def _of_protocol(settings: ScoreSettings) -> dict[str, Any]:
    """The setting that belongs to one protocol, if it was given."""
    return {} if settings.metrics is None else {"metrics": settings.metrics}


def _metrics(run: Predictions, asked: Metrics) -> Metrics:
    """The metrics of keys: those of the schema with which a run was made, and in their place those of the user."""
    metrics = {}
    for field in _fields(run):
        for word, value in field.get("keywords", ()):
            if word == METRIC:
                metrics[field["name"]] = value
    try:
        return parse_metrics(tuple({**metrics, **dict(asked)}.items()))
    except ValueError as error:
        what = f"the schema has an x-metric that is none: {error}"
        raise UserError(what, where=run.path) from None


def _fields(run: Predictions) -> Sequence[Mapping[str, Any]]:
    """The fields of the schema with which a run was made, if the manifest has them."""
    segmentation = run.manifest.get("segmentation") or {}
    fields: Sequence[Mapping[str, Any]] = segmentation.get("fields", ())
    return fields


def _check_keys(asked: Metrics, scored: Sequence[Scored]) -> None:
    """Refuse a metric of a key that no object has."""
    names = {field["name"] for field in _fields(scored[0].run)}
    for run in scored:
        names |= run.parts.keys()
    for name, _ in asked:
        if name not in names:
            near = get_close_matches(name, names, 1, 0.5) or sorted(names)[:8]
            what = f"metrics has the key {name!r}, which no object has"
            raise UserError(what, todo=f"write {' or '.join(near)}")


def _save(
    settings: ScoreSettings,
    runs: Sequence[Scored],
    contents: Sequence[Mapping[str, Any]],
) -> None:
    """Save the scores of each run and of its examples, with a manifest.

    In the workspace a run is ``scores/NAME-HASH.json`` and
    ``NAME-HASH.examples.jsonl``, a comparison ``scores/A-vs-B-HASH.json``. With
    ``--out`` they are in and beside that file; for a device or a pipe, in it alone.
    Scores by another protocol become FILE.bak.
    """
    from pipedec_cli.data.writing import manifest, write_json, write_json_lines

    options = {
        "recipe": settings.recipe,
        "task": contents[0]["task"],
        "protocol": contents[0]["protocol"],
        **_of_protocol(settings),
        **settings.some("gold", "sources"),
    }
    files = _score_files(settings, [run.run for run in runs], options)
    examples = [_examples_beside(path) for path in files[: len(runs)]]
    if _is_stream(settings.out):
        # Beside a device or a pipe there can be no file.
        files = files[-1:]
        examples = []
    inputs = [run.run.path for run in runs]
    inputs += filter(None, (settings.gold, settings.sources))
    written = (*files, *examples)
    keep_apart(inputs, written, "give another file as --out")
    for path in written:
        require_writable(path)
    if examples:
        for path in files:
            _make_way(path, options["protocol"])
    made_by = manifest(options, inputs=inputs)
    for path, content in zip(files, contents[-len(files) :], strict=True):
        write_json(path, {**content, "manifest": made_by})
    for path, run in zip(examples, runs, strict=False):
        scores = run.scores.examples
        write_json_lines(path, ({"id": name, **scores[name]} for name in scores))
    for path in written:
        log.info(f"saved {path}")


def _is_stream(out: Path | None) -> bool:
    """Whether it is a device or a pipe."""
    return out is not None and out.exists() and not out.is_file()


def _score_files(
    settings: ScoreSettings, runs: Sequence[Predictions], options: Mapping[str, Any]
) -> list[Path]:
    """The file of each run's scores, and that of the comparison of two runs."""
    from pipedec_cli.data.writing import named_by_hash

    groups = [[run] for run in runs]
    if len(runs) > 1:
        groups.append(list(runs))
    out, files = settings.out, list[Path]()
    for group in groups:
        name = "-vs-".join(run.name for run in group)
        if out is None:
            # Seen from the workspace: both may be moved together.
            root = real(settings.place.root)
            places = [os.path.relpath(real(run.path), root) for run in group]
            named = named_by_hash([name], {**options, "of": places})
            files.append(settings.place.scores / f"{named}.json")
        elif group is groups[-1]:
            files.append(out)
        else:
            files.append(out.with_name(f"{out.stem}.{name}.json"))
    return files


def _make_way(path: Path, protocol: str) -> None:
    """Give scores by another protocol that stand where scores are to be written the name of a backup.

    A `UserError` if what stands there are no scores.
    """
    from pipedec_cli.data.writing import backups, first_object, require_own

    beside = _examples_beside(path)
    require_own(path, {"manifest"}, "pipedec score")
    require_own(beside, {"id"}, "pipedec score")
    if not path.is_file():
        return
    with suppress(LookupError, TypeError):
        if first_object(path)["manifest"]["settings"]["protocol"] == protocol:
            return
    files = [file for file in (path, beside) if file.is_file()]
    kept = backups(*files)
    for file, backup in zip(files, kept, strict=True):
        file.replace(backup)
    log.warning(f"{path} was not of this protocol: it is kept as {kept[0].name}")


def _examples_beside(path: Path) -> Path:
    """Where the examples' own scores stand."""
    return path.with_name(f"{path.name.removesuffix('.json')}.examples.jsonl")
