"""The `pipedec` command: its subcommands, and how errors end it."""

import atexit
import errno
import gc
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperGroup

from pipedec_cli.cli import (
    bench,
    demo,
    generate,
    import_,
    report,
    score,
    segment,
    shard,
    train,
)
from pipedec_cli.cli.options import SET, add
from pipedec_cli.data.errors import UserError, is_out_of_memory
from pipedec_cli.leaving import leave
from pipedec_cli.serve.command import EXAMPLES, serve
from pipedec_cli.training.hyperparameters import is_main, process_count
from pipedec_cli.view.console import Talk, tame_libraries

#: Whatever is wrong with the options; Typer gives the base class of its errors no
#: public name.
UsageError: Any = typer.BadParameter.__mro__[1]

EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED, EXIT_TERMINATED = 1, 2, 130, 143
#: Seconds for which the others of several processes let the first one speak.
_PRECEDENCE: Final = 10.0
#: SIGTERM, once it has come.
_TERMINATED = threading.Event()
#: Seconds after which a signal comes again: where it came within an import, and where a
#: library swallowed that of SIGTERM.
_LATER, _AGAIN = 0.05, 5.0
#: Whether a signal that came within an import is still to come again, and whether this
#: process has sent it.
_PUT_OFF, _SENT = threading.Event(), threading.Event()


class _StoppedError(KeyboardInterrupt):
    """Ctrl-C, or SIGTERM, which ends a run alike. Python notes an exact KeyboardInterrupt, and then ends as by SIGINT."""


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
        with (
            _usage_on_one_line() if args else nullcontext()
        ):  # without any, Typer prints the help
            return super().make_context(info_name, args, *others, **more)

    def invoke(self, ctx: Any) -> Any:
        try:
            with _usage_on_one_line():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            _fail(*_interruption())


@contextmanager
def _usage_on_one_line() -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        told = error.format_message().rstrip(".")
        if hasattr(error, "possibilities") and error.ctx:  # there is no such option
            parameters = error.ctx.command.params
            arguments = [
                f"--{one.name}"
                for one in parameters
                if one.param_type_name == "argument"
            ]
            if (option := error.option_name) in arguments:
                told = f"No such option: {option}. That is an argument: leave {option} out, and keep what follows"
        keys = (
            "-all" if getattr(error, "param_hint", None) == SET else ""
        )  # --help does not list them
        see = f"see `{error.ctx.command_path if error.ctx else 'pipedec'} --help{keys}`"
        _fail(f"{told}{'' if told.endswith('?') else ';'} {see}", EXIT_USAGE)


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


shard_help = "Merge the parts that `generate --part` or `--ray` made of a large corpus."
shard_app = typer.Typer(no_args_is_help=True, help=shard_help)
add(app, "segment", segment.segment, segment.EXAMPLES)
add(app, "train", train.train, train.EXAMPLES)
add(app, "generate", generate.generate, generate.EXAMPLES)
add(shard_app, "merge", shard.merge, shard.EXAMPLES)
app.add_typer(shard_app, name="shard")
add(app, "serve", serve, EXAMPLES)
add(app, "score", score.score, score.EXAMPLES)
add(app, "report", report.report, report.EXAMPLES)
add(app, "bench", bench.bench, bench.EXAMPLES)
add(app, "import", import_.import_data, import_.EXAMPLES)
add(app, "demo", demo.demo, demo.EXAMPLES)


def main() -> None:
    """Run the app: a user's mistake is one line and exit code 2, a closed pipe no fuss."""
    # Else Python visits the millions of objects of torch and transformers before it
    # ends: half a second to 1.5 s.
    atexit.register(gc.freeze)
    told, code = "", 0
    before = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        if before[signal.SIGINT] is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, _stop)
        signal.signal(signal.SIGTERM, _stop)
        _prepare_streams()
        tame_libraries()
        app()
    except SystemExit as end:
        in_silence = (
            end.code == EXIT_INTERRUPTED and _TERMINATED.is_set()
        )  # by Typer, outside a command
        if not (in_silence or _PUT_OFF.is_set()):
            raise
        told, code = _interruption()
    except UserError as error:
        told, code = str(error), EXIT_USAGE
    except BrokenPipeError:
        # The reader of our stdout has gone (`pipedec … | head`); keep the interpreter
        # from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt:  # outside a command
        told, code = _interruption()
    except OSError as error:
        path = (
            error.filename2 or error.filename
        )  # the new name of a file that cannot be renamed
        told = f"{path}: {error.strerror}" if path else str(error.strerror or error)
        told += (
            "; free some space, or write elsewhere"
            if error.errno == errno.ENOSPC
            else ""
        )
        code = EXIT_ERROR if error.errno in _OF_THE_MACHINE else EXIT_USAGE
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        told = "the memory is too small; take smaller batches, shorter texts or a smaller model"
        code = EXIT_ERROR
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code:  # by now nothing holds a reader of parquet, whose thread would abort the interpreter as it ends
        _fail(told, code)


def _prepare_streams() -> None:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if (
            getattr(sys, name) is None
        ):  # closed: the next file that is opened would get its number and text
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    # Data are UTF-8; a terminal may have no letter for something.
    if isinstance(sys.stdout, io.TextIOWrapper):
        how: Any = (
            {"errors": "replace"} if sys.stdout.isatty() else {"encoding": "utf-8"}
        )
        sys.stdout.reconfigure(**how)


def _interruption() -> tuple[str, int]:
    """What ended the command, in a word, and its exit code."""
    return (
        ("terminated", EXIT_TERMINATED)
        if _TERMINATED.is_set()
        else ("interrupted", EXIT_INTERRUPTED)
    )


def _stop(number: int, frame: FrameType | None) -> None:
    """End the command by an exception. Within an import it may be swallowed or misread: the signal comes again later.

    One that comes from outside by then ends the process at once: what is imported may
    be a file of the user's.
    """
    came_again = _SENT.is_set()
    _SENT.clear()
    if number == signal.SIGTERM:
        _TERMINATED.set()
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            if _PUT_OFF.is_set() and not came_again:
                leave(number)
            _PUT_OFF.set()
            _send_later(number, _LATER)
            return
        frame = frame.f_back
    _PUT_OFF.clear()
    if number == signal.SIGTERM:
        _send_later(number, _AGAIN)
    raise _StoppedError


def _send_later(number: int, seconds: float) -> None:
    """Send a signal to this process again, unless it has ended its work by then."""

    def send() -> None:
        if signal.getsignal(number) is _stop:
            _SENT.set()
            os.kill(os.getpid(), number)

    later = threading.Timer(seconds, send)
    later.daemon = True
    later.start()


def _fail(message: str, code: int) -> NoReturn:
    if process_count() > 1:
        if code == EXIT_TERMINATED or (code == EXIT_INTERRUPTED and not is_main()):
            sys.exit(code)  # whoever ended them, or one of them, says so
        if (
            not is_main()
        ):  # the first says what ends all of them; its launcher ends the others
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            time.sleep(_PRECEDENCE)
    Talk().error(message)
    sys.exit(code)
