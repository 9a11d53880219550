"""Schemas as people have them, written by hand: they are taken, and what is written validates or names what it violates."""

import json
from pathlib import Path

import jsonschema_rs
import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.decoding.blind import blind_decoder
from pipedec_cli.decoding.decoder import load
from pipedec_cli.objects.json_schema import tree_in
from pipedec_cli.objects.rows import Rows
from tests.model.chats import foreign
from tests.objects.test_schemas import Whim

#: Of each the kind, the schema, and what is said of it: that it is refused, that some
#: of it is left out, or that the object is checked at the end, since no row is held to
#: all of it.
LINES = (
    Path(__file__).with_name("schemas.jsonl").read_text(encoding="utf-8").splitlines()
)
SCHEMAS = [*map(json.loads, LINES)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return load(str(foreign(tmp_path_factory.mktemp("foreign"))), device="cpu")


@pytest.mark.parametrize("texts", [2, pytest.param(25, marks=pytest.mark.slow)])
@pytest.mark.parametrize("tenth", range(10))
def test_what_is_written_validates_or_names_what_it_violates(plain, tenth, texts):
    filled = 0
    for schema, kind, says in (
        (one["schema"], one["kind"], one.get("says")) for one in SCHEMAS[tenth::10]
    ):
        said = []
        if says == "refused":
            with pytest.raises(UserError):
                tree_in(schema, "here", said.append)
            continue
        decoder = blind_decoder(
            plain,
            Rows(tree_in(schema, "here", said.append), schema=schema),
            grounded=False,
        )
        # A model that says anything that is allowed.
        decoder._engines[8] = Whim(
            0, decoder.weights.vocabulary, decoder.checkpoint.eos
        )
        assert ("left out" in str(said)) == (says == "left out"), said
        assert ("no row is held to" in str(said)) == (says == "checked"), said
        # One schema has no word of its draft.
        draft = (
            jsonschema_rs.Draft7Validator
            if "items for each place" in kind
            else jsonschema_rs.validator_for
        )
        validator = draft(schema, validate_formats=True)
        for text in decoder.texts(["a text"] * texts, decoder.method(time_max=40), 8):
            assert bool(text.violations) == (not validator.is_valid(text.fields)), (
                kind,
                text.fields,
            )
            assert json.loads(text.text) == text.fields
            # What was cut or does not fit may be missing, and what is said too often;
            # else rows are held to all but what was said.
            is_cut = (
                text.values_lost
                or text.truncated
                or not all(text.fields.values())
                or not text.fields
            )
            is_short = all(
                "has less than" in violation for violation in text.violations
            )
            assert is_short or says == "checked" or is_cut, (
                kind,
                text.fields,
                text.violations,
            )
            filled += any(value not in (None, [], {}) for value in text.fields.values())
    assert filled > 10 * texts, "values are written"


def test_of_the_schemas_95_of_100_are_taken():
    assert len(SCHEMAS) > 200
    assert sum(one.get("says") != "refused" for one in SCHEMAS) >= 0.95 * len(SCHEMAS)


def test_a_part_stands_within_itself_once():
    tree = next(one["schema"] for one in SCHEMAS if one["kind"] == "a tree")
    below = tree_in(tree, "here", [].append).parts["it"].parts["below"]
    assert [*below.item.parts] == ["word"] and below.name_key.name == "it.below[].word"
