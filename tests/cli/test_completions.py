"""The files in completions/, for packagers: what Typer prints for each shell."""

from pathlib import Path

import pytest
from typer.completion import get_completion_script

FOLDER = Path(__file__).parents[2] / "completions"
FILES = {"bash": "pipedec.bash", "zsh": "_pipedec", "fish": "pipedec.fish"}


@pytest.mark.parametrize("shell", FILES)
def test_the_scripts_of_shells_are_typers_own(shell):
    script = get_completion_script(
        prog_name="pipedec", complete_var="_PIPEDEC_COMPLETE", shell=shell
    )
    kept = (FOLDER / FILES[shell]).read_text(encoding="utf-8")
    assert kept.strip() == script.strip()


def test_there_is_no_other_script():
    assert {path.name for path in FOLDER.iterdir()} == {*FILES.values()}
