"""Long sources in chunks that overlap: each is decoded as a source of its own, and their objects become one."""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import (
    Field,
    Keys,
    any_item,
    by_path,
    kind_of,
    list_places,
    mapped,
    rows_with,
    text_of,
)
from pipedec_cli.data.records import Generated
from pipedec_cli.data.tree import naming_key, read_values
from pipedec_cli.model.decoder import Decoder, ObjectReader, in_words

#: A chunk begins this part of its length before the end of the one before.
_OVERLAP: Final = 8
#: What no chunk divides: a word with the space before it; at most so many letters, for scripts without spaces.
_WORD: Final = re.compile(r"\s*\S{1,64}")


class _Value(NamedTuple):
    """A value, its confidence, and how far the schema forced it."""

    sure: float
    value: Any
    forced: float | None


_Values = dict[Keys, _Value]  # by their paths


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of at most `size` tokens for a decoder whose rows are values; a UserError if the model does not take as many."""

    decoder: Decoder
    size: int

    def __post_init__(self) -> None:
        text = self.decoder.text
        if self.size > (room := text.max_source_tokens - text.longest_around):
            what = f"chunk={self.size}: the model takes sources of at most {max(0, room):,} tokens"
            raise UserError(what, todo="give smaller chunks, or a larger --max-source-tokens")
        if self.decoder.fields and not self.decoder.fields.tree.is_plain:
            what = "maps, alternatives, tuples and lists within lists of several chunks cannot become one"
            raise UserError(what, todo="leave the key chunk out")

    def cut(self, text: str) -> list[str]:
        """The chunks of a source; a source that is short enough stays as it is."""
        words = _WORD.findall(text)
        before = [0, *accumulate(map(len, self.decoder.text.ids(words)))]  # tokens before each word
        chunks, at = list[str](), 0
        while before[-1] - before[at] > self.size and at < len(words) - 1:
            end = max(at + 1, bisect_right(before, before[at] + self.size) - 1)
            chunks.append("".join(words[at:end]))
            at = max(at + 1, bisect_left(before, before[end] - self.size // _OVERLAP))
        return [*chunks, "".join(words[at:])] if chunks else [text]

    def merged(self, parts: Sequence[Generated]) -> Generated:
        """The object of all chunks: of each key the surest value; lists one after the other, without doubles.

        Items of a list of objects that have the same name are one item. A joined list is as sure as its least sure part, and
        as forced as the most forced. The chunks' costs are added up. There is no grid, so there are no calls and nothing taken
        back; the ids are those of the longest chunk.
        """
        if len(parts) == 1:
            return parts[0]
        assert self.decoder.fields is not None and isinstance(self.decoder.reader, ObjectReader)
        fields, found = self.decoder.fields.fields, _Values()
        objects = list[_Values]()
        for part in parts:
            sure, forced = by_path(part.confidence or {}), by_path(part.forced or {})
            read = [(at, value) for at, value in by_path(part.fields or {}).items() if kind_of(value)]
            objects.append({at: _Value(sure.get(at) or 0.0, value, forced.get(at)) for at, value in read})
        found |= _merged(objects, [field.keys for field in fields if not field.listed])
        for places in list_places(fields):
            listed = [fields[at] for at in places]
            for number, item in enumerate(_items(objects, listed), start=1):
                found |= {field.at(number): item[field.keys] for field in listed if field.keys in item}
        items = max((key for keys in found for key in keys if isinstance(key, int)), default=1)
        rows = rows_with(fields, items)
        texts = [text_of(found[at].value) if (at := field.at(item)) in found else "" for field, item in rows]
        values, _ = read_values(texts, fields)
        sure, forced = ({at: getattr(one, name) for at, one in found.items()} for name in ("sure", "forced"))
        cut = [part.truncated for part in parts if part.truncated]
        costs = ("steps", "tokens", "seconds", "values_lost")
        return replace(
            max(parts, key=lambda part: len(part.source_ids)),
            text=json.dumps(values, ensure_ascii=False),
            segments=tuple(filter(None, texts)),
            **{name: sum(getattr(part, name) for part in parts) for name in costs},
            truncated=cut[0] if cut else None,
            grid=(),
            calls=(),
            taken_back=(),
            source_cut=any(part.source_cut for part in parts),
            fields=values,
            forced=None if parts[0].forced is None else mapped(values, lambda keys, _: forced.get(keys)),
            confidence=mapped(values, lambda keys, _: sure.get(keys)),
            violations=in_words(self.decoder.reader.check(values)),
        )


def _merged(objects: Sequence[_Values], paths: Sequence[Keys]) -> _Values:
    """The surest value of each path, the first of equals; all items of lists."""
    found = _Values()
    for keys in paths:
        if there := [one[keys] for one in objects if keys in one]:
            found[keys] = max(there, key=attrgetter("sure"))
            if isinstance(found[keys].value, list):
                joined = dict.fromkeys(item for one in there for item in one.value)
                forced = max(one.forced or 0.0 for one in there)
                found[keys] = _Value(min(one.sure for one in there), [*joined], forced)
    return found


def _items(objects: Sequence[_Values], fields: Sequence[Field]) -> list[_Values]:
    """The items of a list of objects in all chunks, those of one name merged. The paths are those of the schema."""
    naming, same = naming_key(fields), dict[str, list[_Values]]()
    paths = {field.keys for field in fields}
    for one in objects:
        listed = (keys for keys in one if any_item(keys) in paths)
        for number in dict.fromkeys(key for keys in listed for key in keys if isinstance(key, int)):
            item = {field.keys: one[at] for field in fields if (at := field.at(number)) in one}
            # Without a name the values tell items apart.
            known = sorted((keys, found.value) for keys, found in item.items())
            known = item[naming.keys].value if naming and naming.keys in item else known
            same.setdefault(repr(known), []).append(item)
    return [_merged(items, [field.keys for field in fields]) for items in same.values()]
