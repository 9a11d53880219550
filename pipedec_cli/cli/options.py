"""Commands made of settings: a Typer command for each settings dataclass, config files, recipes and the help text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import keep_apart, read_toml
from pipedec_cli.evaluate.machine import settle_threads
from pipedec_cli.jobs.settings import Declaration, Settings, WorkflowSettings, number_or, numbers
from pipedec_cli.view.console import Talk

#: What a value is to be, for the words of the help text.
_KINDS: Final = {"N": "a whole number", "X": "a number", "PATH": "a path", "TEXT": "a text"}
#: Reads settings into a Typer context: the context, the option's value, the command's keys by name.
Load = Callable[[typer.Context, Any, "Mapping[str, Setting]"], None]
#: Where keys are kept while options are parsed, in this order: those of a recipe, a config file and --set.
_RECIPE, _CONFIG, _SET = PLACES = ("pipedec.recipe", "pipedec.config", "pipedec.set")


@dataclass(frozen=True)
class Setting:
    """One field of a settings dataclass, with its type."""

    field: Field[Any]
    kind: Any
    declaration: Declaration

    @property
    def name(self) -> str:
        """The field's name."""
        return self.field.name

    @property
    def parser(self) -> Callable[[Any], Any] | None:
        """The parser that was declared, or the one that goes with the type."""
        words = [
            word for part in get_args(self.kind) if get_origin(part) is Literal for word in get_args(part)
        ]
        if self.declaration.parser is None and self.kind == tuple[int, ...]:
            return numbers
        if self.declaration.parser is None and words and int in get_args(self.kind):
            return number_or(*words)
        return self.declaration.parser

    @property
    def metavar(self) -> str:
        """What stands for the value in the help text."""
        return self.declaration.metavar or _metavar(self.kind)

    def parse(self, value: Any) -> Any:
        """The value of a key as a file or ``--set`` gives it; a ValueError says what is wrong."""
        try:
            if self.parser is not None:
                found = self.parser(",".join(map(str, value)) if isinstance(value, list) else value)
            elif (
                self.kind in (str, str | None)
                and isinstance(value, int | float)
                and not isinstance(value, bool)
            ):
                found = str(value)
            else:
                found = msgspec.convert(value, self.kind, strict=False, dec_hook=_path)
        except msgspec.ValidationError:
            kinds = " or ".join(_KINDS.get(part, part) for part in _metavar(self.kind).split("|"))
            raise ValueError(f"{value!r} is not {kinds}") from None
        if fault := fault_of(found):
            raise ValueError(fault)
        low, high = self.declaration.minimum, self.declaration.maximum
        is_number = isinstance(found, int | float) and not isinstance(found, bool)
        if is_number and ((low is not None and found < low) or (high is not None and found > high)):
            bounds = f"from {low} to {high}" if high is not None else f"from {low} up"
            raise ValueError(f"{found} is not {bounds}")
        return found


def fault_of(value: Any) -> str | None:
    """Why a value cannot be that of any setting: no number is so large, and no path holds a zero byte."""
    is_large = isinstance(value, int | float) and not abs(value) < 2**53
    return f"{value!r} cannot be used" if is_large or "\0" in str(value) else None


def _path(kind: type, value: Any) -> Any:
    """A path out of a text, which msgspec does not know."""
    return kind(value)


def _metavar(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    if get_origin(kind) in (UnionType, Union):
        return "|".join(_metavar(part) for part in get_args(kind) if part is not NoneType)
    return {int: "N", float: "X", bool: "true|false", Path: "PATH", tuple[int, ...]: "N,N"}.get(kind, "TEXT")


def with_keys(load: Load, keys: Mapping[str, Setting]) -> Callable[[typer.Context, Any], Any]:
    """A callback of Typer's that knows the command's keys."""

    def callback(context: typer.Context, value: Any) -> Any:
        if value and not context.resilient_parsing:
            load(context, value, keys)
        return value

    return callback


def _command(context: typer.Context) -> str:
    """The command's name, such as ``shard`` for `pipedec shard run`: tables of a config file are named so."""
    inner: Any = context
    while inner.parent and inner.parent.parent:
        inner = inner.parent
    return inner.info_name or ""


def _load_config(context: typer.Context, path: Path, keys: Mapping[str, Setting]) -> None:
    """Make the values of a config file this command's defaults. What is typed wins."""
    content = read_toml(path)
    command = _command(context)
    shared = {key: value for key, value in content.items() if not isinstance(value, dict)}
    commands = getattr(context.find_root().command, "commands", content)
    for name in content.keys() - shared.keys() - set(commands):
        todo = f"its tables are named after commands: {', '.join(commands)}"
        raise UserError(f"[{name}] is no table of pipedec", where=str(path), todo=todo)
    own = content.get(command)
    given = {**shared, **(own if isinstance(own, dict) else {})}
    _take(context, given, keys, str(path), _CONFIG)


def _load_recipe(context: typer.Context, name: str, keys: Mapping[str, Setting]) -> None:
    """Make a recipe's settings this command's defaults, under those of a config file."""
    from pipedec_cli.data.paper import recipe

    given, before = recipe(name, _command(context)), context.default_map
    _take(context, given, keys, f"recipe {name}", _RECIPE)
    context.default_map = {**(context.default_map or {}), **(before or {})}


def _load_set(context: typer.Context, pairs: tuple[str, ...], keys: Mapping[str, Setting]) -> None:
    """Take the keys that are typed as KEY=VALUE."""
    found = context.meta.setdefault(_SET, {})
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="'--set'")
        if name not in keys:
            option = next((one for one in context.command.params if one.name == name), None)
            known = f"write {option.opts[0]} instead" if option else f"the keys are {', '.join(keys)}"
            raise typer.BadParameter(f"there is no key {name!r}; {known}", param_hint="'--set'")
        if name == "recipe":
            _load_recipe(context, value, keys)
        try:
            found[name] = keys[name].parse(value)
        except ValueError as error:
            raise typer.BadParameter(f"{name}: {error}", param_hint="'--set'") from None


def _take(
    context: typer.Context, given: Mapping[str, Any], keys: Mapping[str, Setting], where: str, place: str
) -> None:
    """Put options into Typer's defaults, as they would be typed, and keys aside."""
    parameters = [parameter for parameter in context.command.params if parameter.name != "config"]
    # By their names on the command line, too: the field of --json has another name.
    known = {
        name.lstrip("-").replace("-", "_"): one for one in parameters for name in (*one.opts, one.name or "")
    }
    options: dict[str, Any] = {}
    kept = context.meta.setdefault(place, {})
    for raw, value in given.items():
        name = raw.replace("-", "_")
        if name in keys and name == "recipe":
            _load_recipe(context, str(value), keys)
        if name in keys:
            try:
                kept[name] = keys[name].parse(value)
            except ValueError as error:
                raise typer.BadParameter(f"{error} (in {where})", param_hint=f"'{raw}'") from None
        elif (parameter := known.get(name)) is not None:
            items = list(map(str, value)) if isinstance(value, list) else [str(value)]
            several = getattr(parameter, "multiple", False)
            flag = isinstance(value, bool) and getattr(parameter, "is_flag", False)
            options[str(parameter.name)] = value if flag else items if several else ",".join(items)
        else:
            todo = f"see `{context.command_path} --help-all` for the settings"
            raise UserError(
                f"unknown setting {raw!r} for `pipedec {_command(context)}`", where=where, todo=todo
            )
    context.default_map = {**(context.default_map or {}), **options}


LOADERS: Final[Mapping[str, Load]] = {"config": _load_config, "recipe": _load_recipe, "set_keys": _load_set}


class HelpfulCommand(TyperCommand):
    """A command with `--help` on one screen, and `--help-all` with the keys of the config file as well."""

    keys: tuple[Setting, ...] = ()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print usage, what the command does, a line for each option, and examples that can be pasted."""
        self.show_help(ctx, keys=False)

    def show_help(self, ctx: Any, *, keys: bool) -> None:
        """Print the help text, with the keys of the config file or without."""
        console, panels = Console(highlight=False), dict[str, list[tuple[str, str]]]()
        for parameter in self.get_params(ctx):
            title = getattr(parameter, "rich_help_panel", None) or f"{parameter.param_type_name.title()}s"
            if record := parameter.get_help_record(ctx):
                panels.setdefault(title, []).append(record)
        if keys:
            panels["Keys of the config file, or --set KEY=VALUE"] = [
                (f"{one.name} {one.metavar}", one.declaration.text) for one in self.keys
            ]
        console.print(Text.assemble((self.get_usage(ctx).strip(), "bold"), f"\n{self.help}"))
        for title, records in panels.items():
            console.print(f"\n[bold]{title}[/bold]")
            table = Table.grid(padding=(0, 2, 0, 0))
            table.add_column(style="cyan", max_width=34)
            table.add_column()
            for name, text in records:
                table.add_row(Text(name.replace("|", " | ") if len(name) > 34 else name), Text(text))
            console.print(Padding(table, (0, 0, 0, 2)))
        console.print("\n[bold]Examples[/bold]")
        for line in (self.epilog or "").split("\n"):
            console.print(Text(f"  {line.rstrip()}"), soft_wrap=True)


def show_all(context: typer.Context, wanted: bool) -> None:
    """What --help-all does."""
    if wanted and isinstance(context.command, HelpfulCommand):
        context.command.show_help(context, keys=True)
        raise typer.Exit


S = TypeVar("S", bound=Settings)


def settings_of(kind: type[Settings]) -> Iterator[Setting]:
    """The settings of a dataclass, those of all commands last; where some are `shown`, all others are keys."""
    hints, shared = get_type_hints(kind), {one.name for one in fields(WorkflowSettings)}
    for one in sorted(fields(kind), key=lambda one: one.name in shared):
        if "declaration" in one.metadata and one.name not in kind.hidden:
            declaration = one.metadata["declaration"]
            if kind.shown and one.name not in kind.shown:
                declaration = replace(declaration, role="key")
            yield Setting(one, hints[one.name], declaration)


# ---- a command ---------------------------------------------------------------------------------------------------------


def add(app: typer.Typer, name: str, run: Callable[[S], None], examples: str) -> None:
    """Make a subcommand of a function. Its settings are the options, its docstring is the help text."""
    kind: type[S] = get_type_hints(run)["settings"]
    every = list(settings_of(kind))
    keys = {one.name: one for one in every if one.declaration.role == "key"}
    paths = [one.name for one in every if one.metavar == "PATH"]
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context, *(_parameter(one, keys) for one in every if one.name not in keys)]
    if keys:
        parameters.append(_HELP_ALL)

    def command(context: typer.Context, help_all: bool = False, **values: Any) -> None:  # noqa: ARG001
        for option, value in values.items():
            if option in paths and str(value) == "-":
                raise typer.BadParameter("- is standard output, no path", param_hint=f"'{option}'")
            if fault := fault_of(value):
                raise typer.BadParameter(fault, param_hint=f"'{option}'")
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        sources = {name: context.get_parameter_source(name) for name in values}
        typed = {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}
        recipe, config, typed_keys = (context.meta.get(place, {}) for place in PLACES)
        found = recipe | config | typed_keys
        settings = kind(**given, **found, typed=frozenset(typed | set(typed_keys)))
        out = getattr(settings, "out", None)
        above = [folder for folder in Path(out or ".").absolute().parents if not folder.exists()]
        if values.get("config"):
            keep_apart([values["config"]], [Path(out)] if out else [], "name another file")
        if hasattr(settings, "threads"):
            settle_threads(settings.threads)
        run(settings)
        for made in filter(Path.exists, above[:1]):
            Talk(getattr(settings, "quiet", False)).say(f"made the folder {made}")

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    paragraphs = inspect.cleandoc(run.__doc__ or "").split("\n\n")
    command.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    made = type("Command", (HelpfulCommand,), {"keys": tuple(keys.values())})
    app.command(name, cls=made, epilog=examples.strip())(command)


_HELP_ALL = inspect.Parameter(
    "help_all",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool,
        typer.Option(
            "--help-all",
            help="Show the keys of the config file, too.",
            rich_help_panel="General",
            is_eager=True,
            callback=show_all,
        ),
    ],
)


def _parameter(one: Setting, keys: Mapping[str, Setting]) -> inspect.Parameter:
    """A setting as Typer takes it. Typer sees a string; our parser converts it."""
    declaration, kind, default = one.declaration, one.kind, one.field.default
    if declaration.role == "argument":
        described: Any = typer.Argument(help=declaration.text)
    else:
        names = declaration.names
        if kind is bool and default is False and not names:  # no --no-NAME
            names = (f"--{one.name.replace('_', '-')}",)
        described = typer.Option(
            *names,
            help=declaration.text,
            rich_help_panel=declaration.panel,
            min=declaration.minimum,
            max=declaration.maximum,
            metavar=one.metavar,
        )
    if parser := one.parser:
        described.parser = _worded(parser)
        kind = str
        if isinstance(default, tuple):  # as it is typed
            default = ",".join(map(str, default))
    elif get_origin(kind) is tuple:
        kind = list[get_args(kind)[0]]  # type: ignore[misc]
    if eager := LOADERS.get(one.name):
        described.is_eager = True
        described.callback = with_keys(eager, keys)
    default = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, described]
    )


def _worded(parser: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The parser with its ValueError as Typer's, which loses the words of others."""

    def parse(value: Any) -> Any:
        try:
            return parser(value)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    parse.__name__ = "text"
    return parse
