"""The `pipedec` command: its subcommands, and how errors end it."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from pipedec_cli.data.errors import UserError
from pipedec_cli.terminal.commands import import_, recipes, score, train
from pipedec_cli.terminal.commands.segment import segment
from pipedec_cli.terminal.console import Talk

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="pipedec",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Generate text from a context several times faster: a [bold]pipelined decoder[/bold] starts a new phrase or "
        "sentence every Δt time-steps and makes one token for each live one per decoder call."
    ),
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"pipedec {version('pipedec')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """The options that stand before a subcommand."""


app.command("segment")(segment)
app.command("train", epilog=train.EXAMPLES)(train.train)
app.command("score", epilog=score.EXAMPLES)(score.score)
app.command("import", epilog=import_.EXAMPLES)(import_.import_data)
app.command("recipes", epilog=recipes.EXAMPLES)(recipes.recipes)


def main() -> None:
    """Run the app: a user's mistake is one line and exit code 2, Ctrl-C exit code 130, a closed pipe no fuss."""
    try:
        app()
    except UserError as error:
        _fail(str(error), EXIT_USAGE)
    except KeyboardInterrupt:
        _fail("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our stdout has gone (`pipedec … | head`); keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_ERROR)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        _fail(f"{name}{error.strerror or error}", EXIT_ERROR)


def _fail(message: str, code: int) -> None:
    Talk().console.print(f"error: {message}", soft_wrap=True)
    sys.exit(code)
