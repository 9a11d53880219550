"""The app as a whole: how it starts, how it fails, that every command is explained, and that shells complete it."""

import errno
import logging
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from pipedec_cli.cli import app as module
from pipedec_cli.cli import segment
from pipedec_cli.cli.app import app
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.writing import only_writer
from pipedec_cli.jobs.commands import quoted
from pipedec_cli.jobs.segment import SegmentSettings
from pipedec_cli.view.console import one_line, tame_libraries
from tests.running import read_json, refused, run, write_lines

ROOT = Path(__file__).parents[2]


def found_command(words: Sequence[str]) -> tuple[Any, list[str], list[str]]:
    """The command that words call, its name and its arguments; `shard` has commands of its own."""
    command, name, rest = get_command(app), list[str](), list(words)
    while rest and rest[0] in getattr(command, "commands", {}):
        name.append(rest.pop(0))
        command = command.commands[name[-1]]  # type: ignore[attr-defined]
    return command, name, rest


COMMANDS = sorted({*get_command(app).commands} - {"shard"} | {"shard merge"})  # type: ignore[attr-defined]
TO_A_FOLDER = ("segment x --out", "train --out", "report --out", "demo --out")
MOST_OPTIONS_AND_KEYS = 200
SIGNALS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
HEAVY = ("torch", "transformers", "datasets", "nltk", "numpy", "scipy", "rouge_score")


def python(*words: str, **more: Any) -> Any:
    """How a process of Python ends, and what it says."""
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, **more
    )


def test_help_imports_nothing_heavy():
    program = "import sys; from pipedec_cli.cli.app import main\n"
    program += f"try: main()\nfinally: print([*{{*{HEAVY}}} & {{*sys.modules}}], file=sys.stderr)"
    outcome = python("-c", program, "--help")
    assert outcome.stderr.strip() == "[]"
    assert "segment" in outcome.stdout


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_help_is_tidy_at_every_width_and_examples_can_be_pasted(command, width):
    shown, unbroken = (
        run(*command.split(), "--help", columns=columns).stdout
        for columns in (width, 1000)
    )
    assert sorted(shown.split()) == sorted(unbroken.split()), "no word is broken"
    lines, examples = (part.splitlines() for part in shown.split("\nExamples\n"))
    assert max(map(len, lines)) <= width
    commands = [line.partition("  # ")[0] for line in examples]
    assert max(map(len, examples)) <= 100
    assert unbroken.endswith(f"{examples[-1]}\n"), "nothing breaks a command"
    pasted = re.sub(r"\\\n *", "", "\n".join(commands))
    called = [
        call
        for line in pasted.splitlines()
        for call in re.split(r"[|>]|&&|-m (?=pipedec_cli)", line)
    ]
    calls = [shlex.split(call) for call in called if re.match(r"\s*pipedec", call)]
    assert width < 100 or len(shown.rstrip().splitlines()) <= 50, "it fits one screen"
    called = [found_command(call[1:]) for call in calls]
    assert command in {" ".join(name) for _, name, _ in called}
    for one, name, arguments in called:  # with all that is typed understood
        one.make_context(name[-1], arguments)


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
    "imported", ["typer", "rich", "pipedec_cli.cli.app", "pipedec_cli.serve.command"]
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
    monkeypatch.setattr(module, "_TERMINATED", threading.Event())

    def silent() -> None:  # as Typer ends where no command runs yet
        with suppress(KeyboardInterrupt):
            module._stop(signal.SIGTERM, None)
        sys.exit(module.EXIT_INTERRUPTED)

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
    program += "from pipedec_cli.cli import segment; segment.job.segment = lambda *_: __import__('last') and sys.exit(); main()"
    done = python("-c", program, env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")


@pytest.mark.parametrize("swallowed", [True, False])
def test_sigterm_comes_again_where_its_exception_is_swallowed_and_never_ends_as_by_sigint(
    swallowed, tmp_path
):
    program = "import os, signal, sys, time; sys.argv[:] = ['pipedec', 'segment', '-']; from pipedec_cli.cli import app\n"
    program += "from pipedec_cli.jobs import segment as job\napp._AGAIN = 0.2\nkill = lambda: os.kill(os.getpid(), 15)\n"
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
    told = {
        "train -w w": "holds a trained model",
        "train nofolder -w w": "nofolder: no such folder",
        "train -w w --model none --out new": "no checkpoint folder 'none'",
        "train -w w --model bare --out new": "bare: not a model; it holds no config.json",
        "generate -w w --model bare": "bare: not a model",
        "generate -w stopped": "training has not come to its end",
        "generate -w w --out locked.jsonl": "is being written by",
        "report -w none": "is not there yet",
        "report -w w --baseline none": "no checkpoint folder 'none'",
        "report -w stopped": "training has not come to its end",
    }
    program = (
        "import sys; from typer.testing import CliRunner; from pipedec_cli.cli.app import app\n"
        "for line in sys.argv[1:]: print(CliRunner().invoke(app, line.split()).exception)\n"
        "print('torch' in sys.modules)"
    )
    with only_writer(tmp_path / "locked.jsonl", todo=""):
        said = subprocess.check_output(
            [sys.executable, "-c", program, *told], cwd=tmp_path, text=True
        )
    *lines, imported = said.splitlines()
    assert [
        words
        for words, line in zip(told.values(), lines, strict=True)
        if words not in line
    ] == []
    assert imported == "False"


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
    ("closed", "code", "told"),
    [
        ("segment - < /dev/null", 2, "standard input: is empty"),
        ("segment - <&-", 2, "standard input: is empty"),
        (
            "import parallel src.txt --targets trg.txt --out - -q >&-",
            2,
            "standard output is closed",
        ),
        *((f"segment --help {end}", 0, "") for end in (">&-", "2>&-", "| head -c 1")),
    ],
)
def test_a_stream_that_is_closed_is_an_empty_one_and_takes_no_data(
    tmp_path, closed, code, told
):
    for name in ("src", "trg"):
        (tmp_path / f"{name}.txt").write_text("a\n")
    script = ["bash", "-c", f"{sys.executable} -m pipedec_cli {closed}"]
    outcome = subprocess.run(
        script, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (
        outcome.returncode == code
        and told in outcome.stderr
        and outcome.stderr.count("\n") == bool(told)
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_data_are_utf_8_whatever_the_locale_says(encoding):
    variables = {**os.environ, "PYTHONIOENCODING": encoding}
    outcome = python(
        "-m", "pipedec_cli", "segment", "--help", env=variables, encoding="utf-8"
    )
    assert (outcome.returncode, outcome.stderr) == (0, "") and "Δt" in outcome.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["segment", "x", "--level", "word"],
            "Invalid value for '--level': 'word' is not sentence, phrase",
        ),
        (["generate", "--nonsense"], "No such option: --nonsense"),
        (
            ["generate", "--data", "x"],
            "No such option: --data. That is an argument: leave --data out",
        ),
        (["train", "--epochs", "many"], "Invalid value for '--epochs'"),
        (["segment"], "Missing argument"),
        (["nonsense"], "No such command 'nonsense'; see `pipedec"),
        (["segmnt"], "No such command 'segmnt'. Did you mean 'segment'? see `pipedec"),
        *(
            ([*one.split(), "-"], "Invalid value for '--out': - is standard output")
            for one in TO_A_FOLDER
        ),
        (
            ["report", "-w", "-"],
            "Invalid value for '--workspace': - is standard output",
        ),
        (
            ["generate", "--max-source-tokens", "65537"],
            "Invalid value for '--max-source-tokens'",
        ),
        (
            ["--nonsense"],
            "No such option: --nonsense. The options of a command stand behind it",
        ),
        (["segment", "x", "'--set'"], "Got unexpected extra argument(s) ('--set')"),
        (["generate", "--delay"], "Option '--delay' requires an argument"),
    ],
)
def test_what_is_wrong_with_an_option_is_said_in_one_line(arguments, told):
    result = run(*arguments, exit_code=2)
    assert result.stderr.startswith(f"error: {told}")
    assert result.stderr.count("\n") == 1
    assert "--help`" in result.stderr
    assert "Value error" not in result.stderr


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "no such file"),
        ("delay =", "not a TOML file"),
        (
            "[generate]\nnon-sense = 1\n",
            "unknown setting 'non-sense' for `pipedec generate`",
        ),
        ("[generate]\nepochs = 1\n", "unknown setting 'epochs' for `pipedec generate`"),
        ("non-sense = 1\n", "unknown setting 'non-sense' for any command"),
        ("config = 'c.toml'\n", "unknown setting 'config' for any command"),
        (
            "[Generate]\ndelay = 1\n",
            "[Generate] is no table of pipedec; its tables are named after commands",
        ),
    ],
)
def test_a_config_file_that_does_not_fit_is_refused(tmp_path, content, told):
    path = tmp_path / "c.toml"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    said = refused("generate", "--config", path)
    assert said.startswith(f"{path}: ") and told in said


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "train --resume --overwrite",
            "--resume and --overwrite are both given; give one of them",
        ),
        ("train --epochs 0", "0.0 is not from 0.001 to 1,000,000,000"),
        ("train --learning-rate 1e99", "1e+99 is not from 0.0 to 1,000,000,000"),
        ("train --learning-rate nan", "nan is not from 0.0 to 1,000,000,000"),
        ("train --seed -1", "-1 is not from 0 to 4,294,967,295"),
        (
            f"train --delay {10**20}",
            "give a whole number from 1 to 1,000,000, or 'any'",
        ),
        (
            f"generate --delay {10**20}",
            "give a whole number from 1 to 1,000,000, or 'wait'",
        ),
        (
            f"generate --delay 1{'0' * 5000}",
            "give a whole number from 1 to 1,000,000, or 'wait'",
        ),
        (
            "generate --batch-size 1000001",
            "give a whole number from 1 to 1,000,000, or 'auto'",
        ),
        ("train --batch-size 1000001", "1000001 is not from 1 to 1,000,000"),
        (f"generate --limit {10**20}", f"{10**20} is not from 1 to 1,000,000,000"),
        (
            f"report --delays 1,{10**20}",
            "give whole numbers from 1 to 1,000,000 or 'wait'",
        ),
        ("bench --subsequences 1000000 --tokens 12", "1000000 is not from 1 to 1,000"),
        ("train -w FILE", "FILE: is a file; name a folder"),
        ("score -", "- is standard input, which is not read here: give a path"),
    ],
)
def test_a_mistake_is_refused_before_any_work(tmp_path, monkeypatch, line, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").write_text("")
    (tmp_path / "pipedec-workspace/data").mkdir(parents=True)
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code and told in result.stderr + str(result.exception)


def test_two_commands_share_a_config_file_whose_keys_go_to_those_that_have_them(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_lines("in.jsonl", {"source": "a", "target": "b"})
    keys = 'workspace = "w"\nlevel = "clause"\ndelay = 3\nlimit = 1\nepochs = 2\n'
    Path("c.toml").write_text(f"{keys}[train]\ndelay = 2\n", encoding="utf-8")
    run("segment", "in.jsonl", "--config", "c.toml")
    assert read_json("w/data/segmentation.json")["level"] == "clause"
    assert "w/models/pipelined is not there yet" in refused(
        "generate", "--config", "c.toml", "--split", "train"
    )


def test_a_config_file_is_not_written_over(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("task = 'fields'\n", encoding="utf-8")
    told = refused("score", "--out", path, "--config", path)
    assert told == f"{path}: would be written over; name another file"
    assert path.read_text(encoding="utf-8") == "task = 'fields'\n"


@pytest.mark.parametrize(
    ("command", "setting"),
    [
        ("segment none.jsonl", 'dev = "a\\u0000b"'),
        ("segment none.jsonl", "limit = 10000000000000000000000"),
        ("segment none.jsonl", "limit = true"),
        ("segment none.jsonl", '[segment]\nsub-max = "many"'),
        ("segment none.jsonl", "held-out = nan"),
        ("segment none.jsonl", "level = 2024-01-01"),
        ("generate", f"batch-size = {10**20}"),
        ("report", f"delays = [1, {10**20}]"),
        ("train", "epochs = inf"),
        ("report", "split = 0"),
        ("report", "batch-sizes = [[]]"),
        ("report", "split = []"),
        ("report", "[report]\ndelays = {a = 1}"),
    ],
)
def test_what_is_no_value_of_an_option_is_refused_in_a_config_file_too(
    tmp_path, command, setting
):
    path = tmp_path / "c.toml"
    path.write_text(setting, encoding="utf-8")
    result = run(*command.split(), "--config", path, exit_code=2)
    assert result.stderr.startswith("error: Invalid value for ")
    assert "many" not in setting or f"(in {path})" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("pair", "wrong"),
    [
        ("held_out", "'held_out' is not KEY=VALUE"),
        ("nonsense=1", "there is no key 'nonsense'; the keys are keep, held_out, "),
        ("level=phrase", "there is no key 'level'; write --level instead"),
        ("held_out=2", "held_out: 2.0 is not from 0.0 to 1.0"),
        ("held_out=nan", "held_out: nan is not from 0.0 to 1.0"),
        ("sub_max=many", "sub_max: 'many' is not a whole number"),
        ("keep=a\0b", "cannot be used"),
    ],
)
def test_a_key_that_is_typed_wrong_is_refused_in_one_line(pair, wrong):
    said = run("segment", "none.jsonl", "--set", pair, exit_code=2).stderr
    assert wrong in said and said.count("\n") == 1


def test_a_key_that_is_typed_wins_over_a_config_file_and_that_over_a_recipe(
    tmp_path, monkeypatch
):
    asked: list[SegmentSettings] = []
    monkeypatch.setattr(
        segment.job,
        "segment",
        lambda settings, _: asked.append(settings) or sys.exit(0),
    )
    path = tmp_path / "c.toml"
    path.write_text("[segment]\nsub-max = 7\nheld-out = 0.3\n", encoding="utf-8")
    for options in ((), ("--config", path), ("--config", path, "--set", "sub_max=9")):
        run("segment", "x", "--recipe", "pubmed", *options)
    assert [one.sub_max for one in asked] == [20, 7, 9]
    assert [one.held_out for one in asked] == [0.1, 0.3, 0.3]
    assert ["sub_max" in one.from_recipe for one in asked] == [True, False, False]
    path.write_text(
        '[segment]\nw = "elsewhere"\nq = true\n', encoding="utf-8"
    )  # -w and -q
    run("segment", "x", "--config", path)
    assert (asked[-1].workspace, asked[-1].quiet) == (Path("elsewhere"), True)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_all_shows_every_key_and_help_none(command):
    keys = [
        one.name
        for one in found_command(command.split())[0].settings
        if one.role == "key"
    ]
    if keys:
        every = run(*command.split(), "--help-all", columns=200).stdout
        assert all(f"  {name} " in every for name in keys)
        assert "Keys of the config file" not in run(*command.split(), "--help").stdout


def test_options_and_keys_are_few():
    every = [
        one
        for command in COMMANDS
        for one in found_command(command.split())[0].settings
    ]
    assert (
        len([one for one in every if one.role != "argument"]) <= MOST_OPTIONS_AND_KEYS
    )


@pytest.mark.parametrize(
    ("shell", "script"), [("zsh", "_pipedec"), ("fish", "pipedec.fish")]
)
def test_the_committed_completion_script_is_what_the_app_prints(shell, script):
    program = "import sys; sys.argv[0] = 'pipedec'; from pipedec_cli.cli.app import main; main()"
    printed = python(
        "-c", program, env={**os.environ, "_PIPEDEC_COMPLETE": f"source_{shell}"}
    ).stdout
    # Without the blank lines around it: zsh wants #compdef on the first line.
    assert (ROOT / "completions" / script).read_text() == printed.strip() + "\n"


def test_bash_completes_commands_options_and_values_without_python():
    script = ROOT / "completions/pipedec.bash"
    wanted = runpy.run_path(str(ROOT / ".ci/completions"))["script"]()
    assert script.read_text() == wanted, "run .ci/completions"
    asked = {"gen": "generate", "train --max-st": "--max-steps"}
    asked |= {"train --delay a": "any", "report --delays w": "wait"}
    asked |= {
        "segment --recipe pu": "pubmed",
        "bench --compare sequential,tr": "sequential,transformers",
    }
    for words, completed in asked.items():
        line = f"COMP_WORDS=(pipedec {words}); COMP_CWORD={len(words.split())}; _pipedec; echo $COMPREPLY"
        told = subprocess.check_output(
            ["bash", "-c", f"PATH=; . {script}; {line}"], text=True
        )
        assert told.strip() == completed


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
@pytest.mark.parametrize(
    "word",
    [
        "it's",
        "a\n\t'é'\\n\r{source}\n",
        "\x1b[31m\x07e\x7f\x9b",
        "\u2028\u200d☕\u202e",
        "\udcff",
    ],
)
def test_a_shell_reads_a_quoted_word_as_it_was_from_one_line(word):
    assert one_line(quoted(word)) == quoted(word), (
        "nothing that is shown by another symbol"
    )
    told = subprocess.run(
        ["bash", "-c", f"printf %s {quoted(word)}"], capture_output=True, check=True
    )
    assert os.fsdecode(told.stdout) == word
