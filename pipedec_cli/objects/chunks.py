"""Long sources in chunks that overlap: each is decoded as a source of its own, and their objects become one."""

import json
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
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
    item_number,
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
    """A value, its confidence, how far the schema forced it, and how probable "no value" is where there must be one."""

    value: Any
    sure: float
    forced: float | None = None
    missing: float | None = None
    shares: Mapping[str, float] | None = None  # of all that it may be, where scored


#: Values by their paths.
_Values = dict[Keys, _Value]


class _Read(NamedTuple):
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
        """Raise a UserError for chunks that are too large, and for objects that cannot be merged."""
        room = self.text.max_source_tokens - self.text.longest_around
        if self.size > room:
            what = f"chunk={self.size}: the model takes sources of at most {max(0, room):,} tokens"
            todo = "give smaller chunks, or a larger --max-source-tokens"
            raise UserError(what, todo=todo)
        if self.fields and not self.fields.tree.is_plain:
            what = "maps, alternatives, tuples and lists within lists of several chunks cannot become one"
            raise UserError(what, todo="leave the key chunk out")

    def cut(self, text: str) -> list[Chunk]:
        """The chunks of a source: whole words, as many as have at most `size` tokens, overlapping by an eighth of that.

        A source that is short enough is a single chunk.
        """
        words = _WORD.findall(text)
        # How many tokens, and how many characters, stand before each word.
        tokens = [0, *accumulate(len(ids) for ids in self.text.ids(words))]
        starts = [0, *accumulate(len(word) for word in words)]
        chunks = []
        first = 0  # the first word of the next chunk
        while tokens[-1] - tokens[first] > self.size and first < len(words) - 1:
            end = max(first + 1, bisect_right(tokens, tokens[first] + self.size) - 1)
            chunks.append(Chunk(text[starts[first] : starts[end]], starts[first]))
            shared = tokens[end] - self.size // _OVERLAP
            first = max(first + 1, bisect_left(tokens, shared))
        if not chunks:
            return [Chunk(text)]
        chunks.append(Chunk(text[starts[first] : starts[-1]], starts[first]))
        return chunks

    def merged(self, parts: Sequence[tuple[Chunk, Generated]]) -> Generated:
        """Merge the objects of a source's chunks: of each key the surest value; lists one after the other.

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
        reads = [_Read(chunk, _values_of(generated)) for chunk, generated in parts]
        merged = _all_values(reads, self.fields.fields)
        values, texts = _object_of(merged, self.fields.fields)
        sure = {keys: value.sure for keys, value in merged.items()}
        forced = None
        if results[0].forced is not None:
            shares = {keys: value.forced for keys, value in merged.items()}
            forced = mapped(values, lambda keys, _: shares.get(keys))
        missing = {}
        probabilities = {}
        for keys, value in merged.items():
            if value.missing is not None:
                missing[path_name(keys)] = value.missing
            if value.shares is not None:
                probabilities[path_name(keys)] = value.shares
        return replace(
            _with_all_costs(results),
            text=json.dumps(values, ensure_ascii=False),
            segments=tuple(filter(None, texts)),
            fields=values,
            forced=forced,
            confidence=mapped(values, lambda keys, _: sure.get(keys)),
            violations=in_words(self.check(values)),
            missing=missing,
            probabilities=probabilities,
        )


def _with_all_costs(results: Sequence[Generated]) -> Generated:
    """The result of the longest chunk, with the costs of all and without a grid."""
    longest = max(results, key=lambda result: len(result.source_ids))
    cut = [result.truncated for result in results if result.truncated]
    return replace(
        longest,
        steps=sum(result.steps for result in results),
        tokens=sum(result.tokens for result in results),
        seconds=sum(result.seconds for result in results),
        values_lost=sum(result.values_lost for result in results),
        truncated=cut[0] if cut else None,
        grid=(),
        calls=(),
        taken_back=(),
        source_cut=any(result.source_cut for result in results),
    )


def _values_of(generated: Generated) -> _Values:
    """The values of a result's object by their paths, without null and empty ones.

    Each has its confidence, its `forced` and its `missing` probability beside it.
    """
    sure = by_path(generated.confidence or {})
    forced = by_path(generated.forced or {})
    values = {}
    for keys, value in by_path(generated.fields or {}).items():
        if kind_of(value):
            path = path_name(keys)
            values[keys] = _Value(
                value,
                sure.get(keys) or 0.0,
                forced.get(keys),
                generated.missing.get(path),
                generated.probabilities.get(path),
            )
    return values


def _all_values(reads: Sequence[_Read], fields: Sequence[Field]) -> _Values:
    """The values of all chunks together, by their paths: first of single keys, then of the items of lists of objects."""
    merged = {}
    for field in fields:
        with_value = [read for read in reads if field.keys in read.values]
        if with_value and not field.listed:
            merged[field.keys] = _merged(with_value, field.keys)
    for places in list_places(fields):
        listed = [fields[place] for place in places]
        for number, item in enumerate(_items(reads, listed), start=1):
            for field in listed:
                if field.keys in item:
                    merged[field.at(number)] = item[field.keys]
    return merged


def _object_of(
    merged: _Values, fields: Sequence[Field]
) -> tuple[dict[str, Any], list[str]]:
    """The object that has the `merged` values, and the text of each of its rows; "" for a row without a value."""
    items = max((item_number(keys) for keys in merged), default=1)
    texts = []
    for field, item in rows_with(fields, items):
        value = merged.get(field.at(item))
        texts.append(text_of(value.value) if value else "")
    values, _ = read_values(texts, fields)
    return values, texts


def _merged(reads: Sequence[_Read], keys: Keys) -> _Value:
    """The value of a path out of several chunks that all have it: the surest one, the first of equals; of a list all items."""
    values = [read.values[keys] for read in reads]
    surest = max(values, key=lambda value: value.sure)
    if not isinstance(surest.value, list):
        return surest
    items: dict[Hashable, Any] = {}
    for read in reads:
        for place, item in _placed(read.values[keys].value, read.chunk):
            items.setdefault(place, item)
    sure = min(value.sure for value in values)
    forced = max(value.forced or 0.0 for value in values)
    return _Value([*items.values()], sure, forced)


def _placed(items: Sequence[Any], chunk: Chunk) -> Iterator[tuple[Hashable, Any]]:
    """The items of a list in a chunk, each behind what tells it apart: its text and where it starts in the source.

    The second of two equal items stands in the second place of this text in the chunk.
    The start is None where the text has no such place.
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
    """The items of a list of objects in all chunks, where readings of the same item are merged.

    Two readings are the same item if the names of both stand in the same place of the
    source, or, without a name, if all their values are equal. The paths of their values
    are those of the schema, without the item's number.
    """
    naming = naming_key(fields)
    same = defaultdict(list)
    for read in reads:
        items = _items_of(read.values, fields)
        names = [""] * len(items)
        for number, item in enumerate(items):
            if naming and naming.keys in item:
                names[number] = item[naming.keys].value
        for (place, name), item in zip(_placed(names, read.chunk), items, strict=True):
            # Without a name the values tell items apart.
            said = sorted((keys, repr(value.value)) for keys, value in item.items())
            same[place if name else repr(said)].append(item)
    return [_surest(items) for items in same.values()]


def _items_of(values: _Values, fields: Sequence[Field]) -> list[_Values]:
    """The items of the list with these fields in a chunk, in order: of each its values by the paths of the schema."""
    paths = {field.keys for field in fields}
    items: dict[int, _Values] = defaultdict(dict)
    for keys, value in values.items():
        path = any_item(keys)
        if path in paths:
            items[item_number(keys)][path] = value
    return list(items.values())


def _surest(items: Iterable[_Values]) -> _Values:
    """Make one item of several readings of it: of each key the surest value, the first of equals."""
    surest: _Values = {}
    for item in items:
        for keys, value in item.items():
            if keys not in surest or value.sure > surest[keys].sure:
                surest[keys] = value
    return surest
