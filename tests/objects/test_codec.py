"""Fields as a checkpoint writes them: rows behind their keys, values that the schema allows, objects that read back."""

import json
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from msgspec import structs

from pipedec_cli.data.fields import Field, value_texts
from pipedec_cli.data.records import Record, Segmentation
from pipedec_cli.data.segmentation import make_segmenter
from pipedec_cli.decoding.decoder import Decoder
from pipedec_cli.model.checkpoint import (
    Checkpoint,
    MethodSettings,
    load_checkpoint,
    save_checkpoint,
)
from pipedec_cli.model.scratch import make_model, train_tokenizer
from pipedec_cli.objects.codec import FieldCodec, row_text
from pipedec_cli.pipeline.grid import Limits
from pipedec_cli.pipeline.schedule import Subsequence, Together
from pipedec_cli.training.collate import encode, fit_limits
from tests.checkpoints import TOY_SHAPE, learn_by_heart
from tests.fakes import tokens_in
from tests.words import refusing

SCHEMA = (
    Field("name"),
    Field("food", enum=("Thai", "Thai food", "fish; chips", "½ price")),
    Field("likes", "list", enum=("jazz", "jazz|funk", "soul")),
    Field("stars", "integer"),
    Field("price", "number"),
    Field("open", "boolean"),
)
OBJECTS = (
    {"name": "The Mill", "food": "Thai", "stars": 5, "open": True},
    {
        "name": "The Vaults",
        "food": "fish; chips",
        "likes": ["soul", "jazz|funk"],
        "price": 12.5,
    },
    {"likes": ["jazz"], "stars": -20, "price": 7, "open": False},
    {"name": "The Mill; pub: a", "food": "½ price", "stars": 105, "price": 1e-07},
    {},
)
SOURCES = ("a Thai mill", "vaults of soul", "jazz, 7", "a pub", "nothing")


def records_of(schema, sources, objects):
    return [
        Record(
            source,
            source,
            json.dumps(value),
            value_texts(value, schema, "x:1"),
            (),
            "x:1",
            {},
            value,
        )
        for source, value in zip(sources, objects, strict=True)
    ]


records = partial(records_of, SCHEMA, SOURCES, OBJECTS)


def fresh(
    decoder="pipelined", schema=SCHEMA, seed=0, delay="together", examples=records
):
    """A model of random weights that writes fields, with a tokenizer for some records."""
    told = [
        text
        for record in examples()
        for text in (record.source, *record.target_segments)
    ]
    tokenizer = train_tokenizer(
        [*told, *(field.opening() for field in schema)] * 2, 400
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make_model(TOY_SHAPE, len(tokenizer)).eval()
    segmentation = Segmentation("field", (), "; ", fields=schema)
    settings = MethodSettings(
        decoder, delay if decoder == "pipelined" else "any", segmentation
    )
    segmenter = make_segmenter("field", fields=schema)
    return Checkpoint(model, tokenizer, settings, "fields", segmenter=segmenter)


@pytest.fixture(scope="module")
def taught():
    """By decoder, a checkpoint that has learnt the objects by heart."""
    made = {decoder: fresh(decoder) for decoder in ("pipelined", "sequential")}
    for checkpoint in made.values():
        learn_by_heart(checkpoint, records(), 90, 5e-3)
    return made


def test_time_max_holds_the_longest_value():
    checkpoint = fresh()
    long = structs.replace(
        records()[0], target_segments=("a " * 80, *records()[0].target_segments[1:])
    )
    assert fit_limits([*encode(checkpoint, [long])], checkpoint.settings).time_max > 80
    fitted = fit_limits([*encode(checkpoint, records())], checkpoint.settings)
    assert (fitted.time_max, fitted.item_max) == (50, 20)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("batch_size", [1, 8])
def test_what_was_learnt_is_written_in_as_many_steps_as_the_longest_value_and_its_end(
    taught, batch_size
):
    for checkpoint in taught.values():
        made = list(Decoder(checkpoint, batch_size=batch_size).texts(SOURCES))
        assert [one.fields for one in made] == list(OBJECTS)
        assert [json.loads(one.text) for one in made] == list(OBJECTS)
        segments = [tuple(filter(None, record.target_segments)) for record in records()]
        assert [one.segments for one in made] == segments
        longest = [max(map(len, one.texts)) for one in encode(checkpoint, records())]
        assert [one.steps for one in made] == [length + 1 for length in longest]
        assert {one.truncated for one in made} == {None}


def test_a_value_that_is_cut_is_null(taught):
    decoder = Decoder(taught["pipelined"])
    (made,) = decoder.texts(SOURCES[1:2], decoder.method(time_max=2))
    assert made.truncated == "time_max"
    assert made.fields == {"name": None, "food": None, "likes": None, "price": None}
    plain = Decoder(taught["sequential"])
    (made,) = plain.texts(SOURCES[1:2], plain.method(max_tokens=8))
    assert made.fields == {"name": "The Vaults", "food": None}


def test_a_saved_checkpoint_writes_the_same_and_takes_nothing_that_does_not_apply(
    taught, tmp_path
):
    save_checkpoint(replace(taught["pipelined"], name=str(tmp_path)), tmp_path)
    decoder = Decoder(load_checkpoint(str(tmp_path)))
    assert [one.fields for one in decoder.texts(SOURCES)] == list(OBJECTS)
    method = decoder.method(time_max=9, max_tokens=30)
    assert (method.schedule, method.limits) == (Together(), Limits(9, None, 30))
    for name, value in {"delay": 2, "empty_rows": "stop", "sub_max": 3}.items():
        with refusing():
            decoder.method(**{name: value})


# --- Values that are parts of the source
# ---------------------------------------------------------------------------------

#: A number that must be there, one that may be null, a choice, and a string.
HELD = (
    Field("stars", "integer", absent=("never",)),
    Field("price", "number", absent=("null",)),
    Field("food", enum=("Thai", "Greek")),
    Field("name"),
)


def grounded(source, **limits):
    """What a trained model that knows nothing makes of a source to which its values are held."""
    decoder = Decoder(
        fresh(schema=HELD, examples=partial(records_of, HELD, [source], [{}]))
    )
    decoder.plan.grounded = True
    [made] = decoder.texts([source], decoder.method(**limits))
    return made, decoder


def test_a_held_number_is_one_of_the_source_and_its_tokens_stand_in_the_grid_as_if_written():
    made, decoder = grounded("a Thai mill with 5 stars")
    assert made.fields["stars"] == 5
    assert made.fields["price"] in (5, None)
    assert (made.violations, made.values_lost) == ((), 0)
    [ids] = decoder.text.ids(["5"])
    start, tokens = made.grid[0]
    assert (start, tokens) == (0, (*ids, decoder.checkpoint.eos))
    longest = max(len(tokens) for _, tokens in made.grid)
    assert made.steps <= longest + 1, "the call that scores, and those that write"


def test_a_held_string_is_a_part_of_the_source_or_there_is_none():
    source = "a Thai mill with 5 stars"
    made, _ = grounded(source)
    assert made.fields.get("name", "") in source


def test_a_held_number_that_must_be_there_and_stands_nowhere_is_missing_and_another_is_null():
    made, _ = grounded("a Thai mill")
    assert (made.fields.get("stars"), made.fields["price"]) == (None, None)
    assert made.missing == {"stars": 1.0}
    assert made.violations == ('"stars" is a required property',)


# --- What is allowed
# --------------------------------------------------------------------------------------------------


def allowed_of(codec, field):
    (allowed,) = FieldCodec(codec, (field,)).allowed
    return lambda made: tokens_in(allowed(made))


@pytest.mark.parametrize("field", SCHEMA, ids=lambda field: field.name)
def test_whatever_an_object_may_hold_can_be_written(field):
    """Along the tokenizer's own way to write it; and nothing at all, for no value."""
    codec = fresh().codec()
    allowed = allowed_of(codec, field)
    numbers = ({"stars": 0}, {"price": -0.5}, {"price": 10}, {"price": 3.25e20})
    for value in (*OBJECTS, *numbers, {"likes": ["soul", "jazz", "soul"]}):
        made, (ids,) = (
            [],
            codec.ids(
                value_texts({field.name: value.get(field.name)}, (field,), "x:1")
            ),
        )
        for token in (*ids, codec.eos):
            choice = allowed(made)
            assert token in choice or not choice
            made.append(token)


def test_a_checkpoint_for_fields_that_has_none_is_refused():
    """As a config.json that somebody has changed may say."""
    checkpoint = fresh()
    checkpoint.settings = structs.replace(
        checkpoint.settings, segmentation=Segmentation("field", (), "; ")
    )
    with refusing():
        Decoder(checkpoint).method()


def test_a_row_that_was_cut_within_a_character_ends_before_it():
    codec = SimpleNamespace(
        decode=lambda ids: bytes(ids).decode(errors="replace").strip()
    )
    ids = [*"né 🌍".encode()]
    texts = [
        row_text(codec, Subsequence(0, ids[:count])) for count in range(len(ids) + 1)
    ]
    assert texts == ["", "n", "n", *["né"] * 5, "né 🌍"]
    assert (
        row_text(codec, Subsequence(0, [*"é\ufffd".encode(), 1], ended=True))
        == "é\ufffd"
    )
