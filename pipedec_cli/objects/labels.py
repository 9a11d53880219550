"""Labels of the alternatives of a schema, and whether a value can be two of them."""

from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from typing import Any, Final

from pipedec_cli.data.fields import text_of
from pipedec_cli.objects.keywords import Said
from pipedec_cli.objects.merging import with_integer

Alternatives = Sequence[Said]
#: So many alternatives are compared with each other.
_COMPARED: Final = 50


def labels_of(parts: Alternatives) -> list[str]:
    """Labels that tell alternatives apart, one each, which a row chooses among.

    They are the constants of a key that is another in each alternative, else the titles
    or the types if these are all different, else the numbers from 1.
    """
    key = _telling_key(parts)
    if key is not None:
        return _constants(parts, key)
    titles = [str(part.get("title", "")).strip() for part in parts]
    if _are_labels(titles):
        return titles
    if _have_own_types(parts):
        return [" or ".join(_types_of(part)) for part in parts]
    return [str(number) for number in range(1, len(parts) + 1)]


def are_apart(parts: Alternatives) -> bool:
    """Whether no object that is written for one alternative fits another one."""
    key = _telling_key(parts)
    if key is not None:
        return all(key in part.get("required", ()) for part in parts)
    return _have_own_types(parts) or _require_own_keys(parts)


def _telling_key(parts: Alternatives) -> str | None:
    """The first key, by name, that every alternative has, with a different constant in each; None if there is none."""
    names = ({*part.get("properties", ())} for part in parts)
    for key in sorted(set[str].intersection(*names)):
        if _are_labels(_constants(parts, key)):
            return key
    return None


def _constants(parts: Alternatives, key: str) -> list[str]:
    """The text of the only value that the property `key` can have in each alternative; "" if it can have several."""
    texts = []
    for part in parts:
        schema = part["properties"][key]
        values: Any = None
        if isinstance(schema, dict):
            values = [schema["const"]] if "const" in schema else schema.get("enum")
        is_constant = isinstance(values, list) and len(values) == 1
        texts.append(text_of(*values) if is_constant else "")
    return texts


def _are_labels(texts: Sequence[str]) -> bool:
    return all(texts) and len({*texts}) == len(texts)


def _types_of(part: Said) -> Sequence[str]:
    types: Sequence[str] = part.get("type", ())
    return types or (("object",) if "properties" in part else ())


def _have_own_types(parts: Alternatives) -> bool:
    """Whether each alternative says which types it allows, and no other one allows any of these."""
    times = Counter[str]()
    for part in parts:
        types = _types_of(part)
        if not types:
            return False
        times.update(with_integer(types))  # each integer is a number, too
    return max(times.values()) == 1


def _require_own_keys(parts: Alternatives) -> bool:
    """Whether each alternative requires a key that no object written for another one has.

    False as well for very many alternatives, which are not compared.
    """
    if len(parts) > _COMPARED or not all("properties" in part for part in parts):
        return False
    for part, other in permutations(parts, 2):
        written = {*other["properties"], *other.get("required", ())}
        if written.issuperset(part.get("required", ())):
            return False
    return True
