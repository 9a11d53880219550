"""Schemas as people have them, written by hand: they are taken, and what is written validates or names what it violates."""

import json
from pathlib import Path

import jsonschema_rs
import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.json_schema import tree_in
from pipedec_cli.model.decoder import load
from pipedec_cli.model.rows import Rows, blind_decoder
from tests.model.chats import foreign
from tests.model.test_schemas import Whim

#: Of each the kind, the schema, and what is said of it: that it is refused, that some of it is left out, or that the
#: object is checked at the end, since no row is held to all of it.
SCHEMAS = [
    *map(json.loads, Path(__file__).with_name("schemas.jsonl").read_text(encoding="utf-8").splitlines())
]
CIRCLE, SQUARE = next(one for one in SCHEMAS if one["kind"] == "objects by a constant")["schema"][
    "properties"
]["it"]["oneOf"]
TREE = next(one for one in SCHEMAS if one["kind"] == "a tree")["schema"]


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


@pytest.mark.parametrize("texts", [2, pytest.param(25, marks=pytest.mark.slow)])
@pytest.mark.parametrize("tenth", range(10))
def test_what_is_written_validates_or_names_what_it_violates(plain, tenth, texts):
    for one in SCHEMAS[tenth::10]:
        schema, says, kind = one["schema"], one.get("says", ""), one["kind"]
        if says == "refused":
            with pytest.raises(UserError):
                tree_in(schema, "here", [].append)
            continue
        made, said = written(plain, schema, texts)
        assert ("left out" in str(said), "no row is held to" in str(said)) == (
            says == "left out",
            says == "checked",
        ), said
        is_old = "items for each place" in kind  # without a word of its draft
        validator = (jsonschema_rs.Draft7Validator if is_old else jsonschema_rs.validator_for)(
            schema, validate_formats=True
        )
        for text in made:
            assert bool(text.violations) == (not validator.is_valid(text.fields)), (kind, text.fields)
            assert json.loads(text.text) == text.fields
            # What was cut, does not fit, or is "none" may be missing; else rows are held to all but what was said.
            is_cut = text.values_lost or text.truncated or not all(text.fields.values()) or not text.fields
            assert not text.violations or says == "checked" or is_cut, (kind, text.fields, text.violations)
        assert texts < 25 or any(map(_holds_something, made)), f"something was written of {kind}"


def _holds_something(text):
    return any(value not in (None, [], {}) for value in text.fields.values())


def test_of_the_schemas_95_of_100_are_taken():
    assert len(SCHEMAS) > 200
    assert sum(one.get("says") != "refused" for one in SCHEMAS) >= 0.95 * len(SCHEMAS)


def test_both_alternatives_are_written_and_what_they_hold_is_read_back(plain):
    made, _ = written(plain, {"properties": {"it": {"oneOf": [CIRCLE, SQUARE]}}, "required": ["it"]}, 24)
    assert {frozenset(one.fields["it"]) for one in made} >= {
        frozenset(["kind", "radius"]),
        frozenset(["kind", "side"]),
    }


def test_a_part_stands_within_itself_once():
    tree = tree_in(TREE, "here", [].append)
    outer = tree.parts["it"]
    assert [*outer.parts["below"].item.parts] == ["word"]
    assert outer.parts["below"].name_key.name == "it.below[].word"
