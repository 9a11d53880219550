"""Config files: TOML with top-level keys for all commands and a table for each, of the user's or shipped with pipedec."""

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Final

import typer

from pipedec_cli.cli.removed import instead_of
from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.paper import RECIPES
from pipedec_cli.data.reading import read_toml
from pipedec_cli.jobs.settings import Setting

#: What is typed alone.
_NO_KEYS: Final = ("config", "set", "set_keys")


def bare(name: str) -> str:
    """The name of an option or key as a field has it, such as ``max_tokens``."""
    return name.partition("/")[0].lstrip("-").replace("-", "_")


def by_name(settings: Iterable[Setting]) -> dict[str, Setting]:
    """The settings by each name: that of the field, and those of the option."""
    names = {setting.name: setting for setting in settings}
    for setting in list(names.values()):
        for name in setting.names:
            names.setdefault(bare(name), setting)
    return names


def config_path(name: str) -> Path:
    """The file that ``--config`` names: the user's, or one that ships with pipedec."""
    path = Path(os.path.expanduser(name))  # noqa: PTH111  # it needs no home folder
    if name in RECIPES and not path.is_file():
        return RECIPES[name]
    return path


def read_config(path: Path, context: typer.Context) -> dict[str, Any]:
    """The settings that a config file has for a command: its top-level keys, under those of the command's table.

    A top-level key is for all commands that have it. A `UserError` for one that no
    command has, and for a table of none.
    """
    command = _table(context)
    names_of = _names_of_all(command, context)
    shared, own = _split(path, command, names_of)
    settings = {}
    for name, value in shared.items():
        if bare(name) in names_of[command]:
            settings[name] = value
        elif any(bare(name) in names for names in names_of.values()):
            _warn_of_removed(name, command, path)
        else:
            raise _unknown(name, "any command", path, context)
    for name, value in own.items():
        if bare(name) not in names_of[command]:
            raise _unknown(name, f"`pipedec {command}`", path, context)
        settings[name] = value
    return settings


def _split(
    path: Path, command: str, commands: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The top-level keys of a file, and the keys of a command's table. A `UserError` for a table of none of the commands."""
    shared = {}
    own = {}
    for name, value in read_toml(path).items():
        if not isinstance(value, dict):
            shared[name] = value
        elif name == command:
            own = value
        elif name not in commands:
            what = f"[{name}] is no table of pipedec"
            todo = f"its tables are named after commands: {', '.join(commands)}"
            raise UserError(what, where=path, todo=todo)
    return shared, own


def _table(context: typer.Context) -> str:
    """The name of the running command's table in a config file, such as ``shard`` for `pipedec shard merge`."""
    inner: Any = context
    while inner.parent and inner.parent.parent:
        inner = inner.parent
    return inner.info_name or ""


def _names_of_all(running: str, context: typer.Context) -> dict[str, set[str]]:
    """The names of all settings that a config file may have, by command: of the `running` one and of all others."""
    group: Any = context.find_root().command
    commands: dict[str, Any] = {running: context.command}
    commands |= getattr(group, "commands", {})
    names_of = {}
    for name, command in commands.items():
        names = by_name(getattr(command, "settings", ()))
        names_of[name] = set(names).difference(_NO_KEYS)
    return names_of


def _warn_of_removed(name: str, command: str, path: Path) -> None:
    """Warn of a key of other commands that this one had once."""
    todo = instead_of(name, command)
    if todo:
        log.warning(f"{path}: {name} is no setting of `pipedec {command}`: {todo}")


def _unknown(name: str, whose: str, path: Path, context: typer.Context) -> UserError:
    """The error of a key in a file that is no setting; `whose` are the commands, in words, that do not have it."""
    todo = instead_of(name, _table(context))
    if todo is None:
        todo = f"see `{context.command_path} --help-all` for the settings"
    return UserError(f"unknown setting {name!r} for {whose}", where=path, todo=todo)
