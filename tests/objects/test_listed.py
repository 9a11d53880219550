"""Lists of objects in training: the grid that is learnt, and what was learnt by heart."""

import json
from dataclasses import replace
from functools import partial

import pytest
from msgspec import structs

from pipedec_cli.data.fields import Field
from pipedec_cli.decoding.decoder import Decoder
from pipedec_cli.decoding.exact import ExactDecoder
from pipedec_cli.objects.codec import FieldCodec, PlacedRow, place_rows
from pipedec_cli.pipeline.schedule import Fixed, Waiting
from pipedec_cli.training.collate import IGNORED, collator, encode, fit_limits
from pipedec_cli.training.order import Turn
from tests.checkpoints import learn_by_heart
from tests.objects import test_codec as test_fields
from tests.words import refusing

SCHEMA = (
    Field("name"),
    Field("menu[].dish", path=("menu", 0, "dish")),
    Field("menu[].price", "number", path=("menu", 0, "price")),
    Field("at.city", path=("at", "city")),
    Field("open[].day", enum=("Mon", "Tue"), path=("open", 0, "day")),
)
DAYS = [{"day": "Mon"}, {"day": "Tue"}]
OBJECTS = (
    {
        "name": "Mill",
        "menu": [
            {"dish": "soup of the day", "price": 3},
            {"dish": "fish"},
            {"price": 4.5},
        ],
    },
    {"at": {"city": "Ely"}, "open": DAYS, "menu": [{"dish": "pie; a", "price": 7}]},
    {"open": [{"day": "Tue"}]},
    {},
)
SOURCES = ("a mill with soup", "Ely on two days", "Tuesdays", "nothing")


records = partial(test_fields.records_of, SCHEMA, SOURCES, OBJECTS)
fresh = partial(test_fields.fresh, schema=SCHEMA, delay="any", examples=records)


def test_items_lie_one_after_the_other_and_an_empty_item_closes_each_list():
    """At Δt = 2: items of 4 + 1, 1 + 0 and 0 + 2 tokens; a list of one item; their rows in the order of the schema."""
    lengths = [1, 4, 1, 0, 2, 1, 0, 0, 0, 2, 0]
    day = 4
    assert place_rows(Fixed(2), lengths, SCHEMA) == [
        PlacedRow(0, 0, 0, 0),
        PlacedRow(0, 1, 1, 1),
        PlacedRow(0, 2, 1, 2),
        PlacedRow(0, 3, 0, 3),
        PlacedRow(0, day, 1, 4),
        PlacedRow(2, 1, 2, 5),
        PlacedRow(2, 2, 2, 6),
        PlacedRow(2, day, 2, 7),
        PlacedRow(4, 1, 3, 8),
        PlacedRow(4, 2, 3, 9),
        PlacedRow(6, 1, 4, None),
        PlacedRow(6, 2, 4, None),
    ]
    rows = place_rows(Waiting(), lengths, SCHEMA)
    assert [row.start for row in rows if row.field == 1] == [0, 5, 7, 10]
    assert [row.start for row in rows if row.field == day] == [0, 3]
    established = sorted(rows, key=lambda row: (row.start, row.field))
    assert rows == established, "rows are numbered as they are established"


def test_the_grid_that_is_learnt_has_the_keys_of_items_before_their_start():
    checkpoint = fresh(delay=1)
    (example,) = encode(checkpoint, records()[2:3])
    lay_out = collator(checkpoint, 0)
    batch = lay_out([(Turn(0, 0), example)])
    codec = FieldCodec(checkpoint.codec(), SCHEMA)
    assert codec.known_of(2)[4] == checkpoint.codec().ids(["open[2].day:"])[0]
    expected = []
    (tuesday,) = checkpoint.codec().ids(["Tue"])
    rows = [(0, place, 1) for place in range(5)]
    rows.append((1, 4, 2))
    for number, (start, place, item) in enumerate(rows, start=1):
        key = codec.known_of(item)[place]
        text = tuesday if number == 5 else []
        tokens = [checkpoint.bos, *key, *text, checkpoint.eos]
        labels = [IGNORED] * len(key)
        labels += [*text, checkpoint.eos, IGNORED]
        for at, (token, label) in enumerate(zip(tokens, labels, strict=True)):
            expected.append((token, number, start - len(key) + at, label))
    names = ("decoder_input_ids", "subsequence", "time", "labels")
    columns = [batch[name][0].tolist() for name in names]
    assert list(zip(*columns, strict=True)) == expected


def test_limits_hold_the_longest_list():
    checkpoint = fresh(delay=3)
    (record,) = test_fields.records_of(
        SCHEMA, ["s"], [{"menu": [{"dish": "fish"}] * 30}]
    )
    assert len(record.target_segments) == 5 + 29 * 3
    fitted = fit_limits(encode(checkpoint, [record]), checkpoint.settings)
    assert fitted.time_max == 3 * 30 + 1
    assert fitted.item_max == 31


@pytest.fixture(scope="module")
def taught():
    """By decoder, a checkpoint that has learnt the objects by heart, over schedules drawn at random."""
    made = {decoder: fresh(decoder) for decoder in ("pipelined", "sequential")}
    for decoder, updates in (("pipelined", 450), ("sequential", 240)):
        learn_by_heart(made[decoder], records(), updates, 2e-3)
    return made


@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("delay", [1, 2, 3, "wait"])
def test_what_was_learnt_is_written_at_every_delay(taught, delay):
    checkpoint = taught["pipelined"]
    decoder = Decoder(checkpoint, batch_size=3)
    plan = Waiting() if delay == "wait" else Fixed(delay)
    results = [*decoder.texts(SOURCES, decoder.method(delay))]
    assert [result.fields for result in results] == list(OBJECTS)
    assert [json.loads(result.text) for result in results] == list(OBJECTS)
    examples = encode(checkpoint, records())
    for result, example in zip(results, examples, strict=True):
        grid = []
        times = set()
        for row in place_rows(plan, [*map(len, example.texts)], SCHEMA):
            text = [] if row.text is None else example.texts[row.text]
            grid.append((row.start, (*text, checkpoint.eos)))
            times.update(range(row.start + 1, row.start + len(text) + 2))
        assert result.grid == tuple(grid)
        assert result.steps == len(times)
        assert (result.truncated, result.values_lost) == (None, 0)


@pytest.mark.slow
def test_the_sequential_model_writes_the_same_objects_and_takes_drafts(taught):
    plain, pipelined = (
        Decoder(taught[decoder]) for decoder in ("sequential", "pipelined")
    )
    made = [*plain.texts(SOURCES)]
    assert [one.fields for one in made] == list(OBJECTS)
    exact = ExactDecoder(plain, pipelined)
    exact.drafter.costs = tuple([1.0] * 16)
    drafted = [*exact.texts(SOURCES)]
    assert [one.fields for one in drafted] == list(OBJECTS)
    assert sum(one.steps for one in drafted) < sum(one.steps for one in made)


@pytest.mark.slow
def test_a_list_is_cut_by_item_max_and_a_delay_that_was_not_trained_for_is_refused(
    taught,
):
    settings = structs.replace(taught["pipelined"].settings, item_max=2)
    decoder = Decoder(replace(taught["pipelined"], settings=settings))
    method = decoder.method()
    (made,) = decoder.texts(SOURCES[:1], method)
    assert (made.truncated, len(made.fields["menu"])) == ("item_max", 2)
    with refusing():
        Decoder(fresh(delay=3)).method(2)
