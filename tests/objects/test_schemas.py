"""What a decoder writes validates against the schema that it was given, whatever the model says."""

import json
import random

import jsonschema
import pytest
from msgspec import structs

from pipedec_cli.decoding.decoder import Decoder
from pipedec_cli.objects.json_schema import read_schema
from pipedec_cli.pipeline.grid import Odds
from tests.fakes import tokens_in
from tests.objects.test_codec import fresh

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
        "owner": {
            "type": "object",
            "properties": {"firm": {"properties": {"seats": {"type": "integer"}}}},
        },
    },
    "required": ["name", "kind", "stars", "price", "open", "words", "at", "post"],
    "additionalProperties": False,
    "$defs": {"Address": ADDRESS},
}

FARM = {
    "properties": {"farm": {"type": "string"}, "km": {"type": "integer"}},
    "required": ["km"],
}
DISH = {
    "type": "object",
    "properties": {
        "dish": {"type": "string"},
        "price": {"type": "number"},
        "of": {"type": "object", **FARM},
    },
    "required": ["price"],
    "additionalProperties": False,
}
DAYS = {"type": "array", "items": {"properties": {"day": {"enum": ["Mon", "Tue"]}}}}
LISTED = {
    "type": "object",
    "properties": {
        "name": {"type": ["string", "null"]},
        "menu": {"type": "array", "items": DISH},
        "at": {"properties": {"days": DAYS}},
        "old": {"anyOf": [{"type": "array", "items": DISH}, {"type": "null"}]},
    },
    "required": ["name", "menu", "old"],
    "additionalProperties": False,
}


class Whim:
    """A `StepModel` that says anything that is allowed."""

    def __init__(self, seed, vocabulary, eos):
        self.chance, self.words, self.eos = (
            random.Random(seed),
            range(3, vocabulary),
            eos,
        )

    def admit(self, newcomers):
        pass

    def release(self, sequence):
        pass

    def take_back(self, sequence, count):
        pass

    def step(self, rows):
        return [self.answer(row.slot) for row in rows]

    def step_with_odds(self, rows, top=0):
        return self.step(rows), [self.odds(row.slot) for row in rows]

    def odds(self, slot):
        """Any probability of the answer, and of the token that is asked for: mostly 1, for long choices to be taken too."""
        others = self.chance.choices([1, 1, 1, 0.1], k=len(slot.others))
        end = self.chance.choice([1, 1, 1, 0.1]) if slot.end >= 0 else 0.0
        return Odds(self.chance.uniform(0.1, 1), end, others=others)

    def answer(self, slot):
        allowed = tokens_in(slot.allowed)
        ends = self.eos in allowed or not allowed
        if ends and self.chance.random() < 0.2:
            return self.eos
        return self.chance.choice(allowed or self.words)


def decoder_of(tmp_path, schema, seed=0, decoder="pipelined"):
    """A model of random weights that writes objects of a schema."""
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(schema))
    checkpoint = fresh(
        decoder, schema=tuple(read_schema(str(path)).values()), seed=seed
    )
    checkpoint.settings = structs.replace(
        checkpoint.settings,
        delay="any" if "menu" in schema["properties"] else "together",
    )
    return Decoder(checkpoint, batch_size=8)


def written(tmp_path, schema, texts, kind="pipelined", **limits):
    """The objects that a model of such a schema writes on a whim."""
    decoder = decoder_of(tmp_path, schema, decoder=kind)
    decoder._engines[8] = Whim(0, len(decoder.text.tokenizer), decoder.checkpoint.eos)
    return [*decoder.texts(["a text"] * texts, decoder.method(**limits))]


def faults_of(errors):
    """What is wrong, of alternatives the faults of those that are no null."""
    for error in errors:
        if error.validator == "anyOf":
            yield from faults_of(
                inner for inner in error.context if inner.validator != "type"
            )
        else:
            yield error


def assert_valid_or_named(made, schema):
    """An object may lack a value that it must have, if none was written: that is named."""
    faults = [
        *faults_of(jsonschema.Draft202012Validator(schema).iter_errors(made.fields))
    ]
    assert {fault.validator for fault in faults} <= {"required"}, faults
    named = [violation.split(": ")[-1] for violation in made.violations]
    assert sorted(named) == sorted(fault.message.replace("'", '"') for fault in faults)


@pytest.mark.parametrize("limits", [{}, {"time_max": 2}], ids=["whole", "cut"])
@pytest.mark.parametrize("texts", [100, pytest.param(500, marks=pytest.mark.slow)])
def test_random_objects_validate(tmp_path, limits, texts):
    made = written(tmp_path, NESTED, texts, **limits)
    objects = [one.fields for one in made]
    for one in made:
        assert_valid_or_named(one, NESTED)
        assert json.loads(one.text) == one.fields
    kinds = {
        name: {type(one.get(name, 0)) for one in objects}
        for name in ("stars", "tags", "post", "bill")
    }
    assert kinds["stars"] == {int, type(None)} and {int, list} >= kinds["tags"]
    assert type(None) in kinds["post"] and kinds["bill"] <= {int, dict}
    kinds_written = {one.get("kind") for one in objects} - {None}
    assert kinds_written == ({"pub"} if limits else {"pub", "restaurant"})
    lost = sum(one.values_lost for one in made)
    if limits:
        assert lost > texts
    else:
        assert dict in kinds["post"] & kinds["bill"] and lost < texts / 10


@pytest.mark.parametrize("texts", [50, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "limits", [{}, {"time_max": 3}, {"delay": "wait", "max_tokens": 20}], ids=str
)
def test_random_lists_validate(tmp_path, limits, texts):
    made = written(tmp_path, LISTED, texts, **limits)
    for one in made:
        assert_valid_or_named(one, LISTED)
    lengths = {len(one.fields["menu"]) for one in made}
    assert max(lengths) >= 1 if limits else max(lengths) >= 12
    of_old = {type(one.fields["old"]) for one in made}
    assert (
        of_old == {list, type(None)} if limits else list in of_old
    )  # hardly any list has no item by chance


@pytest.mark.parametrize("schema", [NESTED, LISTED], ids=["nested", "listed"])
@pytest.mark.parametrize("texts", [50, pytest.param(500, marks=pytest.mark.slow)])
def test_the_object_of_a_sequential_model_is_held_to_the_schema_as_a_whole(
    tmp_path, schema, texts
):
    made = written(tmp_path, schema, texts, "sequential", max_tokens=400)
    for one in made:
        assert_valid_or_named(one, schema)
        assert one.truncated or not one.values_lost, one.segments
    assert any(one.fields["menu" if schema is LISTED else "name"] for one in made)


def test_a_schema_of_two_hundred_leaves_and_a_list_of_fifty_items_are_written(tmp_path):
    leaves = {
        f"k{n}": {"type": ["string", "integer", "boolean"][n % 3]} for n in range(194)
    }
    schema = {
        "properties": {
            "at": {"properties": leaves},
            "menu": {"type": "array", "items": DISH},
        }
    }
    decoder = decoder_of(tmp_path, schema)
    decoder.checkpoint.settings = structs.replace(decoder.settings, item_max=51)
    assert len(decoder.fields.fields) == 198
    method, eos, begun = decoder.method(1, time_max=200), decoder.checkpoint.eos, set()

    class Fifty(Whim):
        """It says a token in each row of 50 items."""

        def answer(self, slot):
            begins = slot.subsequence <= 198 + 49 * 4 and slot.subsequence not in begun
            allowed = tokens_in(slot.allowed)
            words = [token for token in allowed or self.words if token != eos]
            begun.update([slot.subsequence] if slot.answers else [])
            return (
                self.chance.choice(words)
                if begins or eos not in (allowed or [eos])
                else eos
            )

    decoder._engines[8] = Fifty(0, len(decoder.text.tokenizer), eos)
    (made,) = decoder.texts(["a text"], method)
    assert (len(made.fields["menu"]), made.truncated) == (50, None)
    jsonschema.validate(
        made.fields,
        {**schema, "properties": {**schema["properties"], "menu": {"type": "array"}}},
    )
