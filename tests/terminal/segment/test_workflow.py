"""From a file of any kind to segmented splits in the workspace."""

import gzip
import json
from pathlib import Path

from pipedec_cli.data.records import SPLITS, Segmentation
from pipedec_cli.data.workspace import Workspace, load_split
from tests.terminal.running import read_json
from tests.terminal.segment.running import FACTS, data_of, examples, refusal, run, segmentation, write


def test_a_file_becomes_three_segmented_splits_in_the_workspace():
    result = run(write("data.jsonl", *examples(x=[1])), "--level", "sentence")
    assert result.stdout == ""
    splits = data_of()
    assert sum(map(len, splits.values())) == 40
    assert all(splits.values())
    for record in (record for records in splits.values() for record in records):
        assert list(record.target_segments) == FACTS[: len(record.target_segments)]
        assert record.fields["x"] == [1]
        assert record.id == str(int(record.source.removeprefix("case ")) + 1)
    assert segmentation() == Segmentation("sentence", (), " ", 20)
    assert (Workspace.find().data / "sentences.json").exists()
    assert "wrote train.jsonl, dev.jsonl, test.jsonl, segmentation.json" in result.stderr
    assert "counted in words" in result.stderr


def test_json_prints_what_segmentation_json_holds_and_the_same_command_writes_the_same_bytes():
    result = run(write("data.jsonl", *examples()), "--json", "--out", "there")
    printed = json.loads(result.stdout)
    assert printed.pop("out") == "there"
    assert printed == read_json("there/segmentation.json")
    assert [row["delay"] for row in printed["promise"]] == [1, 2, 3]
    assert printed["promise"][0]["ratio"] > 1.5
    assert printed["splits"]["test"]["origin"] == "split off by source"
    assert printed["manifest"]["settings"]["seed"] == 0
    assert not Path("pipedec-workspace").exists()
    for out in ("a", "b"):
        run("data.jsonl", "--out", out)
    first, second = ({p.name: p.read_bytes() for p in Path(out).iterdir()} for out in ("a", "b"))
    assert first == second


def test_given_splits_are_kept_and_leaks_are_said():
    write("data.jsonl", *examples(30))
    write("dev.jsonl", *examples(6), {"source": "new", "target": "It is late."})
    result = run("data.jsonl", "--dev", "dev.jsonl", "--test-fraction", "0.5")
    assert [record.source for record in data_of()["dev"]] == [*(f"case {i}" for i in range(6)), "new"]
    assert len(data_of()["test"]) > 8
    assert "have a source that train has, too" in result.stderr


def test_standard_input_and_a_limit():
    content = "".join(json.dumps(item) + "\n" for item in examples(20)) + "nonsense\n"
    run("-", "--limit", "5", input=content)
    assert sum(map(len, data_of().values())) == 5
    assert "can be read only once" in refusal("-", "--dev", "-")


def test_a_run_that_fails_keeps_the_data_of_the_last_and_models_of_other_data_are_warned_of():
    run(write("data.jsonl", *examples()))
    before = {path: path.read_bytes() for path in Path("pipedec-workspace/data").iterdir()}
    Path("wrong.jsonl").write_text('{"source": "a", "target": "b"}\n{"sour')
    assert "wrong.jsonl:2: not JSON" in refusal("wrong.jsonl")
    assert {path: path.read_bytes() for path in Path("pipedec-workspace/data").iterdir()} == before
    Path("pipedec-workspace/models/pipelined").mkdir(parents=True)
    assert "was trained on other data" not in run("data.jsonl").stderr
    assert "was trained on other data" in run("data.jsonl", "--seed", "1", "-q").stderr


def test_a_config_file_or_a_recipe_carries_options_and_flags_win():
    write("data.jsonl", *examples())
    Path("c.toml").write_text('seed = 5\n[segment]\nlevel = "clause"\nsub-max = 9\n')
    run("data.jsonl", "--config", "c.toml", "--sub-max", "8")
    saved = read_json("pipedec-workspace/data/segmentation.json")
    assert (saved["level"], saved["sub_max"], saved["manifest"]["settings"]["seed"]) == ("clause", 8, 5)
    run(write("data.jsonl", *({"source": str(i), "target": "a; b"} for i in range(9))), "--recipe", "kp20k")
    assert segmentation().level == "phrase"


def test_gzipped_lines_csv_and_a_folder_give_the_same_records():
    items = examples(9)
    Path("data.jsonl.gz").write_bytes(gzip.compress(Path(write("data.jsonl", *items)).read_bytes()))
    lines = (f'{item["source"]},"{item["target"]}"' for item in items)
    Path("data.csv").write_text("\n".join(["source,target", *lines]))
    for name in ("data.jsonl.gz", "data.csv"):
        run(name, "--out", f"out-{name}")
    for split in SPLITS:
        places = (Path(f"out-{name}/{split}.jsonl") for name in ("data.jsonl.gz", "data.csv"))
        first, second = map(load_split, places)
        assert [record.target_segments for record in first] == [record.target_segments for record in second]
