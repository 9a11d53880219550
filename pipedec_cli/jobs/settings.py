"""A command's settings, declared once: the fields of a frozen dataclass are command line, config file, recipe and manifest.

`option` declares a setting of the command line, `key` a setting of the config file or
of ``--set``, `argument` a setting without a name. `Setting.parse` reads every value,
wherever it was typed. cli/options.py gives the settings to Typer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Final,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from pipedec_cli.data.records import MOST
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.model.text import check_template

Dtype = Literal["float32", "bfloat16", "float16", "int8", "int4"]

#: The settings that say where results go and how they are shown. They do not change a
#: result.
_UNRECORDED = {
    "from_recipe",
    "workspace",
    "config",
    "set_keys",
    "as_json",
    "quiet",
    "out",
}
#: The largest number that a setting may have, where nothing else bounds it.
LARGEST: Final = 1_000_000_000
#: The words of an error for the value that a metavar stands for.
_KINDS: Final = {
    "N": "a whole number",
    "X": "a number",
    "PATH": "a path",
    "TEXT": "a text",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """How one setting is named, explained, bounded and read. `settings_of` adds the field's name, type and default."""

    text: str  # one line of help
    names: tuple[
        str, ...
    ] = ()  # names on the command line; by default the field's name
    role: Literal["option", "key", "argument"] = "option"
    panel: str = "Options"  # the heading of the help text under which it stands
    min: float | None = None
    max: float | None = None
    metavar: str = ""
    parser: Callable[[Any], Any] | None = (
        None  # text to value; a ValueError says what is wrong
    )
    belongs_to: str = ""  # the setting that chooses between its values, such as the task of a protocol
    name: str = ""
    kind: Any = None
    default: Any = None

    @property
    def option(self) -> str:
        """The name of the option, such as ``--max-tokens``."""
        return self.names[0] if self.names else f"--{self.name.replace('_', '-')}"

    @property
    def spelled(self) -> str:
        """How a person types the setting: ``--source-field``, or ``--set keep=…`` for a key."""
        if self.role == "key":
            return f"--set {self.name}=…"
        return self.name if self.role == "argument" else self.option.partition("/")[0]

    @property
    def names_a_place(self) -> bool:
        """Whether the value is the path of a file or a folder, or may be one."""
        if self.role == "argument" or self.name in ("model", "baseline", "dev", "test"):
            return True
        marks = ("FILE", "FILE|-", "FILE:N", "MODEL")
        return self.metavar in marks or Path in (self.kind, *get_args(self.kind))

    def parse(self, value: Any) -> Any:
        """The value of a text that was typed, or of what a TOML file holds; a ValueError says what is wrong.

        In a path ``~/`` is the home folder: no shell says so in ``--out=~/made.jsonl``.
        """
        if self.names_a_place and isinstance(value, str) and value.startswith("~/"):
            with suppress(RuntimeError):  # there is no home folder
                value = str(Path(value).expanduser())
        is_text = self.kind in (str, str | None) and not isinstance(value, bool | list)
        if "\0" in str(value):
            raise ValueError(f"{value!r} cannot be used")
        if self.metavar == "PATH" and value == "-":
            if self.role == "argument":
                raise ValueError(
                    "- is standard input, which is not read here: give a path"
                )
            raise ValueError("- is standard output, no path")
        if self.parser is not None:
            return self._bounded(
                self.parser(
                    ",".join(map(str, value)) if isinstance(value, list) else value
                )
            )
        if self.kind == tuple[str, ...]:
            return tuple(map(str, value)) if isinstance(value, list) else (str(value),)
        path: Callable[..., Any] = lambda kind, text: kind(text)  # noqa: E731  # msgspec knows no paths
        try:
            found = (
                str(value)
                if is_text
                else msgspec.convert(value, self.kind, strict=False, dec_hook=path)
            )
        except msgspec.ValidationError:
            *others, last = (
                _KINDS.get(part, part) for part in _metavar(self.kind).split("|")
            )
            kinds = f"{', '.join(others)} or {last}" if others else last
            raise ValueError(f"{value!r} is not {kinds}") from None
        return self._bounded(found)

    def typed(self, value: Any) -> list[str]:
        """The texts to type for a value, each with the option before it, so that `parse` reads the same value again."""
        if isinstance(value, bool):
            return [str(value).lower()]
        if isinstance(value, float):  # all its digits
            return [repr(value).removesuffix(".0")]
        if not isinstance(value, tuple):
            return [str(value)]
        parts = [
            " ".join(part) if isinstance(part, tuple) else str(part) for part in value
        ]
        if self.kind == tuple[str, ...] and self.parser is None:
            return parts
        return [(":" if self.metavar == "FILE:N" else ",").join(parts)]

    def _bounded(self, value: Any) -> Any:
        """The value, whose numbers must have a size that can be used and keep the bounds of the setting."""
        for number in value if isinstance(value, tuple) else (value,):
            if not isinstance(number, int | float) or isinstance(number, bool):
                continue
            lowest = -LARGEST if self.min is None else self.min
            highest = LARGEST if self.max is None else self.max
            if not lowest <= number <= highest:  # nan is not
                raise ValueError(f"{number} is not from {lowest:,} to {highest:,}")
        return value


def settings_of(kind: type[Settings]) -> Iterator[Setting]:
    """The settings of a command, those of all commands last."""
    hints, shared = get_type_hints(kind), {one.name for one in fields(WorkflowSettings)}
    for one in sorted(fields(kind), key=lambda one: one.name in shared):
        setting = one.metadata.get("setting")
        if setting is None or one.name in kind.hidden:
            continue
        kinds, parser = get_args(hints[one.name]), setting.parser
        words = [
            word
            for part in kinds
            if get_origin(part) is Literal
            for word in get_args(part)
        ]
        if parser is None and hints[one.name] == tuple[int, ...]:
            parser = numbers
        if parser is None and words and int in kinds:
            parser = number_or(*words)
        yield replace(
            setting,
            role="key" if kind.shown and one.name not in kind.shown else setting.role,
            metavar=setting.metavar or _metavar(hints[one.name]),
            parser=parser,
            name=one.name,
            kind=hints[one.name],
            default=one.default,
        )


def spelled(name: str, kind: type[Settings]) -> str:
    """How a person types a setting of a command; another name stays as it is."""
    return next((one.spelled for one in settings_of(kind) if one.name == name), name)


def _metavar(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    if get_origin(kind) in (UnionType, Union):
        return "|".join(
            _metavar(part) for part in get_args(kind) if part is not NoneType
        )
    return {
        int: "N",
        float: "X",
        bool: "true|false",
        Path: "PATH",
        tuple[int, ...]: "N,N",
    }.get(kind, "TEXT")


def option(default: Any, text: str, *names: str, **more: Any) -> Any:
    """A dataclass field that is an option of the command line. `more` are fields of `Setting`."""
    return field(default=default, metadata={"setting": Setting(text, names, **more)})


def key(default: Any, text: str, **more: Any) -> Any:
    """A dataclass field for specialists: a key of the config file, or ``--set NAME=VALUE``."""
    return field(
        default=default, metadata={"setting": Setting(text, role="key", **more)}
    )


def argument(text: str, default: Any = None) -> Any:
    """A dataclass field that is an argument of the command. It must be given if its default is MISSING."""
    return field(default=default, metadata={"setting": Setting(text, role="argument")})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the settings of every command have."""

    #: The settings that are options, where the declarations are shared with another
    #: command; all others are keys.
    shown: ClassVar[frozenset[str]] = frozenset()
    #: The settings among these declarations that the command does not have.
    hidden: ClassVar[frozenset[str]] = frozenset()
    #: The settings that have the value of a recipe: defaults, which bind only the
    #: models that they suit.
    from_recipe: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    def some(self, *names: str) -> dict[str, Any]:
        """The settings of these names."""
        return {name: getattr(self, name) for name in names}

    def asked(self, *names: str) -> list[str]:
        """How those of these settings are typed that differ from their default, and that no recipe gave."""
        usual = {one.name: one for one in settings_of(type(self))}
        return [
            usual[name].spelled
            for name in names
            if name in usual
            and name not in self.from_recipe
            and getattr(self, name) not in (usual[name].default, None)
        ]

    @property
    def recorded(self) -> dict[str, Any]:
        """The settings that a manifest keeps: all but where results go and how they are shown."""
        return {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name not in _UNRECORDED
        }


# ---- values that have a parser of their own. Each parser accepts its own results, for
# defaults ------------------------


def number_or(*words: str) -> Callable[[Any], Any]:
    """A parser of whole numbers from 1 to a million, or one of these words."""

    def parse(value: Any) -> int | str:
        text = str(value)
        if text in words:
            return text
        if not _is_number(text):
            raise ValueError(
                f"give a whole number from 1 to {MOST:,}, or {' or '.join(map(repr, words))}"
            )
        return int(text)

    return parse


def _is_number(text: str) -> bool:
    """Whether a text is a whole number from 1 to a million. Python reads no text of thousands of digits."""
    return text.isdecimal() and len(text) <= 100 and 1 <= int(text) <= MOST


def parse_shots(value: Any) -> tuple[str, int]:
    """A file and a number of its records, such as ``train.jsonl:4``."""
    text = ":".join(map(str, value)) if isinstance(value, tuple) else str(value)
    location, _, number = text.rpartition(":")
    if not (location and _is_number(number)):
        raise ValueError(
            "give a file and how many of its records, such as train.jsonl:4"
        )
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


def numbers(value: Any, otherwise: str = "") -> tuple[int, ...]:
    """Whole numbers from 1 to a million, typed with commas, each once, in rising order.

    The caller also takes the word `otherwise`.
    """
    texts = listed(value)
    if not all(map(_is_number, texts)):
        more = f" or {otherwise!r}" if otherwise else ""
        raise ValueError(
            f"give whole numbers from 1 to {MOST:,}{more}, with commas between them"
        )
    return tuple(sorted(set(map(int, texts))))


def parse_device(value: Any) -> str:
    """The name of a device."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", str(value)):
        raise ValueError("give auto, cpu, cuda or cuda:N")
    return str(value)


# ---- settings that several commands have
# ------------------------------------------------------------------------------

device_option = partial(
    option,
    "auto",
    "Where to compute; auto prefers a GPU.",
    parser=parse_device,
    metavar="cpu|cuda|cuda:N",
)
threads_key = partial(
    key,
    None,
    "CPU threads [default: one a core, within a container's quota].",
    min=1,
    max=1024,
)
peer_gguf_key = partial(
    key,
    None,
    "The sequential model as a GGUF file, for --compare llama.cpp [default: the model, if it is such a file].",
    metavar="FILE",
)
template_parser: Callable[[Any], str] = lambda value: check_template(str(value))  # noqa: E731


def chat_option(usual: str, **more: Any) -> Any:
    """The setting of the chat template; `usual` says what is taken without it."""
    return option(
        None,
        f"Put the prompt into the model's chat template [default: {usual}].",
        "--chat/--no-chat",
        **more,
    )


general = partial(option, panel="General")
quiet_option = partial(
    general, False, "Print warnings and errors only.", "--quiet", "-q"
)
json_option = partial(general, False, "Print the result as JSON on stdout.", "--json")
set_option = partial(
    general,
    (),
    "Set a key of the config file; --help-all lists them.",
    "--set",
    metavar="KEY=VALUE",
)


@dataclass(frozen=True, kw_only=True)
class WorkflowSettings(Settings):
    """What the commands have in common that find each other's results in a workspace."""

    workspace: Path | None = general(
        None, "The folder of results [default: pipedec-workspace].", "--workspace", "-w"
    )
    config: Path | None = general(
        None, "A TOML file of settings: a [COMMAND] table, or top-level keys."
    )
    set_keys: tuple[str, ...] = set_option()
    recipe: str | None = general(
        None,
        "Take a recipe as defaults: paper, a data set of the paper, or fields.",
        metavar="NAME",
    )
    as_json: bool = json_option()
    quiet: bool = quiet_option()

    @property
    def place(self) -> Workspace:
        """The workspace."""
        return Workspace.find(self.workspace)
