"""The site: every page is in its contents, and the page of commands has every setting."""

import re
import runpy
from pathlib import Path

from pipedec_cli.cli.commands import COMMANDS, MERGE

DOCS = Path(__file__).parents[1] / "docs"
REFERENCE = runpy.run_path(str(DOCS / "reference.py"))


def contents() -> list[str]:
    """The names of the pages in the tables of contents of the first page."""
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    tables = re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL)
    lines = "\n".join(tables).splitlines()
    return [line for line in lines if line and not line.startswith(":")]


def test_every_page_is_in_the_contents_once():
    pages = {path.stem for path in DOCS.glob("*.md")} | {"commands"}
    assert sorted(contents()) == sorted(pages - {"index"})


def test_every_page_is_named_to_programs_that_read():
    named = (DOCS / "llms.txt").read_text(encoding="utf-8")
    pages = {path.stem for path in DOCS.glob("*.md")} | {"commands"}
    links = set(re.findall(r"\]\(([\w-]+)\.html\)", named))
    assert links <= pages


def test_the_page_of_commands_has_every_command_and_every_setting():
    sections = REFERENCE["commands_page"]().split("\n## pipedec ")[1:]
    by_name = {section.partition("\n")[0]: section for section in sections}
    names = [command.name for command in COMMANDS]
    assert [*by_name] == [*names, "shard merge"]
    for command in (*COMMANDS, MERGE):
        section = by_name.get(command.name) or by_name["shard merge"]
        for setting in command.declared:
            name = setting.option if setting.role == "option" else setting.name
            typed = name.upper() if setting.role == "argument" else name
            assert f"| `{typed}`" in section or f", `{typed}`" in section, typed
