"""A command's settings, declared once: the fields of a frozen dataclass are command line, config file and manifest.

`option` declares a setting of the command line, `key` a setting of the config file or
of ``--set``, `argument` a setting without a name. The type of a field says which values
it may have, and `Setting.parse` reads every value by it, wherever it was typed.
cli/options.py gives the settings to Typer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import MOST
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.model.text import check_template

#: The largest number that a setting may have, where nothing else bounds it.
LARGEST: Final = 1_000_000_000

# ---- types that several settings have

Dtype = Literal["float32", "bfloat16", "float16", "int8", "int4"]
#: The same, and weights as a GGUF file holds them.
StoredDtype = Literal["float32", "bfloat16", "float16", "int8", "int4", "stored"]
#: A number of examples, passes or updates.
Count = Annotated[int, Meta(ge=1, le=LARGEST)]
#: A number of tokens, steps or examples that are computed together.
Size = Annotated[int, Meta(ge=1, le=MOST)]
#: A number of tokens of a source.
SourceTokens = Annotated[int, Meta(ge=2, le=65_536)]
Sizes = Annotated[tuple[Size, ...], Meta(min_length=1)]
Threads = Annotated[int, Meta(ge=1, le=1024)]
Device = Annotated[
    str,
    Meta(
        pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$", description="auto, cpu, cuda or cuda:N"
    ),
]

#: How the values of a type are called on the command line, and in words.
_CALLED: Final = {
    int: ("N", "a whole number"),
    float: ("X", "a number"),
    bool: ("true|false", "true or false"),
    str: ("TEXT", "a text"),
    Path: ("PATH", "a path"),
}
#: Settings that say where results go. They do not change a result.
_UNRECORDED: Final = ("workspace", "out")


@dataclass(frozen=True, slots=True)
class Setting:
    """How one setting is named, explained and read. `settings_of` adds the field's name, type and default."""

    text: str  # one line of help
    names: tuple[str, ...] = ()  # of the option; by default the field's name
    role: Literal["option", "key", "argument"] = "option"
    panel: str = "Options"  # the heading of the help text under which it stands
    metavar: str = ""
    #: A text that was typed to what the type is read from; a ValueError says what is
    #: wrong.
    read: Callable[[Any], Any] | None = None
    name: str = ""
    type: Any = None
    default: Any = None

    @property
    def option(self) -> str:
        """The name of the option, such as ``--max-tokens``."""
        return self.names[0] if self.names else f"--{self.name.replace('_', '-')}"

    @property
    def spelled(self) -> str:
        """How a person types the setting: ``--source-field``, or ``--set trace=…`` for a key."""
        if self.role == "key":
            return f"--set {self.name}=…"
        return self.name if self.role == "argument" else self.option.partition("/")[0]

    @property
    def called(self) -> str:
        """What stands for the value in a help text, such as ``N|wait``."""
        return self.metavar or "|".join(called for called, _ in _values_of(self.type))

    @property
    def is_flag(self) -> bool:
        """Whether the option has no value."""
        return self.type in (bool, bool | None)

    @property
    def is_repeated(self) -> bool:
        """Whether the option may be given several times."""
        return self.type == tuple[str, ...] and self.read is None

    @property
    def names_a_place(self) -> bool:
        """Whether the value is the path of a file or a folder, or may be one."""
        if self.role == "argument" or self.name in ("model", "baseline", "dev", "test"):
            return True
        return re.search("FILE|PATH|MODEL", self.called) is not None

    @property
    def synonyms(self) -> list[str]:
        """The names of an option that may be called by several words, once."""
        names = [name for name in self.names if name.startswith("--")]
        return names if len(names) > 1 else []

    def only_one(self, values: list[Any]) -> Any:
        """The value of an option that may be called by several names, of all values that were typed; a ValueError if there are two."""
        if len(values) > 1:
            raise ValueError(f"give either {' or '.join(self.synonyms)}, once")
        return values[0]

    @property
    def words(self) -> list[str]:
        """The words that the value may be, for a shell to complete; none if it may be anything."""
        return [word for word, words in _values_of(self.type) if word == words]

    def parse(self, value: Any) -> Any:
        """The value of a text that was typed, or of what a TOML file holds; a ValueError says what is wrong.

        In a path ``~/`` is the home folder: no shell says so in ``--out=~/made.jsonl``.
        """
        if self.names_a_place and str(value).startswith("~/"):
            with suppress(RuntimeError):  # there is no home folder
                value = str(Path(value).expanduser())
        if "\0" in str(value):
            raise ValueError(f"{value!r} cannot be used")
        if value == "-" and self.called == "PATH":
            if self.role == "argument":
                raise ValueError(
                    "- is standard input, which is not read here: give a path"
                )
            raise ValueError("- is standard output, no path")
        given = value
        if self.read is not None:
            given = self.read(value)
        elif self.is_repeated and not isinstance(value, list):
            given = [value]
        try:
            return msgspec.convert(
                given,
                self.type,
                strict=False,
                from_attributes=True,
                dec_hook=lambda kind, text: kind(text),  # msgspec knows no paths
            )
        except msgspec.ValidationError:
            raise ValueError(f"{value!r} is not {self._expected()}") from None

    def _expected(self) -> str:
        """What the value may be, such as ``a whole number from 1 to 1,000 or 'auto'``."""
        *others, last = (words for _, words in _values_of(self.type))
        return f"{', '.join(others)} or {last}" if others else last

    @property
    def usual(self) -> str:
        """The default as it would be typed; "" without one, and where the text names it."""
        nothing = self.default is False or self.default in (None, MISSING, ())
        if nothing or "[default" in self.text:
            return ""
        return ",".join(self.typed(self.default))

    def typed(self, value: Any) -> list[str]:
        """The texts to type for a value, each with the option before it, so that `parse` reads the same value again."""
        if isinstance(value, bool):
            return [str(value).lower()]
        if isinstance(value, float):  # all its digits
            return [repr(value).removesuffix(".0")]
        if not isinstance(value, tuple):
            return [str(value)]
        if self.is_repeated:
            return list(value)
        if self.metavar == "FILE:N":
            return [":".join(map(str, value))]
        parts = [
            " ".join(part) if isinstance(part, tuple) else str(part) for part in value
        ]
        return [",".join(parts)]


def _values_of(of_type: Any, bounds: str = "") -> Iterator[tuple[str, str]]:
    """For each kind of value that a type allows, but None: what stands for it in a help text, and what it is in words.

    For `int | Literal["wait"]` these are N, "a whole number", and twice wait. `bounds`
    are words to put behind those of the type.
    """
    origin = get_origin(of_type)
    parts = get_args(of_type)
    if origin is Literal:
        yield from zip(parts, parts, strict=True)
    elif origin in (Union, UnionType):
        for part in parts:
            if part is not NoneType:
                yield from _values_of(part)
    elif origin is tuple:
        yield from _values_of(parts[0])
    elif origin is Annotated and parts[1].description:
        yield "TEXT", parts[1].description
    elif origin is Annotated:
        yield from _values_of(parts[0], _in_words(parts[1]))
    else:
        called, words = _CALLED.get(of_type, ("TEXT", "such a value"))
        yield called, words + bounds


def _in_words(meta: Meta) -> str:
    """The smallest and the largest number of a type in words, such as " from 1 to 1,000"; "" if it has no bounds."""
    return "" if meta.ge is None else f" from {meta.ge:,} to {meta.le:,}"


def settings_of(kind: type[Settings]) -> tuple[Setting, ...]:
    """The settings of a command, read off the fields of its dataclass; those of all commands come last."""
    types = get_type_hints(kind, include_extras=True)
    shared = {declared.name for declared in fields(WorkflowSettings)}
    own_first = sorted(fields(kind), key=lambda declared: declared.name in shared)
    return tuple(
        replace(
            declared.metadata["setting"],
            name=declared.name,
            type=types[declared.name],
            default=declared.default,
        )
        for declared in own_first
        if "setting" in declared.metadata
    )


def spelled(name: str, kind: type[Settings]) -> str:
    """How a person types a setting of a command; another name stays as it is."""
    for setting in settings_of(kind):
        if setting.name == name:
            return setting.spelled
    return name


def option(default: Any, text: str, *names: str, **more: Any) -> Any:
    """A dataclass field that is an option of the command line. `more` are fields of `Setting`."""
    return field(default=default, metadata={"setting": Setting(text, names, **more)})


def key(default: Any, text: str, **more: Any) -> Any:
    """A dataclass field for specialists: a key of the config file, or ``--set NAME=VALUE``."""
    return option(default, text, role="key", **more)


def argument(text: str, default: Any = None) -> Any:
    """A dataclass field that is an argument of the command. It must be given if its default is MISSING."""
    return option(default, text, role="argument")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the settings of every command have."""

    def some(self, *names: str) -> dict[str, Any]:
        """The values of the settings of these names, by name."""
        return {name: getattr(self, name) for name in names}

    def asked(self, *names: str) -> list[str]:
        """The settings among these that differ from their default, each as a person types it: ``--max-tokens``."""
        declared = {setting.name: setting for setting in settings_of(type(self))}
        return [
            declared[name].spelled
            for name in names
            if name in declared
            and getattr(self, name) not in (declared[name].default, None)
        ]

    def refuse(self, *names: str, what: str, todo: str = "leave it out") -> None:
        """A `UserError` if one of these settings differs from its default: it says `what`, behind its name, and what `todo`."""
        typed = self.asked(*names)
        if typed:
            raise UserError(f"{typed[0]} {what}", todo=todo)

    @property
    def recorded(self) -> dict[str, Any]:
        """The settings that a manifest keeps: all but where results go."""
        return {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name not in _UNRECORDED
        }


# ---- how texts are read that are more than one value


def listed(value: Any) -> list[str]:
    """The parts of a list that is typed with commas, each once."""
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    return list(dict.fromkeys(str(part).strip() for part in parts))


def rising(value: Any) -> list[str]:
    """The parts of a list, numbers first and in rising order."""
    parts = listed(value)
    numbers = [part for part in parts if part.isdecimal()]
    return sorted(numbers, key=float) + [part for part in parts if part not in numbers]


def read_shots(value: Any) -> tuple[str, str]:
    """A file and a number of its records, such as ``train.jsonl:4``."""
    text = ":".join(map(str, value)) if isinstance(value, list) else str(value)
    location, _, number = text.rpartition(":")
    return location, number


def read_template(value: Any) -> str:
    """A prompt template."""
    return check_template(str(value))


def unescaped(text: str) -> str:
    r"""A text in which ``\n`` and ``\t``, which are hard to type in a shell, stand for a line feed and a tab."""
    return text.replace(r"\n", "\n").replace(r"\t", "\t")


# ---- settings that several commands have

device_option = partial(
    option, "auto", "Where to compute; auto prefers a GPU.", metavar="cpu|cuda|cuda:N"
)
threads_key = partial(
    key, None, "CPU threads [default: one a core, within a container's quota]."
)
peer_gguf_key = partial(
    key,
    None,
    "The sequential model as a GGUF file, for --compare llama.cpp [default: the model, if it is such a file].",
    metavar="FILE",
)


def fields_option(text: str, **more: Any) -> Any:
    """The keys of objects: a list of them, or the file of a schema."""
    names = ("--fields", "--schema")
    return option(None, text, *names, metavar="NAME,NAME|FILE", **more)


def chat_option(usual: str, **more: Any) -> Any:
    """The setting of the chat template; `usual` says what is taken without it."""
    return option(
        None,
        f"Put the prompt into the model's chat template [default: {usual}].",
        "--chat/--no-chat",
        **more,
    )


general = partial(option, panel="General")


@dataclass(frozen=True, kw_only=True)
class WorkflowSettings(Settings):
    """What the commands have in common that find each other's results in a workspace."""

    workspace: Path | None = general(
        None, "The folder of results [default: pipedec-workspace].", "--workspace", "-w"
    )
    #: The config file that ships with pipedec, if one was taken, such as ``msqa``.
    recipe: str | None = None

    @property
    def place(self) -> Workspace:
        """The workspace."""
        return Workspace.find(self.workspace)
