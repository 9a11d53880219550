"""What a decoder writes validates against the schema that it was given, whatever the model says."""

import json
import random

import jsonschema
import pytest

from pipedec_cli.data.json_schema import read_schema
from pipedec_cli.model.decoder import Decoder
from tests.model.test_fields import fresh

ADDRESS = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "zip": {"type": "integer"},
        "by": {"enum": ["car", "foot", None]},
    },
    "required": ["city", "zip"],
    "additionalProperties": False,
}
NESTED = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "kind": {"enum": ["pub", "restaurant"]},
        "stars": {"type": ["integer", "null"]},
        "price": {"type": "number"},
        "open": {"type": "boolean"},
        "tags": {"type": "array", "items": {"enum": ["cosy", "loud"]}},
        "words": {"type": "array", "items": {"type": "string"}},
        "at": {"$ref": "#/$defs/Address"},
        "bill": {"$ref": "#/$defs/Address"},
        "post": {"anyOf": [{"$ref": "#/$defs/Address"}, {"type": "null"}]},
        "owner": {"type": "object", "properties": {"firm": {"properties": {"seats": {"type": "integer"}}}}},
    },
    "required": ["name", "kind", "stars", "price", "open", "words", "at", "post"],
    "additionalProperties": False,
    "$defs": {"Address": ADDRESS},
}


class Whim:
    """A `StepModel` that says anything that is allowed."""

    def __init__(self, seed, vocabulary, eos):
        self.chance, self.words, self.eos = random.Random(seed), range(3, vocabulary), eos

    def admit(self, newcomers):
        pass

    def release(self, sequence):
        pass

    def step(self, rows):
        return [self.answer(row.slot.allowed) for row in rows]

    def answer(self, allowed):
        ends = self.eos in allowed or not allowed
        if ends and self.chance.random() < 0.2:
            return self.eos
        return self.chance.choice(allowed or self.words)


def written(tmp_path, schema, texts, **limits):
    """The objects that a model of such a schema writes on a whim."""
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(schema))
    decoder = Decoder(fresh(schema=tuple(read_schema(str(path)).values())), batch_size=8)
    decoder._engines[8] = Whim(0, len(decoder.text.tokenizer), decoder.checkpoint.eos)
    return [*decoder.texts(["a text"] * texts, decoder.method(**limits))]


@pytest.mark.parametrize("limits", [{}, {"time_max": 2}], ids=["whole", "cut"])
@pytest.mark.parametrize("texts", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_objects_validate(tmp_path, limits, texts):
    made = written(tmp_path, NESTED, texts, **limits)
    objects = [one.fields for one in made]
    for one in made:
        jsonschema.validate(one.fields, NESTED)
        assert json.loads(one.text) == one.fields
    kinds = {name: {type(one.get(name, 0)) for one in objects} for name in ("stars", "tags", "post", "bill")}
    assert kinds["stars"] == {int, type(None)} and {int, list} >= kinds["tags"]
    assert type(None) in kinds["post"] and kinds["bill"] <= {int, dict}
    assert {one["kind"] for one in objects} == ({"pub"} if limits else {"pub", "restaurant"})
    lost = sum(one.values_lost for one in made)
    if limits:
        assert lost > texts
    else:
        assert dict in kinds["post"] & kinds["bill"] and lost < texts / 10


def test_a_model_of_random_weights_keeps_to_the_schema_as_well(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(NESTED))
    decoder = Decoder(fresh(schema=tuple(read_schema(str(path)).values()), seed=3), batch_size=4)
    for one in decoder.texts([f"text {n}" for n in range(12)], decoder.method(time_max=12)):
        jsonschema.validate(one.fields, NESTED)
