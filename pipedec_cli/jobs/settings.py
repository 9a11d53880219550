"""A job's settings, declared once: one frozen dataclass is command line, config file, recipe, manifest and run.

A field is made by `option` (it is on the command line), `key` (it is in a config file, or given with ``--set``) or
`argument`. The command line is built from these fields in cli/options.py. Nothing here imports Typer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.shards import Shard
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.model.text import check_template

#: Settings that say where results go and how they are shown. They do not change a result.
_UNRECORDED = {"typed", "workspace", "config", "set_keys", "as_json", "quiet", "out", "open"}

Dtype = Literal["float32", "bfloat16", "float16", "int8", "int4"]


@dataclass(frozen=True, slots=True)
class Declaration:
    """How one setting is named, explained, bounded and read."""

    text: str  # one line of help
    names: tuple[str, ...] = ()  # names on the command line; by default the field's name
    panel: str | None = None  # the heading of the help text under which it stands
    minimum: float | None = None
    maximum: float | None = None
    metavar: str | None = None
    parser: Callable[[Any], Any] | None = None  # text to value; a ValueError says what is wrong
    role: Literal["option", "key", "argument"] = "option"


def declared(default: Any, declaration: Declaration) -> Any:
    """A dataclass field with its declaration."""
    return field(default=default, metadata={"declaration": declaration})


def option(
    default: Any,
    text: str,
    *names: str,
    panel: str | None = None,
    min: float | None = None,
    max: float | None = None,
    metavar: str | None = None,
    parser: Callable[[Any], Any] | None = None,
) -> Any:
    """A setting that is an option of the command line."""
    return declared(default, Declaration(text, names, panel, min, max, metavar, parser))


def key(
    default: Any,
    text: str,
    *,
    min: float | None = None,
    max: float | None = None,
    metavar: str | None = None,
    parser: Callable[[Any], Any] | None = None,
) -> Any:
    """A setting for specialists: a key of the config file, or ``--set NAME=VALUE``."""
    return declared(default, Declaration(text, (), None, min, max, metavar, parser, role="key"))


def argument(text: str, default: Any = None) -> Any:
    """A setting that is an argument of the command. It must be given if its default is MISSING."""
    return declared(default, Declaration(text, role="argument"))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the settings of every command have."""

    #: The settings that are options, where the declarations are shared with another command; all others are keys.
    shown: ClassVar[frozenset[str]] = frozenset()
    #: The settings among these declarations that the command does not have.
    hidden: ClassVar[frozenset[str]] = frozenset()
    #: Names of the settings that were given on the command line, not in a file or a recipe.
    typed: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    def some(self, *names: str) -> dict[str, Any]:
        """The settings of these names."""
        return {name: getattr(self, name) for name in names}

    @property
    def recorded(self) -> dict[str, Any]:
        """The settings that a manifest keeps: all but where results go and how they are shown."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _UNRECORDED}


# ---- values that have a parser of their own. Each parser accepts its own results, for defaults ------------------------


def number_or(*words: str) -> Callable[[Any], Any]:
    """A parser of whole numbers from 1 up, or one of these words."""

    def parse(value: Any) -> int | str:
        text = str(value)
        if text in words:
            return text
        if not (text.isdecimal() and int(text) >= 1):
            raise ValueError(f"give a whole number from 1 up, or {' or '.join(map(repr, words))}")
        return int(text)

    return parse


def parse_shard(value: Any) -> Shard:
    """One of several shards, such as ``3/16``."""
    try:
        return Shard.parse(str(value))
    except UserError as error:
        raise ValueError(str(error)) from None


def parse_shots(value: Any) -> tuple[str, int]:
    """A file and a number of its records, such as ``train.jsonl:4``."""
    location, _, number = (f"{value[0]}:{value[1]}" if isinstance(value, tuple) else str(value)).rpartition(
        ":"
    )
    if not (location and number.isdecimal() and int(number) >= 1):
        raise ValueError("give a file and how many of its records, such as train.jsonl:4")
    return location, int(number)


def listed(value: Any) -> list[str]:
    """The parts of a list that is typed with commas."""
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    return [str(part).strip() for part in parts]


def unescaped(text: str) -> str:
    r"""A text in which ``\n`` and ``\t``, which are hard to type in a shell, stand for a line feed and a tab."""
    return text.replace(r"\n", "\n").replace(r"\t", "\t")


def names_of(value: Any, known: Sequence[str]) -> tuple[str, ...]:
    """Some of these names, typed with commas, each once, in the given order."""
    names = tuple(dict.fromkeys(listed(value)))
    if not names or not set(names) <= set(known):
        raise ValueError(f"give one or more of {', '.join(known)}, commas between")
    return names


def numbers(value: Any) -> tuple[int, ...]:
    """Whole numbers from 1 up, typed with commas, each once, in rising order."""
    try:
        found = sorted(set(map(int, listed(value))))
    except ValueError:
        found = [0]
    if found and found[0] < 1:
        raise ValueError("give whole numbers from 1 up, with commas between them")
    return tuple(found)


def parse_device(value: Any) -> str:
    """The name of a device."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", str(value)):
        raise ValueError("give auto, cpu, cuda or cuda:N")
    return str(value)


# ---- settings that several commands have ------------------------------------------------------------------------------

device_option = partial(
    option, "auto", "Where to compute; auto prefers a GPU.", parser=parse_device, metavar="cpu|cuda|cuda:N"
)
threads_key = partial(
    key, None, "CPU threads [default: one a core, within a container's quota].", min=1, max=1024
)
peer_python_key = partial(
    key,
    (),
    "The Pythons of other environments where llama.cpp is looked for first, commas between.",
    parser=lambda value: tuple(filter(None, listed(value))),
    metavar="PATHS",
)
peer_gguf_key = partial(
    key,
    None,
    "The sequential model as a GGUF file, for --compare llama.cpp [default: the model, if it is such a file].",
    metavar="FILE",
)
family_key = partial(
    key, None, "The family of fresh weights (--model scratch-…) [default: t5; qwen3 for scratch-qwen3-0.6b]."
)
template_parser: Callable[[Any], str] = lambda value: check_template(str(value))  # noqa: E731


def prompt_template_option(usual: str, **more: Any) -> Any:
    """The setting of the text around a source; `usual` says what is taken without it."""
    text = f"The prompt, with {{source}} [default: {usual}]."
    return option(None, text, metavar="TEXT", parser=template_parser, **more)


def chat_option(usual: str, **more: Any) -> Any:
    """The setting of the chat template; `usual` says what is taken without it."""
    return option(
        None, f"Put the prompt into the model's chat template [default: {usual}].", "--chat/--no-chat", **more
    )


general = partial(option, panel="General")
workspace_option = partial(
    general, None, "The folder of results [default: pipedec-workspace].", "--workspace", "-w"
)
quiet_option = partial(general, False, "Print warnings and errors only.", "--quiet", "-q")
json_option = partial(general, False, "Print the result as JSON on stdout.", "--json")
config_option = partial(general, None, "A TOML file of settings: a [COMMAND] table, or top-level keys.")
set_option = partial(
    general, (), "Set a key of the config file; --help-all lists them.", "--set", metavar="KEY=VALUE"
)
recipe_option = partial(
    general, None, "Take a recipe as defaults: paper, a data set of the paper, or fields.", metavar="NAME"
)


@dataclass(frozen=True, kw_only=True)
class WorkflowSettings(Settings):
    """What the commands have in common that find each other's results in a workspace."""

    workspace: Path | None = workspace_option()
    config: Path | None = config_option()
    set_keys: tuple[str, ...] = set_option()
    recipe: str | None = recipe_option()
    as_json: bool = json_option()
    quiet: bool = quiet_option()

    @property
    def place(self) -> Workspace:
        """The workspace."""
        return Workspace.find(self.workspace)
