"""The help text of a command: on one screen, or with the keys of the config file as well."""

import inspect
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

from pipedec_cli.jobs.settings import Setting

#: A name that is longer stands on several lines.
_WIDEST = 34


class HelpfulCommand(TyperCommand):
    """A command with `--help` on one screen, and `--help-all` with the keys of the config file as well."""

    settings: tuple[Setting, ...] = ()

    def format_help(self, ctx: Any, formatter: Any, *, keys: bool = False) -> None:
        """Print usage, what the command does, a line for each option and, with `keys`, for each key, and examples to paste."""
        console = Console(highlight=False)
        usage = (self.get_usage(ctx).strip(), "bold")
        console.print(Text.assemble(usage, f"\n{self.help}\n"))
        for title, rows in self._panels(keys=keys).items():
            console.print(f"[bold]{title}[/bold]")  # no empty lines: it fits a screen
            console.print(Padding(_table(rows), (0, 0, 0, 2)))
        console.print("[bold]Examples[/bold]")
        for line in (self.epilog or "").strip().split("\n"):
            console.print(Text(f"  {line.rstrip()}"), soft_wrap=True)

    def _panels(self, *, keys: bool) -> dict[str, list[tuple[str, str]]]:
        """The names and explanations of settings by the heading under which they stand; with `keys`, those of keys as well."""
        panels: dict[str, list[tuple[str, str]]] = {}
        of_keys = []
        for setting in self.settings:
            row = (_label(setting), _explained(setting))
            if setting.role == "key":
                of_keys.append(row)
            else:
                panels.setdefault(setting.panel, []).append(row)
        general = panels.pop("General", [])
        if of_keys:
            general.append(("--help-all", "Show the keys of the config file, too."))
        general.append(("-h, --help", "Show this message and exit."))
        panels["General"] = general
        if keys and of_keys:
            panels["Keys of the config file, or --set KEY=VALUE"] = of_keys
        return panels


def _table(rows: Iterable[tuple[str, str]]) -> Table:
    """A grid of names and explanations, side by side."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="cyan", max_width=_WIDEST)
    table.add_column()
    for label, text in rows:
        # It is broken at spaces alone.
        spaced = label.replace("|", " | ") if len(label) > _WIDEST else label
        table.add_row(Text(spaced), Text(text))
    return table


def _label(setting: Setting) -> str:
    """The names of a setting and what stands for its value, such as ``--limit N``."""
    if setting.role == "argument":
        return setting.name.upper()
    if setting.role == "key":
        return f"{setting.name} {setting.called}"
    names = ", ".join(sorted(setting.names or (setting.option,), key=len))
    names = names.replace("/", " / ")
    return names if setting.is_flag else f"{names} {setting.called}"


def _explained(setting: Setting) -> str:
    """What a setting does, and its default."""
    usual = setting.usual
    return f"{setting.text} [default: {usual}]" if usual else setting.text


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted and isinstance(context.command, HelpfulCommand):
        context.command.format_help(context, None, keys=True)
        raise typer.Exit


HELP_ALL = inspect.Parameter(
    "help_all",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--help-all", is_eager=True, callback=_show_all)
    ],
)
