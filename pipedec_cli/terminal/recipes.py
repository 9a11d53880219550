"""`pipedec recipes`: the paper's settings for each data set, and what it reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Console

from pipedec_cli.data import paper
from pipedec_cli.data.paper import RECIPES, Recipe, recipe
from pipedec_cli.data.writing import to_json
from pipedec_cli.terminal.console import make_console, write_stdout
from pipedec_cli.terminal.settings import Settings, argument, json_option
from pipedec_cli.terminal.tables import Row, Section, Sheet, show_lines, show_sheet

EXAMPLES = """
pipedec recipes                                # all of them, with the paper's figures
pipedec recipes wikihowqa                      # one, with its figures by delay and the options that it sets
pipedec recipes --json | jq '.[].paper.results'
"""

_COMMANDS: Final = ("segment", "train", "generate", "score", "report")
#: The optimizers of `pipedec train` that a recipe names, as the paper writes them.
_OPTIMIZERS: Final = {"adamw": "AdamW"}


@dataclass(frozen=True, kw_only=True)
class RecipesSettings(Settings):
    """What `pipedec recipes` is asked for."""

    name: str | None = argument("One recipe \\[default: all of them].")
    as_json: bool = json_option()


def recipes(settings: RecipesSettings) -> None:
    """List the recipes that `--recipe` takes: the paper's settings, and what it reports for T5-Base and T5-Large."""
    chosen = list(RECIPES.values()) if settings.name is None else [recipe(settings.name)]
    if settings.as_json:
        write_stdout(to_json([_as_json(entry) for entry in chosen], indent=2) + "\n")
        return
    console = make_console(stderr=False)
    columns = ("data", "level", "metrics", "words a target", "subseqs a target", "words a subseq")
    entries = []
    for entry in chosen:
        score, lengths = entry.settings_for("score"), paper.TARGET_LENGTHS.get(entry.name)
        level = entry.settings_for("segment").get("level", "yours")
        metrics = f"{score['task']} ({score['protocol']})" if score else "yours"
        means = map("{:.1f}".format, lengths.means) if lengths else ("", "", "")
        entries.append((entry.name, entry.title, level, metrics, *means))
    segment, train = map(chosen[0].settings_for, ("segment", "train"))
    grid = [f"time_max {segment['time_max']}"]
    if "delay" in train:
        grid = [f"Δt {train['delay']}", *grid, f"sub_max {segment['sub_max']}"]
    shared = (
        f"all{' but fields, whose rows start together' if len(chosen) > 1 else ''}: {', '.join(grid)}; "
        f"batch {train['batch_size']}, {_OPTIMIZERS[train['optimizer']]}, learning rate {train['learning_rate']:g}, "
        f"{train['epochs']} epochs, at most {train['max_source_tokens']} source tokens; "
        + "; ".join(f"{backbone} on {device}" for backbone, device in paper.DEVICES.items())
    )
    show_sheet(console, Sheet("", columns, (Section("", tuple(entries)),), (0,), (shared,), "recipe"))
    if rows := [row for entry in chosen for row in paper.paper_rows(entry.name)]:
        show_sheet(console, _results(rows))
    if settings.name is not None:
        _show_more(console, chosen[0])


def _as_json(recipe: Recipe) -> dict[str, Any]:
    """A recipe, the options that it sets, and all that the paper reports for its data set, as plain values."""
    options = {command: recipe.settings_for(command) for command in _COMMANDS}
    segment, train, _, score, _ = options.values()
    training = ("batch_size", "learning_rate", "epochs", "optimizer", "max_source_tokens")
    tables = (paper.TARGET_LENGTHS, paper.SPEEDUP_BY_SUBSEQUENCES)
    lengths, ends = (asdict(row) if (row := table.get(recipe.name)) else None for table in tables)
    return {
        "name": recipe.name,
        "title": recipe.title,
        "level": segment.get("level"),
        "separators": segment.get("separator", []),
        "joiner": segment.get("joiner"),
        **{name: score.get(name) for name in ("task", "protocol")},
        "delay": int(train["delay"]) if "delay" in train else None,
        **{name: segment.get(name) for name in ("time_max", "sub_max")},
        "training": {name: train[name] for name in training} | {"optimizer": _OPTIMIZERS[train["optimizer"]]},
        "options": options,
        "paper": {
            "target_lengths": lengths,
            "results": [asdict(row) for row in paper.paper_rows(recipe.name)],
            "by_delay": [asdict(row) for row in paper.delay_rows(recipe.name)],
            "speedup_by_subsequences": ends,
        },
    }


def _show_more(console: Console, recipe: Recipe) -> None:
    """Print what is shown of a recipe by itself: the paper's figures by delay, and the options that it sets."""
    if delays := paper.delay_rows(recipe.name):
        metrics = (paper.METRIC_TITLES[metric] for metric in delays[0].quality)
        rows = []
        for row in delays:
            figures = map("{:.1f}".format, (*row.quality.values(), row.throughput))
            rows.append((f"Δt {row.delay}", *figures))
        ends = paper.SPEEDUP_BY_SUBSEQUENCES.get(recipe.name)
        curve = f"{ends.figure}: {ends.at_2}× at 2 target subsequences, {ends.at_9}× at 9" if ends else ""
        notes = tuple(filter(None, (curve, ends.quality))) if ends else ()
        section = Section("", tuple(rows))
        show_sheet(console, Sheet("", (*metrics, "examples/s"), (section,), notes=notes, corner="T5-Base"))
    for command in _COMMANDS:
        if settings := recipe.settings_for(command):
            told = ", ".join(f"{name} {_shown(value)}" for name, value in settings.items())
            show_lines(console, [f"pipedec {command}: {told}"])


def _results(rows: Sequence[paper.PaperRow]) -> Sheet:
    """What the paper reports: quality, throughput, speedup and memory of both decoders."""
    made: list[Row] = []
    for row in rows:
        quality = [
            f"{paper.METRIC_TITLES[metric]} {value:.1f} → {row.pipelined.quality[metric]:.1f}"
            for metric, value in row.sequential.quality.items()
        ]
        memory = (row.sequential.memory_mb, row.pipelined.memory_mb)
        speed = f"{row.sequential.throughput:.1f} → {row.pipelined.throughput:.1f}"
        peak = paper.NOT_AVAILABLE if None in memory else " → ".join(f"{value:,}" for value in memory)
        made.append((row.dataset, row.backbone, quality[0], f"{row.speedup:.1f}×", speed, peak))
        made += [("", "", more, "", "", "") for more in quality[1:]]
    columns = ("backbone", "quality", "speedup", "examples/s", "memory, MB")
    note = "test sets, sequential → pipelined (Δt 1); speed at batch 1 on one RTX 4090"
    return Sheet("", columns, (Section("", tuple(made)),), notes=(note,), corner="paper")


def _shown(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(repr, value))
    return repr(value) if isinstance(value, str) and value.strip() != value else str(value)
