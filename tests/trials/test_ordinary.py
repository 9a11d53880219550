"""What the ordinary way asks llama.cpp for, and what the table of evidence asks both ways for."""

import json

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import record_of
from tests.trials import evidence
from tests.trials.ordinary import keys_of, prompt_of, shots_of, with_all_keys

FIELDS = "name, stars int, tags list, kind: pub|bar, menu[].dish, menu[].price number, address.city"


def nullable(part):
    return {"anyOf": [part, {"type": "null"}]}


def test_each_key_of_fields_must_stand_in_the_object_and_may_be_null():
    schema = keys_of(None, FIELDS).schema

    properties = schema["properties"]
    assert schema["required"] == ["name", "stars", "tags", "kind", "menu", "address"]
    assert properties["stars"] == nullable({"type": "integer"})
    assert properties["tags"] == nullable(
        {"type": "array", "items": {"type": "string"}}
    )
    assert properties["kind"] == nullable({"enum": ["pub", "bar"]})
    dishes = properties["menu"]["anyOf"][0]["items"]
    assert dishes["properties"] == {
        "dish": nullable({"type": "string"}),
        "price": nullable({"type": "number"}),
    }
    assert properties["address"]["anyOf"][0]["required"] == ["city"]


def test_a_json_schema_asks_for_the_same_as_its_short_form(tmp_path):
    part = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "kind": {"enum": ["pub", "bar"]}},
    }
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(part))

    assert (
        keys_of(str(path), None).schema == keys_of(None, "name, kind: pub|bar").schema
    )


def test_no_keys_are_refused():
    with pytest.raises(UserError):
        keys_of(None, None)


def test_an_example_shows_its_missing_keys_as_null_in_the_order_of_the_schema():
    schema = keys_of(None, "name, stars int, menu[].dish, menu[].price number").schema

    shown = with_all_keys(
        schema, {"menu": [{"price": 2.5}], "name": "The Mill", "other": 1}
    )

    assert (
        json.dumps(shown)
        == '{"name": "The Mill", "stars": null, "menu": [{"dish": null, "price": 2.5}]}'
    )


def test_a_prompt_ends_where_the_object_begins():
    schema = keys_of(None, "name, area").schema
    shot = record_of(
        {"source": "The Mill is old.", "target": {"name": "The Mill"}}, "shots:1", 1
    )

    prompt = prompt_of("The Fox is new.", [shot], schema)

    answer = '{"name": "The Mill", "area": null}'
    assert (
        prompt
        == f"Text: The Mill is old.\nJSON: {answer}\n\nText: The Fox is new.\nJSON: "
    )


def test_the_examples_are_records_with_an_object(tmp_path):
    path = tmp_path / "train.jsonl"
    rows = [
        {"source": "none", "target": "a text"},
        {"source": "The Mill.", "target": {"name": "The Mill"}},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    shots = shots_of(f"{path}:1", keys_of(None, "name").fields)

    assert [shot.source for shot in shots] == ["The Mill."]


def test_rare_keys_are_left_out_of_the_schema_and_choices_are_all_values_of_the_set():
    records = [{"target": {"intent": "play", "tags": ["a"]}}] * 300
    records += [{"target": {"intent": "stop"}}]
    records[0] = {"target": {"intent": "play", "rare": "once"}}

    schema = evidence.schema_of(records, share=0.05, choices=["intent"])

    assert schema["properties"] == {
        "intent": {"enum": ["play", "stop"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    }


def test_targets_have_the_keys_asked_for_alone(tmp_path):
    path = tmp_path / "dev.jsonl"

    evidence.write_lines(
        path, [{"source": "a", "target": {"name": "b", "rare": "c"}}], ["name"]
    )

    assert [*evidence.read(path)] == [
        {"id": "1", "source": "a", "target": {"name": "b"}}
    ]
