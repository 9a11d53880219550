"""Objects and answers without training, on the command line: schemas, examples and questions."""

import json
import os
import random
import re

import jsonschema
import pytest

from pipedec_cli.data.fields import Field, by_path, leaves, mapped, text_of
from pipedec_cli.data.inputs import read_records
from pipedec_cli.data.records import Record
from pipedec_cli.decoding.blind import blind_decoder
from pipedec_cli.decoding.decoder import load
from pipedec_cli.jobs.loading import choose_shots
from pipedec_cli.jobs.run import _read_off
from pipedec_cli.model.text import TextCodec
from pipedec_cli.objects.rows import Rows
from pipedec_cli.objects.tree import tree_of
from pipedec_cli.pipeline.answers import WRITTEN
from pipedec_cli.pipeline.decode import Finished
from pipedec_cli.pipeline.grid import Odds
from tests.checkpoints import tiny_checkpoint
from tests.jobs.test_fields import SCHEMA, check_objects
from tests.model.chats import CHATML, foreign
from tests.running import lines_of, read_json, refused, run, write_lines

FIELDS = (
    Field("open", "boolean"),
    Field("menu[].name", path=("menu", 0, "name")),
    Field("menu[].stars", "integer", path=("menu", 0, "stars")),
)
FEW = ("--set", "time_max=5", "--device", "cpu")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A chat model that knows nothing, sources, examples and a schema."""
    folder = tmp_path_factory.mktemp("blind")
    foreign(folder / "model")
    names = ("The Mill", "The Vaults", "Aromi")
    rows = [
        {
            "source": f"{names[n % 3]} has Thai food.",
            "target": {"name": names[n % 3], "food": "Thai"} | more,
        }
        for n, more in enumerate(
            [{}, {"stars": 3}, {"open": True}, {"stars": 1, "open": False}]
        )
    ]
    write_lines(folder / "train.jsonl", *rows)
    write_lines(
        folder / "docs.jsonl",
        *({"source": f"Aromi {n} has Greek food."} for n in range(5)),
    )
    (folder / "schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    return folder


def generate(place, *more, data="docs.jsonl"):
    out = place / "out.jsonl"
    told = run(
        "generate", place / data, "--model", place / "model", "--out", out, *FEW, *more
    ).stderr
    return told, lines_of(out)


@pytest.mark.parametrize("form", ["chat", "shots"])
def test_a_schema_gives_objects_that_it_allows(place, form):
    shots = ("--shots", f"{place / 'train.jsonl'}:3") if form == "shots" else ()
    how = ("--schema", place / "schema.json", *shots)
    told, lines = generate(place, *how, "--batch-size", 4)
    assert "4 keys at a time, each answered by itself" in told
    assert "decoded as a sequential model" not in told
    check_objects(lines, 5)
    _, alone = generate(place, *how, "--batch-size", 1)
    assert [line["fields"] for line in alone] == [line["fields"] for line in lines]
    rows = read_json(place / "out.manifest.json")["settings"]["rows"]
    assert (rows["count"], rows["shots"]) == (4, 3 if shots else 0)
    told, again = generate(place, *how, "--resume", "--batch-size", 1)
    assert "is whole already" in told and again == alone
    assert "cannot go on" in refused(*again_with(place, "--ask", "Who?", "--resume"))


@pytest.mark.extra("pydantic")
def test_what_a_class_says_of_an_object_stands_among_the_violations(place):
    (place / "models.py").write_text(
        "from pydantic import BaseModel, model_validator\n"
        "class Pub(BaseModel):\n    open: bool\n    stars: int\n"
        "    @model_validator(mode='after')\n    def it(self):\n        raise ValueError('never')\n"
    )
    for batch in (1, 4):
        how = ("--schema", f"{place / 'models.py'}:Pub", "--batch-size", batch)
        told, lines = generate(place, *how)
        assert [line["violations"] for line in lines] == [["Value error, never"]] * 5
        assert "do not hold to the schema" in told


@pytest.mark.extra("pydantic")
def test_numbers_and_dates_of_a_class_are_those_of_each_text_or_null(place, tmp_path):
    (tmp_path / "ticket.py").write_text(
        "from datetime import date\nfrom decimal import Decimal\nfrom typing import Literal\n"
        "from pydantic import BaseModel, PositiveInt\n"
        "class Line(BaseModel):\n    item: str\n    price: Decimal\n"
        "class Ticket(BaseModel):\n    order: PositiveInt | None\n    amount: Decimal | None\n"
        "    day: date | None\n    kind: Literal['complaint', 'thanks']\n    lines: list[Line] = []\n"
    )
    texts = (
        "My laptop is broken, please help.",
        "On 12 March 2026 I paid 210.50 EUR for order 4471 and nothing came.",
        "The bill of 3 May says 1.250,00 EUR, my contract says 1,250.",
    )
    data = write_lines(tmp_path / "mails.jsonl", *({"source": text} for text in texts))
    how = ("--schema", f"{tmp_path / 'ticket.py'}:Ticket", "--set", "time_max=60")
    _, lines = generate(place, *how, data=data)
    fields = [line["fields"] for line in lines]
    for line in lines:
        named = {
            violation.partition(":")[0] for violation in line.get("violations", ())
        }
        assert named <= line.get("missing", {}).keys()
        assert all(re.fullmatch(r"lines\[\d+\]\.price", name) for name in named)
    assert (
        fields[0]["day"]
        is fields[2]["day"]
        is fields[0]["order"]
        is fields[0]["amount"]
        is None
    )
    assert fields[1]["day"] in (None, "2026-03-12")
    assert {fields[1]["order"], fields[1]["amount"]} <= {None, 4471, 210.5}
    assert {fields[2]["order"], fields[2]["amount"]} <= {None, 1250}
    assert all(one["kind"] in ("complaint", "thanks") for one in fields)


def again_with(place, *more):
    where = (
        place / "docs.jsonl",
        "--model",
        place / "model",
        "--out",
        place / "out.jsonl",
    )
    return ("generate", *where, *FEW, *more)


def test_examples_that_can_be_read_only_once_are_refused(place, tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    for asked in (("--shots", f"{pipe}:4"), ("--calibrate", pipe)):
        assert "is a pipe or a device" in refused(
            *again_with(place, *asked, "--fields", "name")
        )


def test_values_that_are_not_read_off_the_text_are_warned_of_and_examples_advised_where_there_are_none(
    place, monkeypatch
):
    monkeypatch.setattr(
        TextCodec, "decode", lambda *_: "The name of the pub by the river is Aromi."
    )
    how = ("--fields", "name, place", "--set", "time_max=64")
    hint = "values that are not in their text, or as long as a sentence: "
    assert hint in generate(place, *how)[0]
    values = {
        "kind": "a",
        "it": {"name": "b " * 9, "city": "Bath"},
        "stars": 3,
        "price": 1200,
        "open": True,
    }
    keys = tuple(Field(name, path=("it", name)) for name in ("name", "city"))
    keys += tuple(map(Field, ("stars", "price", "open")))
    values, keys = {**values, "tags": ["Bath", "York"]}, (*keys, Field("tags", "list"))
    places = [Field(f"at.{n}", path=("at", n)) for n in (1, 2)]
    assert [*_read_off("a 12", {"at": [12, 7]}, places)] == [True, False]
    read_off = [*_read_off("b " * 9 + "in bath for 1,200", values, keys)]
    assert read_off == [
        False,
        True,
        False,
        True,
        True,
        False,
    ]  # a sentence, a name, two numbers, two items
    shown = generate(place, *how, "--shots", f"{place / 'train.jsonl'}:1")[0]
    assert hint in shown
    advice = "--shots FILE:4"
    assert advice not in shown
    assert advice in generate(place, *how)[0]


def test_names_of_special_tokens_in_keys_and_choices_are_text(place):
    special = load(
        str(place / "model"), device="cpu"
    ).text.tokenizer.all_special_tokens[-1]
    schema = {
        "properties": {special: {"enum": [special, "x"]}, "name": {"type": "string"}},
        "required": [special],
    }
    (place / "special.json").write_text(json.dumps(schema), encoding="utf-8")
    for how in ((), ("--no-chat",)):
        _, lines = generate(place, "--schema", place / "special.json", *how)
        assert all(line["fields"][special] in (special, "x") for line in lines)


def call(grid, said):
    """A call in which rows, counted from 1, write a token with certainty, and the shortest of known answers is best."""
    planned = grid.plan()
    odds = []
    for slot in planned:
        is_trial = 0 < slot.branch < WRITTEN
        has_ended = said.get(slot.subsequence) == grid.method.eos
        odds.append(Odds(1.0, 0.9 if is_trial else float(has_ended)))
    grid.commit([said.get(slot.subsequence, 0) for slot in planned], odds)
    return planned


def test_a_list_of_objects_has_rows_for_each_item_once_their_names_are_known(place):
    """What each row of an item answers is what the model writes behind the prompt and its question alone."""
    rows = [
        {
            "source": "a b",
            "target": {
                "open": True,
                "menu": [{"name": "a", "stars": 3}, {"name": "b"}],
            },
        }
    ]
    write_lines(place / "menus.jsonl", *rows)
    for shots in ((), ("--shots", f"{place / 'menus.jsonl'}:1")):
        shown = tuple(read_records(str(place / "menus.jsonl"))) if shots else ()
        decoder = blind_decoder(
            load(str(place / "model"), device="cpu"), Rows(tree_of(FIELDS), shots=shown)
        )
        decoder.text.decode, write = (
            lambda ids: "x y | z" if ids[:1] == [9] else "",
            decoder.text.decode,
        )
        method = decoder.method(time_max=9)
        grid = method.of_source(method, "x y has 3 stars, z").new_grid()
        assert {slot.subsequence for slot in call(grid, {2: 9})} == {1, 2}
        assert [one.opens is not None for one in grid.openings] == [False, True]
        call(grid, {2: grid.method.eos})
        following = call(grid, {})
        assert [one.label for one in grid.openings[2:]] == [
            "menu[1].stars",
            "menu[2].stars",
        ]
        assert {slot.subsequence for slot in following} == {3, 4}
        assert following[0].number == 0
        assert grid.plan() == ()
        assert grid.truncated is None
        read = decoder.reader.read(Finished(0, grid))
        assert read.fields["menu"] == [
            {"name": "x y", "stars": 3},
            {"name": "z", "stars": 3},
        ]
        assert read.values_lost == 0
        shown = " ".join(write(decoder.text.source("a b")[0]).split())
        wanted = "menu: a | b menu[1].name: a menu[1].stars: 3 menu[2].name: b menu[2].stars: none"
        assert (wanted in shown) == bool(shots)
        begun = " ".join(write(grid.openings[3].known).split())
        assert begun.startswith(
            "menu[2].name: z menu[2].stars:" if shots else "What is the stars of z?"
        )


def test_lists_of_objects_fit_the_schema_in_any_batch(place):
    menu = {
        "type": "array",
        "items": {"properties": {"name": {}, "stars": {"type": "integer"}}},
    }
    schema = {
        "properties": {"food": {"enum": ["Thai"]}, "menu": menu},
        "required": ["menu"],
    }
    (place / "menu.json").write_text(json.dumps(schema), encoding="utf-8")
    how = ("--schema", place / "menu.json", "--confidence", "--set", "time_max=12")
    _, lines = generate(place, *how, "--batch-size", 4)
    _, alone = generate(place, *how, "--batch-size", 1)
    for line, one in zip(lines, alone, strict=True):
        jsonschema.validate(line["fields"], schema)
        assert (line["fields"], line["confidence"]) == (
            one["fields"],
            one["confidence"],
        )


@pytest.mark.slow
@pytest.mark.parametrize("form", ["--chat", "--no-chat"])
def test_of_a_thousand_random_texts_no_object_has_what_its_schema_forbids(
    place, tmp_path, form
):
    """Nested and listed, cut by limits and whole; values, confidences and places have one shape."""
    chance = random.Random(0)
    words = str.split(
        "Aromi Thai Greek food | a : ; none true 3 -2.5 the near river Mill || é 漢"
    )
    texts = (
        " ".join(chance.choices(words, k=chance.randint(1, 30))) for _ in range(1000)
    )
    lists = lambda items: {"type": "array", "items": items}  # noqa: E731
    text, price, stars = ({"type": kind} for kind in ("string", "number", "integer"))
    of = {"enum": ["food", "near", "river", "Mill", "Aromi"]}
    dish = {
        "properties": {"dish": of, "price": price, "kind": of},
        "required": ["dish"],
    }
    nested = {
        "properties": {"city": {"type": ["string", "null"]}, "stars": stars},
        "required": ["city", "stars"],
    }
    properties = {
        "name": text,
        "tags": lists(of),
        "at": nested,
        "menu": lists(dish)
        | {"minItems": 1},  # a model of random weights would name no item
        "open": {"type": "boolean"},
    }
    schema = {
        "properties": properties,
        "required": ["name", "at", "menu"],
        "additionalProperties": False,
    }
    data = write_lines(tmp_path / "docs.jsonl", *({"source": text} for text in texts))
    (tmp_path / "schema.json").write_text(json.dumps(schema), encoding="utf-8")
    how = (
        "--schema",
        tmp_path / "schema.json",
        "--confidence",
        "--spans",
        "--set",
        "time_max=40",
    )
    _, lines = generate(place, *how, "--batch-size", 16, form, data=data)
    shape = lambda values: by_path(mapped(values, lambda *_: None))  # noqa: E731
    placed = 0
    validator = jsonschema.Draft202012Validator(schema)
    for line in lines:
        faults = [*validator.iter_errors(line["fields"])]
        assert {fault.validator for fault in faults} <= {"required"}, (
            "what the text lacks, and nothing else"
        )
        assert len(faults) == len(line.get("violations", ()))
        assert shape(line["fields"]) == shape(line["confidence"])
        values = by_path(line["fields"])
        for keys, spans in by_path(line["spans"]).items():
            said = [] if isinstance(values[keys], list) else [values[keys]]
            for text, span in (
                (text_of(one), span) for one in said for span in spans or ()
            ):
                placed += 1
                assert (
                    line["source"][slice(*span)].lower().split() == text.lower().split()
                )
    assert (
        placed and len(lines) == 1000 and any(line["fields"]["menu"] for line in lines)
    )


def test_free_values_are_parts_of_their_source_unless_the_model_may_word_them(place):
    how = (
        "--fields",
        "name, tags list, stars int, menu[].dish, menu[].price",
        "--set",
        "time_max=24",
    )
    _, lines = generate(place, *how, "--batch-size", 8)
    _, alone = generate(place, *how, "--batch-size", 1, "--grounded")
    assert [line["fields"] for line in alone] == [line["fields"] for line in lines]
    found = 0
    for line in lines:
        source = " ".join(line["source"].split())
        for keys, value in leaves(line["fields"]):
            for text in filter(None, value if isinstance(value, list) else [value]):
                assert keys[-1] == "stars" or text in source
                found += keys[-1] != "stars"
    assert found
    assert read_json(place / "out.manifest.json")["settings"]["grounded"] is True
    _, free = generate(place, *how, "--free")
    assert [line["fields"] for line in free] != [line["fields"] for line in lines]


def test_every_value_has_a_confidence_and_a_place(place):
    _, lines = generate(
        place, "--fields", "name, a.b, tags list", "--confidence", "--spans"
    )
    for line in lines:
        flat = [
            dict(leaves(line[name]))
            for name in ("fields", "confidence", "spans", "forced")
        ]
        assert flat[0].keys() == flat[1].keys() == flat[2].keys() == flat[3].keys()
        assert all(0 <= share <= 1 for share in flat[3].values()) and any(
            flat[3].values()
        )
        assert all(0 < sure <= 1 for sure in flat[1].values())
        for text, span in zip(flat[0].values(), flat[2].values(), strict=True):
            for one, places in (
                zip(text, span, strict=True)
                if isinstance(text, list)
                else [(text, span)]
            ):
                assert places and all(
                    line["source"][slice(*at)].split() == one.split() for at in places
                )
    assert any(line["fields"] for line in lines)
    _, plain = generate(place, "--fields", "name, a.b, tags list")
    assert [line["fields"] for line in plain] == [line["fields"] for line in lines]
    assert "confidence" not in plain[0] and "spans" not in plain[0]


def test_lists_and_maps_with_bounds_are_taken_out_of_the_source(place):
    tags = {
        "type": "array",
        "items": {"type": "string", "maxLength": 20},
        "minItems": 2,
        "maxItems": 3,
    }
    names = {
        "type": "object",
        "additionalProperties": tags,
        "minProperties": 1,
        "maxProperties": 2,
    }
    schema = {"properties": {"it": names}, "required": ["it"]}
    (place / "map.json").write_text(json.dumps(schema), encoding="utf-8")
    _, lines = generate(
        place, "--schema", place / "map.json", "--confidence", "--set", "time_max=40"
    )
    for line in lines:
        found = line["fields"]["it"]
        items = [*found, *(tag for tags in found.values() for tag in tags)]
        assert items and all(item in line["source"] for item in items)
        assert line["confidence"]["it"].keys() == found.keys()


def test_a_choice_that_is_longer_than_a_row_may_be_is_made_whole(place):
    """It is scored in one call, so that no limit cuts it."""
    long = {"properties": {"n": {"enum": ["a" * 99]}}, "required": ["n"]}
    (place / "long-choice.json").write_text(json.dumps(long), encoding="utf-8")
    _, lines = generate(place, "--schema", place / "long-choice.json", "--confidence")
    assert all(line["fields"] == {"n": "a" * 99} for line in lines)
    assert all(
        line["confidence"]["n"] > 0 and line["truncated"] is None for line in lines
    )


def test_a_value_that_its_keywords_do_not_allow_stands_among_the_violations_if_it_must_be_there(
    place,
):
    long = {"type": "string", "minLength": 900}
    properties = {"name": long, "food": long, "open": {"type": "boolean"}}
    schema = {"properties": properties, "required": ["name", "open"]}
    (place / "long.json").write_text(json.dumps(schema), encoding="utf-8")
    told, lines = generate(place, "--schema", place / "long.json")
    assert "no row is held" not in told
    assert f"{len(lines)} of {len(lines)} objects do not hold to the schema" in told
    for line in lines:
        assert line["violations"] == ['"name" is a required property']
        assert [*line["fields"]] == ["open"]


def test_thresholds_of_confidence_say_when_there_is_no_value(place):
    """The answers to one key are right, and those to the others are wrong: only the one keeps its values."""
    few = ("--fields", "name, food: Thai|Greek, stars int, open boolean")
    _, before = generate(place, *few)
    key = min(
        key
        for line in before
        for key, value in line["fields"].items()
        if value is not None
    )
    rows = [
        {"source": line["source"], "target": {key: line["fields"].get(key)}}
        for line in before
    ]
    write_lines(place / "dev.jsonl", *rows)
    told, lines = generate(place, *few, "--calibrate", place / "dev.jsonl")
    assert "5 records cannot carry a threshold" in told
    for line, row in zip(lines, rows, strict=True):
        assert line["fields"].keys() <= {key}
        assert line["fields"].get(key) == row["target"][key]
    fitted = read_json(place / "out.manifest.json")["settings"]["rows"]["thresholds"]
    assert sorted(fitted)[1:] == [2, 2, 2] and min(fitted) < 1
    assert "records with an object" in refused(
        *again_with(place, *few, "--calibrate", place / "docs.jsonl")
    )


def test_questions_are_answered_as_they_are_whatever_delay_a_recipe_has(place):
    asked = ("--ask", "What food?", "--ask", "Where is it?", "--ask", "Who is it?")
    told, lines = generate(
        place, *asked, "--set", "trace=true", "--config", "wikihowqa"
    )
    assert len(lines) == 5 and "3 keys at a time, each answered by itself" in told
    assert all(
        set(line["fields"]) <= {"What food?", "Where is it?", "Who is it?"}
        for line in lines
    )
    assert all(len(line["grid"]) == 3 for line in lines)
    shown = run(
        "generate",
        "--model",
        place / "model",
        "--text",
        "Aromi",
        "--live",
        *asked,
        *FEW,
    ).stderr
    assert "What food?" in shown


def test_an_answer_that_a_limit_cuts_is_kept_as_far_as_it_goes(place):
    told, lines = generate(place, "--ask", "What food?", "--set", "time_max=2")
    cut = [line for line in lines if line["truncated"] == "time_max"]
    assert (
        cut
        and f"cut short: {len(cut)} by time_max" in told
        and "values of fields lost" not in told
    )
    assert all(line["fields"]["What food?"] for line in cut)
    decoder = blind_decoder(
        load(str(place / "model"), device="cpu"), Rows(questions=("Who?",))
    )
    assert decoder.method().limits.time_max == 64


def test_keys_and_questions_have_files_of_their_own(place, tmp_path):
    model = (
        place / "docs.jsonl",
        "--model",
        place / "model",
        "-w",
        tmp_path,
        "--limit",
        1,
        *FEW,
    )
    for asked in (("--fields", "name"), ("--fields", "food"), ("--ask", "Who?")):
        run("generate", *model, *asked)
        assert "is whole already" in run("generate", *model, *asked, "--resume").stderr
    run("generate", *model, "--schema", place / "schema.json")
    assert len([*tmp_path.glob("generations/model-together-docs-????????.jsonl")]) == 4


def test_a_key_that_no_example_fills_is_named_since_its_values_would_be_left_out(place):
    dev = write_lines(place / "dev.jsonl", {"source": "a", "target": {"fod": "b"}})
    how = (
        "--fields",
        "name, fod",
        "--shots",
        f"{place / 'train.jsonl'}:1",
        "--calibrate",
        dev,
    )
    told, _ = generate(place, *how)
    for file, key in ("train", "fod"), ("dev", "name"):
        assert (
            f"{file}.jsonl: no record has a value for {key}: are the keys spelled alike?"
            in told
        )


def test_a_single_texts_line_is_whole_where_confidence_or_places_are_asked_for(place):
    how = (
        "--text",
        "Aromi has Greek food.",
        "--model",
        place / "model",
        "--fields",
        "name",
        *FEW,
    )
    for asked in "--confidence", "--spans":
        assert asked[2:] in json.loads(run("generate", *how, asked).stdout)
    assert "prediction" not in run("generate", *how).stdout


def test_the_prompt_is_shown_before_anything_is_generated(place):
    def shown(*arguments):  # with a space for any white space: a tokenizer adds its own
        return " ".join(run("generate", *arguments).stdout.split())

    model = ("--model", place / "model", "--text", "Aromi is open.", "--show-prompt")
    asked = shown(*model, "--schema", place / "schema.json")
    assert "Text: Aromi is open. Answer with the value alone" in asked
    assert (
        "What is the --- row 1 name?<|im_end|>" in asked
    )  # what all questions begin with is read once
    assert (
        "--- row 2 food? One of: Thai, Greek.<|im_end|> <|im_start|> assistant ---"
        in asked
    )
    own = shown(*model, "--prompt-template", "{source} = {question}", "--ask", "Who?")
    assert (
        "Aromi is open. = <|im_end|>" not in own
        and "Aromi is open. = --- row 1 Who?<|im_end|>" in own
    )
    shots = ("--shots", f"{place / 'train.jsonl'}:2", "--schema", place / "schema.json")
    lines = shown(*model, *shots)
    assert (
        lines.count("food: Thai") == 2
        and "stars: none" in lines
        and "open: none" in lines
    )
    assert lines.endswith("--- row 4 open:")
    assert "--show-prompt is for" in refused("generate", *model)


def test_examples_show_each_key_with_a_value_and_without():
    fields = (Field("a"), Field("b", enum=("x", "y")))
    targets = [
        {"a": "1"},
        {"a": "2"},
        {"a": "3", "b": "x"},
        {"b": "x"},
        {"a": "4", "b": "y"},
    ]
    records = [
        Record(str(n), "1 2 3 4", "", None, (), "", {}, one)
        for n, one in enumerate(targets)
    ]
    chosen = [one.target_fields for one in choose_shots(records, fields, 3)]
    assert {"a" in one for one in chosen} == {True, False}
    assert {one.get("b") for one in chosen} == {None, "x", "y"}
    records.append(
        Record("5", "s", "", None, (), "", {}, {"a": "9", "b": "z"})
    )  # 9 is not in its text
    assert {one.target_fields.get("b") for one in choose_shots(records, fields, 5)} == {
        None,
        "x",
        "y",
    }


def test_what_does_not_go_together_is_refused(place, tmp_path):
    schema = ("--schema", place / "schema.json")
    write_lines(place / "wrong.jsonl", {"source": "a", "target": {"name": ["b"]}})
    (place / "out.jsonl").write_text("kept", encoding="utf-8")
    either = {
        "anyOf": [
            {"properties": {name: {"type": "string"}}, "required": [name]}
            for name in "ab"
        ]
    }
    (place / "either.json").write_text(json.dumps(either), encoding="utf-8")
    for more, told in (
        ((*schema, "--exact", "x"), "ordinary decoder-only model"),
        (("--fields", ","), "--fields names no key"),
        (("--fields", ""), "--fields names no key"),
        ((*schema, "--max-source-tokens", "2"), "no source has room"),
        (
            (
                "--shots",
                f"{place / 'train.jsonl'}:2",
                "--calibrate",
                place / "wrong.jsonl",
            ),
            "is of kind list",
        ),
        ((*schema, "--delay", 2), "delay does not apply"),
        ((*schema, "--set", "sub_max=4"), "sub_max does not apply"),
        (
            (*schema, "--prompt-template", "{source}"),
            "does not say {question} once, behind {source}",
        ),
        ((*schema, "--set", "time_max=20000"), "at most 16384 tokens"),
        (("--ask", " "), "--ask is empty"),
        (
            ("--schema", place / "either.json", "--ask", "Who?"),
            "a question stands beside keys",
        ),
        (("--ask", "Who?", "--no-chat"), "is a turn of a chat"),
        (
            ("--ask", "Who?", "--shots", f"{place / 'train.jsonl'}:2"),
            "is a turn of a chat",
        ),
        (
            ("--shots", f"{place / 'train.jsonl'}:9"),
            "has 4 records with an object as target",
        ),
        (
            ("--shots", f"{place / 'train.jsonl'}:2", "--chat"),
            "examples do not go into a chat",
        ),
    ):
        assert told in refused(*again_with(place, *more))
    assert (place / "out.jsonl").read_text(encoding="utf-8") == "kept"
    assert "name it with --model, or leave them out" in refused(
        "generate", place / "docs.jsonl", *schema
    )
    t5 = tiny_checkpoint(tmp_path / "t5")
    foreign(tmp_path / "plain", template=None)
    foreign(
        tmp_path / "odd",
        template=CHATML.replace("message.content | trim", "message.content * 2"),
    )
    for asked, model, told in (
        (schema, t5, "only an ordinary decoder-only model"),
        (("--ask", "Who?"), tmp_path / "plain", "is a turn of a chat"),
        (schema, tmp_path / "odd", "does not take a user's words once"),
    ):
        assert told in refused(*again_with(place, *asked, "--model", model))
