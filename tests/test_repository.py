"""The licence and the ignored files of the repository."""

import hashlib
import re
import tomllib
from pathlib import Path

from pipedec_cli.cli.demo import DemoSettings

ROOT = Path(__file__).parents[1]
#: SHA-256 of the text on apache.org.
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def test_the_declared_licence_is_there_word_for_word():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2


def test_the_version_has_its_section_in_the_changelog_and_is_the_one_to_cite():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    version = project["project"]["version"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    dated = re.search(rf"^## \[{version}\] - (\d{{4}}-\d\d-\d\d)$", changes, re.M)
    assert dated
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {version}\ndate-released: {dated[1]}\n" in cited


def test_git_ignores_the_folders_that_the_commands_make():
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {f"{DemoSettings().out}/", "pipedec-workspace/"} <= set(ignored)


def test_nothing_of_ours_is_pickled_nor_unpickled():
    """Not even between the driver and the workers of a cluster: they exchange JSON."""
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for path in ROOT.glob("pipedec_cli/**/*.py")
    }
    imported = re.compile(
        r"^\s*(import|from) \w*(pickle|dill|shelve|marshal)", re.MULTILINE
    )
    assert (
        texts and [name for name, text in texts.items() if imported.search(text)] == []
    )
