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
from pipedec_cli.jobs.events import Listen, silent, stage
from pipedec_cli.jobs.settings import WorkflowSettings, argument, key, option
from pipedec_cli.metrics import TASK_OF, ProtocolName, Task
from pipedec_cli.objects.keyword_values import METRICS
from pipedec_cli.objects.keywords import METRIC

if TYPE_CHECKING:
    from pipedec_cli.metrics.scoring import Difference, LoadedRun, ScoredRun

#: Settings that belong to one protocol or another.
_OF_A_PROTOCOL: Final = ("stemmer", "pretokenized", "hard", "autojunk", "metrics")
#: The end of the name of predictions for training data.
_OF_TRAIN: Final = re.compile(r"-train-[0-9a-f]{8}$")


def parse_metrics(value: Any) -> tuple[tuple[str, str], ...]:
    """Keys and their metrics, typed as ``name words, menu[].price 5%``: ``exact``, ``words``, or a tolerance of numbers."""
    given = (
        value
        if isinstance(value, tuple)
        else [one.rpartition(" ")[::2] for one in str(value).split(",")]
    )
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
        None, "The task to score [default: as the data suggest].", belongs_to="protocol"
    )
    protocol: ProtocolName | None = option(
        None,
        "The scoring protocol [default: the first of the task].",
        belongs_to="task",
    )
    gold: Path | None = option(
        None,
        "The right answers: JSON lines, MultiSpanQA's data file, or lines of phrases.",
    )
    sources: Path | None = option(
        None, "The sources of a --gold of lines, a document a line."
    )
    stemmer: bool | None = key(None, "rouge: compare Porter stems [default: true].")
    pretokenized: bool | None = key(
        None, "keyphrases: cut all texts at white space alone."
    )
    hard: bool | None = key(None, "meng2017: precision at 5 always divides by 5.")
    autojunk: bool | None = key(
        None,
        "multispanqa: difflib's heuristic, as in the published script [default: true].",
    )
    metrics: tuple[tuple[str, str], ...] | None = key(
        None,
        "fields: how values are compared, such as 'name words, price 5%' [default: the schema's x-metric; exact].",
        parser=parse_metrics,
        metavar="KEY METRIC,KEY METRIC",
    )
    out: Path | None = option(
        None,
        "Save the scores in this file, those of each example beside it [default: scores/ in the workspace].",
        panel="General",
    )


@dataclass(frozen=True)
class Scored:
    """Scored runs, their difference if there are two, and the scores as plain values."""

    runs: Sequence[ScoredRun]
    differences: Mapping[str, Difference]
    content: Mapping[str, Any]


def score(settings: ScoreSettings, listen: Listen = silent) -> Scored:
    """Score predictions, and save the scores."""
    # Late, so that `pipedec --help` does not wait for numpy.
    from pipedec_cli.data.answers import format_of
    from pipedec_cli.data.predictions import INVALID
    from pipedec_cli.metrics.scoring import compare_runs, load_runs, method

    require_place(settings.out)
    if (first := settings.predictions) is None:
        folder = settings.place.generations("any").parent
        there = (
            path for path in folder.glob("*.jsonl") if not path.name.endswith(INVALID)
        )
        # A teacher's texts for the training data are the last choice.
        newest = lambda path: (not _OF_TRAIN.search(path.stem), path.stat().st_mtime)  # noqa: E731
        first = max(there, key=newest, default=None)
        if first is None:
            todo = "run `pipedec generate` first, or give a file of predictions"
            raise UserError(f"no predictions in {folder} yet", todo=todo)
        log.info(f"scoring {first}, the newest of the workspace")
    if settings.sources is not None and (
        settings.gold is None or format_of(settings.gold) != "lines"
    ):
        what = "sources go with right answers in lines, and there are none"
        todo = "leave sources out, or give such lines with --gold"
        raise UserError(what, where=str(settings.sources), todo=todo)
    paths = [first] if settings.other is None else [first, settings.other]
    runs = score_runs(
        settings, load_runs(paths, settings.gold, settings.sources), listen
    )
    contents = [run.summary for run in runs]
    differences: Mapping[str, Difference] = {}
    if settings.other is not None:
        differences = compare_runs(*runs)
        texts = [{(item.id, item.prediction) for item in run.items} for run in runs]
        pair: dict[str, Any] = dict(zip(("first", "second"), contents, strict=True))
        pair |= {
            "differences": to_builtins(differences),
            "method": method(),
            "identical_predictions": len(set.intersection(*texts)),
        }
        contents.append(pair)
    _save(settings, runs, contents)
    return Scored(runs, differences, contents[-1])


def score_runs(
    asked: ScoreSettings,
    runs: Sequence[LoadedRun],
    listen: Listen,
    limit: int | None = None,
) -> list[ScoredRun]:
    """Score runs by one protocol: of the settings, or as the first run suggests. The runs have `limit` on purpose."""
    from pipedec_cli.metrics.scoring import guess_task, make_protocol, score_run

    task = asked.task or (TASK_OF[asked.protocol] if asked.protocol else None)
    if task is None:
        task, why = guess_task(runs[0], asked.place)
        log.info(f"task: {task}, since {why}; another protocol overrides it")
    given, names = asked.some(*_OF_A_PROTOCOL), set[str]()
    if task == "fields":
        fields = (runs[0].manifest.get("segmentation") or {}).get("fields", ())
        names = {field["name"] for field in fields}
        words = (
            (field["name"], pair)
            for field in fields
            for pair in field.get("keywords", ())
        )
        said = {name: value for name, (word, value) in words if word == METRIC}
        try:
            given["metrics"] = parse_metrics(
                (*{**said, **dict(asked.metrics or ())}.items(),)
            )
        except ValueError as error:
            what = f"the schema has an x-metric that is none: {error}"
            raise UserError(what, where=str(runs[0].path)) from None
    measure = make_protocol(task, asked.protocol, **given)
    scored = []
    for run in runs:
        with stage(listen, f"scoring {run.name}", len(run.predictions)) as advance:
            scored.append(score_run(run, measure, on_example=advance))
        for warning in scored[-1].warnings(limit):
            log.warning(warning)
        names |= scored[-1].parts.keys()
    for name in dict(asked.metrics or ()).keys() - names if task == "fields" else ():
        near = get_close_matches(name, names, 1, 0.5) or sorted(names)[:8]
        what = f"metrics has the key {name!r}, which no object has"
        raise UserError(what, todo=f"write {' or '.join(near)}")
    return scored


def _save(
    settings: ScoreSettings, runs: Sequence[ScoredRun], contents: Sequence[Any]
) -> None:
    """Save the scores of each run and of its examples, and the comparison if there is one, with a manifest.

    In the workspace a run is ``scores/NAME-HASH.json`` and
    ``NAME-HASH.examples.jsonl``, a comparison ``scores/A-vs-B-HASH.json``. With
    ``--out`` they are in and beside that file; for a device or a pipe, in it alone.
    Scores by another protocol become FILE.bak.
    """
    from pipedec_cli.data.writing import manifest, write_json, write_json_lines

    out = settings.out
    options = {
        "recipe": settings.recipe,
        **{name: contents[0].get(name) for name in ("task", "protocol")},
        **{
            name: value
            for name, value in settings.some(*_OF_A_PROTOCOL).items()
            if value is not None
        },
        **settings.some("gold", "sources"),
    }
    # Beside a device or a pipe there can be no file.
    alone = out is not None and out.exists() and not out.is_file()
    files = _score_files(settings, [run.run for run in runs], options)[
        -1 if alone else 0 :
    ]
    examples = [_examples_beside(path) for path in files[: 0 if alone else len(runs)]]
    inputs = [
        *(run.run.path for run in runs),
        *filter(None, (settings.gold, settings.sources)),
    ]
    written = (*files, *examples)
    keep_apart(inputs, written, "give another file as --out")
    for path in written:
        require_writable(path)
    if not alone:
        for path in files:
            _make_way(path, options["protocol"])
    made_by = manifest(options, inputs=inputs)
    for path, content in zip(files, contents[-len(files) :], strict=True):
        write_json(path, {**content, "manifest": made_by})
    for path, run in zip(examples, runs, strict=not alone):
        write_json_lines(
            path,
            ({"id": name, **values} for name, values in run.scores.examples.items()),
        )
    for path in written:
        log.info(f"saved {path}")


def _score_files(
    settings: ScoreSettings, runs: Sequence[LoadedRun], options: Mapping[str, Any]
) -> list[Path]:
    """The file of each run's scores, and that of the comparison, if there are two runs."""
    from pipedec_cli.data.writing import named_by_hash

    out, files = settings.out, list[Path]()
    groups = [[run] for run in runs if len(runs) > 1]
    for group in (*groups, runs):
        name = "-vs-".join(run.name for run in group)
        if out is None:
            # Seen from the workspace: both may be moved together.
            places = [
                os.path.relpath(real(run.path), real(settings.place.root))
                for run in group
            ]
            named = named_by_hash([name], {**options, "of": places})
            files.append(settings.place.scores / f"{named}.json")
        else:
            files.append(
                out if group is runs else out.with_name(f"{out.stem}.{name}.json")
            )
    return files


def _make_way(path: Path, protocol: str) -> None:
    """Keep scores by another protocol that stand where scores are to be written; a `UserError` if it is another file."""
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
