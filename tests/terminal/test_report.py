"""`pipedec report` as a user runs it, on tiny checkpoints; nothing here asserts how fast anything is."""

import json
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pipedec_cli.data.errors import UserError
from pipedec_cli.evaluate import timing
from pipedec_cli.evaluate.child import ChildError, Memory
from pipedec_cli.terminal import measuring, report
from pipedec_cli.terminal.app import app
from tests.checkpoints import TOLD, tiny_checkpoint

QUICK = ("--timing-examples", "3", "--repeats", "1", "--resamples", "99", "--device", "cpu")
TASK = ("--task", "summarization")


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory):
    """The two decoders, trained alike."""
    folder = tmp_path_factory.mktemp("checkpoints")
    tiny_checkpoint(folder / "pipelined")
    tiny_checkpoint(folder / "sequential", decoder="sequential")
    return folder


@pytest.fixture
def workspace(tmp_path, monkeypatch, checkpoints):
    """A workspace after `segment` and both trainings, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(timing, "PAUSE_SECONDS", 0.0)
    place = Path("pipedec-workspace")
    shutil.copytree(checkpoints, place / "models")
    rows = [
        {"id": f"{turn}{number}", "source": source, "target": " ".join(told), "target_segments": list(told)}
        for turn in "ab"
        for number, (source, told) in enumerate(TOLD)
    ]
    write_data(place, rows)
    return place


def write_data(place, rows, recipe=None):
    (place / "data").mkdir(exist_ok=True)
    (place / "data/test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    segmentation = {"level": "phrase", "separators": [";"], "joiner": "; ", "sub_max": 20}
    segmentation["manifest"] = {"settings": {"recipe": recipe}}
    (place / "data/segmentation.json").write_text(json.dumps(segmentation), encoding="utf-8")


def run(*arguments, quick=True, memory=False, task=True):
    options = [*(QUICK if quick else ()), *(() if memory else ("--no-memory",)), *(TASK if task else ())]
    environment = {"COLUMNS": "100", "NO_COLOR": "1"}
    return CliRunner().invoke(app, ["report", *map(str, arguments), *options], env=environment)


def ran(*arguments, **more):
    result = run(*arguments, **more)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def assert_refused(result, *words):
    assert isinstance(result.exception, UserError), (result.output, result.exception)
    for word in words:
        assert word in str(result.exception)


def report_of(place):
    return json.loads((place / "report/report.json").read_text(encoding="utf-8"))


def decoder(report, name):
    return next(entry for entry in report["decoders"] if entry["name"] == name)


def test_report_compares_every_decoder_and_saves_what_it_says(workspace):
    result = ran(
        "--delays", "1,2", "--compare", "sequential,transformers,prompt-lookup", "--batch-sizes", "1,2"
    )
    report = report_of(workspace)
    names = [entry["name"] for entry in report["decoders"]]
    assert names == ["sequential", "Δt = 1", "Δt = 2", "transformers", "prompt-lookup"]
    for word in ("Decoders side by side", "By delay", "By number of target subsequences", *names):
        assert word in result.stdout
    assert "# Decoders compared" in (workspace / "report/report.md").read_text(encoding="utf-8")
    assert report["advice"]["text"].split()[0] in result.stdout
    assert report["baseline"]["is"].startswith("the plain T5 (pipedec-workspace/models/sequential)")
    first = decoder(report, "Δt = 1")
    assert [speed["batch_size"] for speed in first["speed"]] == [1, 2]
    assert [speed["batch_size"] for speed in decoder(report, "prompt-lookup")["speed"]] == [1]
    assert first["quality"]["signature"].startswith("rouge|")
    assert set(first["differences"]["rougeL"]) == {"value", "low", "high"}
    # 12 examples: what they have learnt to say is known, and so are the steps of the grid
    totals = [decoder(report, name)["totals"] for name in ("Δt = 1", "Δt = 2", "sequential")]
    assert len({one["tokens"] for one in totals}) == 1
    assert totals[0]["steps"] < totals[1]["steps"] < totals[2]["steps"]
    assert report["sample"]["timed"] == 3
    assert report["manifest"]["settings"]["delays"] == [1, 2]


def test_peers_make_the_tokens_of_our_sequential_decoder(workspace):
    pytest.importorskip("ctranslate2")
    ran("--compare", "transformers,prompt-lookup,ctranslate2")
    report = report_of(workspace)
    for name in ("transformers", "prompt-lookup", "ctranslate2"):
        peer = decoder(report, name)
        assert peer["agreement"] == {"equal": 3, "of": 3}
        assert peer["settings"]["version"].split()[0] in ("transformers", "ctranslate2")
        assert peer["role"] == "peer"


def test_absent_peer_is_named(workspace, monkeypatch):
    monkeypatch.setattr("pipedec_cli.evaluate.peers.find_spec", lambda name: None)
    result = ran("--compare", "ctranslate2")
    assert "pip install pipedec[peers]" in result.stderr
    assert "ctranslate2 is absent" in result.stdout
    assert report_of(workspace)["absent"][0]["name"] == "ctranslate2"


def test_breakdown_counts_targets_by_their_subsequences(workspace):
    ran("--delays", "1")
    rows = report_of(workspace)["by_subsequences"]["Δt = 1"]
    assert {row["subsequences"]: row["examples"] for row in rows} == {1: 2, 2: 4, 3: 2, 4: 2, 5: 2}
    assert rows[0]["fewer_steps"] < rows[-1]["fewer_steps"]


def test_second_report_generates_nothing_that_is_there(workspace):
    ran("--delays", "1")
    files = sorted((workspace / "generations").glob("*.jsonl"))
    assert [file.name for file in files] == ["pipelined-delay1.jsonl", "sequential.jsonl"]
    before = [file.stat().st_mtime_ns for file in files]
    result = ran("--delays", "1")
    assert [file.stat().st_mtime_ns for file in files] == before
    assert "Δt = 1: all 12 predictions are in" in result.stderr


def test_stopped_run_is_finished_and_not_begun_anew(workspace):
    ran("--delays", "1")
    file = workspace / "generations/pipelined-delay1.jsonl"
    whole = file.read_text(encoding="utf-8").splitlines(keepends=True)
    marked = whole[0].replace('"seconds": ', '"seconds": 77')
    file.write_text(marked + whole[1] + whole[2][:20], encoding="utf-8")
    ran("--delays", "1")
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    assert lines[:2] == [marked, whole[1]]
    assert len(lines) == 12


def test_predictions_of_other_data_are_generated_anew(workspace):
    ran("--delays", "1")
    source, told = TOLD[0]
    write_data(workspace, [{"id": "x", "source": source, "target": " ".join(told), "target_segments": told}])
    result = ran("--delays", "1")
    assert "is of another run and is generated anew (cannot go on: the data changed)" in result.stderr
    assert (workspace / "generations/pipelined-delay1.jsonl.bak").exists()
    assert report_of(workspace)["decoders"][0]["totals"]["examples"] == 1


def test_predictions_with_their_grids_serve_as_well(workspace):
    generate = CliRunner().invoke(app, ["generate", "--delay", "1", "--trace", "--device", "cpu", "--quiet"])
    assert generate.exit_code == 0, generate.output
    result = ran("--delays", "1")
    assert "Δt = 1: all 12 predictions are in" in result.stderr


@pytest.mark.parametrize("there", ["nothing", "unfinished"])
def test_without_a_plain_t5_the_waiting_schedule_is_the_baseline_and_the_report_says_so(workspace, there):
    if there == "unfinished":
        (workspace / "models/sequential/config.json").unlink()
    else:
        shutil.rmtree(workspace / "models/sequential")
    result = ran("--delays", "2,wait")
    report = report_of(workspace)
    assert [entry["name"] for entry in report["decoders"]] == ["waiting schedule", "Δt = 2"]
    assert report["baseline"]["name"] == "waiting schedule"
    assert "not the plain T5" in report["baseline"]["is"]
    assert "not the plain T5" in result.stdout
    assert "plain T5" not in report["advice"]["text"]
    assert ("has not come to its end" in result.stderr) == (there == "unfinished")


def test_json_is_all_that_goes_to_stdout_and_out_names_another_folder(workspace):
    result = ran("--delays", "1", "--json", "--quiet", "--out", "elsewhere")
    assert json.loads(result.stdout) == json.loads(Path("elsewhere/report.json").read_text(encoding="utf-8"))
    assert not (workspace / "report").exists()
    assert "timing" not in result.stderr


def test_peers_without_a_plain_t5_are_refused_before_anything_is_generated(workspace):
    shutil.rmtree(workspace / "models/sequential")
    assert_refused(run("--compare", "transformers"), "plain T5", "pipedec train --decoder sequential")
    assert not (workspace / "generations").exists()


@pytest.mark.parametrize("wait", ["wait", "sequential"])
def test_the_checkpoints_waiting_schedule_can_stand_beside_its_delays(workspace, wait):
    ran("--delays", f"{wait},2,1")

    report = json.loads((workspace / "report/report.json").read_text(encoding="utf-8"))
    names = [entry["name"] for entry in report["decoders"]]
    assert names == ["sequential", "Δt = 1", "Δt = 2", "waiting schedule"]
    steps = [decoder(report, name)["totals"]["steps"] for name in names]
    assert steps[1] < steps[2] < steps[3]
    assert decoder(report, "waiting schedule")["options"] == "--delay wait"
    assert "waiting schedule" not in report["advice"]["text"]


def test_both_exploration_rules_stand_side_by_side(workspace):
    ran("--delays", "1", "--explore", "both")
    report = report_of(workspace)
    assert [entry["name"] for entry in report["decoders"]] == ["sequential", "Δt = 1, retry", "Δt = 1, once"]
    assert decoder(report, "Δt = 1, once")["options"] == "--delay 1 --explore once"
    assert decoder(report, "Δt = 1, once")["used_up_sub_max"] == 0.0


def test_limit_takes_the_first_examples_out_of_a_longer_run(workspace):
    ran("--delays", "1")
    result = ran("--delays", "1", "--limit", "4")
    assert "Δt = 1: the first 4 predictions of" in result.stderr
    assert "decoder steps" not in result.stderr  # nothing was generated
    report = report_of(workspace)
    assert decoder(report, "Δt = 1")["totals"]["examples"] == 4
    assert report["sample"]["of"] == 4


def test_recipe_of_the_data_brings_the_papers_figures(workspace):
    rows = [json.loads(line) for line in (workspace / "data/test.jsonl").read_text().splitlines()]
    write_data(workspace, rows, recipe="wikihowqa")
    result = ran("--delays", "1,2")
    assert "paper: Δt = 1" in result.stdout
    assert "not available" in result.stdout
    assert report_of(workspace)["paper"]["row"]["speedup"] == 5.8


def test_own_data_without_segments_are_compared_without_a_breakdown(workspace):
    source, told = TOLD[0]
    Path("mine.jsonl").write_text(json.dumps({"source": source, "target": " ".join(told)}) + "\n")
    result = ran("--delays", "1", "--data", "mine.jsonl")
    assert report_of(workspace)["subsequences_per_target"] is None
    assert "the targets are not segmented" in result.stdout


def test_memory_is_measured_for_each_decoder_and_a_failure_is_no_end(workspace, monkeypatch):
    asked = []

    class Weighing:
        def __init__(self, factory, payload):
            json.dumps(payload)  # what cannot be sent to a child process fails here
            self.delay = payload["choice"].get("delay")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def peak(self, sources, batch_size):
            asked.append((len(sources), batch_size))
            if self.delay == 1:
                raise ChildError("killed")
            return Memory(1_000_000, 3_000_000, "c")

    monkeypatch.setattr(measuring, "Child", Weighing)
    result = ran("--delays", "1,2", memory=True)
    report = report_of(workspace)
    assert asked == [(3, 1)] * 3
    assert decoder(report, "Δt = 2")["memory"]["peak_bytes"] == 3_000_000
    assert decoder(report, "Δt = 1")["memory"] is None
    assert "the memory of Δt = 1 could not be measured: killed" in result.stderr


@pytest.mark.slow
def test_memory_is_that_of_a_process_of_its_own(workspace):
    pytest.importorskip("ctranslate2")
    ran("--delays", "1", "--compare", "transformers,ctranslate2", memory=True)
    memory = {entry["name"]: entry["memory"] for entry in report_of(workspace)["decoders"]}
    assert all(found["peak_bytes"] >= found["ready_bytes"] > 0 for found in memory.values())
    assert memory["ctranslate2"]["ready_bytes"] < memory["sequential"]["ready_bytes"] / 2  # no torch in there


@pytest.mark.parametrize(
    ("missing", "word"),
    [("models/pipelined", "pipedec train"), ("data", "pipedec segment")],
)
def test_what_is_missing_is_named_with_the_command_that_makes_it(workspace, missing, word):
    shutil.rmtree(workspace / missing)
    assert_refused(run(), missing, word)


def test_unfinished_training_is_named(workspace):
    (workspace / "models/pipelined/config.json").unlink()
    assert_refused(run(), "models/pipelined", "pipedec train --resume")


def test_decoders_in_each_others_place_are_refused(workspace):
    models = workspace / "models"
    assert_refused(run("--model", models / "sequential"), "ordinary T5", "--baseline")
    assert_refused(run("--baseline", models / "pipelined"), "pipelined decoder", "--decoder sequential")


def test_delay_that_was_not_trained_is_refused_and_needs_a_plain_t5(workspace):
    config = workspace / "models/pipelined/config.json"
    content = json.loads(config.read_text())
    content["pipedec"]["delay"] = 1
    config.write_text(json.dumps(content))
    assert_refused(run("--delays", "1,3"), "trained for delay 1 only")
    assert not (workspace / "generations").exists()
    shutil.rmtree(workspace / "models/sequential")
    assert_refused(run(), "nothing to compare with", "pipedec train --decoder sequential")


def test_unknown_contestant_is_refused_with_those_there_are(workspace):
    assert_refused(run("--compare", "sequential,vllm"), "'vllm'", "ctranslate2")


@pytest.mark.parametrize(
    "options", [("--delays", "0"), ("--delays", "1,,2"), ("--delays", "a"), ("--batch-sizes", "1,x")]
)
def test_numbers_that_are_none_are_a_usage_error(workspace, options):
    result = run(*options)
    assert result.exit_code == 2
    assert "whole numbers" in result.output


@pytest.mark.parametrize("written", ["2", '"2,1,sequential"', '[2, 1, "wait"]'])
def test_delays_may_stand_in_a_config_file(monkeypatch, tmp_path, written):
    asked = []

    def compare(settings, *_):
        asked.append(settings.delays)
        raise typer.Exit

    monkeypatch.setattr(report, "compare", compare)
    (tmp_path / "settings.toml").write_text(f"[report]\ndelays = {written}\n")
    result = CliRunner().invoke(app, ["report", "--config", str(tmp_path / "settings.toml")])
    assert (result.exit_code, asked) == (0, [(2,) if written == "2" else (1, 2, "wait")]), result.output
