"""The completion scripts are the ones that the app itself prints, and they complete commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "completions"
SCRIPTS = {"bash": "pipedec.bash", "zsh": "_pipedec", "fish": "pipedec.fish"}


def run(**environment: str) -> str:
    program = "import sys; sys.argv[0] = 'pipedec'; from pipedec_cli.terminal.app import main; main()"
    variables = {**os.environ, **environment}
    return subprocess.check_output([sys.executable, "-c", program], env=variables, text=True)


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_committed_script_is_what_the_app_prints(shell: str) -> None:
    # Without the blank lines around it: zsh wants #compdef on the first line.
    printed = run(_PIPEDEC_COMPLETE=f"source_{shell}").strip() + "\n"
    assert (FOLDER / SCRIPTS[shell]).read_text() == printed


def test_bash_completes_a_command_and_an_option() -> None:
    commands = run(_PIPEDEC_COMPLETE="complete_bash", COMP_WORDS="pipedec gen", COMP_CWORD="1")
    assert commands.split() == ["generate"]
    options = run(_PIPEDEC_COMPLETE="complete_bash", COMP_WORDS="pipedec train --acc", COMP_CWORD="2")
    assert options.split() == ["--accumulation"]
