"""The help text of a command: one screen with `--help`, and the keys of the config file as well with `--help-all`."""

from __future__ import annotations

from typing import Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

from pipedec_cli.cli.config import Setting


class HelpfulCommand(TyperCommand):
    """A command with `--help` on one screen, and `--help-all` with the keys of the config file as well."""

    keys: tuple[Setting, ...] = ()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print usage, what the command does, a line for each option, and examples that can be pasted."""
        self.show_help(ctx, keys=False)

    def show_help(self, ctx: Any, *, keys: bool) -> None:
        """Print the help text, with the keys of the config file or without."""
        console, panels = Console(highlight=False), dict[str, list[tuple[str, str]]]()
        for parameter in self.get_params(ctx):
            title = getattr(parameter, "rich_help_panel", None) or f"{parameter.param_type_name.title()}s"
            if record := parameter.get_help_record(ctx):
                panels.setdefault(title, []).append(record)
        if keys:
            panels["Keys of the config file, or --set KEY=VALUE"] = [
                (f"{one.name} {one.metavar}", one.declaration.text) for one in self.keys
            ]
        console.print(Text.assemble((self.get_usage(ctx).strip(), "bold"), f"\n{self.help}"))
        for title, records in panels.items():
            console.print(f"\n[bold]{title}[/bold]")
            table = Table.grid(padding=(0, 2, 0, 0))
            table.add_column(style="cyan", max_width=34)
            table.add_column()
            for name, text in records:
                table.add_row(Text(name.replace("|", " | ") if len(name) > 34 else name), Text(text))
            console.print(Padding(table, (0, 0, 0, 2)))
        console.print("\n[bold]Examples[/bold]")
        for line in (self.epilog or "").split("\n"):
            console.print(Text(f"  {line.rstrip()}"), soft_wrap=True)


def show_all(context: typer.Context, wanted: bool) -> None:
    """What --help-all does."""
    if wanted and isinstance(context.command, HelpfulCommand):
        context.command.show_help(context, keys=True)
        raise typer.Exit
