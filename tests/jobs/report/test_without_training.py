"""`pipedec report` of a model that was not trained: one row, blind rows, one key at a time, and peers."""

import json
import time
from pathlib import Path

import pytest

from pipedec_cli.data.fields import Field
from pipedec_cli.data.json_schema import keys_of, schema_of
from pipedec_cli.data.rows import read_records
from pipedec_cli.evaluate import timing
from pipedec_cli.evaluate.child import find_factory
from pipedec_cli.evaluate.keys import KeysInTurn
from pipedec_cli.evaluate.runners import EngineRunner, source_ids
from pipedec_cli.model.decoder import load
from pipedec_cli.model.one_row import OneRow, make_blind, texts_in
from pipedec_cli.model.rows import Rows
from tests.jobs.report.running import QUICK, report_of
from tests.model.chats import foreign
from tests.model.test_schemas import LISTED, NESTED
from tests.running import lines_of, refused, run, write_lines

FIELDS = (Field("name"), Field("at.stars", "integer", path=("at", "stars")), Field("tags", "list"))


@pytest.fixture
def few(empty_folder, monkeypatch):
    """What a report of a small chat model needs."""
    monkeypatch.setattr(timing, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(OneRow, "longest", 12)
    monkeypatch.setattr("pipedec_cli.jobs.report.MAX_TOKENS", 12)
    foreign(empty_folder / "model")
    names = ("The Mill", "Aromi")
    rows = [
        {"source": f"{names[n % 2]} {n} has Thai food.", "target": {"name": names[n % 2]}} for n in range(4)
    ]
    write_lines("dev.jsonl", *rows)
    return ("report", "dev.jsonl", "--model", "model", *QUICK)


@pytest.mark.parametrize("shots", [(), ("--set", "shots=dev.jsonl:2")], ids=["chat", "shots"])
def test_blind_rows_stand_beside_one_row_and_one_prompt_a_key(few, shots):
    compared = ("--compare", "transformers,transformers:keys")
    run(*few, "--set", "fields=name, food: Thai|Greek", *shots, *compared)
    content, entries = report_of(Path("pipedec-workspace"))
    names = ["sequential", "blind rows", "one key at a time", "transformers", "transformers:keys"]
    assert list(entries) == names and content["metric"] == "fields_f1"
    alike = {name: one["agreement"] for name, one in entries.items() if one["agreement"]}
    assert {name: one["equal"] for name, one in alike.items() if name != "transformers:keys"} == {
        "one key at a time": 3,
        "transformers": 3,
    }
    calls = {name: one["speed"][0]["decoder_calls"] for name, one in entries.items()}
    assert calls["blind rows"] < calls["one key at a time"]
    assert "--set one_row=true" in entries["sequential"]["command"]
    assert ("--shots dev.jsonl:2" in entries["blind rows"]["command"]) == bool(shots)
    assert "--fields" in entries["blind rows"]["command"] and "--chat" not in entries["blind rows"]["command"]


@pytest.mark.parametrize("shots", [0, 2])
def test_a_child_process_makes_the_same_runners(few, shots):
    rows = Rows(FIELDS[:2], shots=tuple(read_records("dev.jsonl"))[:shots])
    plain = load("model", device="cpu")
    for one_row, make in ((False, EngineRunner), (True, EngineRunner), (False, KeysInTurn)):
        runner = make(make_blind(plain, rows, one_row=one_row), {})
        factory, payload = runner.spec()
        again = find_factory(factory)(**json.loads(json.dumps(payload)))
        assert type(again) is type(runner) and type(again.decoder) is type(runner.decoder)
        assert [one.known for one in again.method.openings] == [one.known for one in runner.method.openings]
        sources = [source_ids(runner.decoder, "Aromi")]
        made = [one.run(sources, 1, time.perf_counter).outputs for one in (runner, again)]
        assert made[0] == made[1]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--compare", "exact"), "without training"),
        (("--delays", "1"), "--delays does not apply"),
        (("--set", "schema=s.json"), "both say which keys"),
    ],
)
def test_what_does_not_go_without_training_is_refused(few, more, told):
    assert told in refused(*few, "--set", "fields=name", *more)


def test_a_grammar_has_nothing_to_hold_a_trained_models_text_to(workspace):
    said = run("report", "--compare", "transformers:keys", "--set", "task=summarization", *QUICK).output
    assert "transformers:keys is absent: it needs blind rows" in " ".join(said.split())


def test_one_row_is_an_object_that_is_read_back_and_its_examples_show_one(few):
    how = ("generate", "dev.jsonl", "--model", "model", "--fields", "name, food", "--set", "one_row=true")
    shown = run(*how, "--show-prompt").stdout
    assert "Write a JSON object with these keys, in the words of the text: name, food." in shown
    shown = run(*how, "--shots", "dev.jsonl:1", "--show-prompt").stdout
    assert 'JSON: {"name": "The Mill"}' in shown and shown.rstrip().endswith("JSON:")
    assert "do not apply" in refused(*how, "--calibrate", "dev.jsonl")
    run(*how, "--out", "out.jsonl")
    assert {len(line["grid"]) for line in lines_of("out.jsonl") if "grid" in line} <= {1}


def test_the_first_object_of_a_text_counts_and_what_no_row_can_hold_is_lost():
    said = 'So: {"name": " A ", "at": {"stars": 3, "x": 1}, "tags": ["a", "b|c"]} {"name": "B"}'
    assert texts_in(said, FIELDS) == ("A", "3", "a | b||c")
    assert texts_in('{"name": {"a": 1}, "tags": [1, 2], "at": 4}', FIELDS) == ("", "", "")
    for broken in ("", "none", "[1]", '{"name": "A', '{"a": ' * 5000, '{"at": {"stars": 1e999}}'[:9]):
        assert list(texts_in(broken, FIELDS)) == [None, None, None]


@pytest.mark.parametrize("schema", [NESTED, LISTED], ids=["nested", "listed"])
def test_a_schema_of_the_keys_of_a_schema_has_these_keys(schema):
    fields = keys_of(schema, "")
    assert keys_of(json.loads(json.dumps(schema_of([*fields.values()]))), "") == fields
