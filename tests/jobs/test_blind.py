"""Objects and answers without training, on the command line: schemas, examples and questions."""

import json
import os
import random
import re
import shlex

import jsonschema
import pytest

from pipedec_cli.data.fields import Field, by_path, leaves, mapped, text_of
from pipedec_cli.data.records import Record
from pipedec_cli.decoding.blind import blind_decoder
from pipedec_cli.decoding.decoder import load
from pipedec_cli.jobs.loading import choose_shots
from pipedec_cli.model.text import TextCodec
from pipedec_cli.objects.questions import Text
from pipedec_cli.objects.rows import Rows
from tests.checkpoints import tiny_checkpoint
from tests.jobs.test_fields import SCHEMA, check_objects
from tests.model.chats import CHATML, foreign
from tests.running import lines_of, read_json, refused, run, write_lines

FEW = ("--set", "time_max=5", "--device", "cpu")
TEXT, NUMBER, INTEGER = ({"type": kind} for kind in ("string", "number", "integer"))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A chat model that knows nothing, sources, examples and a schema."""
    folder = tmp_path_factory.mktemp("blind")
    foreign(folder / "model")
    names = ("The Mill", "The Vaults", "Aromi", "The Mill")
    more = [{}, {"stars": 3}, {"open": True}, {"stars": 1, "open": False}]
    rows = []
    for name, values in zip(names, more, strict=True):
        target = {"name": name, "food": "Thai", **values}
        rows.append({"source": f"{name} has Thai food.", "target": target})
    write_lines(folder / "train.jsonl", *rows)
    docs = [{"source": f"Aromi {n} has Greek food."} for n in range(5)]
    write_lines(folder / "docs.jsonl", *docs)
    return folder


def written(place, schema, name="schema.json"):
    """The options for a schema."""
    (place / name).write_text(json.dumps(schema), encoding="utf-8")
    return "--schema", place / name


def shots(place, count):
    return "--shots", f"{place / 'train.jsonl'}:{count}"


def again_with(place, *more):
    files = (place / "docs.jsonl", "--model", place / "model")
    return ("generate", *files, "--out", place / "out.jsonl", *FEW, *more)


def generate(place, *more, data="docs.jsonl"):
    files = (place / data, "--model", place / "model", "--out", place / "out.jsonl")
    told = run("generate", *files, *FEW, *more).stderr
    return told, lines_of(place / "out.jsonl")


def fields_of(lines):
    return [line["fields"] for line in lines]


@pytest.mark.parametrize("count", [0, 3])
def test_a_schema_gives_objects_that_it_allows(place, count):
    how = written(place, SCHEMA)
    if count:
        how = (*how, *shots(place, count))
    told, lines = generate(place, *how, "--batch-size", 4)
    assert "4 keys at a time, each answered by itself" in told
    assert "decoded as a sequential model" not in told
    check_objects(lines, 5)
    _, alone = generate(place, *how, "--batch-size", 1)
    assert fields_of(alone) == fields_of(lines)
    rows = read_json(place / "out.manifest.json")["settings"]["rows"]
    assert (rows["count"], rows["shots"]) == (4, count)
    told, again = generate(place, *how, "--resume", "--batch-size", 1)
    assert "is whole already" in told and again == alone
    other = again_with(place, "--ask", "Who?", "--resume")
    refused(*other)


CHOICES = ("--fields", "food: Thai|Greek, open bool, name")


def test_choices_have_probabilities_whose_best_is_the_value(place):
    data = write_lines(place / "right.jsonl", *lines_of(place / "train.jsonl"))
    _, lines = generate(place, *CHOICES, "--confidence", data=data.name)
    for line in lines:
        shares = line["probabilities"]
        assert {*shares["food"]} == {"Thai", "Greek", ""}
        assert {*shares["open"]} == {"true", "false", ""}
        for key in ("food", "open"):
            assert sum(shares[key].values()) == pytest.approx(1, abs=1e-3)
            best = max(shares[key], key=shares[key].get)
            assert text_of(line["fields"].get(key, "")) == best
    run(
        "score", place / "out.jsonl", "--task", "fields", "--out", place / "scores.json"
    )
    scores = read_json(place / "scores.json")["choices"]
    hits = [line["fields"].get("food") == "Thai" for line in lines]
    assert scores["food"]["values"] == 4
    assert scores["food"]["accuracy"] == 100 * sum(hits) / 4
    assert {"macro_f1", "ece", "brier"} < scores["open"].keys()
    _, usual = generate(place, *CHOICES, data=data.name)
    assert not any("probabilities" in line for line in usual)


def test_calibration_says_the_temperature_of_each_choice_and_its_error_before_and_after(
    place,
):
    told, _ = generate(place, *CHOICES, "--calibrate", place / "train.jsonl")
    for key in ("food", "open"):
        assert f"{key}: temperature " in told
    assert "name: temperature" not in told
    rows = read_json(place / "out.manifest.json")["settings"]["rows"]
    assert len(rows["temperatures"]) == 2


def test_right_answers_of_the_data_themselves_are_warned_of(place):
    fitted = place / "train.jsonl"
    told, _ = generate(place, *CHOICES, "--calibrate", fitted, data=fitted)
    assert f"{fitted} is also the data" in told
    told, _ = generate(place, *CHOICES, "--calibrate", fitted)
    assert "is also the data" not in told


def test_a_prior_changes_how_probable_choices_are(place):
    _, usual = generate(place, *CHOICES, "--confidence")
    _, lines = generate(place, *CHOICES, "--confidence", "--set", "prior=true")
    assert all(
        line["probabilities"] != other["probabilities"]
        for line, other in zip(lines, usual, strict=True)
    )
    model = (place / "docs.jsonl", "--model", place / "model")
    refused("generate", *model, "--set", "prior=true")


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


def test_examples_that_can_be_read_only_once_are_refused(place, tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    for asked in (("--shots", f"{pipe}:4"), ("--calibrate", pipe)):
        refused(*again_with(place, *asked, "--fields", "name"))


SENTENCE = "The name of the pub by the river has been Aromi."


@pytest.mark.parametrize(
    ("said", "source", "count"),
    [
        ("Aromi", "Aromi has Greek food.", 0),
        ("Aroma", "Aromi has Greek food.", 4),
        (SENTENCE, f"{SENTENCE} It is old.", 4),
    ],
)
def test_values_in_no_text_or_as_long_as_a_sentence_are_warned_of_and_examples_advised_if_there_are_none(
    place, monkeypatch, said, source, count
):
    monkeypatch.setattr(TextCodec, "decode", lambda *_: said)
    write_lines(place / "said.jsonl", *({"source": source} for _ in range(2)))
    keys = ("--fields", "name, at.place, open boolean, kind: a|b")
    how = (*keys, "--set", "time_max=64")
    told, _ = generate(place, *how, data="said.jsonl")
    hint = "values that are not in their text, or as long as a sentence: "
    warned = re.findall(rf"{hint}(\d+) of (\d+)", told)
    assert warned == ([(str(count), "4")] if count else [])
    assert ("--shots FILE:4" in told) == bool(count)
    shown, _ = generate(place, *how, *shots(place, 1), data="said.jsonl")
    assert "--shots FILE:4" not in shown


def test_names_of_special_tokens_in_keys_and_choices_are_text(place):
    tokenizer = load(str(place / "model"), device="cpu").text.tokenizer
    special = tokenizer.all_special_tokens[-1]
    properties = {special: {"enum": [special, "x"]}, "name": TEXT}
    schema = {"properties": properties, "required": [special]}
    for how in ((), ("--no-chat",)):
        _, lines = generate(place, *written(place, schema), *how)
        chosen = {line["fields"][special] for line in lines}
        assert chosen <= {special, "x"}


OF = {"enum": ["food", "near", "river", "Mill", "Aromi"]}
DISH = {"properties": {"dish": OF, "price": NUMBER, "kind": OF}, "required": ["dish"]}
CITY = {
    "properties": {"city": {"type": ["string", "null"]}, "stars": INTEGER},
    "required": ["city", "stars"],
}
NESTED = {
    "properties": {
        "name": TEXT,
        "tags": {"type": "array", "items": OF},
        "at": CITY,
        # A model of random weights would name no item.
        "menu": {"type": "array", "items": DISH, "minItems": 1},
        "open": {"type": "boolean"},
    },
    "required": ["name", "at", "menu"],
    "additionalProperties": False,
}


def shape(values):
    return by_path(mapped(values, lambda *_: None))


def check_spans(line):
    """The number of places of a line's single values, where the source must have them."""
    values = by_path(line["fields"])
    count = 0
    for keys, spans in by_path(line["spans"]).items():
        if isinstance(values[keys], list):
            continue
        words = text_of(values[keys]).lower().split()
        for start, end in spans or ():
            assert line["source"][start:end].lower().split() == words
            count += 1
    return count


@pytest.mark.slow
@pytest.mark.parametrize("form", ["--chat", "--no-chat"])
def test_of_a_thousand_random_texts_no_object_has_what_its_schema_forbids(
    place, tmp_path, form
):
    """Nested and listed, cut by limits and whole; values, confidences and places have one shape."""
    chance = random.Random(0)
    words = "Aromi Thai Greek food | a : ; none true 3 -2.5 the near river Mill || é 漢"
    texts = []
    for _ in range(1000):
        texts.append(chance.choices(words.split(), k=chance.randint(1, 30)))
    rows = [{"source": " ".join(text)} for text in texts]
    data = write_lines(tmp_path / "docs.jsonl", *rows)
    how = (*written(tmp_path, NESTED), "--confidence", "--spans", "--batch-size", 16)
    _, lines = generate(place, *how, "--set", "time_max=40", form, data=data)
    validator = jsonschema.Draft202012Validator(NESTED)
    placed = 0
    for line in lines:
        faults = [fault.validator for fault in validator.iter_errors(line["fields"])]
        assert {*faults} <= {"required"}, "what the text lacks, and nothing else"
        assert len(faults) == len(line.get("violations", ()))
        assert shape(line["fields"]) == shape(line["confidence"])
        placed += check_spans(line)
    assert placed and len(lines) == 1000
    assert any(line["fields"]["menu"] for line in lines)


def test_free_values_are_parts_of_their_source_unless_the_model_may_word_them(place):
    keys = "name, tags list, stars int, menu[].dish, menu[].price"
    how = ("--fields", keys, "--set", "time_max=24")
    _, lines = generate(place, *how, "--batch-size", 8)
    _, alone = generate(place, *how, "--batch-size", 1, "--grounded")
    assert fields_of(alone) == fields_of(lines)
    manifest = read_json(place / "out.manifest.json")
    assert manifest["settings"]["grounded"] is True
    found = []
    for line in lines:
        for keys, value in leaves(line["fields"]):
            if keys[-1] != "stars" and value:
                texts = value if isinstance(value, list) else [value]
                found += texts
                assert all(text in line["source"] for text in texts)
    assert found
    _, free = generate(place, *how, "--free")
    assert fields_of(free) != fields_of(lines)


def test_every_value_has_a_confidence_and_a_place(place):
    keys = ("--fields", "name, a.b, tags list")
    _, lines = generate(place, *keys, "--confidence", "--spans")
    for line in lines:
        assert check_spans(line) or not by_path(line["fields"])
        sure = dict(leaves(line["confidence"]))
        forced = dict(leaves(line["forced"]))
        values = dict(leaves(line["fields"]))
        assert values.keys() == sure.keys() == forced.keys()
        assert values.keys() == dict(leaves(line["spans"])).keys()
        assert all(0 <= share <= 1 for share in forced.values())
        assert all(0 < share <= 1 for share in sure.values())
        assert any(forced.values())
    _, plain = generate(place, *keys)
    assert any(fields_of(plain)) and fields_of(plain) == fields_of(lines)
    assert not plain[0].keys() & {"confidence", "spans"}


def test_a_choice_that_is_longer_than_a_row_may_be_is_made_whole(place):
    """It is scored in one call, so that no limit cuts it."""
    long = {"properties": {"n": {"enum": ["a" * 99]}}, "required": ["n"]}
    _, lines = generate(place, *written(place, long), "--confidence")
    for line in lines:
        assert (line["fields"], line["truncated"]) == ({"n": "a" * 99}, None)
        assert line["confidence"]["n"] > 0


def test_a_value_that_its_keywords_do_not_allow_stands_among_the_violations_if_it_must_be_there(
    place,
):
    long = {"type": "string", "minLength": 900}
    properties = {"name": long, "food": long, "open": {"type": "boolean"}}
    schema = {"properties": properties, "required": ["name", "open"]}
    told, lines = generate(place, *written(place, schema))
    assert "no row is held" not in told
    assert f"{len(lines)} of {len(lines)} objects do not hold to the schema" in told
    for line in lines:
        assert line["violations"] == ['"name" is a required property']
        assert [*line["fields"]] == ["open"]


def test_thresholds_are_fitted_to_right_answers_and_told_in_the_manifest(place):
    few = ("--fields", "name, food: Thai|Greek, stars int", "--calibrate")
    rows = [{"source": "The Mill", "target": {"name": "Mill"}}] * 5
    told, _ = generate(place, *few, write_lines(place / "dev.jsonl", *rows))
    assert "5 records cannot carry a threshold" in told
    fitted = read_json(place / "out.manifest.json")["settings"]["rows"]["thresholds"]
    assert fitted[1:] == [2, 2], "no record has a value of these keys"
    *_, left_out = (line for line in told.splitlines() if "are left out" in line)
    assert left_out.endswith(": food, stars")
    refused(*again_with(place, *few, place / "docs.jsonl"))


def test_questions_are_answered_as_they_are_whatever_delay_a_recipe_has(place):
    asked = ("--ask", "What food?", "--ask", "Where is it?", "--ask", "Who is it?")
    traced = ("--set", "trace=true", "--config", "wikihowqa")
    told, lines = generate(place, *asked, *traced)
    assert len(lines) == 5 and "3 keys at a time, each answered by itself" in told
    for line in lines:
        assert {*line["fields"]} <= {*asked[1::2]}
        assert len(line["grid"]) == 3
    text = ("--model", place / "model", "--text", "Aromi", "--live")
    live = run("generate", *text, *asked, *FEW).stderr
    assert "What food?" in live


def test_an_answer_that_a_limit_cuts_is_kept_as_far_as_it_goes(place):
    told, lines = generate(place, "--ask", "What food?", "--set", "time_max=2")
    cut = [line for line in lines if line["truncated"] == "time_max"]
    assert cut
    assert all(line["fields"]["What food?"] for line in cut)
    assert f"cut short: {len(cut)} by time_max" in told
    assert "values of fields lost" not in told
    plain = load(str(place / "model"), device="cpu")
    decoder = blind_decoder(plain, Rows(questions=(Text("Who?", grounded=False),)))
    assert decoder.method().limits.time_max == 64


def test_keys_and_questions_have_files_of_their_own(place, tmp_path):
    model = ("generate", place / "docs.jsonl", "--model", place / "model")
    model = (*model, "-w", tmp_path, "--limit", 1, *FEW)
    for asked in ("--fields name", "--fields food", "--ask Who?"):
        run(*model, *asked.split())
        again = run(*model, *asked.split(), "--resume").stderr
        assert "is whole already" in again
    run(*model, *written(place, SCHEMA))
    files = tmp_path.glob("generations/model-together-docs-????????.jsonl")
    assert len([*files]) == 4


def test_a_key_that_no_example_fills_is_named_since_its_values_would_be_left_out(place):
    dev = write_lines(place / "dev.jsonl", {"source": "a", "target": {"fod": "b"}})
    how = ("--fields", "name, fod", *shots(place, 1), "--calibrate", dev)
    told, _ = generate(place, *how)
    assert "train.jsonl: no record has a value for fod: " in told
    assert "dev.jsonl: no record has a value for name: " in told


def test_a_single_texts_line_is_whole_where_confidence_or_places_are_asked_for(place):
    how = ("--text", "Aromi has Greek food.", "--fields", "name")
    how = (*how, "--model", place / "model", *FEW)
    for asked in "confidence", "spans":
        told = run("generate", *how, f"--{asked}").stdout
        assert asked in json.loads(told)
    plain = run("generate", *how).stdout
    assert "prediction" not in plain


def test_the_prompt_is_shown_before_anything_is_generated(place):
    model = ("--model", place / "model", "--text", "Aromi is open.", "--show-prompt")
    schema = written(place, SCHEMA)

    def shown(*asked):  # with a space for any white space: a tokenizer adds its own
        return " ".join(run("generate", *model, *asked).stdout.split())

    asked = shown(*schema)
    assert "Text: Aromi is open. Answer with the value alone" in asked
    # What all questions begin with is read once.
    assert "What is the --- row 1 name?<|im_end|>" in asked
    assert "--- row 2 food? One of: Thai, Greek.<|im_end|> <|im_start|> ass" in asked
    own = shown("--prompt-template", "{source} = {question}", "--ask", "Who?")
    assert "Aromi is open. = --- row 1 Who?<|im_end|>" in own
    lines = shown(*shots(place, 2), *schema)
    assert lines.count("food: Thai") == 2
    assert "stars: none" in lines and "open: none" in lines
    assert lines.endswith("--- row 4 open:")
    refused("generate", *model)


def test_examples_show_each_key_with_a_value_and_without():
    """A value that is not in its text is no example."""
    fields = (Field("a"), Field("b", enum=("x", "y")))
    targets = [{"a": "1"}, {"a": "2"}, {"a": "3", "b": "x"}, {"b": "x"}]
    targets += [{"a": "4", "b": "y"}, {"a": "9", "b": "z"}]
    records = []
    for number, target in enumerate(targets):
        records.append(Record(str(number), "1 2 3 4", "", None, (), "", {}, target))
    for given, count in ((records[:5], 3), (records, 5)):
        chosen = [shot.target_fields for shot in choose_shots(given, fields, count)]
        assert {"a" in target for target in chosen} == {True, False}
        assert {target.get("b") for target in chosen} == {None, "x", "y"}


@pytest.fixture(scope="module")
def refusing(place):
    """Files by their names in refused commands."""
    parts = [{"properties": {key: TEXT}, "required": [key]} for key in "ab"]
    wrong = {"source": "a", "target": {"name": ["b"]}}
    odd = CHATML.replace("message.content | trim", "message.content * 2")
    foreign(place / "plain", template=None)
    foreign(place / "odd", template=odd)
    return {
        "TRAIN": place / "train.jsonl",
        "OWN": written(place, SCHEMA, "own.json")[1],
        "EITHER": written(place, {"anyOf": parts}, "either.json")[1],
        "WRONG": write_lines(place / "wrong.jsonl", wrong),
        "T5": tiny_checkpoint(place / "t5"),
        "PLAIN": place / "plain",
        "ODD": place / "odd",
    }


@pytest.mark.parametrize(
    "more",
    [
        "--schema OWN --exact x",
        "--schema OWN --max-source-tokens 2",
        "--schema OWN --delay 2",
        "--schema OWN --set sub_max=4",
        "--schema OWN --prompt-template {source}",
        "--schema OWN --set time_max=20000",
        "--schema EITHER --ask Who?",
        "--fields ,",
        "--fields ''",
        "--shots TRAIN:2 --calibrate WRONG",
        "--shots TRAIN:9",
        "--shots TRAIN:2 --chat",
        "--ask ' '",
        "--ask Who? --no-chat",
        "--ask Who? --shots TRAIN:2",
        "--model T5 --schema OWN",
        "--model PLAIN --ask Who?",
        "--model ODD --schema OWN",
        "--model nothing --schema OWN",
    ],
)
def test_what_does_not_go_together_is_refused(place, refusing, more):
    """And no file is touched."""
    for name, path in refusing.items():
        more = more.replace(name, str(path))
    (place / "out.jsonl").write_text("kept", encoding="utf-8")
    refused(*again_with(place, *shlex.split(more)))
    assert (place / "out.jsonl").read_text(encoding="utf-8") == "kept"
