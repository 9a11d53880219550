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
        room = self.text.max_source_tokens - self.text.longest_around
        if self.size > room:
            what = f"chunk={self.size}: the model takes sources of at most {max(0, room):,} tokens"
            todo = "give smaller chunks, or a larger --max-source-tokens"
            raise UserError(what, todo=todo)
        if self.fields and not self.fields.tree.is_plain:
            what = "maps, alternatives, tuples and lists within lists of several chunks cannot become one"
            raise UserError(what, todo="leave the key chunk out")

    def cut(self, text: str) -> list[Chunk]:
        """The chunks of a source; a source that is short enough stays as it is."""
        words = _WORD.findall(text)
        # The tokens and the characters before each word.
        tokens = [0, *accumulate(len(ids) for ids in self.text.ids(words))]
        places = [0, *accumulate(len(word) for word in words)]
        chunks = []
        first = 0
        while tokens[-1] - tokens[first] > self.size and first < len(words) - 1:
            end = max(first + 1, bisect_right(tokens, tokens[first] + self.size) - 1)
            chunks.append(Chunk(text[places[first] : places[end]], places[first]))
            shared = tokens[end] - self.size // _OVERLAP
            first = max(first + 1, bisect_left(tokens, shared))
        if not chunks:
            return [Chunk(text)]
        chunks.append(Chunk(text[places[first] : places[-1]], places[first]))
        return chunks

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
        reads = [_Read(chunk, _values_of(generated)) for chunk, generated in parts]
        found = _all_values(reads, self.fields.fields)
        values, texts = _object_of(found, self.fields.fields)
        sure = {keys: value.sure for keys, value in found.items()}
        forced = None
        if results[0].forced is not None:
            shares = {keys: value.forced for keys, value in found.items()}
            forced = mapped(values, lambda keys, _: shares.get(keys))
        missing = {}
        probabilities = {}
        for keys, value in found.items():
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
    """The values of an object that say something."""
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
    """The values of the object that all chunks make."""
    found = {}
    for field in fields:
        there = [read for read in reads if field.keys in read.values]
        if there and not field.listed:
            found[field.keys] = _merged(there, field.keys)
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
    items = max((item_number(keys) for keys in found), default=1)
    texts = []
    for field, item in rows_with(fields, items):
        value = found.get(field.at(item))
        texts.append(text_of(value.value) if value else "")
    values, _ = read_values(texts, fields)
    return values, texts


def _merged(reads: Sequence[_Read], keys: Keys) -> _Value:
    """The surest value of a path that all these chunks have, the first of equals; of lists all items."""
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
    """The items of a list of objects in a chunk, in order."""
    paths = {field.keys for field in fields}
    items: dict[int, _Values] = defaultdict(dict)
    for keys, value in values.items():
        path = any_item(keys)
        if path in paths:
            items[item_number(keys)][path] = value
    return list(items.values())


def _surest(items: Iterable[_Values]) -> _Values:
    """One item of several readings of it: of each key the surest value, the first of equals."""
    surest: _Values = {}
    for item in items:
        for keys, value in item.items():
            if keys not in surest or value.sure > surest[keys].sure:
                surest[keys] = value
    return surest
