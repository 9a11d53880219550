"""The app as a whole: how it starts, how it fails, that every command is explained, and that shells complete it."""

import errno
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pipedec_cli.cli import app as module
from pipedec_cli.cli import signals
from pipedec_cli.data.demo import make_demo
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.writing import only_writer
from pipedec_cli.view.console import tame_libraries
from tests.running import run, write_lines
from tests.words import same_words

ROOT = Path(__file__).parents[2]


SIGNALS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]


def python(*words: str, **more: Any) -> Any:
    """How a process of Python ends, and what it says."""
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, **more
    )


ALLOCATORS = (
    MemoryError(),
    type("OutOfMemoryError", (RuntimeError,), {})(
        "CUDA out of memory. Tried to allocate 80 GiB"
    ),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: can't allocate memory"
    ),
)
OUT_OF_MEMORY = "error: the memory is too small; take smaller batches, shorter texts or a smaller model"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            UserError("no target", where="a:3", todo="add one"),
            2,
            "error: a:3: no target; add one",
        ),
        (
            OSError(28, "No space left on device", "out.jsonl"),
            1,
            "error: out.jsonl: No space left on device; free some space, or write elsewhere",
        ),
        (
            IsADirectoryError(errno.EISDIR, "Is a directory", "out"),
            2,
            "error: out: Is a directory",
        ),
        (
            IsADirectoryError(errno.EISDIR, "A folder", ".out.partial", None, "out"),
            2,
            "error: out: A folder",
        ),
        *((error, 1, OUT_OF_MEMORY) for error in ALLOCATORS),
        (
            OSError(errno.ELOOP, "Too many links", "a/b"),
            2,
            "error: a/b: Too many links",
        ),
        (
            UserError("a\x1b[31m\x9b\x00b\nc\u202ed\u2028\ud800\u200d"),
            2,
            "error: a␛[31m�␀b␊c�d��\u200d",
        ),
        (
            UserError("x" * 999, where="f:1", todo="mend"),
            2,
            f"error: f:1: {'x' * 245} … {'x' * 141}; mend",
        ),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(error, code, line, monkeypatch, capsys):
    monkeypatch.setattr(module, "app", Mock(side_effect=error))
    with pytest.raises(SystemExit) as raised:
        module.main()
    assert (raised.value.code, capsys.readouterr().err) == (code, f"{line}\n")


def test_what_libraries_warn_of_and_log_is_one_line_without_control_characters(
    caplog, capsys
):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            tame_libraries()
            warnings.warn("a\x1b[2J\nb", stacklevel=1)
        logging.getLogger("a.library").warning("%s\x1b[2J", "c\nd")
    finally:
        logging.setLogRecordFactory(logging.LogRecord)
    assert capsys.readouterr().err == "warning: a␛[2J␊b\n"
    assert caplog.messages == ["c␊d␛[2J"]


@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
def test_ctrl_c_and_sigterm_are_one_line_and_their_exit_code(
    tmp_path, number, code, word
):
    program = [
        sys.executable,
        "-m",
        "pipedec_cli",
        "segment",
        "-",
        "--out",
        str(tmp_path / "out"),
    ]
    # What a shell starts in the background ignores SIGINT, and so do its children.
    heed = partial(signal.signal, number, signal.SIG_DFL)
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(program, text=True, preexec_fn=heed, **pipes)  # noqa: PLW1509
    assert (
        process.stdin is not None
    )  # it gets more than a pipe holds, so that it is being read
    process.stdin.write('{"source": "a", "target": "b"}\n' * 10_000)
    process.stdin.flush()
    os.kill(process.pid, number)
    _, talk = process.communicate()
    assert process.returncode == code
    assert talk.splitlines()[-1] == f"error: {word}"
    assert not list(tmp_path.rglob("*"))


#: A program that gets a signal where it imports a module for the first time.
SIGNALLED = """
import os, sys
class Finder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Finder())
sys.argv[:] = ["pipedec", "segment", "-"]
from pipedec_cli.__main__ import main
main()
"""


@pytest.mark.parametrize(
    "imported", ["typer", "rich", "pipedec_cli.cli.app", "pipedec_cli.cli.commands"]
)
@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
def test_a_signal_while_the_command_is_being_imported_is_one_line_and_its_exit_code(
    number, code, word, imported
):
    done = python(
        "-c",
        SIGNALLED.format(module=imported, number=int(number)),
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stderr) == (code, f"error: {word}\n")


def test_sigterm_while_options_are_read_ends_with_its_line_and_code(
    monkeypatch, capsys
):
    monkeypatch.setattr(signals, "terminated", threading.Event())

    def silent() -> None:  # as Typer ends where no command runs yet
        with suppress(KeyboardInterrupt):
            signals.stop(signal.SIGTERM, None)
        sys.exit(signals.INTERRUPTED)

    monkeypatch.setattr(module, "app", silent)
    with pytest.raises(SystemExit) as end:
        module.main()
    assert (end.value.code, capsys.readouterr().err) == (143, "error: terminated\n")


@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
@pytest.mark.parametrize("more", ["", "os.kill(os.getpid(), {})\ntime.sleep(9)"])
def test_a_signal_within_an_import_that_swallows_errors_ends_the_command_as_ever_and_a_second_one_at_once(
    tmp_path, number, code, word, more
):
    swallow = f"import os, time\ntry:\n    os.kill(os.getpid(), {int(number)})\nexcept BaseException:\n    raise ImportError"
    (tmp_path / "slow.py").write_text(
        f"{swallow}\n{more.format(int(number))}\ntime.sleep(0.3)\n"
    )
    program = "import sys; sys.argv[:] = ['pipedec', 'segment', '-']; from pipedec_cli.cli.app import main; "
    program += "from pipedec_cli.jobs import segment as job; "
    program += "job.segment = lambda *_: __import__('slow') and __import__('time').sleep(9); main()"
    began = time.monotonic()
    done = python("-c", program, env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert (done.returncode, done.stderr) == (code, f"error: {word}\n")
    assert time.monotonic() - began < 9


def test_a_signal_within_the_last_import_is_no_success(tmp_path):
    (tmp_path / "last.py").write_text("import os\nos.kill(os.getpid(), 2)\n")
    program = "import sys; sys.argv[:] = ['pipedec', 'segment', '-']; from pipedec_cli.cli.app import main; "
    program += "from pipedec_cli.jobs import segment; segment.segment = lambda *_: __import__('last') and sys.exit(); main()"
    done = python("-c", program, env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")


@pytest.mark.parametrize("swallowed", [True, False])
def test_sigterm_comes_again_where_its_exception_is_swallowed_and_never_ends_as_by_sigint(
    swallowed, tmp_path
):
    program = "import os, signal, sys, time; sys.argv[:] = ['pipedec', 'segment', '-']; from pipedec_cli.cli import app, signals\n"
    program += "from pipedec_cli.jobs import segment as job\nsignals.AGAIN = 0.2\nkill = lambda: os.kill(os.getpid(), 15)\n"
    program += "def swallow():\n    try:\n        kill()\n    except BaseException:\n        time.sleep(9)\n"
    # Python notes an exact KeyboardInterrupt within `exec`, and `python -m` then ends
    # as by SIGINT.
    work = "swallow()" if swallowed else "exec('kill()', {'kill': kill})"
    (tmp_path / "work.py").write_text(
        f"{program}job.segment = lambda *_: {work}\napp.main()\n"
    )
    done = python("-m", "work", env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert (done.returncode, done.stderr) == (143, "error: terminated\n")


def test_a_command_ends_at_once_and_visits_no_object_that_goes_with_its_process():
    program = "import atexit, gc, sys; atexit.register(lambda: print(gc.get_freeze_count() > 0)); "
    program += "from pipedec_cli.cli.app import main; main()"
    assert python("-c", program, "--version").stdout.endswith("True\n")


CHEAP_MISTAKES = """
train -w w
train nofolder -w w
train -w w --model none --out new
train -w w --model bare --out new
train -w w --resume --overwrite
train -w file
generate -w w --model bare
generate -w stopped
generate -w w --out locked.jsonl
report -w none
report -w w --baseline none
report -w stopped
"""


def test_cheap_mistakes_are_told_before_torch_is_imported(tmp_path):
    """Paths, markers and locks are looked at first."""
    row = {"source": "a", "target": "b", "target_segments": ["b"]}
    for split in ("train", "test"):
        write_lines(tmp_path / f"w/data/{split}.jsonl", row)
    write_lines(
        tmp_path / "w/models/pipelined/training.json", {"settings": {}, "result": {}}
    )
    write_lines(tmp_path / "stopped/models/pipelined/training.json", {"settings": {}})
    (tmp_path / "stopped/data").symlink_to(tmp_path / "w/data")
    (tmp_path / "w/models/pipelined/config.json").write_text("{}")
    (tmp_path / "bare").mkdir()
    (tmp_path / "file").touch()
    program = (
        "import sys; from typer.testing import CliRunner; from pipedec_cli.cli.app import app\n"
        "for line in sys.argv[1:]: print(CliRunner().invoke(app, line.split()).exception)\n"
        "print('torch' in sys.modules)"
    )
    with only_writer(tmp_path / "locked.jsonl", todo=""):
        said = subprocess.check_output(
            [sys.executable, "-c", program, *CHEAP_MISTAKES.strip().split("\n")],
            cwd=tmp_path,
            text=True,
        )
    assert same_words(said).endswith("\nFalse\n")


def test_the_hubs_retries_are_no_lines_and_its_errors_are():
    program = (
        "import logging; from pipedec_cli.view.console import tame_libraries; tame_libraries()\n"
        "import huggingface_hub.utils._http; log = logging.getLogger('huggingface_hub.utils._http')\n"
        "log.warning('Retrying in 1s'); log.error('failed')"
    )
    variables = {
        name: value for name, value in os.environ.items() if name != "HF_HUB_VERBOSITY"
    }
    assert python("-c", program, env=variables).stderr == "failed\n"


@pytest.mark.parametrize(
    ("closed", "code"),
    [
        ("segment - < /dev/null", 2),
        ("segment - <&-", 2),
        ("import parallel src.txt --targets trg.txt --out - -q >&-", 2),
        ("segment --help >&-", 0),
        ("segment --help 2>&-", 0),
        ("segment --help | head -c 1", 0),
    ],
)
def test_a_stream_that_is_closed_is_an_empty_one_and_takes_no_data(
    tmp_path, closed, code
):
    for name in ("src", "trg"):
        (tmp_path / f"{name}.txt").write_text("a\n")
    script = ["bash", "-c", f"{sys.executable} -m pipedec_cli {closed}"]
    outcome = subprocess.run(
        script, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == code
    same_words(outcome.stderr)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_data_are_utf_8_whatever_the_locale_says(encoding):
    variables = {**os.environ, "PYTHONIOENCODING": encoding}
    outcome = python(
        "-m", "pipedec_cli", "segment", "--help", env=variables, encoding="utf-8"
    )
    assert (outcome.returncode, outcome.stderr) == (0, "") and "Δt" in outcome.stdout


def test_the_last_line_of_a_command_names_the_next_one(empty_folder):
    write_lines("data.jsonl", *make_demo(30, seed=0))
    write_lines("made.jsonl", {"id": "1", "prediction": "A.", "target": "A."})
    write_lines("texts.txt", "a")
    text = ("import", "parallel", "texts.txt", "--targets", "texts.txt")
    bench = ("bench", "--model", "scratch-tiny", "--subsequences", 1, "--tokens", 2)
    for words, then in (
        (("segment", "data.jsonl"), "train"),
        (("segment", "data.jsonl", "--config", "pubmed"), "train --config pubmed"),
        (("score", "made.jsonl"), "score made.jsonl OTHER"),
        (text, "segment parallel.jsonl --level phrase"),
        (bench, "segment DATA"),
    ):
        assert run(*words).stderr.endswith(f"next: `pipedec {then}`\n")
