"""The keys that become rows: read off targets, chosen among them, or out of a JSON Schema as tools write them."""

import json

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Field
from pipedec_cli.data.lines import record_of
from pipedec_cli.data.schema import learn_schema, read_json_schema

FACTS = [
    {"name": "The Mill", "food": "Thai", "stars": 3},
    {"name": "Aromi", "tags": ["cosy"], "stars": 2.5, "food": None},
    {"name": "Zizzi", "open": True, "food": " "},
    {},
]


def records(*targets):
    return [record_of({"target": one}, f"x:{line}", line) for line, one in enumerate(targets, start=1)]


def test_keys_kinds_and_shares_are_those_of_the_targets_in_their_order():
    fields, others = learn_schema(records(*FACTS))
    assert [(field.name, field.kind, field.share) for field in fields] == [
        *(("name", "string", 0.75), ("food", "string", 0.25), ("stars", "number", 0.5)),
        *(("tags", "list", 0.25), ("open", "boolean", 0.25)),
    ]
    assert not others
    fields, others = learn_schema(records(*FACTS), keep=0.5)
    assert [field.name for field in fields] == ["name", "stars"]
    assert others == {"food": 1, "tags": 1, "open": 1}
    fields, others = learn_schema(records(*FACTS, {"odd": {"a": 1}}), {"stars": None, "name": Field("name")})
    described = [(field.name, field.kind, field.share) for field in fields]
    assert described == [("stars", "number", 0.4), ("name", "string", 0.6)]
    assert others == {"food": 1, "tags": 1, "open": 1, "odd": 1}, "what is not asked for need be no value"


@pytest.mark.parametrize(
    ("targets", "known", "told"),
    [
        ([["a"]], None, "x:1: the target is not an object"),
        ([{"a": 1}, {"a": "x"}], None, "x:2: 'a' is of kind string here and number at x:1"),
        ([{"a": [1]}], None, "x:1: 'a' is [1]; a value is a string"),
        ([{"a": [{"b": 1}]}], None, "x:1: 'a' is [{"),
        ([{"a": {"b": 1}}], {"a": None}, "x:1: 'a' is {"),
        ([{"a": 1}], {"b": None}, "no training target has a value for 'b'; its keys are: a"),
        ([{"a": 1}], {"b": Field("b")}, "no training target has a value for any key of the schema; the tar"),
        ([{}, {"a": ""}], None, "no key of the training targets has values enough; give --schema FILE"),
        ([{f"k{n}": 1 for n in range(5001)}], None, "5,001 keys would be as many rows; choose with --fields"),
        ([{" ": 1}], None, "x:1: the key ' ' is blank; rename it"),
        ([{"a": 1}, {"a ": 1}], None, "x:2: the keys 'a' and 'a ' read alike; rename one"),
    ],
)
def test_what_gives_no_schema_is_refused_with_its_place(targets, known, told):
    with pytest.raises(UserError) as refusal:
        learn_schema(records(*targets), known)
    assert str(refusal.value).startswith(told)


def test_a_json_schema_is_read_as_tools_write_it(tmp_path):
    path = tmp_path / "schema.json"
    properties = {
        "name": {"type": "string", "description": "what it is called"},
        "stars": {"type": ["integer", "null"]},
        "price": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
        "food": {"$ref": "#/$defs/Food"},
        "area": {"enum": ["riverside", "city centre", None]},
        "size": {"enum": [1, 2.5], "type": "number"},
        "kind": {"const": "pub"},
        "tags": {"type": "array", "items": {"enum": ["cosy", "loud"]}},
        "names": {"type": "array"},
        "open": {"type": "boolean"},
        "any": {"title": "Any"},
    }
    defs = {"Food": {"enum": ["Thai", "Italian"], "type": "string"}}
    schema = {"type": "object", "properties": properties, "$defs": defs, "required": ["name"]}
    path.write_text(json.dumps(schema))
    found = read_json_schema(path)
    assert found.pop("any") is None
    assert [(field.name, field.kind, field.enum) for field in found.values()] == [
        *(("name", "string", ()), ("stars", "integer", ()), ("price", "number", ())),
        *(("food", "string", ("Thai", "Italian")), ("area", "string", ("riverside", "city centre"))),
        *(("size", "number", ("1", "2.5")), ("kind", "string", ("pub",)), ("tags", "list", ("cosy", "loud"))),
        *(("names", "list", ()), ("open", "boolean", ())),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "expected an object, found a list"),
        ("{", "not JSON"),
        ('{"properties": {}}', "the schema has no properties"),
        ('{"properties": {"a": {}, "a": {}}}', "'a' is there twice"),
        ('{"properties": {"a": 3}}', "schema.json property 'a': expected an object, found a number"),
        ('{"properties": {"a": {"enum": "x"}}}', "schema.json property 'a': field 'enum': expected a list"),
        ('{"properties": {"a": {}}, "$defs": {"A": 1}}', "schema.json $defs 'A': expected an object"),
        ('{"properties": {"a": {"type": "strng"}}}', "the property 'a' is no string, number"),
        ('{"properties": {"a": {"type": "object"}}}', "the property 'a' is no string, number"),
        ('{"properties": {"a": {"type": ["string", "number"]}}}', "the property 'a' is no string"),
        ('{"properties": {"a": {"type": "array", "items": {"type": "object"}}}}', "the property 'a'"),
        ('{"properties": {"a": {"$ref": "other.json"}}}', "the property 'a' is no string"),
        ('{"properties": {"a": {"enum": ["x", 1]}}}', "the property 'a' is no string"),
        ('{"properties": {"a": {"enum": [{}]}}}', "the property 'a' is no string"),
        ('{"properties": {"a": {"type": "number", "enum": ["x"]}}}', "the property 'a' is no string"),
        ('{"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "number"}]}}}', "the property 'a'"),
    ],
)
def test_a_malformed_schema_is_refused_in_one_line(tmp_path, text, told):
    path = tmp_path / "schema.json"
    path.write_text(text)
    with pytest.raises(UserError) as refusal:
        read_json_schema(path)
    message = str(refusal.value)
    assert message.startswith(str(path)) and told in message and "\n" not in message
