"""A command's settings, declared once: options, config file, recipe, manifest and run share one dataclass.

A command is a function of one argument, a frozen dataclass whose fields are made by `option` and `argument`. `add`
makes the command line of it; a run, a manifest or another command uses the same dataclass.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text
from typer.core import TyperCommand
from typer.models import OptionInfo

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import keep_apart, read_toml
from pipedec_cli.data.shards import Shard
from pipedec_cli.jobs.threads import settle_threads
from pipedec_cli.model.text import check_template

Dtype = Literal["float32", "bfloat16", "float16", "int8"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every command's settings have: the options that stand on the command line, not in a file or a recipe."""

    typed: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    def some(self, *names: str) -> dict[str, Any]:
        """The settings of these names."""
        return {name: getattr(self, name) for name in names}


S = TypeVar("S", bound=Settings)


def add(app: typer.Typer, name: str, run: Callable[[S], None], examples: str) -> None:
    """Make a subcommand of a function: its settings are the options, its docstring is the help text, examples follow."""
    kind: type[S] = get_type_hints(run)["settings"]
    hints = get_type_hints(kind)
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    shared = {one.name for one in fields(WorkflowSettings)}  # they stand last in the help text
    ordered = sorted(fields(kind), key=lambda one: one.name in shared)
    options = (_parameter(one, hints[one.name]) for one in ordered if one.name != "typed")
    parameters = [context, *options]
    paths = [one.name for one in fields(kind) if getattr(one.metadata.get("typer"), "metavar", "") == "PATH"]

    def command(context: typer.Context, **values: Any) -> None:
        for option, value in values.items():
            if option in paths and str(value) == "-":
                raise typer.BadParameter("- is standard output, no path", param_hint=f"'{option}'")
            # No number is so large, and no path holds a zero byte.
            if (isinstance(value, int | float) and not abs(value) < 2**53) or "\0" in str(value):
                raise typer.BadParameter(f"{value!r} cannot be used", param_hint=f"'{option}'")
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        sources = {name: context.get_parameter_source(name) for name in values}
        typed = (name for name, source in sources.items() if source and source.name == "COMMANDLINE")
        if values.get("config"):
            written = (Path(values[name]) for name in ("out", "html") if values.get(name))
            keep_apart([values["config"]], written, "name another file")
        if "threads" in values:
            settle_threads(values["threads"])
        run(kind(**given, typed=frozenset(typed)))

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    paragraphs = inspect.cleandoc(run.__doc__ or "").split("\n\n")
    command.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    app.command(name, cls=_Command, epilog=examples.strip())(command)


class _Command(TyperCommand):
    """A command whose help text is tidy at any width; examples stand last, on lines that can be pasted into any shell."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print it: usage, what the command does, each panel's options with their texts beneath, examples."""
        console, panels = Console(highlight=False), dict[str, list[tuple[str, str]]]()
        for parameter in self.get_params(ctx):
            title = getattr(parameter, "rich_help_panel", None) or f"{parameter.param_type_name.title()}s"
            if record := parameter.get_help_record(ctx):
                panels.setdefault(title, []).append(record)
        console.print(Text.assemble((self.get_usage(ctx), "bold"), f"\n\n{self.help}"))
        for title, records in panels.items():
            console.print(f"\n[bold]{title}[/bold]")
            for name, text in records:
                shown = name if len(name) <= 40 else name.replace("|", " | ")  # breaks between choices
                console.print(Padding(Text(shown, "cyan"), (0, 0, 0, 2), expand=False))
                console.print(Padding(Text(text.replace("\\[", "[")), (0, 0, 0, 8), expand=False))
        console.print("\n[bold]Examples[/bold]")
        for line in (self.epilog or "").split("\n"):
            command, _, purpose = line.partition("  # ")
            if purpose:
                console.print(Padding(Text(purpose, "dim"), (1, 0, 0, 2), expand=False))
            console.print(Text(f"    {command.rstrip()}"), soft_wrap=True)


def _metavar(kind: Any) -> str:
    """What stands for an option's value in the help text."""
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    if get_origin(kind) in (UnionType, Union):
        return "|".join(_metavar(one) for one in get_args(kind) if one is not NoneType)
    return {int: "N", float: "X", Path: "PATH", tuple[int, ...]: "N,N"}.get(kind, "TEXT")


def _parameter(one: Field[Any], kind: Any) -> inspect.Parameter:
    """A field as Typer takes it: what an option's own parser returns is no business of Typer's."""
    declared, default = one.metadata["typer"], one.default
    if declared.metavar is None and isinstance(declared, OptionInfo):
        declared.metavar = _metavar(kind)
        words = [word for one in get_args(kind) if get_origin(one) is Literal for word in get_args(one)]
        if declared.parser is None and kind == tuple[int, ...]:
            declared.parser = numbers
        elif declared.parser is None and words and int in get_args(kind):
            declared.parser = number_or(*words)
    if declared.parser is not None:
        kind = str
        if isinstance(default, tuple):  # as one would type it
            default = ",".join(map(str, default))
    elif get_origin(kind) is tuple:
        kind = list[get_args(kind)[0]]  # type: ignore[misc]
    elif kind is bool and default is False and declared.default is ...:  # named after the field
        declared.param_decls = (f"--{one.name.replace('_', '-')}",)  # and no --no-
    default = inspect.Parameter.empty if default is MISSING else default
    hint = Annotated[kind, declared]
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def option(default: Any, text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """A field that is an option: its default, what the help says, its names (else the field's), Typer's panel and bounds."""
    declared = typer.Option(*names, help=text, rich_help_panel=panel, **more)
    return field(default=default, metadata={"typer": declared})


def argument(text: str, default: Any = None) -> Any:
    """A field that is an argument of the command; it must be given if its default is MISSING."""
    return field(default=default, metadata={"typer": typer.Argument(help=text)})


# ---- options that are written in a way of their own: each parser takes back what it gave, for defaults -------------


def number_or(*words: str) -> Callable[[Any], Any]:
    """A parser of whole numbers from 1 up, or one of these words."""

    def parse(value: Any) -> int | str:
        text = str(value)
        if text in words:
            return text
        if not (text.isdecimal() and int(text) >= 1):
            raise typer.BadParameter(f"give a whole number from 1 up, or {' or '.join(map(repr, words))}")
        return int(text)

    return parse


def parse_delay(value: Any) -> int | str:
    """``wait`` or a whole number of time-steps."""
    delay: int | str = number_or("wait")(value)
    return delay


def parse_shard(value: Any) -> Shard:
    """One of so many shards, ``3/16``."""
    try:
        return Shard.written(str(value))
    except UserError as error:
        raise typer.BadParameter(str(error)) from None


def listed(value: Any) -> list[str]:
    """The parts of a list as it is typed, with commas between them."""
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    return [str(part).strip() for part in parts]


def unescaped(text: str) -> str:
    r"""A text whose line feeds and tabs, which are hard to type in a shell, are written ``\n`` and ``\t``."""
    return text.replace(r"\n", "\n").replace(r"\t", "\t")


def names_of(value: Any, known: Sequence[str]) -> tuple[str, ...]:
    """Some of these names with commas between them, each once, in the order in which they are given."""
    names = tuple(dict.fromkeys(listed(value)))
    if not names or not set(names) <= set(known):
        raise typer.BadParameter(f"give one or more of {', '.join(known)}, commas between")
    return names


def numbers(value: Any) -> tuple[int, ...]:
    """The numbers of a list with commas between them, rising, each once."""
    try:
        found = sorted(set(map(int, listed(value))))
    except ValueError:
        found = [0]
    if found and found[0] < 1:
        raise typer.BadParameter("give whole numbers from 1 up, with commas between them")
    return tuple(found)


def parse_device(value: Any) -> str:
    """The name of a device."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", str(value)):
        raise typer.BadParameter("give auto, cpu, cuda or cuda:N")
    return str(value)


# ---- config files and recipes ------------------------------------------------------------------------------------


def _load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make the config file's values this command's defaults, so that a flag still wins."""
    if path is None or context.resilient_parsing:
        return path
    content = read_toml(path)
    command = context.info_name or ""
    shared = {key: value for key, value in content.items() if not isinstance(value, dict)}
    commands = getattr(context.parent and context.parent.command, "commands", content)
    for name in content.keys() - shared.keys() - set(commands):
        todo = f"its tables are named after commands: {', '.join(commands)}"
        raise UserError(f"[{name}] is no table of pipedec", where=str(path), todo=todo)
    own = content.get(command)
    given = {**shared, **(own if isinstance(own, dict) else {})}
    parameters = [parameter for parameter in context.command.params if parameter.name != "config"]
    # By the names that one types, too: the field of --json is called otherwise.
    known = {
        name.lstrip("-").replace("-", "_"): one for one in parameters for name in (*one.opts, one.name or "")
    }
    values: dict[str, Any] = {}
    for key, value in given.items():
        if (parameter := known.get(key.replace("-", "_"))) is None:
            todo = f"see `pipedec {command} --help` for the options"
            raise UserError(f"unknown setting {key!r} for `pipedec {command}`", where=str(path), todo=todo)
        # As one would type it, so that what an option does not take is refused as there.
        items = list(map(str, value)) if isinstance(value, list) else [str(value)]
        several = getattr(parameter, "multiple", False)
        flag = isinstance(value, bool) and getattr(parameter, "is_flag", False)
        values[str(parameter.name)] = value if flag else items if several else ",".join(items)
    context.default_map = {**(context.default_map or {}), **values}
    return path


def _load_recipe(context: typer.Context, name: str | None) -> str | None:
    """Make the recipe's settings this command's defaults, under those of a config file."""
    if name is not None and not context.resilient_parsing:
        from pipedec_cli.data.paper import recipe

        settings = recipe(name).settings_for(context.info_name or "")
        context.default_map = {**settings, **(context.default_map or {})}
    return name


# ---- options that several commands have ----------------------------------------------------------------------------

device_option = partial(
    option,
    "auto",
    "auto takes a CUDA GPU where there is one; cuda:1 is the second.",
    parser=parse_device,
    metavar="auto|cpu|cuda|cuda:N",
)
threads_option = partial(
    option,
    None,
    "On how many threads a CPU computes \\[default: one for each core, as far as a container's quota goes].",
    min=1,
    max=1024,
)
family_option = partial(
    option,
    None,
    "Of fresh weights: what kind of model --model scratch-… is \\[default: t5, of scratch-qwen3-0.6b qwen3].",
)


def prompt_template_option(usual: str, **more: Any) -> Any:
    """What stands around a source in a prompt; `usual` says what does where nothing is given."""
    told = (
        "What stands around every source in the prompt of a decoder-only model, with {source} in the source's place: "
        f"'Summarize: {{source}} Summary:' \\[default: {usual}]."
    )
    return option(None, told, metavar="TEXT", parser=lambda value: check_template(str(value)), **more)


def chat_option(usual: str, **more: Any) -> Any:
    """Whether that is within a chat template, likewise."""
    told = (
        "Make the prompt what a user says in the chat template of a decoder-only model, and end texts where it ends a turn "
        f"\\[default: {usual}]."
    )
    return option(None, told, "--chat/--no-chat", **more)


general = partial(option, panel="General")
config_option = partial(
    general,
    None,
    "A TOML file of options: a [COMMAND] table, or top-level keys. Flags win.",
    is_eager=True,
    callback=_load_config,
)
quiet_option = partial(general, False, "Say nothing but warnings and errors.", "--quiet", "-q")
json_option = partial(general, False, "Print the result as JSON on stdout.", "--json")


@dataclass(frozen=True, kw_only=True)
class WorkflowSettings(Settings):
    """What the commands have in common that find each other's results in a workspace."""

    workspace: Path | None = general(
        None,
        "The folder where the commands find each other's results \\[default: $PIPEDEC_WORKSPACE or pipedec-workspace].",
        "--workspace",
        "-w",
    )
    config: Path | None = config_option()
    recipe: str | None = general(  # after `config`, so that a file may name it
        None,
        "Take the paper's settings as defaults: 'paper', one of its data sets, or 'fields' (see `pipedec recipes`).",
        is_eager=True,
        callback=_load_recipe,
    )
    as_json: bool = json_option()
    quiet: bool = quiet_option()
