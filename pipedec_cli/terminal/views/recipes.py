"""How the recipes and the paper's figures look: tables for a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipedec_cli.data.paper import (
    BACKBONES,
    METRIC_TITLES,
    NOT_AVAILABLE,
    SPEEDUP_BY_SUBSEQUENCES,
    PaperRow,
    delay_rows,
    paper_row,
    target_lengths,
)
from pipedec_cli.data.recipes import DEVICES, Recipe

_COMMANDS = ("segment", "train", "generate", "score", "report")


def recipe_as_json(recipe: Recipe) -> dict[str, Any]:
    """A recipe, the options that it sets, and all that the paper reports for its data set, as plain values."""
    lengths = target_lengths(recipe.name)
    by_subsequences = SPEEDUP_BY_SUBSEQUENCES.get(recipe.name)
    rows = _rows(recipe)
    return recipe.as_json() | {
        "options": {command: recipe.settings_for(command) for command in _COMMANDS},
        "paper": {
            "target_lengths": asdict(lengths) if lengths else None,
            "results": [row.as_json() for row in rows],
            "by_delay": [asdict(row) for row in delay_rows(recipe.name)],
            "speedup_by_subsequences": asdict(by_subsequences) if by_subsequences else None,
        },
    }


def show_recipes(console: Console, recipes: Sequence[Recipe]) -> None:
    """Print the recipes: what each sets, then what the paper reports for each."""
    shared = recipes[0]
    training = shared.training
    console.print(settings_table(recipes))
    _say(
        console,
        f"all: Δt {shared.delay}, time_max {shared.time_max}, sub_max {shared.sub_max}; batch {training.batch_size}, "
        f"{training.optimizer}, learning rate {training.learning_rate:g}, {training.epochs} epochs, at most "
        f"{training.max_source_tokens} source tokens; "
        + "; ".join(f"{backbone} on {device}" for backbone, device in DEVICES.items()),
    )
    rows = [row for recipe in recipes for row in _rows(recipe)]
    if rows:
        console.print()
        console.print(results_table(rows))
        _say(console, "test sets, sequential → pipelined (Δt 1); speed at batch 1 on one RTX 4090")


def show_recipe(console: Console, recipe: Recipe) -> None:
    """Print one recipe: the options that it sets, and all that the paper reports for its data set."""
    show_recipes(console, [recipe])
    delays = delay_rows(recipe.name)
    if delays:
        console.print()
        console.print(delay_table(recipe.name))
    ends = SPEEDUP_BY_SUBSEQUENCES.get(recipe.name)
    if ends:
        _say(console, f"{ends.figure}: {ends.at_2}× at 2 target subsequences, {ends.at_9}× at 9")
    console.print()
    for command in _COMMANDS:
        settings = recipe.settings_for(command)
        if settings:
            _say(console, f"pipedec {command}: " + ", ".join(f"{k} {_shown(v)}" for k, v in settings.items()))


def settings_table(recipes: Sequence[Recipe]) -> Table:
    """What the recipes set apart from what they share, and the paper's Table 1."""
    table = _table("recipe", "data", "level", "metrics")
    for heading in ("words a\ntarget", "subseqs a\ntarget", "words a\nsubseq"):
        table.add_column(heading, justify="right")
    for recipe in recipes:
        lengths = target_lengths(recipe.name)
        numbers = (
            (lengths.words_per_target, lengths.subsequences_per_target, lengths.words_per_subsequence)
            if lengths
            else ()
        )
        metrics = f"{recipe.task} ({recipe.protocol})" if recipe.task else "yours"
        table.add_row(
            Text(recipe.name, style="bold"),
            recipe.title,
            recipe.level or "yours",
            metrics,
            *(f"{number:.1f}" for number in numbers),
        )
    return table


def results_table(rows: Sequence[PaperRow]) -> Table:
    """What the paper reports: quality, throughput, speedup and memory of both decoders."""
    table = _table("paper", "backbone", "quality")
    for heading in ("examples/s", "speedup", "memory, MB"):
        table.add_column(heading, justify="right")
    for row in rows:
        quality = [
            f"{METRIC_TITLES[metric]} {value:.1f} → {row.pipelined.quality[metric]:.1f}"
            for metric, value in row.sequential.quality.items()
        ]
        table.add_row(
            Text(row.dataset, style="bold"),
            row.backbone,
            "\n".join(quality),
            f"{row.sequential.throughput:.1f} → {row.pipelined.throughput:.1f}",
            f"{row.speedup:.1f}×",
            memory(row),
        )
    return table


def delay_table(dataset: str) -> Table:
    """The paper's Table 5 for a data set: quality and throughput by delay."""
    rows = delay_rows(dataset)
    table = _table("T5-Base")
    for heading in (*(METRIC_TITLES[metric] for metric in rows[0].quality), "examples/s"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            f"Δt {row.delay}", *(f"{value:.1f}" for value in row.quality.values()), f"{row.throughput:.1f}"
        )
    return table


def memory(row: PaperRow) -> str:
    """GPU memory of both decoders, or that the paper's text at hand lacks it."""
    both = (row.sequential.memory_mb, row.pipelined.memory_mb)
    return NOT_AVAILABLE if None in both else " → ".join(f"{value:,}" for value in both)


def _rows(recipe: Recipe) -> list[PaperRow]:
    rows = (paper_row(recipe.name, backbone) for backbone in BACKBONES)
    return [row for row in rows if row is not None]


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading)
    return table


def _shown(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(repr, value))
    return repr(value) if isinstance(value, str) and value.strip() != value else str(value)


def _say(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=True)
