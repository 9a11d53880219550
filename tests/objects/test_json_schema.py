"""JSON Schemas as people have them: what is read, what is refused, and what is said of it."""

import json
import time
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import RowAddress
from pipedec_cli.objects.json_schema import keys_of, load_schema, read_schema, tree_in
from pipedec_cli.objects.tree import ObjectOf
from tests.words import refusing, same_words

HERE = Path(__file__).parent
#: Parts of a schema, and what is read: names, kinds, choices, what stands for no
#: value, and scalars; or why they are refused.
READINGS = (HERE / "readings.jsonl").read_text(encoding="utf-8").splitlines()
#: Schemas that are refused, and words of the refusals.
REFUSALS = (HERE / "refusals.jsonl").read_text(encoding="utf-8").splitlines()


def test_a_json_schema_is_read_from_a_file(tmp_path):
    path = tmp_path / "schema.json"
    named = {"type": "string", "description": "what it is called"}
    path.write_text(json.dumps({"properties": {"name": named, "any": {}}}))
    name, other = read_schema(str(path)).values()
    assert (name.name, name.kind) == ("name", "string")
    assert name.description == "what it is called"
    assert (other.name, other.kind) == ("any", "any")


@pytest.mark.parametrize("line", REFUSALS, ids=range(1, len(REFUSALS) + 1))
def test_a_schema_is_refused_in_one_line_with_its_reason(tmp_path, line):
    refused = json.loads(line)
    path = tmp_path / "schema.json"
    path.write_text(refused["text"])
    with refusing():
        given = load_schema(str(path))
        tree_in(given.schema, given.where, [].append, trained=refused["trained"])


def test_nested_objects_and_lists_of_objects_give_paths(tmp_path):
    path = tmp_path / "schema.json"
    dish = {
        "properties": {"dish": {"type": "string"}, "price": {"type": "number"}},
        "required": ["dish"],
    }
    properties = {
        "at": {"anyOf": [{"$ref": "#/$defs/At%20it"}, {"type": "null"}]},
        "menu": {"type": "array", "items": dish},
        "kind": {"oneOf": [{"const": "pub"}, {"enum": ["bar"]}, {"type": "null"}]},
        "food": {"allOf": [{"enum": ["Thai"]}], "description": "what they cook"},
    }
    at = {
        "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}},
        "required": ["zip"],
    }
    schema = {
        "properties": properties,
        "required": ["at", "kind", "menu"],
        "$defs": {"At it": at},
    }
    path.write_text(json.dumps(schema))
    assert [
        (one.name, one.path, one.absent) for one in read_schema(str(path)).values()
    ] == [
        ("at.city", ("at", "city"), ("null", "omit")),
        ("at.zip", ("at", "zip"), ("null", "never")),
        ("menu[].dish", ("menu", 0, "dish"), ("never", "omit", "never")),
        ("menu[].price", ("menu", 0, "price"), ("never", "omit", "omit")),
        ("kind", (), ("null",)),
        ("food", (), ("omit",)),
    ]
    assert read_schema(str(path))["kind"].enum == ("pub", "bar")
    assert read_schema(str(path))["food"].description == "what they cook"


_DEFS = {
    "Base": {
        "type": "object",
        "properties": {"id": {"type": "integer"}},
        "required": ["id"],
    },
    "Red": {"type": "string", "enum": ["red"]},
    "Blue": {"type": "string", "enum": ["blue", "navy"]},
    "None": {"type": "null", "title": "None"},
    "Age": {"type": "number"},
}


@pytest.mark.parametrize("reading", READINGS, ids=range(1, len(READINGS) + 1))
def test_a_value_is_held_to_all_that_stands_beside_each_other(reading):
    part, told = map(json.loads(reading).get, ("part", "told"))
    schema = {"$defs": _DEFS, "properties": {"a": part}, "required": ["a"]}
    schema |= {"$schema": part["$schema"]} if "$schema" in part else {}
    try:
        fields = keys_of(schema, "here").values()
    except UserError as error:
        assert told == "refused"
        same_words(error)
        return
    found = []
    for field in fields:
        kinds = "".join(f"+{kind}" for kind in field.scalars)
        name = field.name.removeprefix("a.")
        words = (name, field.kind, "|".join(field.enum), field.absent[-1], kinds)
        found.append(" ".join(filter(None, words)))
    assert ", ".join(found) == told


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {f"k{n}": {} for n in range(5_001)}},
        {"properties": {str(n): {"$ref": "#/$defs/A"} for n in range(9)}},
        {"properties": {str(n): {"$ref": "#/$defs/B"} for n in range(9)}},
        {"properties": {"a": {"$ref": "#/$defs/C0"}}},
        {"properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/D0"}}}},
        {"properties": {"a": {"$ref": "#/$defs/E0"}}},
    ],
)
def test_reading_a_schema_stops_at_a_limit_also_where_references_fan_out(schema):
    defs = {
        "A": {"enum": [f"c{n}" for n in range(3_000)]},
        "B": {"description": "so " * 200_000},
    }
    for n in range(9_000):
        defs[f"C{n}"] = {"$ref": f"#/$defs/C{n + 1}"}
    for n in range(70):
        defs[f"D{n}"] = {
            "properties": dict.fromkeys(
                "ab", {"$ref": f"#/$defs/D{n + 1}"} if n < 24 else {}
            )
        }
        defs[f"E{n}"] = {"properties": {"a": {"$ref": f"#/$defs/E{n + 1}"}}}
    with refusing():
        keys_of(schema | {"$defs": defs}, "here")


TEXTS = [f"t{n}" for n in range(9_000)]


@pytest.mark.parametrize(
    "part",
    [
        {"anyOf": [{"const": text} for text in TEXTS]},
        {"oneOf": [{"title": text, "type": "string"} for text in TEXTS]},
        {"allOf": [{"properties": {text: {}}} for text in TEXTS]},
    ],
    ids=str.split("alternatives titles properties"),
)
def test_a_long_schema_is_read_or_refused_in_a_time_that_grows_with_its_length_alone(
    part,
):
    began = time.process_time()
    with suppress(UserError):
        keys_of({"properties": {"k": part}}, "here")
    assert time.process_time() - began < 2


def test_keywords_that_values_are_not_held_to_are_named_once(tmp_path, caplog):
    path = tmp_path / "schema.json"
    address = {
        "properties": {"zip": {"type": "string", "pattern": "[0-9]+", "title": "Zip"}}
    }
    items = {"type": ["string", "integer"], "format": "email", "minLength": 3}
    mail = {"type": "array", "items": items, "x-note": 1, "minItem": 1}
    path.write_text(
        json.dumps({"properties": {"mail": mail, "other": mail, "at": address}})
    )
    read_schema(str(path))
    wide = {
        "a": {"type": "integer", "minimum": 10**18},
        "b": {"type": "number", "multipleOf": 1_000_003},
    }
    keys_of({"properties": {**wide, "c": {"type": "array", "maxItems": 0}}}, "it")
    same_words("\n".join(caplog.messages))


def test_a_format_that_no_row_is_held_to_is_named():
    free = {"type": "string", "format": "phone"}
    for part, is_named in (
        ({"type": "string", "format": "uuid"}, False),
        ({"type": "integer", "format": "int32"}, False),
        (free, True),
        ({"type": "array", "items": free}, True),
        ({"type": ["string", "null"], "format": "phone"}, True),
        (free | {"enum": ["1", "2"]}, False),  # a choice is held to all of it
    ):
        said = []
        tree_in({"properties": {"a": part}}, "it", said.append)
        assert bool(said) == is_named
        same_words("\n".join(said))


def test_a_list_that_allows_no_item_is_always_empty():
    closed = (
        {"type": "array", "maxItems": 0},
        {"type": ["array", "null"], "items": False},
    )
    for part, needed in product(closed, (["a"], [])):
        within = {
            "properties": {"a": part, "b": {"type": "string"}},
            "required": needed,
        }
        schema = {
            "properties": {**within["properties"], "c": within},
            "required": needed,
        }
        said = []
        tree = tree_in(schema, "it", said.append)
        assert [field.name for field in tree.values()] == ["b", "c.b"]
        assert ObjectOf(tree, {RowAddress(("b",)): "x"}).read() == {"a": [], "b": "x"}
        assert ObjectOf(tree, {RowAddress(("c", "b")): "x"}).read() == {
            "a": [],
            "c": {"a": [], "b": "x"},
        }
        assert said == []


def test_the_advice_for_what_is_no_schema_is_taken():
    advice = '{"properties": {"name": {"type": "string"}}}'
    with refusing("here") as refusal:
        tree_in([1, 2], "here")
    assert advice in refusal.value.todo.replace(", …", "")
    assert [field.name for field in tree_in(json.loads(advice), "here").values()] == [
        "name"
    ]


def test_a_value_that_the_model_may_word_is_marked():
    said = []
    text = {"type": "string", "x-free": True}
    parts = {
        "a": text,
        "b": {"type": "array", "items": text},
        "c": {"anyOf": [{"type": "null"}, text]},
    }
    parts |= {
        "d": {"type": "string", "x-free": False},
        "e": {"x-free": True},
        "f": {"type": "string"},
    }
    tree = tree_in({"properties": parts}, "it", said.append)
    marked = {field.name: ("x-free", True) in field.keywords for field in tree.values()}
    assert marked == {
        "a": True,
        "b": True,
        "c": True,
        "d": False,
        "e": True,
        "f": False,
    }
    assert not any(("x-free", False) in field.keywords for field in tree.values())
    assert said == []


def test_what_some_draft_or_engine_allows_is_no_fault():
    odd = [r"^[\w-\.]+$", r"a\Z", r"\(", "[(]", "^.{1,70000}$"]
    parts = {
        f"p{n}": {"type": "string", "pattern": pattern} for n, pattern in enumerate(odd)
    }
    parts["n"] = {
        "type": "number",
        "minimum": 1,
        "exclusiveMinimum": True,
        "required": False,
    }
    parts |= {"s": {"type": "string", "minLength": 3.0}, "t": {"items": [{}]}}
    parts |= {"no": False, "gone": {"const": None}}
    schema, warnings = {"properties": parts, "required": ["gone", "gone"]}, []
    tree = tree_in(schema, "here", warnings.append)
    assert warnings == ["here: left out: the property 'no' allows no value"]
    assert ObjectOf(tree, {RowAddress(("s",)): "abc"}).read() == {
        "s": "abc",
        "gone": None,
    }


def test_a_schema_within_another_object_or_behind_a_mistyped_word_is_pointed_at(
    tmp_path,
):
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    for wrong in (
        {"type": "function", "function": {"parameters": schema}},
        {"type": "json_schema", "json_schema": {"schema": schema}},
        {"type": "object", "propertys": {}},
    ):
        with refusing():
            tree_in(wrong, "here")
    (tmp_path / "s.json").write_text(json.dumps(schema), encoding="utf-8-sig")
    assert [*read_schema(str(tmp_path / "s.json"))] == ["a"]


def test_nothing_stands_for_a_lost_label_or_number_that_must_be_there():
    ways = [
        {"properties": {"kind": {"const": one}, "n": {"type": "integer", "minimum": 5}}}
        for one in "ab"
    ]
    tree = tree_in(
        {"oneOf": [{**way, "required": ["kind", "n"]} for way in ways]}, "here"
    )
    assert tree.field.forced
    label = RowAddress((), "label")
    reading = ObjectOf(tree, {label: None})
    assert (reading.read(), reading.lost) == ({}, 1)
    values = {RowAddress(("kind",)): "b", RowAddress(("n",)): None}
    reading = ObjectOf(tree, {label: "b", **values})
    assert (reading.read(), reading.lost) == ({"kind": "b"}, 1)


def test_choices_that_are_no_scalars_or_read_alike_are_chosen_as_json():
    for values in ([[1], {"x": 2}, "1", 1, " a", None], ["1", 2], [[[1]], "a"]):
        schema = {"properties": {"it": {"enum": values}}}
        tree = tree_in(schema, "here")
        field = tree.parts["it"].field
        assert field.kind == "json"
        written = []
        for text in field.enum:
            object_ = ObjectOf(tree, {RowAddress(("it",)): text}).read()
            written.append(object_["it"])
        assert written == [value for value in values if value is not None]


def test_a_list_with_a_part_for_each_place_ends_where_an_optional_one_is_empty():
    number, day = {"type": "integer"}, {"type": "string", "format": "date"}
    tree = tree_in(
        {"properties": {"it": {"prefixItems": [number, day, number], "minItems": 1}}},
        "here",
    )
    for texts, made in (
        (("1", "2024-01-01", "3"), {"it": [1, "2024-01-01", 3]}),
        (("1", "", "3"), {"it": [1]}),
        (("", "2024-01-01"), {}),
    ):
        assert (
            ObjectOf(
                tree, {RowAddress(("it", n)): text for n, text in enumerate(texts, 1)}
            ).read()
            == made
        )


def test_optional_parts_that_no_row_can_hold_are_left_out_and_named_once():
    tree = {
        "properties": {"word": {"type": "string"}, "left": {"$ref": "#/$defs/tree"}},
        "required": ["word"],
    }
    never = {
        "properties": {"a": {"type": "array", "items": {"type": "object"}}},
        "required": ["a"],
    }
    more = {f"f{n}": {"type": "object"} for n in range(8)} | {
        "x" * 1001: {"type": "string"}
    }
    warnings = []
    schema = {
        "properties": {"top": {"$ref": "#/$defs/tree"}, "never": never, **more},
        "$defs": {"tree": tree},
    }
    assert [*keys_of(schema, "here", warnings.append)] == ["top.word"]
    same_words("\n".join(warnings))


def test_the_row_of_names_is_described_by_the_key_that_names_the_items():
    items = {"properties": {"price": {"type": "number"}, "dish": {"type": "string"}}}
    menu = {"type": "array", "items": items, "description": "what they cook"}
    schema = {"properties": {"menu": menu}}
    field = tree_in(schema, "here").parts["menu"].field
    assert field.description == "what they cook"
    items["properties"]["dish"]["description"] = "its name"
    field = tree_in(schema, "here").parts["menu"].field
    assert field.description == "its name"


def test_alternatives_without_titles_are_told_apart_by_their_numbers():
    ways = [
        {"properties": {key: {"type": "string"}}, "required": [key]} for key in "ab"
    ]
    tree = tree_in({"properties": {"it": {"anyOf": ways}}}, "here", pytest.fail)
    found = {label: [*part.parts] for label, part in tree.parts["it"].parts.items()}
    assert found == {"1": ["a"], "2": ["b"]}


def test_a_required_property_that_is_always_null_is_written_by_no_row():
    schema = {
        "properties": {"a": {"$ref": "#/$defs/Nothing"}, "b": {"type": "string"}},
        "required": ["a"],
        "$defs": {"Nothing": {"type": ["null"]}},
    }
    tree = tree_in(schema, "here", pytest.fail)
    assert ObjectOf(tree, {RowAddress(("b",)): "x"}).read() == {"a": None, "b": "x"}
    with refusing():
        keys_of(schema, "here")


@pytest.mark.parametrize("pattern", ["(", "[a-", "x[^", r"\[["])
def test_a_group_or_a_class_of_a_pattern_that_does_not_end_is_refused(pattern):
    with refusing("here"):
        tree_in({"properties": {"p": {"type": "string", "pattern": pattern}}}, "here")


def test_a_required_name_that_is_like_a_property_is_warned_of():
    schema, warnings = {"properties": {"name": {}}, "required": ["nmae"]}, []
    tree_in(schema, "here", warnings.append)
    same_words("\n".join(warnings))
    schema["required"], warnings[:] = ["id"], []
    tree_in(schema, "here", warnings.append)
    assert warnings == []
