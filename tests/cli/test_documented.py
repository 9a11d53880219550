"""The pages name commands, options, keys and files that exist, and every command stands in the README."""

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from typer.main import get_command

from pipedec_cli.cli.app import app
from tests.trials.readme import PAGES, ROOT

TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
#: `--help`, and options of torchrun, sbatch, accelerate and our trials, which the pages name too.
FOREIGN = {"--help", "--array", "--cases", "--each", "--nproc-per-node", "--use_fsdp", "--fsdp_version"}


def commands(parent: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command with its full name, those of groups such as `shard` too."""
    if not hasattr(parent, "commands"):
        yield name, parent
        return
    for child, command in parent.commands.items():
        yield from commands(command, f"{name} {child}".strip())


COMMANDS = dict(commands(get_command(app)))


def options(command: Any) -> set[str]:
    """The options of a command, as they are typed."""
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)}


def keys(command: Any) -> set[str]:
    """The keys that a command takes with `--set`."""
    return {one.name for one in command.settings if one.role == "key"}


def typed_commands(text: str) -> list[str]:
    """Every command line in the code of a page."""
    joined = text.replace("\\\n", " ")
    fence = re.compile(r"^```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    prose = fence.sub("", joined)
    found = re.findall(r"^(?:\$ )?(pipedec .*)$", "\n".join(fence.findall(joined)), re.MULTILINE)
    found += re.findall(r"^    (pipedec .*)$", prose, re.MULTILINE)
    found += re.findall(r"`(pipedec [^`\n]*)`", prose)
    found += [f"pipedec {rest}" for rest in re.findall(r"-m pipedec_cli (.*?)(?:`|$)", joined, re.MULTILINE)]
    return [re.sub(r"[\[\]…]", " ", line) for line in found]


@pytest.mark.parametrize("page", TEXTS)
def test_every_command_line_in_a_page_has_options_and_keys_that_exist(page):
    for line in typed_commands(TEXTS[page]):
        words = shlex.split(line, comments=True)[1:]
        group = any(name.startswith(f"{words[0]} ") for name in COMMANDS)
        if group and len(words) == 1:
            continue  # the name of a group, in prose
        command = COMMANDS[" ".join(words[: 1 + group])]
        typed = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert typed <= options(command), line
        settings = {value.partition("=")[0] for word, value in pairwise(words) if word == "--set"}
        assert settings <= keys(command), line


@pytest.mark.parametrize("page", TEXTS)
def test_every_option_and_key_that_a_page_names_in_prose_exists(page):
    prose = re.sub(r"^```.*?^```$", "", TEXTS[page], flags=re.DOTALL | re.MULTILINE)
    known = FOREIGN.union(*map(options, COMMANDS.values()))
    assert set(re.findall(r"`[^`\n]*?(?<![\w-])(--[a-z][\w-]*)", prose)) <= known
    settable = set().union(*map(keys, COMMANDS.values()))
    assert set(re.findall(r"--set ([a-z_]+)=", prose)) <= settable
    assert set(re.findall(r"\bkeys? `(\w+)`", prose)) <= settable


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_readme_or_in_a_page(command):
    assert f"pipedec {command.split()[0]}" in TEXTS["README.md"]
    assert any(f"pipedec {command}" in text for text in TEXTS.values())


def test_every_file_that_a_page_names_exists():
    folders = (ROOT, ROOT / "pipedec_cli", ROOT / "pipedec_cli" / "model")
    parts = "pipedec_cli|tests|pipeline|data|model|evaluate|jobs|view|cli|page|serve|engine|training"
    for page, text in TEXTS.items():
        named = set(re.findall(rf"`((?:{parts})/[a-z_0-9/]*(?:\.\w+)?)`", text))
        assert [name for name in named if not any((folder / name).exists() for folder in folders)] == [], page
