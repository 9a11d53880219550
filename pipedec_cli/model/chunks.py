"""Long sources in chunks that overlap: each is decoded as a source of its own, and their objects become one."""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final

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

#: By their paths, the confidence of each value, the value, and how far the schema forced it.
_Values = dict[Keys, tuple[float, Any, float | None]]


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
        fields, found, none = self.decoder.fields.fields, _Values(), (None, None, None)
        objects = list[_Values]()
        for part in parts:
            sure, read, forced = (by_path(of or {}) for of in (part.confidence, part.fields, part.forced))
            read = {at: one for at, one in read.items() if kind_of(one)}
            objects.append({at: (sure.get(at) or 0.0, one, forced.get(at)) for at, one in read.items()})
        found |= _merged(objects, [field.keys for field in fields if not field.listed])
        for places in list_places(fields):
            listed = [fields[at] for at in places]
            for number, item in enumerate(_items(objects, listed), start=1):
                found |= {field.at(number): item[field.keys] for field in listed if field.keys in item}
        items = max((key for keys in found for key in keys if isinstance(key, int)), default=1)
        rows = rows_with(fields, items)
        texts = [text_of(found[at][1]) if (at := field.at(item)) in found else "" for field, item in rows]
        values, _ = read_values(texts, fields)
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
            forced=mapped(values, lambda keys, _: found.get(keys, none)[2]) if parts[0].forced else None,
            confidence=mapped(values, lambda keys, _: found.get(keys, none)[0]),
            violations=in_words(self.decoder.reader.check(values)),
        )


def _merged(objects: Sequence[_Values], paths: Sequence[Keys]) -> _Values:
    """The surest value of each path, the first of equals; all items of lists."""
    found = _Values()
    for keys in paths:
        if there := [one[keys] for one in objects if keys in one]:
            found[keys] = max(there, key=itemgetter(0))
            if isinstance(found[keys][1], list):
                joined = dict.fromkeys(item for _, items, _ in there for item in items)
                forced = max(part or 0.0 for *_, part in there)
                found[keys] = min(sure for sure, *_ in there), [*joined], forced
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
            known = sorted((keys, value) for keys, (_, value, _) in item.items())
            known = item[naming.keys][1] if naming and naming.keys in item else known
            same.setdefault(repr(known), []).append(item)
    return [_merged(items, [field.keys for field in fields]) for items in same.values()]
