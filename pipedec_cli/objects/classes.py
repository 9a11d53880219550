"""A pydantic class of a user: its JSON Schema, and what an object violates in it.

It stands in a Python file or is of the running program, which bring pydantic; pipedec
does not need it. Whatever a file does when it runs, nothing of it goes to stdout.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pipedec_cli.data.errors import UserError, first_line
from pipedec_cli.data.fields import Keys
from pipedec_cli.data.reading import some_names

_MOST_VIOLATIONS: Final = 10
_LONGEST_MESSAGE: Final = 200
#: The packages whose classes are there to be made classes of.
_NOT_THE_USERS: Final = ("pydantic", "pydantic_settings")


@dataclass(frozen=True, slots=True)
class UserClass:
    """A pydantic class and the module of its file; None for a class of the running program."""

    module: ModuleType | None
    model: Any

    def json_schema(self) -> Any:
        """Its JSON Schema, in which decimals are numbers.

        Raises whatever pydantic or the file raises.
        """
        with _running(self.module):
            return self.model.model_json_schema(schema_generator=_generator())

    def made_of(self, value: Any) -> Any:
        """An object of the class with these values; None if they violate it."""
        try:
            return self.model.model_validate_json(json.dumps(value))
        except (Exception, SystemExit):  # see `violations`
            return None

    def violations(self, value: Any) -> list[tuple[Keys, str]]:
        """What an object violates in the class, in pydantic's words, each with its path; at most ten.

        An error that pydantic does not expect of a validator is a violation of the
        whole object.
        """
        try:
            with _running(self.module):
                return self._violations(value)
        except (Exception, SystemExit) as error:  # whatever a user's validator raises
            what = f"{self.model.__name__} raises {type(error).__name__}: {first_line(error)}"
            return [((), what[:_LONGEST_MESSAGE])]

    def _violations(self, value: Any) -> list[tuple[Keys, str]]:
        """What pydantic says of an object, each with its path; any other error of a validator is raised."""
        try:
            self.model.model_validate_json(json.dumps(value))
        except sys.modules["pydantic"].ValidationError as error:
            details = error.errors(
                include_url=False, include_context=False, include_input=False
            )
            return [_violation(detail, value) for detail in details[:_MOST_VIOLATIONS]]
        return []


def load_class(file: str, name: str) -> UserClass:
    """Run a user's Python file and take the pydantic class `name` of it.

    A UserError for a broken file, and if there is no such class; "" is never one, and
    the error names the classes that there are.
    """
    path = Path(file).resolve()
    spec = spec_from_file_location(f"pipedec_schema_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise UserError("no such file", where=file)
    module = module_from_spec(spec)
    with refusing(file, f"the file or its class {name!r}"), _running(module):
        spec.loader.exec_module(module)
        models = _models_in(module)
    if name not in models:
        what = "which of its classes is meant is not said"
        if name:
            what = f"it has no pydantic class {name!r}"
        todo = "give FILE.py:CLASS with a class made of pydantic.BaseModel"
        if models:
            todo = f"give FILE.py:CLASS with one of its classes: {some_names(models)}"
        raise UserError(what, where=file, todo=todo)
    return UserClass(module, models[name])


def class_of(model: type) -> UserClass:
    """A class of the running program. Raises a UserError if it is not made of pydantic's."""
    if not issubclass(model, _base()):
        todo = "give a class made of pydantic.BaseModel, a JSON Schema, or keys such as 'name, age int'"
        raise UserError(f"{model.__qualname__} is no pydantic class", todo=todo)
    return UserClass(None, model)


def _base() -> Any:
    """The class that all pydantic classes are made of; none if nobody has imported pydantic."""
    return getattr(sys.modules.get("pydantic"), "BaseModel", ())


def _generator() -> Any:
    """A class that makes JSON Schemas as pydantic does, but a Decimal is a number only, where pydantic allows a string too."""
    base: Any = import_module("pydantic.json_schema").GenerateJsonSchema

    class Generator(base):  # type: ignore[misc]
        def decimal_schema(self, schema: Any) -> Any:
            usual = super().decimal_schema(schema)
            for alternative in usual.get("anyOf", ()):
                if alternative.get("type") == "number":
                    return alternative
            return usual

    return Generator


@contextmanager
def refusing(where: str, of_user: str) -> Iterator[None]:
    """Make a UserError of whatever the code in this context raises: code `of_user`, a file or a class, at the place `where`."""
    try:
        yield
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(f"{of_user} cannot be used: {what}", where=where) from error


@contextmanager
def _running(module: ModuleType | None) -> Iterator[None]:
    """Let code of a user's file run: imports find its neighbours and itself, and what it prints goes to stderr.

    The import path and the table of modules are afterwards as they were. None: the class
    is of the running program.
    """
    if module is None:
        yield
        return
    folder = str(Path(str(module.__file__)).parent)
    before = sys.path
    same_name = sys.modules.get(module.__name__)
    sys.path = [folder, *sys.path]
    sys.modules[module.__name__] = module  # pydantic looks up names of types there
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.path = before
        sys.modules.pop(module.__name__, None)
        if same_name is not None:
            sys.modules[module.__name__] = same_name


def _models_in(module: ModuleType) -> dict[str, Any]:
    """The pydantic classes of a file by their names, without those of pydantic itself."""
    base = _base()
    models = {}
    for name, value in vars(module).items():
        if not isinstance(value, type) or not issubclass(value, base):
            continue
        package, _, _ = value.__module__.partition(".")
        if package not in _NOT_THE_USERS:
            models[name] = value
    return models


def _violation(detail: Any, value: Any) -> tuple[Keys, str]:
    """An error of pydantic as the path in the object `value` that it is about, and its words."""
    keys = _path_of(detail["loc"], value, is_missing=detail["type"] == "missing")
    words = " ".join(detail["msg"].split())
    return keys, words[:_LONGEST_MESSAGE]


def _path_of(steps: Sequence[str | int], value: Any, *, is_missing: bool) -> Keys:
    """The path in the object `value` to what an error of pydantic is about. Items count from 1.

    `steps` are pydantic's own, from the outside in. They also name the alternatives of
    unions and the validators of types, which are no keys of the object, and are left
    out. If the error is that something `is_missing`, the last step is what is missing.
    """
    path: list[str | int] = []
    for number, step in enumerate(steps, start=1):
        is_lacking = is_missing and number == len(steps)
        if isinstance(value, dict) and str(step) in value:
            path.append(str(step))
            value = value[str(step)]
        elif isinstance(value, list) and isinstance(step, int):
            if is_lacking:
                path.append(step + 1)
            elif step < len(value):
                path.append(step + 1)
                value = value[step]
        elif is_lacking:
            path.append(step)
    return tuple(path)
