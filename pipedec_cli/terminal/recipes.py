"""`pipedec recipes`: the paper's settings for each data set, and what it reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from pipedec_cli.terminal.console import make_console, write_stdout
from pipedec_cli.terminal.settings import JsonOption, Settings

EXAMPLES = """
[bold]Examples[/bold]

  pipedec recipes                                [dim]# all of them, with the paper's figures[/dim]

  pipedec recipes wikihowqa                      [dim]# one, with its figures by delay and the options that it sets[/dim]

  pipedec recipes --json | jq '.[].paper.results'
"""


@dataclass(frozen=True, kw_only=True)
class RecipesSettings(Settings):
    """What `pipedec recipes` is asked for."""

    name: Annotated[
        str | None, typer.Argument(help="One recipe \\[default: all of them].", show_default=False)
    ] = None
    as_json: JsonOption = False


def recipes(settings: RecipesSettings) -> None:
    """List the recipes that `--recipe` takes: the paper's settings, and what it reports for T5-Base and T5-Large."""
    from pipedec_cli.data.recipes import RECIPES, recipe
    from pipedec_cli.data.writing import to_json
    from pipedec_cli.terminal.views.recipes import recipe_as_json, show_recipe, show_recipes

    chosen = list(RECIPES.values()) if settings.name is None else [recipe(settings.name)]
    if settings.as_json:
        write_stdout(to_json([recipe_as_json(entry) for entry in chosen], indent=2) + "\n")
    elif settings.name is None:
        show_recipes(make_console(stderr=False), chosen)
    else:
        show_recipe(make_console(stderr=False), chosen[0])
