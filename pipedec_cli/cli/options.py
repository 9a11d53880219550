"""Commands made of settings: what Typer gets of a settings dataclass, and the one loader of all values.

Typer passes on the texts that were typed. `resolve` puts them over the config files, and
reads every value with the same `Setting.parse`, so a setting means the same wherever it
stands.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from pipedec_cli.cli.config import bare, by_name, config_path, read_config
from pipedec_cli.cli.help import HELP_ALL, HelpfulCommand
from pipedec_cli.cli.removed import instead_of
from pipedec_cli.data.paper import RECIPES
from pipedec_cli.data.reading import keep_apart
from pipedec_cli.jobs.settings import Setting, Settings, general, settings_of
from pipedec_cli.threads import settle_threads
from pipedec_cli.view.console import Talk
from pipedec_cli.view.progress import Terminal

#: What an error is about that is in a key of the config file.
SET: Final = "'--set'"
_BY_NAME: Final = inspect.Parameter.KEYWORD_ONLY


@dataclass(frozen=True, kw_only=True)
class Invocation(Settings):
    """What the command line itself is asked for: where settings come from, and what is shown."""

    config: tuple[str, ...] = general(
        (),
        "A TOML file of settings, or paper, a data set of the paper, or fields.",
        metavar="FILE|NAME",
    )
    set_keys: tuple[str, ...] = general(
        (),
        "Set a key of the config file; --help-all lists them.",
        "--set",
        metavar="KEY=VALUE",
    )
    as_json: bool = general(False, "Print the result as JSON on stdout.", "--json")
    quiet: bool = general(False, "Print warnings and errors only.", "--quiet", "-q")

    @property
    def terminal(self) -> Terminal:
        """What shows on stderr how far a command is."""
        return Terminal(quiet=self.quiet)


class Command(NamedTuple):
    """A subcommand."""

    name: str
    settings: type[Settings]
    #: What it does. It takes the settings and, if "quiet" is among `asked`, the
    #: `Invocation`. Its docstring is the help text.
    run: Callable[..., None]
    examples: str  # commands to paste, a line each
    #: The fields of `Invocation` that the command has.
    asked: tuple[str, ...] = ("config", "set_keys", "as_json", "quiet")

    @property
    def declared(self) -> tuple[Setting, ...]:
        """All that can be typed: the settings, and what the command line itself is asked for."""
        shared = [
            setting for setting in settings_of(Invocation) if setting.name in self.asked
        ]
        return (*settings_of(self.settings), *shared)


def add(app: typer.Typer, command: Command) -> None:
    """Add a subcommand to an app. Typer reads options and help text off the function that is made for it here."""
    context = inspect.Parameter("context", _BY_NAME, annotation=typer.Context)
    options = [
        _parameter(setting) for setting in command.declared if setting.role != "key"
    ]
    parameters = [context, *options, HELP_ALL]

    def run(context: typer.Context, help_all: bool = False, **values: Any) -> None:  # noqa: ARG001
        typed = {
            name: values[name] for name in values if values[name] not in (None, [])
        }
        settings, invocation = resolve(command, typed, context)
        _run(command, settings, invocation)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {
        parameter.name: parameter.annotation for parameter in parameters
    }
    run.__doc__ = _unwrapped(inspect.cleandoc(command.run.__doc__ or ""))
    helpful = type("Command", (HelpfulCommand,), {"settings": command.declared})
    app.command(command.name, cls=helpful, epilog=command.examples.strip())(run)


def _unwrapped(text: str) -> str:
    """A text whose paragraphs are a line each."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)


def _run(command: Command, settings: Settings, invocation: Invocation) -> None:
    """Run a command, and say if it made the folder that holds its results."""
    out = Path(getattr(settings, "out", None) or ".")
    files = [config_path(name) for name in invocation.config]
    keep_apart(files, [out], "name another file")
    if hasattr(settings, "threads"):
        settle_threads(settings.threads)
    missing = None
    for folder in out.absolute().parents:
        if not folder.exists():
            missing = folder
            break
    if "quiet" in command.asked:
        command.run(settings, invocation)
    else:
        command.run(settings)
    if missing and missing.exists():
        Talk(invocation.quiet).say(f"made the folder {missing}")


def _parameter(setting: Setting) -> inspect.Parameter:
    """A setting as a parameter of the function that Typer calls: a text or several, or a flag; None if it is not given."""
    typed: Any = str
    if setting.is_flag:
        typed = bool
    elif setting.is_repeated or setting.synonyms:
        typed = list[str]
    default: Any = inspect.Parameter.empty
    if setting.default is not MISSING:
        typed = typed | None
        default = None
    return inspect.Parameter(
        setting.name,
        _BY_NAME,
        default=default,
        annotation=Annotated[typed, _described(setting)],
    )


def _described(setting: Setting) -> Any:
    """A setting as Typer's argument or option, with the words that a shell completes."""
    words = sorted({*setting.words, *(RECIPES if setting.name == "config" else ())})

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    # Where nothing is known, the shell completes the names of files.
    more: Any = {"autocompletion": complete} if words else {}
    if setting.role == "argument":
        return typer.Argument(metavar=setting.name.upper(), **more)
    if not setting.is_flag:
        return typer.Option(*setting.names, metavar=setting.called, **more)
    return typer.Option(*(setting.names or (setting.option,)))  # no --no-NAME


# ---- where values come from


def resolve(
    command: Command, typed: Mapping[str, Any], context: typer.Context
) -> tuple[Any, Invocation]:
    """The settings of a command, and what the command line itself is asked for.

    What was `typed`, the texts by the names of settings, goes over the config files,
    the last of these over the others, and all of them over the defaults.
    """
    settings = by_name(command.declared)
    values = {}
    for name in typed.get("config", ()):
        path = config_path(name)
        for key, value in read_config(path, context).items():
            setting = settings[bare(key)]
            values[setting.name] = _parsed(setting, value, key, f" (in {path})")
        if path == RECIPES.get(name):
            values["recipe"] = name
    for name, value in typed.items():
        setting = settings[name]
        hint = name if setting.role == "argument" else setting.spelled
        values[name] = _parsed(setting, value, hint)
    for pair in typed.get("set_keys", ()):
        key, value = _pair(pair, command)
        try:
            values[key] = settings[key].parse(value)
        except ValueError as error:
            raise typer.BadParameter(f"{key}: {error}", param_hint=SET) from None
    shared = {name: values.pop(name) for name in command.asked if name in values}
    return command.settings(**values), Invocation(**shared)


def _parsed(setting: Setting, value: Any, name: str, place: str = "") -> Any:
    """The value of a setting, read from what was typed or stands in a file.

    An error, which Typer shows, has the setting's `name`, and its `place`, words for the
    file.
    """
    try:
        if setting.synonyms and isinstance(value, list):
            value = setting.only_one(value)
        return setting.parse(value)
    except ValueError as error:
        hint = f"'{name}'"
        raise typer.BadParameter(f"{error}{place}", param_hint=hint) from None


def _pair(text: str, command: Command) -> tuple[str, str]:
    """The key and the value of a ``--set KEY=VALUE``; an error, which Typer shows, if the command has no such key."""
    typed, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=SET)
    name = bare(typed.strip())
    todo = instead_of(name, command.name)
    for setting in command.declared:
        if setting.name == name and setting.role == "key":
            return name, value
        if setting.name == name:
            todo = f"write {setting.option} instead"
    if todo is None:
        keys = [setting.name for setting in command.declared if setting.role == "key"]
        todo = f"the keys are {', '.join(keys)}"
    raise typer.BadParameter(f"there is no key {name!r}; {todo}", param_hint=SET)
