"""The `pipedec` command: its subcommands, and how errors end it."""

import atexit
import errno
import gc
import io
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperGroup

from pipedec_cli.cli import signals
from pipedec_cli.cli.commands import COMMANDS, MERGE, SHARD_HELP
from pipedec_cli.cli.options import SET, add
from pipedec_cli.cli.removed import instead_of
from pipedec_cli.data.errors import UserError, is_out_of_memory
from pipedec_cli.training.hyperparameters import is_main, process_count
from pipedec_cli.view.console import Talk, tame_libraries

#: Whatever is wrong with the options; Typer gives the base class of its errors no
#: public name.
UsageError: Any = typer.BadParameter.__mro__[1]

EXIT_ERROR, EXIT_USAGE = 1, 2
#: Seconds for which the others of several processes let the first one speak.
_PRECEDENCE: Final = 10.0
#: What the operating system says of the machine; all else it says of a path that was
#: given.
_OF_THE_MACHINE: Final = (
    None,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.ENOMEM,
)


class _Commands(TyperGroup):
    """The subcommands, with a word about Ctrl-C, which Typer ends in silence, and options' errors on one line."""

    def make_context(
        self, info_name: Any, args: list[str], *others: Any, **more: Any
    ) -> Any:
        # Without any words, Typer prints the help.
        with _usage_on_one_line() if args else nullcontext():
            return super().make_context(info_name, args, *others, **more)

    def invoke(self, ctx: Any) -> Any:
        try:
            with _usage_on_one_line():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            _fail(*signals.interruption())


@contextmanager
def _usage_on_one_line() -> Iterator[None]:
    """End the command for an error in what was typed: one line with what to do instead, and exit code 2."""
    try:
        yield
    except UsageError as error:
        told = _without_option(error) or error.format_message().rstrip(".")
        # --help does not list the keys of --set.
        which = "help-all" if getattr(error, "param_hint", None) == SET else "help"
        path = error.ctx.command_path if error.ctx else "pipedec"
        mark = "" if told.endswith("?") else ";"
        _fail(f"{told}{mark} see `{path} --{which}`", EXIT_USAGE)


def _without_option(error: Any) -> str | None:
    """What is said of an error of Typer for an option that the command does not have; None for another error.

    None as well if it is not known what to do instead.
    """
    # Typer's error for such an option is known by this attribute alone.
    if not hasattr(error, "possibilities") or not error.ctx:
        return None
    option = error.option_name
    command = error.ctx.command
    told = f"No such option: {option}"
    if isinstance(command, TyperGroup):
        return f"{told}. The options of a command stand behind it"
    for parameter in command.params:
        if parameter.param_type_name == "argument" and option == f"--{parameter.name}":
            return f"{told}. That is an argument: leave {option} out, and keep what follows"
    todo = instead_of(option, command.name or "")
    return f"{told}; {todo}" if todo else None


app = typer.Typer(
    name="pipedec",
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Generate texts of several sentences, or JSON objects, in fewer decoder calls. A sentence starts Δt "
        "time-steps after the one above it. A call writes a token in every open sentence."
    ),
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from pipedec_cli.data.writing import package_version

        typer.echo(f"pipedec {package_version('pipedec') or 'source'}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and exit.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """The options that stand before a subcommand."""


shard_app = typer.Typer(no_args_is_help=True, help=SHARD_HELP)
add(shard_app, MERGE)
for command in COMMANDS:
    add(app, command)
    if command.name == "generate":  # `shard` merges its parts
        app.add_typer(shard_app, name="shard")


def main() -> None:
    """Run the app: a user's mistake is one line and exit code 2, a closed pipe no fuss."""
    # Else Python visits the millions of objects of torch and transformers before it
    # ends: half a second to 1.5 s.
    atexit.register(gc.freeze)
    told = None
    with signals.handled():
        try:
            _prepare_streams()
            tame_libraries()
            app()
        except SystemExit as end:
            if not signals.is_pending(end.code):
                raise
            told = signals.interruption()
        except KeyboardInterrupt:  # outside a command
            told = signals.interruption()
        except BrokenPipeError:
            # The reader of our stdout has gone (`pipedec … | head`); keep the
            # interpreter from complaining at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(EXIT_ERROR)
        except (UserError, OSError, MemoryError, RuntimeError) as error:
            told = _end_of(error)
            if told is None:
                raise
    if told:
        # By now nothing holds a reader of parquet, whose thread would abort the
        # interpreter as it ends.
        _fail(*told)


def _end_of(error: Exception) -> tuple[str, int] | None:
    """What is said of an error, and the exit code; None if it is a fault of pipedec."""
    if isinstance(error, UserError):
        return str(error), EXIT_USAGE
    if isinstance(error, OSError):
        code = EXIT_ERROR if error.errno in _OF_THE_MACHINE else EXIT_USAGE
        return _of_system(error), code
    if is_out_of_memory(error):
        todo = "take smaller batches, shorter texts or a smaller model"
        return f"the memory is too small; {todo}", EXIT_ERROR
    return None


def _of_system(error: OSError) -> str:
    """What the operating system says, with the path that it is about."""
    # The second name is the new one of a file that cannot be renamed.
    path = error.filename2 or error.filename
    told = f"{path}: {error.strerror}" if path else str(error.strerror or error)
    if error.errno == errno.ENOSPC:
        told += "; free some space, or write elsewhere"
    return told


def _prepare_streams() -> None:
    """Open the null device for a standard stream that is closed, and let standard output be UTF-8."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # Where one is closed, the next file that is opened would get its number and
        # text.
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    if not isinstance(sys.stdout, io.TextIOWrapper):
        return
    # Data are UTF-8; a terminal may have no letter for something.
    if sys.stdout.isatty():
        sys.stdout.reconfigure(errors="replace")
    else:
        sys.stdout.reconfigure(encoding="utf-8")


def _fail(message: str, code: int) -> NoReturn:
    """Say why a command fails, and end with an exit code.

    Of several processes that train together the first one speaks; the others only if it
    does not, some seconds later. Of a signal that all of them get, one or none does.
    """
    if process_count() > 1:
        if code == signals.TERMINATED or (
            code == signals.INTERRUPTED and not is_main()
        ):
            sys.exit(code)  # whoever ended them, or one of them, says so
        if not is_main():
            # The first says what ends all of them; its launcher ends the others.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            time.sleep(_PRECEDENCE)
    Talk().error(message)
    sys.exit(code)
