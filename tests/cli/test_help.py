"""Help texts: tidy at every width, with examples that can be pasted, and quick."""

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from typer.main import get_command

from pipedec_cli.cli.app import app
from tests.running import run

HEAVY = ("torch", "transformers", "datasets", "nltk", "numpy", "scipy", "rouge_score")
COMMANDS = sorted({*get_command(app).commands} - {"shard"} | {"shard merge"})  # type: ignore[attr-defined]


def found_command(words: Sequence[str]) -> tuple[Any, list[str], list[str]]:
    """The command that words call, its name and its arguments; `shard` has commands of its own."""
    command: Any = get_command(app)
    name, rest = list[str](), list(words)
    while rest and rest[0] in getattr(command, "commands", {}):
        name.append(rest.pop(0))
        command = command.commands[name[-1]]
    return command, name, rest


def test_help_imports_nothing_heavy():
    program = "import sys; from pipedec_cli.cli.app import main\n"
    program += "try: main()\n"
    program += "finally: print([*{*HEAVY} & {*sys.modules}], file=sys.stderr)"
    outcome = subprocess.run(
        [sys.executable, "-c", program.replace("HEAVY", str(HEAVY)), "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.stderr.strip() == "[]"
    assert "segment" in outcome.stdout


def calls_of(lines: Sequence[str]) -> list[list[str]]:
    """The words of the calls of pipedec in lines of a shell."""
    commands = [line.partition("  # ")[0] for line in lines]
    pasted = re.sub(r"\\\n *", "", "\n".join(commands))
    calls = []
    for call in re.split(r"[|>\n]|&&|-m (?=pipedec_cli)", pasted):
        if call.lstrip().startswith("pipedec"):
            calls.append(shlex.split(call)[1:])
    return calls


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_help_is_tidy_at_every_width(command, width):
    words = (*command.split(), "--help")
    shown = run(*words, columns=width).stdout
    unbroken = run(*words, columns=1000).stdout
    assert sorted(shown.split()) == sorted(unbroken.split()), "no word is broken"
    lines, _, examples = shown.partition("\nExamples\n")
    assert max(map(len, lines.splitlines())) <= width
    assert max(map(len, examples.splitlines())) <= 100
    assert unbroken.endswith(examples), "nothing breaks a command"
    if width >= 100:
        assert len(shown.rstrip().splitlines()) <= 50, "it fits one screen"


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_of_a_help_text_can_be_pasted(command):
    shown = run(*command.split(), "--help").stdout
    examples = shown.partition("\nExamples\n")[2].splitlines()
    names = set()
    for call in calls_of(examples):
        called, name, arguments = found_command(call)
        called.make_context(name[-1], arguments)  # all that is typed is understood
        names.add(" ".join(name))
    assert command in names


@pytest.mark.parametrize("command", COMMANDS)
def test_help_all_shows_every_key_and_help_none(command):
    settings = found_command(command.split())[0].settings
    keys = [setting.name for setting in settings if setting.role == "key"]
    if keys:
        every = run(*command.split(), "--help-all", columns=200).stdout
        assert all(f"  {name} " in every for name in keys)
        assert "Keys of the config file" not in run(*command.split(), "--help").stdout
