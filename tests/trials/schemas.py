"""The schema reader on schemas that chance has made: `python -m tests.trials.schemas --random 2000 --hostile 200 --seed 1`.

Each is taken, or refused in one line: by the command line and with the limits of the
server, within 2 seconds and 200 MB. Where it is taken, objects of any texts validate
against it, and blind rows can be made of it.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from resource import RUSAGE_SELF, getrusage
from typing import Any

import jsonschema
import psutil

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import RowAddress
from pipedec_cli.decoding.blind import blind_decoder
from pipedec_cli.decoding.decoder import Decoder, load
from pipedec_cli.objects.asked import Asked, asked_of, names_in, numbered
from pipedec_cli.objects.checking import checker
from pipedec_cli.objects.json_schema import MOST, tree_in
from pipedec_cli.objects.rows import Rows
from pipedec_cli.objects.tree import ObjectOf
from tests.model.chats import foreign
from tests.trials.fuzz import call, wrong_with
from tests.trials.targets import lines

SECONDS, KILOBYTES = 2.0, 200_000
#: The most keys and answers of a schema for a server, by default.
MOST_BY_DEFAULT = (256, 10_000)
TYPES = [
    "string",
    "string",
    "number",
    "integer",
    "boolean",
    "array",
    "object",
    "null",
    ["string", "null"],
]
VALUES = [
    "a",
    "b",
    "",
    "1",
    "true",
    1,
    1.0,
    2.5,
    -3,
    10**20,
    True,
    False,
    None,
    "ä",
    "a b",
    "x|y",
]
ODD = [
    None,
    True,
    0,
    -1,
    1e308,
    float("nan"),
    " ",
    "\ud800",
    [],
    {},
    [[]],
    [None],
    {"type": 5},
    "#",
    10**400,
]
#: What a validator says of an object that lacks a value, also of one of several
#: alternatives.
LACKING = "is a required property|is not valid under any of the schemas"
KEYWORDS = [
    "type",
    "enum",
    "const",
    "$ref",
    "anyOf",
    "oneOf",
    "allOf",
    "items",
    "properties",
    "description",
]


def part_of(chance: Random, depth: int = 0) -> Any:
    """A part of a schema, most often a good one."""
    part: dict[str, Any] = {}
    for _ in range(chance.choice((1, 1, 1, 1, 2, 3))):
        word = chance.choice(KEYWORDS[:2] * 4 + KEYWORDS[: 3 if depth > 3 else 10])
        values = chance.choice(
            [chance.sample(VALUES, 3), ["a", "b"], ["b", "c", None], [1, 2]]
        )
        names = chance.sample(
            ["a", "b", "c.d", "ü", "e f", "g[]"], chance.randrange(1, 4)
        )
        inner = {
            name: part_of(chance, depth + 1)
            for name in (names if word[-1] in "fs" else ())
        }
        if word == "properties":
            part |= {"type": "object", word: inner, "required": chance.sample(names, 1)}
        elif word == "items":
            part |= {"type": "array", word: next(iter(inner.values()))}
        else:
            others = [*inner.values(), {"type": "null"}][: chance.randrange(1, 5)]
            alone = {"type": chance.choice(TYPES), "enum": values, "const": values[0]}
            alone |= {
                "description": "{question}",
                "$ref": f"#/$defs/{chance.choice('ABC')}",
            }
            part[word] = others if word.endswith("Of") else alone[word]
    if chance.random() < 0.01:
        part[chance.choice([*KEYWORDS, "not", "required"])] = chance.choice(ODD)
    return part


def random_schema(chance: Random) -> Any:
    """Some keys, and definitions that they may refer to."""
    names = [f"k{number}" for number in range(chance.randrange(1, 4))]
    schema = {
        "properties": {name: part_of(chance) for name in names},
        "required": chance.sample(names, 1),
    }
    schema["$defs"] = {name: part_of(chance, 2) for name in "ABC"}
    return schema | (
        {"$schema": "http://json-schema.org/draft-07/schema#"}
        if chance.random() < 0.1
        else {}
    )


def hostile_schema(chance: Random) -> Any:
    """A schema that grows, loops, or makes much work of few words."""
    count, width = int(10 ** chance.uniform(1, 4.4)), chance.randrange(1, 9)
    word = chance.choice(KEYWORDS[4:7])
    texts, levels = [f"t{number}" for number in range(count)], min(count, 1_000)
    ways: list[Callable[[Any], Any]] = [
        lambda one: {word: [one] * width},
        lambda one: {"properties": {f"k{number}": one for number in range(width)}},
        lambda one: {"type": "array", "items": one},
        lambda one: {word: [{"properties": {"k": one}, "required": ["k"]}] * width},
        lambda one: {word: [one, {"enum": texts[:500]}], "properties": {"k": one}},
    ]  # fmt: skip
    around = chance.choice(ways)
    links = {
        f"D{number}": around({"$ref": f"#/$defs/D{number + 1}"})
        for number in range(levels)
    }
    deep: Any = {"type": "string"}
    doubles = around is ways[-1]
    for _ in range(90 if width == 1 and not doubles else 12 // width.bit_length()):
        deep = around(deep)
    part = chance.choice([
        {"$ref": "#/$defs/D0"},
        {"$ref": "#/$defs/loop"},
        deep,
        {word: [{"enum": texts}, {"enum": [*reversed(texts), *VALUES]}] * width},
        {word: [{"const": text} for text in texts]},
        {word: [{"properties": {text: {}}, "required": [text]} for text in texts]},
        {word: [{"required": texts, "properties": dict.fromkeys(texts, True)}, {"required": texts[::-1]}]},
        {word: [around({"enum": [number]}) for number in range(levels)]},
        {word: [{"title": text, "type": "string"} for text in texts]},
        {word: [{"items": {"enum": texts[:9]}, "type": "array"}] * levels},
        {"type": [*TYPES[:7], *texts], "enum": texts},
        {"type": "array", "items": {"enum": [*range(count), *texts]}},
        {chance.choice(["description", "const", "$ref", "type", "title"]): "x#/" * count},
        {"properties": {chance.choice(["x", "é", ".", "[]", "\n", "\u202e"]) * count: {"type": "string"}}},
        {"properties": {text: chance.choice([{}, {"enum": texts[:9]}, {"type": "array"}]) for text in texts}},
        {"enum": [chance.choice([10, -10]) ** levels, *range(count), 1e300]},
    ])  # fmt: skip
    parts = {**links, f"D{levels}": {}, "loop": around({"$ref": "#/$defs/loop"})}
    return {"properties": {"k": part}, "$defs": parts}


def say(
    rows: Iterable[Asked], chance: Random, texts: dict[RowAddress, str | None]
) -> None:
    """Any text for each row, and for those that it opens."""
    for asked in rows:
        text = chance.choice(
            ["", None, "1", "2.5", "true", "a", "a | b", *asked.part.field.enum[:9]]
        )
        texts[asked.at] = text
        if asked.part.shape == "choice":
            say(asked.chosen(text or ""), chance, texts)
        elif asked.part.shape != "value" and len(texts) < 200:
            is_list = asked.part.shape == "list"
            named = names_in(text or "")
            names = numbered(
                enumerate(named, start=1)
                if is_list
                else ((name, name) for name in named)
            )
            if asked.part.name_key:
                texts |= {
                    RowAddress(asked.named(name.key)): name.name for name in names
                }
            say(asked.items(names), chance, texts)


def wrong_of(schema: Any, plain: Decoder, chance: Random) -> tuple[bool, list[str]]:
    """Whether a schema is taken, and what is wrong."""
    is_taken = False
    wrong = wrong_on_the_command_line(schema)
    for most in (MOST_BY_DEFAULT, MOST):
        try:
            warnings = list[str]()
            with measured(most, wrong):
                tree = tree_in(
                    json.loads(json.dumps(schema)), "x", warnings.append, most
                )
            is_taken = True
            wrong += wrong_objects(tree, schema, warnings, chance)
            if most != MOST:
                blind_decoder(plain, Rows(tree)).method()
        except UserError as error:
            if "\n" in str(error):
                wrong.append("a refusal of several lines")
        except jsonschema.ValidationError as error:
            wrong.append(f"an object is invalid: {error.message[:200]}")
        except jsonschema.SchemaError:
            pass
        except Exception as error:
            wrong.append(f"raises {error!r:.200}")
    return is_taken, wrong


def wrong_on_the_command_line(schema: Any) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        Path(name, "s.json").write_text(json.dumps(schema), encoding="utf-8")
        rows = lines([{"source": "a", "target": {"k": "b"}}])
        Path(name, "d.jsonl").write_bytes(rows)
        command = "segment d.jsonl --level field --schema s.json --out out"
        return wrong_with(call(command.split(), Path(name)))


@contextmanager
def measured(most: object, wrong: list[str]) -> Iterator[None]:
    """Adds a word to what is wrong if what is done here takes too long or too much memory."""
    held = psutil.Process().memory_info().rss // 1024
    peak = getrusage(RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    try:
        yield
    finally:
        seconds = time.process_time() - began
        now = getrusage(RUSAGE_SELF).ru_maxrss
        if seconds > SECONDS:
            wrong.append(f"{seconds:.1f} s with {most}")
        if now > max(peak, held + KILOBYTES):
            wrong.append(f"{now - held:,} kB")


def wrong_objects(
    tree: Any, schema: Any, warnings: list[str], chance: Random
) -> list[str]:
    """What objects of any texts violate without a word. The validator takes minutes of long schemas."""
    wrong = list[str]()
    if len(json.dumps(schema)) >= 20_000:
        return wrong
    is_said = any("no row is held to" in warning for warning in warnings)
    for _ in range(4):
        texts = dict[RowAddress, str | None]()
        say(asked_of(Asked(tree)), chance, texts)
        value = ObjectOf(tree, texts).read()
        named = [what for _, what in checker(schema)(value)]
        if not named:
            with suppress(RecursionError):  # it reads no such depth
                jsonschema.validate(value, schema)
        # What no row is held to is named, and what no row has said.
        for what in named:
            if not is_said and not re.search(LACKING, what):
                wrong.append(f"not said: {what}")
    return wrong


def swept(
    make: Callable[[Random], Any], numbers: Iterable[int], seed: int = 0
) -> tuple[Counter[bool], list[str]]:
    """How many schemas were taken, and what was wrong."""
    taken, found = Counter[bool](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        plain = load(str(foreign(Path(folder))))
        for number in numbers:
            chance = Random(f"{seed}:{number}")
            schema = make(chance)
            is_taken, wrong = wrong_of(schema, plain, chance)
            taken[is_taken] += 1
            found += [
                f"{make.__name__} {number}: {what}: {json.dumps(schema)[:500]}"
                for what in wrong
            ]
    return taken, found


def _script() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in {"random": 2_000, "hostile": 200, "start": 0, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    asked, faults = parser.parse_args(), 0
    for make, count in ((random_schema, asked.random), (hostile_schema, asked.hostile)):
        taken, found = swept(make, range(asked.start, asked.start + count), asked.seed)
        told = f"{make.__name__}: {taken[True]:,} taken, {taken[False]:,} refused, {len(found)} wrong"
        print(told, *found, sep="\n")
        faults += len(found)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(_script())
