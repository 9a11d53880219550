"""Schemas as people have them, two of each kind: they are taken, and what is written validates or names what it violates."""

import json

import jsonschema_rs
import pytest

from pipedec_cli.data.json_schema import tree_in
from pipedec_cli.model.decoder import load
from pipedec_cli.model.rows import Rows, blind_decoder
from tests.model.chats import foreign
from tests.model.test_schemas import Whim

TEXT, NUMBER, DATE = {"type": "string"}, {"type": "number"}, {"type": "string", "format": "date"}
DISH = {"properties": {"dish": TEXT, "price": NUMBER}, "required": ["dish"]}
CIRCLE = {"properties": {"kind": {"const": "circle"}, "radius": NUMBER}, "required": ["kind", "radius"]}
SQUARE = {
    "properties": {"kind": {"const": "square"}, "side": {"type": "integer"}},
    "required": ["kind", "side"],
}
TREE = {
    "properties": {"word": TEXT, "below": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    "required": ["word"],
}
LINKED = {"properties": {"n": {"type": "integer"}, "next": {"$ref": "#/$defs/linked"}}, "required": ["n"]}


def listed(items, **more):
    return {"type": "array", "items": items, **more}


#: By kind; of a kind with a question mark no row is held to all, and the object names what it violates.
SCHEMAS = {
    "lists of numbers": listed({"type": "integer", "minimum": 3}, minItems=1),
    "lists of booleans": listed({"type": "boolean"}, maxItems=2),
    "lists of choices": listed({"enum": ["a", "b"]}, minItems=2),
    "lists of texts with a pattern": listed({"type": "string", "pattern": "^[A-Z]{2}[0-9]$"}),
    "lists of dates": listed(DATE, maxItems=3),
    "lists of objects": listed(DISH, minItems=1, maxItems=2),
    "lists of lists": listed(listed(NUMBER)),
    "lists within lists": listed({"properties": {"menu": TEXT, "dishes": listed(DISH)}}),
    "lists of alternatives": listed({"oneOf": [CIRCLE, SQUARE]}),
    "lists of maps": listed({"additionalProperties": {"type": "boolean"}}),
    "a tree": {"$ref": "#/$defs/tree"},
    "a chain": {"$ref": "#/$defs/linked"},
    "a map of numbers": {"type": "object", "additionalProperties": NUMBER},
    "a map of objects": {"additionalProperties": DISH, "minProperties": 1},
    "a map by pattern": {"patternProperties": {"^[a-z]{1,3}$": TEXT}, "additionalProperties": False},
    "a map with named keys": {
        "type": "object",
        "propertyNames": {"enum": ["a", "b"]},
        "additionalProperties": DATE,
    },
    "an object of anything": {"type": "object"},
    "a map of maps": {"additionalProperties": {"additionalProperties": {"type": "integer"}}},
    "scalars of several types": {"type": ["integer", "boolean", "null"]},
    "any of several scalars": {"anyOf": [{"type": "number"}, {"enum": ["low", "high"]}]},
    "objects by a constant": {"oneOf": [CIRCLE, SQUARE]},
    "objects by their titles": {
        "anyOf": [{"title": "Dish", **DISH}, {"title": "Sum", "properties": {"sum": NUMBER}}]
    },
    "objects by number": {"anyOf": [DISH, {"properties": {"sum": NUMBER}, "required": ["sum"]}]},
    "a text or an object": {"type": ["string", "object"], "properties": {"name": TEXT}, "required": ["name"]},
    "a number or a list": {"oneOf": [NUMBER, listed(NUMBER)]},
    "a dish or dishes": {"oneOf": [{"type": "object", **DISH}, listed(DISH), {"type": "boolean"}]},
    "a choice within a choice": {"anyOf": [{"oneOf": [CIRCLE, SQUARE]}, listed({"oneOf": [CIRCLE, SQUARE]})]},
    "all of two objects": {
        "allOf": [DISH, {"properties": {"stars": {"type": "integer"}}, "required": ["stars"]}]
    },
    "alternatives beside keys": {"properties": {"a": TEXT}, "oneOf": [CIRCLE, SQUARE], "required": ["a"]},
    "a key that is not described": {"properties": {"a": TEXT}, "required": ["a", "b"]},
    "numbers in bounds": {"type": "integer", "exclusiveMinimum": 3, "maximum": 40, "multipleOf": 5},
    "texts of a length": {"type": "string", "minLength": 3, "maxLength": 5},
    "days and times": {
        "properties": {"day": DATE, "at": {"type": "string", "format": "date-time"}},
        "required": ["day", "at"],
    },
    "addresses": {
        "properties": {
            "mail": {"type": "string", "format": "email"},
            "of": {"type": "string", "format": "uri"},
        }
    },
    "a part that cannot be held": {"properties": {"a": TEXT, "b": {"type": "array", "prefixItems": [TEXT]}}},
    "not?": {"properties": {"a": TEXT}, "not": {"required": ["a"]}},
    "if and then?": {
        "properties": {"a": {"type": "boolean"}, "b": TEXT},
        "if": {"required": ["a"]},
        "then": {"required": ["b"]},
    },
    "what depends?": {"properties": {"a": TEXT, "b": TEXT}, "dependentRequired": {"a": ["b"]}},
    "unique items?": listed({"type": "integer", "maximum": 12, "minimum": 10}, uniqueItems=True, minItems=2),
    "one of overlapping objects?": {"oneOf": [{"properties": {"a": TEXT}}, {"properties": {"b": NUMBER}}]},
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return load(str(foreign(tmp_path_factory.mktemp("foreign"))), device="cpu")


def written(plain, schema, texts):
    """What a model that says anything that is allowed writes; and what is said of the schema."""
    said = []
    decoder = blind_decoder(plain, Rows(tree_in(schema, "here", said.append), schema=schema), grounded=False)
    whim = decoder._engines[8] = Whim(0, decoder.weights.vocabulary, decoder.checkpoint.eos)
    whim.keep = lambda beginning: None
    return [*decoder.texts(["a text"] * texts, decoder.method(time_max=40), 8)], said


@pytest.mark.parametrize("texts", [8, pytest.param(130, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", SCHEMAS)
def test_what_is_written_validates_or_names_what_it_violates(plain, kind, texts):
    schema = {"properties": {"it": SCHEMAS[kind]}, "$defs": {"tree": TREE, "linked": LINKED}}
    made, said = written(plain, schema | {"required": ["it"]}, texts)
    made += written(plain, schema, texts)[0] if texts > 8 else []
    validators = [
        jsonschema_rs.validator_for(schema | required, validate_formats=True)
        for required in ({"required": ["it"]}, {})
    ]
    for number, one in enumerate(made):
        assert bool(one.violations) == (not validators[number >= texts].is_valid(one.fields)), one.fields
        assert json.loads(one.text) == one.fields
        # What was cut, does not fit, or is "none" may be missing; else rows are held to all but what was said.
        is_cut = one.values_lost or one.truncated or not one.fields.get("it")
        assert not one.violations or kind.endswith("?") or is_cut, one.violations
    assert any(one.fields.get("it") not in (None, [], {}) for one in made), "something was written"
    assert kind.endswith("?") == any("no row is held to" in what for what in said), said
    is_cut = kind in ("a part that cannot be held", "a tree", "a chain")
    assert is_cut == any("left out" in what for what in said), said


def test_both_alternatives_are_written_and_what_they_hold_is_read_back(plain):
    made, _ = written(plain, {"properties": {"it": {"oneOf": [CIRCLE, SQUARE]}}, "required": ["it"]}, 24)
    assert {frozenset(one.fields["it"]) for one in made} >= {
        frozenset(["kind", "radius"]),
        frozenset(["kind", "side"]),
    }


def test_a_part_stands_within_itself_once():
    tree = tree_in(
        {"properties": {"it": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": TREE}}, "here", [].append
    )
    outer = tree.parts["it"]
    assert [*outer.parts["below"].item.parts] == ["word"]
    assert outer.parts["below"].name_key.name == "it.below[].word"
