"""Commands made of settings: a Typer command for each settings dataclass, config files, recipes and the help text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

from pipedec_cli.cli.config import LOADERS, PLACES, Setting, fault_of, with_keys
from pipedec_cli.cli.help import HelpfulCommand, show_all
from pipedec_cli.data.reading import keep_apart
from pipedec_cli.jobs.settings import Settings, WorkflowSettings
from pipedec_cli.jobs.threads import settle_threads
from pipedec_cli.view.console import Talk

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
