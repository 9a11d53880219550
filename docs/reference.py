"""Makes the page of all commands and settings out of the settings themselves, so that it cannot fall behind them."""

from collections.abc import Iterator
from inspect import cleandoc
from typing import Final

from pipedec_cli.cli.commands import COMMANDS, MERGE
from pipedec_cli.cli.options import Command
from pipedec_cli.jobs.settings import Setting

#: The page, beside this file. Git does not keep it.
PAGE: Final = "commands.md"
_HEAD: Final = """\
# Commands and settings

Options stand on the command line. Keys stand in a config file, or behind `--set`: `--set trace=true`.
A config file is TOML. Its table has the name of the command:

```
[generate]
delay = 2
time_max = 80
```
"""


def commands_page() -> str:
    """The page as Markdown: a section for each command, with what it does, its options, its keys and examples."""
    lines = [_HEAD]
    for command in COMMANDS:
        lines += _section(command, f"pipedec {command.name}")
    lines += _section(MERGE, "pipedec shard merge")
    return "\n".join(lines)


def _section(command: Command, name: str) -> Iterator[str]:
    """The lines of one command."""
    yield f"## {name}\n"
    yield cleandoc(command.run.__doc__ or "") + "\n"
    options = [each for each in command.declared if each.role != "key"]
    keys = [each for each in command.declared if each.role == "key"]
    yield from _table("Option", options)
    if keys:
        yield from _table("Key", keys)
    yield "```"
    yield command.examples.strip()
    yield "```\n"


def _table(title: str, settings: list[Setting]) -> Iterator[str]:
    """A table of settings, a row for each."""
    yield f"| {title} | Value | Default | |"
    yield "|---|---|---|---|"
    for setting in settings:
        names = ", ".join(f"`{name}`" for name in _names(setting))
        value = "" if setting.is_flag else _cell(f"`{setting.called}`")
        usual = f"`{_cell(setting.usual)}`" if setting.usual else ""
        yield f"| {names} | {value} | {usual} | {_cell(setting.text)} |"
    yield ""


def _names(setting: Setting) -> tuple[str, ...]:
    """What is typed for a setting: its options, its key, or the name of an argument in capitals."""
    if setting.role == "argument":
        return (setting.name.upper(),)
    if setting.role == "key":
        return (setting.name,)
    return setting.names or (setting.option,)


def _cell(text: str) -> str:
    """A text that may stand in a cell of a table."""
    return text.replace("|", "\\|")
