"""Rows without training: known answers are scored as wholes, "no value" among them, and nothing is invented."""

import pytest

from pipedec_cli.data.records import Record
from pipedec_cli.decoding.blind import blind_decoder
from pipedec_cli.decoding.decoder import load
from pipedec_cli.objects.json_schema import tree_in
from pipedec_cli.objects.questions import Text
from pipedec_cli.objects.rows import Rows
from tests.model.chats import foreign
from tests.model.told import Told

MAIL = "On 12 March 2026 I paid 210.50 EUR for order 4471 and nothing came."
TEXT, NUMBER, INTEGER = {"type": "string"}, {"type": "number"}, {"type": "integer"}
LINES = {
    "type": "array",
    "items": {"type": "object", "properties": {"item": TEXT, "qty": INTEGER}},
}
#: Every kind of value.
KINDS = {
    "text": TEXT,
    "price": NUMBER,
    "stars": INTEGER,
    "day": TEXT | {"format": "date"},
    "open": {"type": "boolean"},
    "food": {"enum": ["Thai", "Greek"]},
    "phone": TEXT | {"format": "phone"},
}
LISTS = {
    "tags": {"type": "array", "items": TEXT},
    "lines": LINES,
    "prices": {"type": "object", "additionalProperties": NUMBER},
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A model that knows nothing."""
    return load(str(foreign(tmp_path_factory.mktemp("foreign"))), device="cpu")


def decoder_of(plain, properties, *, required=(), shots=(), **how):
    schema = {"type": "object", "properties": properties, "required": [*required]}
    tree = tree_in(schema, "here", [].append)
    return blind_decoder(plain, Rows(tree, shots=tuple(shots), schema=schema), **how)


def answered(decoder, source, time_max=60):
    [made] = decoder.texts([source], decoder.method(time_max=time_max), 1)
    return made


def told(decoder, source, likely=(), written=None):
    """What a decoder makes of a source whose model finds these answers likely, and writes this in its rows."""
    decoder._engines[1] = Told(decoder, likely, written)
    return answered(decoder, source)


def shot(source, **target):
    return Record(source, source, "", None, (), "shots:1", {}, target)


@pytest.mark.parametrize(
    ("part", "source", "value"),
    [
        (NUMBER | {"minimum": 0, "maximum": 1}, "The probability is 0.25.", 0.25),
        (INTEGER, "It costs 12.5 pounds for 3 people.", 3),
        (INTEGER | {"exclusiveMinimum": 0}, "Minus -5 degrees in room 7", 7),
        (INTEGER, MAIL, 4471),
        (TEXT | {"format": "date"}, MAIL, "2026-03-12"),
        (NUMBER, "The contract says 1,250 EUR.", 1250),
        (
            {"type": ["number", "string"], "pattern": r"^[0-9.]+$"},
            "It costs EUR 9.80 now.",
            9.8,
        ),
        (INTEGER, "A table for three.", 3),
    ],
)
def test_a_number_or_date_that_must_be_there_is_the_one_of_the_text(
    plain, part, source, value
):
    """Whatever the model says."""
    made = answered(decoder_of(plain, {"it": part}, required=["it"]), source)
    assert (made.fields, made.violations, made.values_lost) == ({"it": value}, (), 0)
    assert made.steps == 1


def test_the_most_probable_answer_is_taken_as_a_whole(plain):
    parts = {
        "amount": NUMBER,
        "kind": {"enum": ["complaint", "thanks"]},
        "open": {"type": "boolean"},
    }
    for likely in (["210.50", "thanks", "false"], ["4471", "complaint", "true"]):
        made = told(decoder_of(plain, parts), MAIL, likely)
        assert made.fields == {
            "amount": float(likely[0]),
            "kind": likely[1],
            "open": likely[2] == "true",
        }
        assert made.steps == 1


@pytest.mark.parametrize(
    "part", [INTEGER, NUMBER | {"minimum": 0}, TEXT | {"format": "date"}]
)
def test_a_value_that_must_be_there_and_stands_nowhere_is_missing_and_is_not_made_up(
    plain, part
):
    made = answered(
        decoder_of(plain, {"it": part}, required=["it"]),
        "My laptop is broken, please help.",
    )
    assert made.fields == {}
    assert made.missing == {"it": 1.0}
    assert made.violations == ('"it" is a required property',)


def test_a_number_that_may_be_null_and_stands_nowhere_is_null(plain):
    nullable = {"type": ["number", "null"]}
    made = answered(
        decoder_of(plain, {"price": nullable}, required=["price"]), "The Mill is a pub."
    )
    assert (made.fields, made.missing, made.violations) == ({"price": None}, {}, ())


@pytest.mark.parametrize("name", [*KINDS, *LISTS])
@pytest.mark.parametrize("chat", [True, False])
def test_where_the_schema_allows_none_no_value_is_an_answer_of_every_kind(
    plain, name, chat
):
    decoder = decoder_of(plain, {name: (KINDS | LISTS)[name]}, chat=chat)
    made = told(decoder, MAIL, ["none"], {1: "order"})
    assert (made.fields, made.missing, made.values_lost) == ({}, {}, 0)


@pytest.mark.parametrize("name", KINDS)
def test_a_value_that_must_be_there_is_the_best_one_and_is_named_as_missing(
    plain, name
):
    decoder = decoder_of(plain, {name: KINDS[name]}, required=[name])
    made = told(decoder, MAIL, ["none"], {1: "order"})
    assert made.fields[name] not in (None, "none")
    assert made.violations == ()
    assert 0.5 < made.missing[name] <= 1
    sure = told(
        decoder, MAIL, ["210.50", "4471", "12 March 2026", "true", "Thai"], {1: "order"}
    )
    assert (sure.fields.keys(), sure.missing) == ({name}, {})


def test_a_choice_is_as_probably_missing_as_its_probabilities_say_at_any_temperature(
    plain,
):
    decoder = decoder_of(plain, {"food": KINDS["food"]}, required=["food"])
    for temperature in (1.0, 5.0):
        decoder.blind.temperatures = {decoder.blind.asked[0].part: temperature}
        made = told(decoder, MAIL, ["none"], {1: "order"})
        nothing = made.probabilities["food"][""]
        assert made.missing["food"] == pytest.approx(nothing, rel=1e-3)


def test_a_map_that_is_the_whole_object_and_must_have_an_entry_has_one_and_is_missing(
    plain,
):
    schema = {"type": "object", "additionalProperties": NUMBER}
    for least in (0, 1):
        tree = tree_in({**schema, "minProperties": least}, "here", [].append)
        decoder = blind_decoder(plain, Rows(tree, schema=schema))
        made = told(decoder, MAIL, ["none"], {1: "order"})
        assert ("" in made.missing) == bool(least), "the path of the object"
        assert (len(made.fields), made.violations) == (least, ())


def test_a_value_that_each_item_must_have_and_that_stands_nowhere_is_missing_by_its_path(
    plain,
):
    items = {**LINES["items"], "required": ["item", "qty"]}
    decoder = decoder_of(plain, {"lines": {**LINES, "items": items}})
    made = told(decoder, "a cup and a jar", [], {1: "cup | jar"})
    assert made.missing.keys() == {"lines[1].qty", "lines[2].qty"}


@pytest.mark.parametrize("how", [{"grounded": False}, {}])
def test_a_count_that_stands_nowhere_is_written_where_the_model_may_word_it(plain, how):
    part = INTEGER if how else INTEGER | {"x-free": True}
    decoder = decoder_of(plain, {"count": part}, required=["count"], **how)
    assert told(decoder, "cup, cup and jar", [], {1: "2"}).fields == {"count": 2}


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        ("cup | cup | jar", ["cup", "cup", "jar"]),
        ("cup | cup | cup | jar", ["cup", "cup"]),
        ("jar | jar | cup", ["jar"]),
    ],
)
def test_items_of_a_list_are_as_many_of_a_name_as_the_text_says_it(plain, names, kept):
    """A name that comes too often ends the list."""
    source = "Order: 4 cup, 4 cup, 2 jar."
    made = told(
        decoder_of(plain, {"tags": {"type": "array", "items": TEXT}}),
        source,
        [],
        {1: names},
    )
    assert made.fields == {"tags": kept}
    made = told(decoder_of(plain, {"lines": LINES}), source, ["4"], {1: names})
    assert made.fields == {"lines": [{"item": name, "qty": 4} for name in kept]}


def test_a_second_item_of_a_name_is_asked_for_by_its_number(plain):
    decoder = decoder_of(
        plain,
        {"lines": LINES},
        shots=[shot("1 x tea", lines=[{"item": "tea", "qty": 1}])],
    )
    decoder._engines[1] = Told(decoder, ["4"], {1: "cup | cup"})
    *_, end, _ = decoder.run(["4 cup, 2 cup"], decoder.method(time_max=60), 1)
    openings = end.grid.openings
    asked = [opening.place.asked.opening() for opening in openings]
    assert asked == [
        "lines:",
        "lines[1].item: cup\nlines[1].qty:",
        "lines[2].item: cup (2)\nlines[2].qty:",
    ]
    labels = [opening.label for opening in openings]
    assert labels == ["lines", "lines[1].qty", "lines[2].qty"]
    begun = decoder.text.decode(openings[2].known).split()
    assert " ".join(begun).startswith("lines[2].item: cup (2) lines[2].qty:")


def test_items_of_numbers_are_those_of_the_text_and_mean_what_they_say(plain):
    decoder = decoder_of(plain, {"sums": {"type": "array", "items": NUMBER}})
    made = told(decoder, "1,250 and 1,250 and 3.50", [], {1: "1,250 | 1,250 | 3.50"})
    assert made.fields == {"sums": [1250, 1250, 3.5]}


def test_of_alternatives_the_one_whose_label_is_most_probable_is_taken(plain):
    ways = [
        {
            "title": title,
            "type": "object",
            "properties": {key: INTEGER},
            "required": [key],
        }
        for title, key in (("car", "seats"), ("boat", "sails"))
    ]
    for likely, value in (("boat", {"sails": 3}), ("car", {"seats": 3})):
        made = told(
            decoder_of(plain, {"way": {"oneOf": ways}}),
            "It has 3 of them.",
            [likely, "3"],
        )
        assert made.fields == {"way": value}


def test_a_format_that_no_row_is_held_to_is_a_part_of_the_text(plain):
    source = "Call 555 0100 today."
    decoder = decoder_of(plain, {"a": TEXT | {"format": "phone"}}, required=["a"])
    assert answered(decoder, source).fields["a"] in source
    assert told(decoder, source, [], {1: "555 0100"}).fields == {"a": "555 0100"}


RECEIPTS = [
    shot(
        "LIMA STATIONERS\n14 Harbour Road\nDATE:\n03/02/2018 10:12\nTOTAL\n19.00\nCASH\n20.00",
        company="LIMA STATIONERS",
        date="03/02/2018",
        total="19.00",
        paid="20.00",
    ),
    shot(
        "OAK & ELM CAFE\n7 MILL LANE\nDATE: 21-06-2017 08:41:55\nSUBTOTAL 11.00\nTOTAL 11.00",
        company="OAK & ELM CAFE",
        date="21-06-2017",
        total="11.00",
    ),
]
RECEIPT = "5520117\nBRIGHT HARDWARE\nNO. 3, JALAN TIMUR 5/2\n20/03/2018 13:01\n2 X 8.50\nTOTAL 17.00"


def test_strings_that_are_dates_prices_or_lines_in_all_examples_are_such_in_the_text(
    plain,
):
    """Of the numbers of the text two are prices, and one date is there."""
    names = ["company", "date", "total"]
    decoder = decoder_of(
        plain, dict.fromkeys(names, TEXT), required=names, shots=RECEIPTS
    )
    made = answered(decoder, RECEIPT)
    assert made.fields["date"] == "20/03/2018"
    assert made.fields["total"] in ("8.50", "17.00")
    assert made.fields["company"] in RECEIPT.split("\n")
    assert made.steps == 1
    likely = ["BRIGHT HARDWARE", "17.00"]
    assert told(decoder, RECEIPT, likely).fields == {
        "company": "BRIGHT HARDWARE",
        "date": "20/03/2018",
        "total": "17.00",
    }


def test_prices_keep_the_currency_that_they_have_in_the_examples(plain):
    shots = [
        shot("Paid RM 19.00 in cash", total="RM 19.00"),
        shot("Now $5.50, then $6.00", total="$5.50"),
    ]
    decoder = decoder_of(plain, {"total": TEXT}, required=["total"], shots=shots)
    assert answered(decoder, "All in all, 2 for RM 17.00").fields == {
        "total": "RM 17.00"
    }


def test_examples_keep_their_line_breaks_as_the_text_does(plain):
    decoder = decoder_of(plain, {"total": TEXT}, shots=RECEIPTS)
    read = decoder.text.decode(decoder.text.source(RECEIPT)[0])
    assert RECEIPT in read
    for record in RECEIPTS:
        assert record.source in read


def test_an_answer_to_a_users_question_is_written_and_never_scored(plain):
    decoder = blind_decoder(
        plain, Rows(questions=(Text("Is it open?", grounded=False),))
    )
    decoder._engines[1] = Told(decoder, ["none"], {1: "none that I know of"})
    method = decoder.method(time_max=20)
    assert all(
        not opening.answers for opening in method.of_source(method, MAIL).openings
    )
    [made] = decoder.texts([MAIL], method, 1)
    assert made.fields == {"Is it open?": "none that I know of"}


def test_batches_give_the_same_values_confidences_and_missing_ones(plain):
    decoder = decoder_of(plain, KINDS | LISTS, required=KINDS)
    sources = [MAIL, RECEIPT, "The Mill is a pub.", "Order: 4 cup, 4 cup, 2 jar.", "a"]
    method = decoder.method(time_max=20)
    made = [[*decoder.texts(sources, method, size)] for size in (1, 3)]
    said = [
        [(one.fields, one.confidence, one.missing) for one in texts] for texts in made
    ]
    assert said[0] == said[1]
