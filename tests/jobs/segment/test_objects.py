"""`pipedec segment --level field` as a user runs it: objects become a row for each key."""

import json
import re
from itertools import chain
from pathlib import Path

import pytest

from pipedec_cli.data.workspace import load_segmenter
from tests.jobs.segment.running import data_of, refusal, segment, segmentation
from tests.running import write_lines as write

pytestmark = pytest.mark.usefixtures("empty_folder")

WHOLE = ("--set", "held_out=0")


def objects(count=30):
    facts = [{"name": f"Mill {i}", "food": ["Thai", "Greek"][i % 2], "stars": i % 5} for i in range(count)]
    for fact in facts[::3]:
        del fact["food"]
    facts[4]["parking"] = True
    return [{"source": f"case {i}", "facts": fact} for i, fact in enumerate(facts)]


def test_objects_become_a_row_for_each_key_and_stay_as_they_were():
    data = write("data.jsonl", *objects(), {"source": "empty", "facts": {}})
    result = segment(data, "--level", "field", "--target-field", "facts", *WHOLE, "--json")
    printed = json.loads(result.stdout)
    assert [field["name"] for field in printed["fields"]] == ["name", "stars", "food", "parking"]
    assert [field["kind"] for field in printed["fields"]] == ["string", "number", "string", "boolean"]
    assert (printed["level"], printed["joiner"], segmentation().level) == ("field", "; ", "field")
    (promise,) = printed["promise"]
    assert promise["delay"] == "together" and promise["pipelined_steps"] < 3.1 < promise["sequential_steps"]
    assert "Keys, a row each" not in result.stderr
    found = {record.source: record for record in chain(*data_of().values())}
    assert found["case 4"].target_segments == ("Mill 4", "4", "Thai", "true")
    assert found["case 3"].target_segments == ("Mill 3", "3", "", "")
    assert found["empty"].target_segments == ("",) * 4 and printed["counts"]["empty"] == 1
    assert found["case 4"].target_fields == {"name": "Mill 4", "food": "Thai", "stars": 4, "parking": True}
    assert load_segmenter(Path("pipedec-workspace/data")).cut("name: A; parking: true") == (
        "A",
        "",
        "",
        "true",
    )
    again = segment(
        "pipedec-workspace/data/train.jsonl", *WHOLE, "--level", "field", "--out", "again", "--json"
    )
    assert json.loads(again.stdout)["fields"] == printed["fields"], "the target has its plain name now"


def test_a_schema_may_be_chosen_given_or_thinned_out_and_what_it_leaves_out_is_said():
    on = (write("data.jsonl", *objects()), "--level", "field", "--target-field", "facts", *WHOLE)
    names = lambda: [field.name for field in segmentation().fields]  # noqa: E731
    result = segment(*on, "--set", "keep=0.1")
    assert re.search(r"food +string +any +66\.7%", result.stderr)
    assert names() == ["name", "stars", "food"]
    assert "1 key left out, with 1 value in train: 'parking'" in result.stderr
    assert "1 value of keys that are not in the schema left out" in result.stderr
    segment(*on, "--fields", "stars, name")
    assert names() == ["stars", "name"]
    Path("schema.json").write_text(
        '{"properties": {"food": {"enum": ["Thai", "Greek"]}, "late": {"type": "string"}}}'
    )
    segment(*on, "--schema", "schema.json")
    food, late = segmentation().fields
    assert (food.enum, late.kind, late.share) == (("Thai", "Greek"), "string", 0.0)
    write("inputs.jsonl", *({"source": f"case {i}"} for i in range(9)))
    segment("inputs.jsonl", "--level", "field", "--sources-only", "--schema", "schema.json")
    assert names() == ["food", "late"]


def test_five_hundred_keys_are_segmented():
    every = {f"key {i}": f"v {i}" for i in range(500)}
    segment(
        write("data.jsonl", *({"source": f"case {i}", "target": every} for i in range(9))), "--level", "field"
    )
    assert len(segmentation().fields) == len(data_of()["train"][0].target_segments) == 500


@pytest.mark.parametrize(
    ("lines", "options", "told"),
    [
        (['{"source": "s", "target": {"a": 1, "a": 2}}'], (), "data.jsonl:1: 'a' is there twice"),
        (
            ['{"source": "s", "target": {"a": "b"}}', '{"source": "t", "target": "x"}'],
            (),
            "data.jsonl:2: the target",
        ),
        (
            ['{"source": "s", "target": {"a": {"b": [{}, 1]}}}'],
            (),
            "data.jsonl:1: 'a.b' is [{}, 1]; a value is",
        ),
        (
            ['{"source": "s", "target": {"a": 1}}'],
            ("--fields", "b"),
            "no training target has a value for 'b'",
        ),
        (
            ['{"source": "s", "target": {"a": 1}}'],
            ("--set", "sub_max=5"),
            "sub_max=… does not go with --level field",
        ),
        (['{"source": "s", "target": {"a": 1}}'], ("--schema", "none.json"), "none.json: no such file"),
        (
            ['{"source": "s", "target": {"a": 1}}'],
            ("--fields", "a", "--set", "keep=1"),
            "keep is for keys that are",
        ),
        (['{"source": "s"}'], ("--sources-only",), "without targets there is nothing to read the keys off"),
    ],
)
def test_what_is_no_object_of_values_is_refused(lines, options, told):
    Path("data.jsonl").write_text("\n".join(lines))
    assert told in refusal("data.jsonl", "--level", "field", *options)


def test_a_target_of_dev_that_is_no_object_is_refused_too():
    write("dev.jsonl", {"source": "s", "target": "name: x"})
    write("data.jsonl", *({**one, "target": one["facts"]} for one in objects()))
    told = refusal("data.jsonl", "--dev", "dev.jsonl", "--level", "field")
    assert "dev.jsonl:1: the target is not an object" in told


def test_objects_and_their_options_belong_to_level_field():
    write("data.jsonl", *objects())
    told = refusal("data.jsonl", "--target-field", "facts")
    assert "the target is an object; --level field makes a row of each of its keys" in told
    assert "--fields does not go with --level sentence" in refusal("data.jsonl", "--fields", "name")
