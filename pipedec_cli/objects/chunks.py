"""Long sources in chunks that overlap: each is decoded as a source of its own, and their objects become one."""

import json
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
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
    path_name,
    rows_with,
    text_of,
)
from pipedec_cli.data.places import places_of
from pipedec_cli.data.records import Generated
from pipedec_cli.model.text import TextCodec
from pipedec_cli.objects.checking import Check
from pipedec_cli.objects.codec import FieldCodec
from pipedec_cli.objects.reader import in_words
from pipedec_cli.objects.tree import naming_key, read_values

#: A chunk begins this part of its length before the end of the one before.
_OVERLAP: Final = 8
#: What no chunk divides: a word with the space before it; at most so many letters, for
#: scripts without spaces.
_WORD: Final = re.compile(r"\s*\S{1,64}")


class Chunk(NamedTuple):
    """A part of a source, and the place in the source where it begins, in characters."""

    text: str
    start: int = 0


class _Value(NamedTuple):
    """A value, its confidence, and how far the schema forced it."""

    sure: float
    value: Any
    forced: float | None
    missing: float | None = (
        None  # how probable "no value" is of a value that must be there
    )


_Values = dict[Keys, _Value]  # by their paths


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read in a chunk."""

    chunk: Chunk
    values: _Values


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of at most `size` tokens of sources whose values `fields` are; a UserError if the model does not take as many."""

    text: TextCodec
    fields: FieldCodec | None
    size: int
    check: Check = lambda _: ()  # what an object violates in its schema

    def __post_init__(self) -> None:
        text = self.text
        room = text.max_source_tokens - text.longest_around
        if self.size > room:
            what = f"chunk={self.size}: the model takes sources of at most {max(0, room):,} tokens"
            raise UserError(
                what, todo="give smaller chunks, or a larger --max-source-tokens"
            )
        if self.fields and not self.fields.tree.is_plain:
            what = "maps, alternatives, tuples and lists within lists of several chunks cannot become one"
            raise UserError(what, todo="leave the key chunk out")

    def cut(self, text: str) -> list[Chunk]:
        """The chunks of a source; a source that is short enough stays as it is."""
        words = _WORD.findall(text)
        tokens = [
            0,
            *accumulate(len(ids) for ids in self.text.ids(words)),
        ]  # before each word
        places = [0, *accumulate(len(word) for word in words)]
        chunks = list[Chunk]()
        first = 0
        while tokens[-1] - tokens[first] > self.size and first < len(words) - 1:
            end = max(first + 1, bisect_right(tokens, tokens[first] + self.size) - 1)
            chunks.append(Chunk(text[places[first] : places[end]], places[first]))
            first = max(
                first + 1, bisect_left(tokens, tokens[end] - self.size // _OVERLAP)
            )
        if not chunks:
            return [Chunk(text)]
        return [*chunks, Chunk(text[places[first] : places[-1]], places[first])]

    def merged(self, parts: Sequence[tuple[Chunk, Generated]]) -> Generated:
        """The object of all chunks: of each key the surest value; lists one after the other.

        Items are told apart by their places in the source: what two chunks read in the
        same place is one item. An item that stands nowhere is told apart by its value.
        A joined list is as sure as its least sure part, and as forced as the most
        forced. The chunks' costs are added up. There is no grid, so there are no calls
        and nothing taken back; the ids are those of the longest chunk.
        """
        results = [generated for _, generated in parts]
        if len(results) == 1:
            return results[0]
        assert self.fields is not None, "texts are not merged"
        fields = self.fields.fields
        found = _all_values(
            [_Read(chunk, _values_of(generated)) for chunk, generated in parts], fields
        )
        values, texts = _object_of(found, fields)
        sure = {keys: value.sure for keys, value in found.items()}
        forced = {keys: value.forced for keys, value in found.items()}
        missing = {path_name(keys): value.missing for keys, value in found.items()}
        cut = [generated.truncated for generated in results if generated.truncated]
        longest = max(results, key=lambda generated: len(generated.source_ids))
        return replace(
            longest,
            text=json.dumps(values, ensure_ascii=False),
            segments=tuple(filter(None, texts)),
            steps=sum(generated.steps for generated in results),
            tokens=sum(generated.tokens for generated in results),
            seconds=sum(generated.seconds for generated in results),
            values_lost=sum(generated.values_lost for generated in results),
            truncated=cut[0] if cut else None,
            grid=(),
            calls=(),
            taken_back=(),
            source_cut=any(generated.source_cut for generated in results),
            fields=values,
            forced=None
            if results[0].forced is None
            else mapped(values, lambda keys, _: forced.get(keys)),
            confidence=mapped(values, lambda keys, _: sure.get(keys)),
            violations=in_words(self.check(values)),
            missing={
                name: share for name, share in missing.items() if share is not None
            },
        )


def _values_of(generated: Generated) -> _Values:
    """The values of an object that say something."""
    sure = by_path(generated.confidence or {})
    forced = by_path(generated.forced or {})
    values = _Values()
    for keys, value in by_path(generated.fields or {}).items():
        if kind_of(value):
            missing = generated.missing.get(path_name(keys))
            values[keys] = _Value(
                sure.get(keys) or 0.0, value, forced.get(keys), missing
            )
    return values


def _all_values(reads: Sequence[_Read], fields: Sequence[Field]) -> _Values:
    """The values of the object that all chunks make."""
    found = _Values()
    for field in fields:
        if not field.listed:
            found |= _merged(reads, field.keys)
    for places in list_places(fields):
        listed = [fields[place] for place in places]
        for number, item in enumerate(_items(reads, listed), start=1):
            for field in listed:
                if field.keys in item:
                    found[field.at(number)] = item[field.keys]
    return found


def _object_of(
    found: _Values, fields: Sequence[Field]
) -> tuple[dict[str, Any], list[str]]:
    """The object of these values, and the texts of its rows."""
    items = max(
        (key for keys in found for key in keys if isinstance(key, int)), default=1
    )
    texts = list[str]()
    for field, item in rows_with(fields, items):
        place = field.at(item)
        texts.append(text_of(found[place].value) if place in found else "")
    values, _ = read_values(texts, fields)
    return values, texts


def _merged(reads: Sequence[_Read], keys: Keys) -> _Values:
    """The surest value of a path, the first of equals; of lists all items. Nothing if no chunk has a value."""
    there = [read for read in reads if keys in read.values]
    if not there:
        return {}
    surest = max((read.values[keys] for read in there), key=lambda value: value.sure)
    if not isinstance(surest.value, list):
        return {keys: surest}
    joined = dict[Hashable, Any]()
    for read in there:
        for place, item in _placed(read.values[keys].value, read.chunk):
            joined.setdefault(place, item)
    sure = min(read.values[keys].sure for read in there)
    forced = max(read.values[keys].forced or 0.0 for read in there)
    return {keys: _Value(sure, [*joined.values()], forced)}


def _placed(items: Sequence[Any], chunk: Chunk) -> Iterator[tuple[Hashable, Any]]:
    """Items of a chunk, each with what tells it apart: itself and its place in the source.

    The second of two equal items stands in the second place of both.
    """
    counts = Counter[str]()
    for item in items:
        text = text_of(item)
        places = places_of(item, chunk.text)
        number = counts[text]
        counts[text] += 1
        place = chunk.start + places[number][0] if number < len(places) else None
        yield (text, place), item


def _items(reads: Sequence[_Read], fields: Sequence[Field]) -> list[_Values]:
    """The items of a list of objects in all chunks, those of one place merged. The paths are those of the schema."""
    naming = naming_key(fields)
    same = dict[Hashable, list[_Values]]()
    for read in reads:
        items = _items_of(read.values, fields)
        names = [
            item[naming.keys].value if naming and naming.keys in item else ""
            for item in items
        ]
        for (place, name), item in zip(_placed(names, read.chunk), items, strict=True):
            # Without a name the values tell items apart.
            known = sorted((keys, repr(value.value)) for keys, value in item.items())
            same.setdefault(place if name else repr(known), []).append(item)
    return [_surest(items) for items in same.values()]


def _items_of(values: Mapping[Keys, _Value], fields: Sequence[Field]) -> list[_Values]:
    """The items of a list of objects in a chunk, in order."""
    paths = {field.keys for field in fields}
    numbers = dict[int, None]()
    for keys in values:
        if any_item(keys) in paths:
            numbers |= dict.fromkeys(key for key in keys if isinstance(key, int))
    items = list[_Values]()
    for number in numbers:
        item = _Values()
        for field in fields:
            if field.at(number) in values:
                item[field.keys] = values[field.at(number)]
        items.append(item)
    return items


def _surest(items: Sequence[_Values]) -> _Values:
    """One item of several readings of it: of each key the surest value, the first of equals."""
    surest = _Values()
    for item in items:
        for keys, value in item.items():
            if keys not in surest or value.sure > surest[keys].sure:
                surest[keys] = value
    return surest
