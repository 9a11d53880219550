"""Objects within objects: the path of each value, such as ``address.city`` or ``menu[2].price``, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

#: The keys that lead to a value. A number is the place of an item in a list, from 1; in a schema it is 0, for any item.
Keys = tuple[str | int, ...]
#: What a schema wants where a key has no value: the key is left out, it is null, or it must have a value.
Absent = Literal["omit", "null", "never"]

#: An object that is deeper is no object of values.
_DEEPEST: Final = 64


#: The value of a key that has none, and of an object that lacks a value which it must have.
NOTHING: Final = object()


@dataclass(frozen=True, slots=True)
class Part:
    """A value with its path and what the schema wants at each key of the path; () if it wants nothing.

    `least` stands for a value that must be there and is not; it is `NOTHING` if nothing can.
    """

    keys: Keys
    value: Any
    absent: Sequence[Absent] = ()
    least: Any = NOTHING


def path_name(keys: Keys) -> str:
    """The path in writing: ``menu[2].price``, and ``menu[].price`` for any item."""
    name = ""
    for key in keys:
        part = f"[{key or ''}]" if isinstance(key, int) else f".{key}"
        name += part if name else str(key)
    return name


def any_item(keys: Keys) -> Keys:
    """The path in a schema of a path in an object."""
    return tuple(0 if isinstance(key, int) else key for key in keys)


def shapes(keys: Keys) -> Iterator[tuple[Keys, str]]:
    """The paths to all objects and lists above a value, and to the value, each with what stands there."""
    for depth in range(1, len(keys)):
        if not isinstance(keys[depth - 1], int):
            yield keys[:depth], "a list of objects" if isinstance(keys[depth], int) else "an object"
    yield keys, "a value"


def leaves(value: Mapping[str, Any], above: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """The values that are no objects, each with its path. Items of a list of objects are counted without empty ones."""
    for key, part in value.items():
        here, number = (*above, key), 0
        if len(here) > _DEEPEST:
            yield here, part
        elif isinstance(part, Mapping):
            yield from leaves(part, here)
        elif _lists_objects(part):
            for item in part:
                found = [*leaves(item or {}, (*here, number + 1))]
                number += any(_says_something(one) for _, one in found)
                yield from (pair for pair in found if pair[0][len(here)] == number)
        else:
            yield here, part


def _lists_objects(value: Any) -> bool:
    fits = isinstance(value, list) and all(isinstance(item, Mapping | None) for item in value)
    return fits and any(item is not None for item in value)


def _says_something(value: Any) -> bool:
    """Whether it is neither null nor blank, nor a list of such items."""
    if isinstance(value, list):
        return any(map(_says_something, value))
    return value is not None and not (isinstance(value, str) and not value.strip())


def assemble(parts: Iterable[Part]) -> dict[str, Any]:
    """The object of some values, in their order. Where nothing else is wanted, a key without a value is left out."""
    made = _object([*parts], 0)
    return {} if made is NOTHING else dict(made)


def mapped(values: Mapping[str, Any], change: Callable[[Keys, Any], Any], above: Keys = ()) -> dict[str, Any]:
    """An object of the same shape, whose values are `change`, called with each path and value."""
    made: dict[str, Any] = {}
    for key, value in values.items():
        here = (*above, key)
        if isinstance(value, Mapping):
            made[key] = mapped(value, change, here)
        elif _lists_objects(value):
            made[key] = [mapped(item, change, (*here, number)) for number, item in enumerate(value, 1)]
        else:
            made[key] = change(here, value)
    return made


def by_path(values: Mapping[str, Any]) -> dict[Keys, Any]:
    """The values of an object by their paths; each item of a list has its own number, also an empty one."""
    found: dict[Keys, Any] = {}
    mapped(values, found.setdefault)
    return found


def _object(parts: Sequence[Part], depth: int) -> Any:
    """The object whose keys stand at a depth of the paths; `NOTHING` if it lacks a value that it must have."""
    made: dict[str, Any] = {}
    for key, group in _grouped(parts, depth):
        (wanted,) = group[0].absent[depth : depth + 1] or ("omit",)
        value = _value(group, depth + 1, must=wanted == "never")
        if value is NOTHING:
            if wanted == "never":
                return NOTHING
            if wanted == "omit":
                continue
            value = None
        made[str(key)] = value
    return made


def _value(parts: Sequence[Part], depth: int, *, must: bool) -> Any:
    """A value, an object or a list of objects, whose path has `depth` keys; `NOTHING` if there is none."""
    first = parts[0]
    if len(first.keys) == depth:
        return first.least if must and first.value is NOTHING else first.value
    if not isinstance(first.keys[depth], int):
        return _object(parts, depth) if must or _filled(parts) else NOTHING
    items = (_object(item, depth + 1) for _, item in _grouped(parts, depth) if _filled(item))
    made = [item for item in items if item is not NOTHING]
    return made if must or made else NOTHING


def _filled(parts: Iterable[Part]) -> bool:
    return any(part.value is not NOTHING for part in parts)


def _grouped(parts: Iterable[Part], depth: int) -> Iterable[tuple[str | int, list[Part]]]:
    """The parts by their key at a depth, in the order of its first appearance."""
    groups: dict[str | int, list[Part]] = {}
    for part in parts:
        groups.setdefault(part.keys[depth], []).append(part)
    return groups.items()
