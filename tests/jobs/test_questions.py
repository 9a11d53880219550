"""One model for any schema, on the command line: sets are segmented, a model is taught to answer, and is asked."""

import json
from pathlib import Path

import pytest

from pipedec_cli.data.workspace import load_segmentation
from pipedec_cli.model.checkpoint import load_checkpoint
from tests.jobs.report.running import options_of, report_of, reported
from tests.model.chats import foreign
from tests.running import lines_of, refused, run, write_lines

PLACE = {"properties": {"name": {"type": "string"}, "open": {"type": "boolean"}}}
TRAINING = ("--max-steps", 2, "--batch-size", 2, "--device", "cpu")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two sets, segmented, and a model that was taught on them."""
    place = tmp_path_factory.mktemp("questions")
    names = ["Aromi", "Mill", "Vaults", "Punter", "Eagle", "Plough", "Cotto", "Zizzi"]
    places = []
    songs = []
    for number, name in enumerate(names):
        target = {"name": name, "open": number % 2 == 0}
        places.append({"source": f"{name} is a place.", "target": target})
        title = name if number % 2 else "Unnamed"
        song = {"title": title, "years": [str(number)]}
        songs.append({"source": f"{name} was song {number}.", "target": song})
    write_lines(place / "sets" / "places" / "train.jsonl", *places)
    (place / "sets" / "places" / "schema.json").write_text(json.dumps(PLACE))
    write_lines(place / "sets" / "songs.jsonl", *songs)
    foreign(place / "model")
    run("segment", place / "sets", "--level", "field", "--out", place / "data")
    asked = ("train", place / "data", "--model", place / "model", *TRAINING)
    said = run(*asked, "--out", place / "taught")
    (place / "said").write_text(said.stderr)
    return place


def generate(place, model, *more):
    out = place / "out.jsonl"
    given = ("--text", "Aromi was song 3.", "--model", place / model, "--out", out)
    run("generate", *given, "--set", "time_max=4", "--device", "cpu", *more)
    [line] = lines_of(out)
    out.unlink()
    return line


def test_each_set_keeps_its_keys_and_records_know_their_set(place):
    segmentation = load_segmentation(place / "data" / "segmentation.json")
    keys = {}
    for name, fields in segmentation.sets.items():
        keys[name] = [field.name for field in fields]
    assert keys == {"places": ["name", "open"], "songs": ["title", "years"]}
    records = lines_of(place / "data" / "train.jsonl")
    sets = {record["id"].partition("/")[0] for record in records}
    assert sets == {"places", "songs"}
    for record in records:
        is_song = record["id"].startswith("songs/")
        assert ("title" in record["target"]) == is_song


def test_the_taught_model_is_ordinary_and_its_config_says_how_it_is_asked(place):
    checkpoint = load_checkpoint(str(place / "taught"))
    assert (checkpoint.questions, checkpoint.settings.decoder) == (True, "sequential")
    assert checkpoint.settings.chat  # as the model has a chat
    assert "--schema SCHEMA.json" in (place / "said").read_text()


def test_it_answers_any_schema_in_the_form_in_which_it_was_taught(place):
    asked = ("train", place / "data", "--model", place / "model", *TRAINING)
    run(*asked, "--no-chat", "--out", place / "plain")
    schema = ("--fields", "name, years list, price number")
    # Without --no-chat it is asked as with it.
    usual = generate(place, "plain", *schema)
    assert (
        usual["prediction"]
        == generate(place, "plain", *schema, "--no-chat")["prediction"]
    )
    prompts = []
    for model in ("plain", "taught"):
        shown = run(
            "generate",
            "--text",
            "a",
            "--model",
            place / model,
            *schema,
            "--show-prompt",
        )
        prompts.append("<|im_start|>" in shown.stdout)
    assert prompts == [False, True]


def test_values_that_do_not_stand_in_their_text_are_counted(place):
    records = lines_of(place / "data" / "train.jsonl")
    count = [record["target"].get("title") for record in records].count("Unnamed")
    said = (place / "said").read_text()
    assert count > 1
    assert f"{count} values in {len(records)} records are not learnt" in said


@pytest.fixture
def beside(place, monkeypatch):
    """The tests run beside the models, and the records of a report with their schema."""
    monkeypatch.chdir(place)
    rows = []
    for name in ("Aromi", "Mill", "Vaults"):
        target = {"name": name, "open": False}
        rows.append({"source": f"{name} is closed.", "target": target})
    write_lines("closed.jsonl", *rows)
    Path("closed.schema.json").write_text(json.dumps(PLACE))


def test_a_report_compares_it_with_the_model_that_it_was(beside):
    given = "closed.jsonl --model taught --workspace workspace"
    reported(*given.split())
    _, entries = report_of(Path("workspace"))
    assert [*entries] == ["untrained", "taught", "JSON in one go"]
    untrained = entries["untrained"]
    # Both are asked as the taught model was.
    assert "--chat" in options_of(untrained)
    for entry in entries.values():
        assert entry["quality"]["counts"]["examples"] == 3
        # Timed rows have the answers that written ones have.
        [timed] = entry["speed"]
        assert timed["decoder_calls"] == entry["totals"]["steps"]
        assert {*entry["quality"]["parts"]} == {"name", "open"}
    at_once = options_of(entries["JSON in one go"])
    assert "--set whole=true" in at_once
    assert "/model " in at_once
    table = Path("workspace/report/report.md").read_text().partition("by key")[2]
    assert "| key | untrained | taught | JSON in one go |" in table
    again = "again.jsonl"
    run("generate", *at_once.split(), "--out", again, "--device", "cpu")
    kept = [line["fields"] for line in lines_of(again)]
    [written] = Path("workspace").glob("generations/model-closed-*.jsonl")
    assert kept == [line["fields"] for line in lines_of(written)]
    reported(*given.split(), "--baseline", "taught")
    _, entries = report_of(Path("workspace"))
    assert "--model taught" in entries["untrained"]["command"]


@pytest.mark.parametrize(
    "wrong",
    [
        "closed.jsonl --baseline nothing",
        "closed.jsonl --delays 1",
        "closed.jsonl --compare exact-source",
        "sets/songs.jsonl",
        "sets",
        "",
    ],
)
def test_a_report_of_questions_is_on_one_set_with_its_schema(beside, wrong):
    refused("report", *wrong.split(), "--model", "taught")


def test_without_questions_it_is_refused(place):
    refused("generate", "--text", "a", "--model", place / "taught")


def test_what_does_not_go_with_sets_is_refused(place):
    asked = ("train", place / "data", *TRAINING, "--overwrite")
    with_encoder = ("--model", "scratch-tiny", "--out", place / "encoder")
    refused(*asked, *with_encoder)
    refused(*asked, "--model", place / "model", "--delay", 2, "--out", place / "delay")
    again = ("segment", place / "sets", "--out", place / "again")
    refused(*again, "--level", "sentence", "--set", "any=true")
    refused(*again, "--level", "field", "--dev", place / "sets" / "songs.jsonl")


def test_a_teacher_writes_the_answers_to_a_schema(place):
    texts = [{"source": f"Text {number} of many."} for number in range(12)]
    data = write_lines(place / "texts.jsonl", *texts)
    schema = place / "sets" / "places" / "schema.json"
    options = ("--level", "field", "--set", "any=true", "--sources-only")
    out = place / "unlabelled"
    run("segment", data, *options, "--schema", schema, "--out", out)
    asked = ("train", out, "--teacher", place / "model", *TRAINING)
    run(*asked, "--workspace", place / "workspace", "--out", place / "student")
    checkpoint = load_checkpoint(str(place / "student"))
    assert checkpoint.questions
    sets = ("train", place / "data", "--teacher", place / "model", *TRAINING)
    refused(*sets, "--workspace", place / "workspace", "--out", place / "none")


def whole(place, *more):
    given = ("--text", "Aromi is closed.", "--model", place / "model")
    return ("generate", *given, "--set", "whole=true", "--device", "cpu", *more)


def test_an_object_is_written_as_json_in_one_go(place, monkeypatch):
    monkeypatch.chdir(place)
    schema = ("--schema", place / "sets" / "places" / "schema.json")
    shown = run(*whole(place, *schema, "--show-prompt")).stdout
    assert '"name", "open"' in shown
    assert "--- row" not in shown
    # Files tell schemas with the same keys apart.
    lines_of_each = []
    for kind in ("boolean", "integer"):
        named = {"name": {"enum": ["a"]}, "open": {"type": kind}}
        Path("own.json").write_text(json.dumps({"properties": named}))
        data = write_lines("one.jsonl", {"source": "Aromi is open."})
        asked = ("generate", data, "--model", "model", "--schema", "own.json")
        run(*asked, "--set", "whole=true", "--device", "cpu", "--workspace", "once")
        lines_of_each.append({*Path("once/generations").glob("*.jsonl")})
    first, second = lines_of_each
    assert first < second


@pytest.mark.parametrize(
    "wrong",
    [
        "--fields name",
        "--schema sets/places/schema.json --confidence",
        "--schema sets/places/schema.json --grounded",
        "--schema sets/places/schema.json --shots closed.jsonl:1",
        "--schema unheld.json",
        "",
    ],
)
def test_what_json_in_one_go_cannot_have_is_refused(beside, place, wrong):
    Path("unheld.json").write_text(json.dumps(UNHELD))
    refused(*whole(place, *wrong.split()))


#: llguidance has no grammar for it.
UNHELD = {"properties": {"name": {"type": "string", "pattern": "^(?=a)b"}}}


def test_a_report_without_a_grammar_leaves_json_in_one_go_out(beside):
    Path("closed.schema.json").write_text(json.dumps(UNHELD))
    said = reported("closed.jsonl", "--model", "taught", "--workspace", "unheld")
    assert "closed.schema.json" in said.stderr
    _, entries = report_of(Path("unheld"))
    assert [*entries] == ["untrained", "taught"]
