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
    program = (
        "import sys; from pipedec_cli.cli.app import main\n"
        f"try: main()\nfinally: print([*{{*{HEAVY}}} & {{*sys.modules}}], file=sys.stderr)"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", program, "--help"],
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
    calls = re.split(r"[|>\n]|&&|-m (?=pipedec_cli)", pasted)
    return [shlex.split(call)[1:] for call in calls if re.match(r"\s*pipedec", call)]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_help_is_tidy_at_every_width_and_examples_can_be_pasted(command, width):
    words = (*command.split(), "--help")
    shown, unbroken = (run(*words, columns=columns).stdout for columns in (width, 1000))
    assert sorted(shown.split()) == sorted(unbroken.split()), "no word is broken"
    lines, examples = (part.splitlines() for part in shown.split("\nExamples\n"))
    assert max(map(len, lines)) <= width
    assert max(map(len, examples)) <= 100
    assert unbroken.endswith(f"{examples[-1]}\n"), "nothing breaks a command"
    assert width < 100 or len(shown.rstrip().splitlines()) <= 50, "it fits one screen"
    called = [found_command(call) for call in calls_of(examples)]
    assert command in {" ".join(name) for _, name, _ in called}
    for each, name, arguments in called:  # with all that is typed understood
        each.make_context(name[-1], arguments)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_all_shows_every_key_and_help_none(command):
    settings = found_command(command.split())[0].settings
    keys = [setting.name for setting in settings if setting.role == "key"]
    if keys:
        every = run(*command.split(), "--help-all", columns=200).stdout
        assert all(f"  {name} " in every for name in keys)
        assert "Keys of the config file" not in run(*command.split(), "--help").stdout
