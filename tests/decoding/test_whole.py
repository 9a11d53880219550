"""An object that is written as JSON in one go: what the model finds most probable among what its schema allows."""

import json
from types import SimpleNamespace

import pytest
import torch
from jsonschema_rs import is_valid

from pipedec_cli.data.errors import UserError
from pipedec_cli.decoding.decoder import Decoder
from pipedec_cli.decoding.whole import whole_decoder, with_nulls, without_nulls
from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.objects.grammar import Grammar, json_grammar
from pipedec_cli.objects.json_schema import tree_in
from pipedec_cli.objects.rows import Rows
from pipedec_cli.pipeline.schedule import Subsequence
from tests.checkpoints import SOURCES, tiny_checkpoint
from tests.model.chats import foreign

SCHEMA = {
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "stars": {"type": "integer", "minimum": 1, "maximum": 5},
        "open": {"type": "boolean"},
        "kind": {"enum": ["pub", "café"]},
        "at": {"$ref": "#/$defs/place"},
        "dishes": {
            "type": "array",
            "maxItems": 2,
            "items": {"properties": {"dish": {"enum": ["soup", "pie"]}}},
        },
    },
    "$defs": {
        "place": {"properties": {"area": {"enum": ["centre", "riverside"]}}},
    },
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A model with a chat that is not ours."""
    folder = foreign(tmp_path_factory.mktemp("whole") / "model")
    return Decoder(load_checkpoint(str(folder)))


def whole(plain, schema, **how):
    return whole_decoder(plain, Rows(tree_in(schema, "here"), schema=schema), **how)


@pytest.mark.parametrize("chat", [True, False])
def test_each_token_is_the_most_probable_one_that_the_schema_allows(plain, chat):
    decoder = whole(plain, SCHEMA, chat=chat)
    checkpoint = decoder.checkpoint
    grammar = json_grammar(with_nulls(SCHEMA))
    allowed = Grammar(checkpoint.tokenizer, checkpoint.eos, grammar)
    made = [*decoder.texts(SOURCES[:3], decoder.method(max_tokens=40))]
    for result in made:
        [(_, tokens)] = result.grid
        for place, token in enumerate(tokens):
            mask = allowed(tokens[:place])
            ids = torch.tensor([[*result.source_ids, *tokens[:place]]])
            with torch.inference_mode():
                logits = checkpoint.model(ids).logits[0, -1]
            among = [
                other
                for other in range(len(logits))
                if other // 8 < len(mask) and mask[other // 8] >> other % 8 & 1
            ]
            assert max(among, key=lambda other: logits[other]) == token
    several = decoder.texts(SOURCES[:3], decoder.method(max_tokens=40), 3)
    assert [one.grid for one in several] == [one.grid for one in made]


def test_objects_hold_to_their_schema_and_have_no_nulls(plain):
    decoder = whole(plain, SCHEMA)
    for result in decoder.texts(SOURCES, decoder.method(max_tokens=200), 8):
        if result.truncated:
            assert result.fields == {}
            continue
        assert is_valid(SCHEMA, result.fields)
        assert result.violations == ()
        assert None not in result.fields.values()
        assert json.loads(result.text) == result.fields


def test_a_key_may_be_called_as_the_place_of_the_source(plain):
    named = {"%s": {"enum": ["a"]}, "{source}": {"enum": ["b"]}}
    decoder = whole(plain, {"properties": named, "required": [*named]})
    [result] = decoder.texts(SOURCES[:1], decoder.method())
    assert result.fields == {"%s": "a", "{source}": "b"}


def test_what_a_limit_cuts_is_no_object(plain):
    decoder = whole(plain, SCHEMA)
    [result] = decoder.texts(SOURCES[:1], decoder.method(max_tokens=3))
    assert (result.truncated, result.fields) == ("max_tokens", {})


def test_each_key_stands_and_may_be_null_wherever_an_object_stands():
    held = with_nulls(SCHEMA)
    place = {"area": None}
    dishes = [{"dish": "pie"}, {"dish": None}]
    value = {"name": None, "stars": 3, "open": None, "kind": None}
    value |= {"at": place, "dishes": dishes}
    assert is_valid(held, value)
    assert not is_valid(held, value | {"stars": 6})
    required = with_nulls(SCHEMA | {"required": ["name", "stars"]})
    assert not is_valid(required, value)
    assert is_valid(required, value | {"name": "Aromi"})
    for lacking in (place, dishes[0], value):
        removed = lacking.popitem()
        assert not is_valid(held, value)
        lacking.update([removed])
    assert without_nulls(value) == {
        "stars": 3,
        "at": {},
        "dishes": [{"dish": "pie"}, {}],
    }


def test_a_key_that_is_called_as_a_keyword_is_a_key():
    named = {"properties": {"properties": {"type": "string"}, "items": {"enum": [1]}}}
    held = with_nulls(named)
    assert is_valid(held, {"properties": "a", "items": None})
    assert not is_valid(held, {"properties": "a", "items": 2})


def test_a_null_stays_where_the_schema_asks_for_it(plain):
    nothing = {"type": "null"}
    inner = {"properties": {"no": nothing, "some": {"enum": [1]}}, "required": ["no"]}
    schema = {"properties": {"it": inner, "none": nothing}, "required": ["it", "none"]}
    reader = whole(plain, schema).reader
    text = plain.text.ids(['{"it": {"no": null, "some": null}, "none": null}'])[0]
    row = Subsequence(0, tokens=text, ended=False)
    end = SimpleNamespace(grid=SimpleNamespace(subsequences=[row]))
    result = reader.read(end)
    assert result.fields == {"it": {"no": None}, "none": None}
    assert result.violations == ()


@pytest.mark.parametrize("part", [0, True, "a", None, [], [0], {}, {"a": 0}])
@pytest.mark.parametrize("word", ["anyOf", "$defs", "items", "properties", "required"])
def test_what_is_no_schema_is_let_be(word, part):
    changed = with_nulls({"description": "all", word: part})
    assert changed["description"] == "all"
    if not isinstance(part, dict):
        assert changed[word] == part


def test_another_model_than_an_ordinary_one_is_refused(tmp_path):
    folder = tiny_checkpoint(tmp_path / "t5", decoder="sequential", level="sentence")
    with pytest.raises(UserError):
        whole(Decoder(load_checkpoint(str(folder))), SCHEMA)
