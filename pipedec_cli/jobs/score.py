"""`pipedec score`: how good predictions are, by the protocols that papers report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import keep_apart, require_place
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.evaluate.metrics import ProtocolName, Task
from pipedec_cli.jobs.settings import WorkflowSettings, argument, option
from pipedec_cli.view import tables
from pipedec_cli.view.console import Talk, make_console, write_stdout
from pipedec_cli.view.tables import Row, Section, Sheet, show_lines, show_sheet, under

if TYPE_CHECKING:
    from pipedec_cli.evaluate.metrics.measure import Measure
    from pipedec_cli.evaluate.scoring import LoadedRun, ScoredRun
    from pipedec_cli.evaluate.significance import Difference

EXAMPLES = """
pipedec score  # the predictions that were generated last
pipedec score ours.jsonl theirs.jsonl  # and the difference
pipedec score kp.jsonl --task keyphrases --protocol meng2017
pipedec score answers.json --gold valid.json  # MultiSpanQA's files
pipedec score --recipe kptimes                # by the metrics that the paper reports
pipedec score objects.jsonl --task fields      # F1 of (key, value) pairs, of each key as well
pipedec score kp.txt --gold test_trg.txt --sources test_src.txt
"""

#: Settings that belong to one protocol or another.
_OF_A_PROTOCOL: Final = ("stemmer", "pretokenized", "hard", "autojunk")
_input = partial(option, panel="Input")
_protocol = partial(option, panel="Protocol")


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(WorkflowSettings):
    """What `pipedec score` is asked for."""

    predictions: Path | None = argument(
        "JSON lines as `pipedec generate` writes them, MultiSpanQA's {id: \\[answers]}, or lines of phrases "
        "with ';' between them \\[default: the workspace's newest]."
    )
    other: Path | None = argument("Predictions for the same examples, to compare with.")
    task: Task | None = option(None, "What is scored \\[default: what the data's segmentation suggests].")
    protocol: ProtocolName | None = option(
        None, "How: rouge; chan2019 or meng2017; multispanqa; fields \\[default: the first of the task]."
    )
    gold: Path | None = _input(
        None,
        "The right answers, where the predictions do not hold them: JSON lines, MultiSpanQA's data file, or "
        "lines of phrases.",
    )
    sources: Path | None = _input(None, "The sources of a --gold of lines, a document a line.")
    stemmer: bool | None = _protocol(None, "rouge: compare Porter stems \\[default: --stemmer].")
    pretokenized: bool | None = _protocol(
        None, "keyphrases: cut text, targets and predictions at white space alone.", "--pretokenized"
    )
    hard: bool | None = _protocol(
        None, "meng2017: precision at 5 divides by 5 even where fewer were predicted.", "--hard"
    )
    autojunk: bool | None = _protocol(
        None,
        "multispanqa: difflib's heuristic for long predictions, on in the published script \\[default: --autojunk].",
    )
    resamples: int = _protocol(9999, "Bootstrap draws for the interval of a difference.", min=99)
    seed: int = _protocol(0, "Of these draws.", min=0)
    out: Path | None = option(
        None,
        "Save the scores in this file, each example's own beside it \\[default: scores/ in the workspace].",
        panel="General",
    )


def score(settings: ScoreSettings) -> None:
    """Score predictions: ROUGE, keyphrases at 5 and at M, multi-span answers, or the fields of objects, each with its signature.

    With a second file, the difference between the two too, with a 95 % interval from a paired bootstrap.
    """
    # Late, so that `pipedec --help` does not wait for numpy.
    from pipedec_cli.data.answers import format_of
    from pipedec_cli.data.predictions import BAD
    from pipedec_cli.data.writing import to_json
    from pipedec_cli.evaluate.scoring import compare_runs, load_runs
    from pipedec_cli.evaluate.significance import method

    talk, place = Talk(quiet=settings.quiet), Workspace.find(settings.workspace)
    if (first := settings.predictions) is None:
        folder = place.generations("any").parent
        there = (path for path in folder.glob("*.jsonl") if not path.name.endswith(BAD))
        first = max(there, key=lambda path: path.stat().st_mtime, default=None)
        if first is None:
            todo = "run `pipedec generate` first, or give a file of predictions"
            raise UserError(f"no predictions in {folder} yet", todo=todo)
        talk.say(f"scoring {first}, the newest of the workspace")
    if "sources" in settings.typed and (settings.gold is None or format_of(settings.gold) != "lines"):
        what = "there are no right answers in lines that these are the sources of"
        todo = "leave out --sources, or give such lines with --gold"
        raise UserError(what, where=str(settings.sources), todo=todo)
    paths = [first] if settings.other is None else [first, settings.other]
    runs = score_runs(settings, load_runs(paths, settings.gold, settings.sources), place, talk)
    contents = [run.as_json() for run in runs]
    differences: Mapping[str, Difference] = {}
    if settings.other is not None:
        differences = compare_runs(*runs, **settings.some("resamples", "seed"))
        texts = [{(item.id, item.prediction) for item in run.items} for run in runs]
        pair: dict[str, Any] = dict(zip(("first", "second"), contents, strict=True))
        pair["differences"] = {metric: asdict(difference) for metric, difference in differences.items()}
        pair["method"] = method(settings.resamples, settings.seed)
        contents.append(pair | {"identical_predictions": len(set.intersection(*texts))})
    _save(settings, runs, contents, place, talk)
    if settings.as_json:
        write_stdout(to_json(contents[-1], indent=2) + "\n")
    else:
        _show(runs, differences, contents[-1])


def score_runs(
    asked: ScoreSettings, runs: Sequence[LoadedRun], place: Workspace, talk: Talk, limit: int | None = None
) -> list[ScoredRun]:
    """Score runs by one protocol: as the settings say, else as the first run suggests; `limit` is the runs' on purpose."""
    from pipedec_cli.evaluate.scoring import guess_task, make_protocol, score_run, settle_metrics
    from pipedec_cli.view.progress import stage

    task, protocol = settle_metrics(asked.task, asked.protocol, asked.typed)
    if task is None:
        task, why = guess_task(runs[0], place)
        talk.say(f"task: {task}, since {why}; --task overrides it")
    measure = make_protocol(task, protocol, **asked.some(*_OF_A_PROTOCOL))
    scored = []
    for run in runs:
        with stage(talk, f"scoring {run.name}", len(run.predictions)) as advance:
            scored.append(score_run(run, measure, on_example=advance))
        for warning in scored[-1].warnings(limit):
            talk.warn(warning)
    return scored


def _save(
    settings: ScoreSettings, runs: Sequence[ScoredRun], contents: Sequence[Any], place: Workspace, talk: Talk
) -> None:
    """Save each run's scores, and their comparison if there is one, with a manifest; and each run's examples.

    In the workspace a run is ``scores/NAME.json`` and ``NAME.examples.jsonl``, a comparison ``scores/A-vs-B.json``;
    under ``--out`` the same stands in and beside that file, named after it, or in it alone if it is a device or a pipe. Scores by another protocol become FILE.bak.
    """
    from pipedec_cli.data.writing import manifest, write_json, write_json_lines

    out, names = settings.out, [run.run.name for run in runs]
    require_place(out)
    # Beside a device or a pipe nothing can stand.
    alone = out is not None and out.exists() and not out.is_file()
    if out is None:
        files = [place.scores / f"{name}.json" for name in (*names, "-vs-".join(names))]
    elif alone:
        files = [out]
    else:
        files = [*(out.with_name(f"{out.stem}.{name}.json") for name in names if len(runs) > 1), out]
    files = files[: len(contents)]
    examples = [_examples_beside(path) for path in files[: 0 if alone else len(runs)]]
    inputs = [*(run.run.path for run in runs), *filter(None, (settings.gold, settings.sources))]
    written = (*files, *examples)
    keep_apart(inputs, (*written, *map(_backup, written)), "give another file as --out")
    options = {
        "recipe": settings.recipe,
        **{name: contents[0].get(name) for name in ("task", "protocol")},
        **{name: value for name, value in settings.some(*_OF_A_PROTOCOL).items() if value is not None},
        **settings.some("gold", "sources", "resamples", "seed"),
    }
    made_by, mine = manifest(options, inputs=inputs), f'"protocol": "{options["protocol"]}"'
    for path in files:
        if path.is_file() and mine not in path.read_text(encoding="utf-8", errors="replace"):
            for old in filter(Path.exists, (path, _examples_beside(path))):
                old.replace(_backup(old))
            talk.warn(f"{path} was not of this protocol: it is kept as {_backup(path)}")
    for path, content in zip(files, contents[-len(files) :], strict=True):
        write_json(path, {**content, "manifest": made_by})
    for path, run in zip(examples, runs, strict=not alone):
        write_json_lines(path, ({"id": name, **values} for name, values in run.scores.examples.items()))
    for path in written:
        talk.say(f"saved {path}")


def _backup(path: Path) -> Path:
    """Where scores by another protocol are kept."""
    return path.with_name(f"{path.name}.bak")


def _examples_beside(path: Path) -> Path:
    """Where the examples' own scores stand."""
    return path.with_name(f"{path.name.removesuffix('.json')}.examples.jsonl")


def _show(runs: Sequence[ScoredRun], differences: Mapping[str, Difference], pair: Mapping[str, Any]) -> None:
    """Print scores: the table, what went wrong in particular, and the signature that makes the scores comparable."""
    measure, values = runs[0].scores.measure, [run.scores.values for run in runs]
    names = tuple(run.run.name for run in runs)
    notes = [f"signature: {measure.signature}", "; ".join(map(_rows, runs))]
    title, rows = names[0], []
    columns: Row = ("score", "P", "R") if measure.precision_recall else ("score",)
    if len(runs) > 1:
        title, columns = "", (*names, "difference", "95 % interval")
        notes.append(f"difference: first minus second; {pair['method']}")
        same, examples = pair["identical_predictions"], len(runs[0].items)
        notes.append(f"the same prediction in both: {same:,} of {examples:,}")
    for metric, name in measure.headline.items():
        if len(runs) > 1:
            cells = [*(_number(each[metric]) for each in values), *_difference(differences.get(metric))]
        else:
            parts = (metric, *measure.precision_recall.get(metric, ()))
            cells = [_number(values[0][part]) for part in parts]
        rows.append((name, *cells, *[""] * (len(columns) - len(cells))))
    repeats = any(run.failures.stopped_on_repeat for run in runs)
    wrong = [tables.what_goes_wrong(run.failures, measure.part, _rate, repeats=repeats) for run in runs]
    console, heading = make_console(stderr=False), names if len(runs) > 1 else ("rate",)
    show_sheet(console, Sheet(title, columns, (Section("", tuple(rows)),), spare=(2,)))
    show_sheet(
        console, Sheet("", heading, tables.columns_side_by_side([under("", cells) for cells in wrong]))
    )
    if any(found := [run.parts for run in runs]):
        show_sheet(console, _parts(names, measure, found))
    show_lines(console, notes)


def _parts(names: Row, measure: Measure, found: Sequence[Mapping[str, Mapping[str, float]]]) -> Sheet:
    """The scores of the parts of answers, an object's keys, for several runs the first metric alone."""
    columns: Row = ("F1", "P", "R", "exact")
    right = measure.counted[-1]
    metrics = [measure.primary, *measure.precision_recall[measure.primary], *[*measure.headline][1:]]
    if len(names) > 1:
        columns, metrics = names, metrics[:1]
    rows = []
    for part in dict.fromkeys(chain(*found)):
        cells = [_number(each[part][metric]) if part in each else "–" for each in found for metric in metrics]
        counted = next(each[part][right] for each in found if part in each)
        rows.append((part, *cells, f"{counted:,.0f}"))
    shown, notes = tables.first_rows(rows)
    columns = (*columns, right.replace("_", " "))
    return Sheet("", columns, (Section("", shown),), notes=notes, corner="key")


def _rows(run: ScoredRun) -> str:
    """How many rows were scored, of how many the run set out to make, and what else was counted."""
    (_, examples), *others = run.scores.counts.items()
    of = f" of {run.expected}" if run.expected is not None else ""
    told = [f"{examples}{of} {'row' if examples == 1 and not of else 'rows'}"]
    told += [f"{count} {name.replace('_', ' ')}" for name, count in others if count]
    return f"{run.run.name}: {', '.join(told)}"


def _rate(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "not scorable" if value is None else f"{value:.2f}"


def _difference(difference: Difference | None) -> Row:
    if difference is None:
        return "", ""
    value, low, high = f"{difference.value:+.2f}", difference.low, difference.high
    return value, "needs two examples" if low is None else f"{low:+.2f} to {high:+.2f}"
