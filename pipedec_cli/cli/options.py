"""Commands made of settings: what Typer gets of a settings dataclass, the one loader of all values, and the help text.

Typer passes on the texts that were typed. `resolve` puts them over a config file, the
file over a recipe, and reads every value with the same `Setting.parse`, so a setting
means the same wherever it stands.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import MISSING
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import keep_apart, read_toml
from pipedec_cli.jobs.settings import Setting, Settings, settings_of
from pipedec_cli.threads import settle_threads
from pipedec_cli.view.console import Talk

S = TypeVar("S", bound=Settings)
#: What an error is about that is in a key of the config file.
SET: Final = "'--set'"


def add(app: typer.Typer, name: str, run: Callable[[S], None], examples: str) -> None:
    """Make a subcommand of a function. Its settings are the options, its docstring is the help text."""
    kind: type[S] = get_type_hints(run)["settings"]
    settings = tuple(settings_of(kind))
    context = inspect.Parameter(
        "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    parameters = [
        context,
        *(_parameter(one) for one in settings if one.role != "key"),
        _HELP_ALL,
    ]

    def command(context: typer.Context, help_all: bool = False, **values: Any) -> None:  # noqa: ARG001
        typed = {
            name: value for name, value in values.items() if value not in (None, [], ())
        }
        resolved = resolve(kind, typed, context)
        config, out = getattr(resolved, "config", None), getattr(resolved, "out", None)
        if config:
            keep_apart([config], [Path(out)] if out else [], "name another file")
        if hasattr(resolved, "threads"):
            settle_threads(resolved.threads)
        above = [
            folder
            for folder in Path(out or ".").absolute().parents
            if not folder.exists()
        ]
        run(resolved)
        for folder in filter(Path.exists, above[:1]):
            Talk(getattr(resolved, "quiet", False)).say(f"made the folder {folder}")

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    paragraphs = inspect.cleandoc(run.__doc__ or "").split("\n\n")
    command.__doc__ = "\n\n".join(
        " ".join(paragraph.split()) for paragraph in paragraphs
    )
    helpful = type("Command", (HelpfulCommand,), {"settings": settings})
    app.command(name, cls=helpful, epilog=examples.strip())(command)


def _parameter(setting: Setting) -> inspect.Parameter:
    """A setting as Typer takes it: a text or several, or a flag."""
    several, required = (
        setting.kind == tuple[str, ...] and not setting.parser,
        setting.default is MISSING,
    )
    is_flag = setting.kind in (bool, bool | None)
    if setting.role == "argument":
        described: Any = typer.Argument(metavar=setting.name.upper())
    else:
        names = setting.names
        if is_flag and not any("/" in name for name in names):  # no --no-NAME
            names = names or (setting.option,)
        described = typer.Option(*names, metavar=None if is_flag else setting.metavar)
    kind: Any = list[str] if several else bool if is_flag else str
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else None,
        annotation=Annotated[kind if required else kind | None, described],
    )


# ---- where values come from
# --------------------------------------------------------------------------------------------


def resolve(kind: type[S], typed: Mapping[str, Any], context: typer.Context) -> S:
    """The settings of a command: what was typed, then the config file, then the recipe, then the defaults."""
    settings = {one.name: one for one in settings_of(kind)}
    typed = dict(typed)
    chosen = dict(_key(pair, settings) for pair in typed.pop("set_keys", ()))
    values = _parsed(typed, settings) | _parsed(chosen, settings, "--set")
    path = values.get("config")
    file = _parsed(_of_file(path, context), settings, f"in {path}") if path else {}
    named, merged = values.get("recipe") or file.get("recipe"), dict[str, Any]()
    if named:
        from pipedec_cli.data.paper import recipe as settings_of_recipe

        merged = _parsed(
            settings_of_recipe(named, _table(context)), settings, f"in recipe {named}"
        )
    from_recipe = set(merged)
    for layer in (file, values):
        # A task that is typed drops the protocol of a recipe, and a protocol its task.
        for one in settings.values():
            if one.belongs_to in layer and one.name not in layer:
                merged.pop(one.name, None)
        merged |= layer
        from_recipe -= set(layer)
    return kind(**merged, from_recipe=frozenset(from_recipe & set(merged)))


def _key(pair: str, settings: Mapping[str, Setting]) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    name = name.strip().replace("-", "_")
    if not equals:
        raise typer.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint=SET)
    if name not in settings or settings[name].role != "key":
        keys = ", ".join(one.name for one in settings.values() if one.role == "key")
        known = (
            f"write {settings[name].option} instead"
            if name in settings
            else f"the keys are {keys}"
        )
        raise typer.BadParameter(f"there is no key {name!r}; {known}", param_hint=SET)
    return name, value


def _table(context: typer.Context) -> str:
    """The command's table in a config file, such as ``shard`` for `pipedec shard merge`."""
    inner: Any = context
    while inner.parent and inner.parent.parent:
        inner = inner.parent
    return inner.info_name or ""


def _of_file(path: Path, context: typer.Context) -> dict[str, Any]:
    """The settings that a config file has for this command: its top-level keys, under those of the command's table.

    A top-level key is for all commands that have it. A `UserError` for one that no
    command has, and for a table of none.
    """
    content = read_toml(path)
    command = _table(context)
    group = context.find_root().command
    commands = {command: context.command, **getattr(group, "commands", {})}
    known = {
        name: _by_name(getattr(one, "settings", ())).keys()
        for name, one in commands.items()
    }
    shared = {
        key: value for key, value in content.items() if not isinstance(value, dict)
    }
    tables = content.keys() - shared.keys()
    for name in tables - known.keys() if hasattr(group, "commands") else ():
        todo = f"its tables are named after commands: {', '.join(known)}"
        raise UserError(f"[{name}] is no table of pipedec", where=str(path), todo=todo)
    own = content[command] if isinstance(content.get(command), dict) else {}
    _refuse_unknown(
        shared, set[str]().union(*known.values()), "any command", path, context
    )
    _refuse_unknown(own, known[command], f"`pipedec {command}`", path, context)
    return {
        name: shared[name]
        for name in shared
        if name.replace("-", "_") in known[command]
    } | own


def _refuse_unknown(
    given: Mapping[str, Any],
    names: Set[str],
    whose: str,
    path: Path,
    context: typer.Context,
) -> None:
    for name in sorted(given):
        if name.replace("-", "_") not in names - {"config"}:
            see = f"see `{context.command_path} --help-all` for the settings"
            raise UserError(
                f"unknown setting {name!r} for {whose}", where=str(path), todo=see
            )


def _by_name(settings: Iterable[Setting]) -> dict[str, Setting]:
    """The settings by each name, with ``_`` for ``-``: that of the field, and those of the option."""
    names = {one.name: one for one in settings}
    for one in [*names.values()]:
        for name in one.names:
            names.setdefault(name.partition("/")[0].lstrip("-").replace("-", "_"), one)
    return names


def _parsed(
    given: Mapping[str, Any], settings: Mapping[str, Setting], where: str = ""
) -> dict[str, Any]:
    """The values of settings by the names of their fields. An error names the option, or the key and its place."""
    by_name, found = _by_name(settings.values()), {}
    for name, value in given.items():
        setting = by_name[name.replace("-", "_")]
        try:
            found[setting.name] = setting.parse(value)
        except ValueError as error:
            hint = (
                setting.option.partition("/")[0]
                if setting.role == "option"
                else setting.name
            )
            if where == "--set":
                raise typer.BadParameter(f"{name}: {error}", param_hint=SET) from None
            place = f" ({where})" if where else ""
            raise typer.BadParameter(
                f"{error}{place}", param_hint=f"'{name if where else hint}'"
            ) from None
    return found


# ---- the help text
# -----------------------------------------------------------------------------------------------------


class HelpfulCommand(TyperCommand):
    """A command with `--help` on one screen, and `--help-all` with the keys of the config file as well."""

    settings: tuple[Setting, ...] = ()

    def format_help(self, ctx: Any, formatter: Any, *, keys: bool = False) -> None:
        """Print usage, what the command does, a line for each option or also key, and examples to paste."""
        console, panels = Console(highlight=False), dict[str, list[tuple[str, str]]]()
        for setting in self.settings:
            if setting.role != "key":
                panels.setdefault(setting.panel, []).append(
                    (_label(setting), _explained(setting))
                )
        general = panels.pop("General", [])
        if any(setting.role == "key" for setting in self.settings):
            general.append(("--help-all", "Show the keys of the config file, too."))
        panels["General"] = [*general, ("-h, --help", "Show this message and exit.")]
        if keys:
            panels["Keys of the config file, or --set KEY=VALUE"] = [
                (f"{one.name} {one.metavar}", _explained(one))
                for one in self.settings
                if one.role == "key"
            ]
        console.print(
            Text.assemble((self.get_usage(ctx).strip(), "bold"), f"\n{self.help}\n")
        )
        for title, records in panels.items():
            console.print(
                f"[bold]{title}[/bold]"
            )  # no empty lines: all of it is to fit a screen
            table = Table.grid(padding=(0, 2, 0, 0))
            table.add_column(style="cyan", max_width=34)
            table.add_column()
            for name, text in records:
                table.add_row(
                    Text(name.replace("|", " | ") if len(name) > 34 else name),
                    Text(text),
                )
            console.print(Padding(table, (0, 0, 0, 2)))
        console.print("[bold]Examples[/bold]")
        for line in (self.epilog or "").strip().split("\n"):
            console.print(Text(f"  {line.rstrip()}"), soft_wrap=True)


def _label(setting: Setting) -> str:
    """The names of a setting and what stands for its value, such as ``--limit N``."""
    if setting.role == "argument":
        return setting.name.upper()
    names = ", ".join(sorted(setting.names or (setting.option,), key=len)).replace(
        "/", " / "
    )
    return (
        names if setting.kind in (bool, bool | None) else f"{names} {setting.metavar}"
    )


def _explained(setting: Setting) -> str:
    usual = setting.default
    if usual in (None, MISSING, (), False) or "[default" in setting.text:
        return setting.text
    return f"{setting.text} [default: {','.join(map(str, usual)) if isinstance(usual, tuple) else usual}]"


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted and isinstance(context.command, HelpfulCommand):
        context.command.format_help(context, None, keys=True)
        raise typer.Exit


_HELP_ALL = inspect.Parameter(
    "help_all",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--help-all", is_eager=True, callback=_show_all)
    ],
)
