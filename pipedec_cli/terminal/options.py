"""Options that several commands share, each declared once, and the config file that can carry any of them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from pipedec_cli.data.errors import UserError


def _load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make the config file's values this command's defaults, so that a flag still wins."""
    if path is None or context.resilient_parsing:
        return path
    command = context.info_name or ""
    values = read_config(path, command)
    known = {parameter.name: parameter for parameter in context.command.params}
    for key in values:
        name = key.replace("-", "_")
        if name not in known or name == "config":
            raise UserError(
                f"unknown setting {key!r} for `pipedec {command}`",
                where=str(path),
                todo=f"see `pipedec {command} --help` for the options",
            )
    context.default_map = {
        **(context.default_map or {}),
        **{k.replace("-", "_"): v for k, v in values.items()},
    }
    return path


def read_config(path: Path, command: str) -> dict[str, Any]:
    """The settings of one command: the file's ``[command]`` table over its top-level keys.

    Raises:
        UserError: the file is not there or is not TOML.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the config file: {error.strerror}", where=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"not a TOML file: {error}", where=str(path)) from error
    shared = {key: value for key, value in content.items() if not isinstance(value, dict)}
    own = content.get(command, {})
    return {**shared, **own} if isinstance(own, dict) else shared


def _load_recipe(context: typer.Context, name: str | None) -> str | None:
    """Make the recipe's settings this command's defaults, under those of a config file."""
    if name is not None and not context.resilient_parsing:
        from pipedec_cli.data.recipes import recipe

        settings = recipe(name).settings_for(context.info_name or "")
        context.default_map = {**settings, **(context.default_map or {})}
    return name


def typed(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line itself, and not in a config file or a recipe."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="A TOML file of options: a [COMMAND] table, or top-level keys. Flags win.",
        is_eager=True,
        callback=_load_config,
        rich_help_panel="General",
    ),
]
#: Stands after `ConfigOption` in a command, so that a config file may name the recipe.
RecipeOption = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        help="Take the paper's settings as defaults: 'paper', or one of its data sets (see `pipedec recipes`).",
        is_eager=True,
        callback=_load_recipe,
        rich_help_panel="General",
    ),
]
WorkspaceOption = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        "-w",
        help="The folder where the commands find each other's results \\[default: $PIPEDEC_WORKSPACE or pipedec-workspace].",
        rich_help_panel="General",
    ),
]
QuietOption = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Say nothing but warnings and errors.", rich_help_panel="General"),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON on stdout.", rich_help_panel="General")
]
