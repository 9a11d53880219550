"""`pipedec report` as a user runs it, on tiny checkpoints; nothing here asserts how fast anything is."""

import json
import re
import shutil
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from markupsafe import Markup

import pipedec_cli as pipedec
from pipedec_cli.evaluate import timing
from pipedec_cli.evaluate.child import ChildError, Memory
from pipedec_cli.terminal import measuring, report
from tests.checkpoints import TOLD, change, tiny_checkpoint
from tests.terminal.running import read_json, refused, run, write_lines

QUICK = ("--timing-examples", "3", "--repeats", "1", "--resamples", "99", "--device", "cpu", "--no-memory")
reported = partial(run, "report", "--task", "summarization", *QUICK)


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory):
    """The two decoders, trained alike."""
    folder = tmp_path_factory.mktemp("checkpoints")
    tiny_checkpoint(folder / "pipelined")
    tiny_checkpoint(folder / "sequential", decoder="sequential")
    return folder


@pytest.fixture
def workspace(empty_folder, monkeypatch, checkpoints):
    """A workspace after `segment` and both trainings, in an empty folder."""
    monkeypatch.setattr(timing, "PAUSE_SECONDS", 0.0)
    place = Path("pipedec-workspace")
    shutil.copytree(checkpoints, place / "models")
    write_data(place, TOLD * 2)
    return place


def write_data(place, told, recipe=None):
    rows = (
        {"id": str(number), "source": source, "target": " ".join(parts), "target_segments": list(parts)}
        for number, (source, parts) in enumerate(told)
    )
    write_lines(place / "data/test.jsonl", *rows)
    segmentation = {"level": "phrase", "separators": [";"], "joiner": "; ", "sub_max": 20}
    segmentation["manifest"] = {"settings": {"recipe": recipe}}
    write_lines(place / "data/segmentation.json", segmentation)


def train_for(model, delay):
    """Have a checkpoint say that it was trained for one delay."""
    path = model / "config.json"
    change(path, pipedec={**read_json(path)["pipedec"], "delay": delay})


def remove(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def report_of(place):
    """The report, and its decoders by name."""
    content = read_json(place / "report/report.json")
    return content, {entry["name"]: entry for entry in content["decoders"]}


def test_every_decoder_stands_beside_the_others_and_the_papers_figures_and_is_saved(workspace, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    write_data(workspace, TOLD * 2, recipe="wikihowqa")
    result = reported(
        *("--delays", "1,2", "--compare", "sequential,transformers,prompt-lookup", "--batch-sizes", "1,2"),
        "--open",
    )
    assert "no browser was found to show" in result.stderr, "as the fake says"
    assert opened == [(workspace / "report/report.html").resolve().as_uri()]
    content, decoders = report_of(workspace)
    assert list(decoders) == ["sequential", "Δt = 1", "Δt = 2", "transformers", "prompt-lookup"]
    words = ("Decoders side by side", "By delay", "By number of target subsequences", *decoders)
    for word in (*words, content["advice"]["text"].split()[0], "paper: Δt = 1", "not available"):
        assert word in result.stdout
    assert "# Decoders compared" in (workspace / "report/report.md").read_text(encoding="utf-8")
    assert content["baseline"]["is"].startswith("the plain model (pipedec-workspace/models/sequential)")
    first = decoders["Δt = 1"]
    assert [speed["batch_size"] for speed in first["speed"]] == [1, 2]
    assert [speed["batch_size"] for speed in decoders["prompt-lookup"]["speed"]] == [1]
    assert first["quality"]["signature"].startswith("rouge|")
    assert set(first["differences"]["rougeL"]) == {"value", "low", "high"}
    # 12 examples: what they have learnt to say is known, and so are the steps of the grid
    totals = [decoders[name]["totals"] for name in ("Δt = 1", "Δt = 2", "sequential")]
    assert len({one["tokens"] for one in totals}) == 1
    assert totals[0]["steps"] < totals[1]["steps"] < totals[2]["steps"]
    rows = {row["subsequences"]: row for row in content["by_subsequences"]["Δt = 1"]}
    counts = {1: 2, 2: 4, 3: 2, 4: 2, 5: 2} | dict.fromkeys(range(6, 10), 0)
    assert {size: row["examples"] for size, row in rows.items()} == counts
    assert rows[1]["fewer_steps"] < rows[5]["fewer_steps"]
    assert (content["sample"]["timed"], content["manifest"]["settings"]["delays"]) == (3, [1, 2])
    assert content["paper"]["row"]["speedup"] == 5.8
    # and read back
    saved = pipedec.read_report(workspace / "report")
    assert saved == pipedec.read_report()
    assert (saved.advice, saved.content) == (content["advice"]["text"], content)
    shown = Markup(saved._repr_html_()).unescape()
    assert shown.startswith("<iframe") and saved.page in shown
    remove(workspace / "report/report.html")
    with pytest.raises(pipedec.UserError, match=r"report\.html: no such file"):
        pipedec.read_report()


def test_a_decoder_only_model_stands_beside_its_plain_form_its_peers_and_exact_mode(workspace):
    pytest.importorskip("ctranslate2")
    remove(workspace / "models")
    for kind in ("pipelined", "sequential"):
        tiny_checkpoint(workspace / "models" / kind, decoder=kind, family="qwen3")
    others = "sequential,exact,transformers,prompt-lookup,ctranslate2"
    result = reported("--delays", "1,2", "--compare", others, columns=250)
    _, decoders = report_of(workspace)
    exact = [f"exact-{draft}" for draft in ("pipelined", "source", "jacobi")]
    peers = ["transformers", "prompt-lookup", "ctranslate2"]
    assert list(decoders) == ["sequential", "Δt = 1", "Δt = 2", *exact, *peers]
    for name in (*exact, *peers):
        assert decoders[name]["agreement"] == {"equal": 3, "of": 3}, name
    totals = {name: one["totals"] for name, one in decoders.items() if one["totals"]}
    # Without the calls that draft: how far they are used hangs on what rows cost here.
    steps = {name: one["steps"] - (one["draft_steps"] or 0) for name, one in totals.items()}
    assert steps["Δt = 1"] < steps["Δt = 2"] < steps["sequential"] > steps["exact-pipelined"]
    assert "reading the prompt, ms" in result.stdout and "encoder, ms" not in result.stdout
    page = (workspace / "report/report.html").read_text(encoding="utf-8")
    told = re.search('<script type="application/json" id="data-replay">(.*?)</script>', page, re.DOTALL)
    plain, *ours = json.loads(told[1])["examples"][0]["runs"][:3]
    assert [run["rows"][0][3:] for run in (plain, *ours)] == [["…"], [], []]


def test_quality_on_dev_stands_beside_that_on_test_and_every_test_example_can_be_timed(workspace):
    shutil.copy(workspace / "data/test.jsonl", workspace / "data/dev.jsonl")
    write_data(workspace, TOLD)
    every = ("--delays", "1", "--timing-examples", "all", "--batch-sizes", "1,4")
    result = reported("--split", "test,dev", *every, "--recipe", "wikihowqa", columns=200)
    content, decoders = report_of(workspace)
    assert (content["split"], content["sample"]["timed"], content["sample"]["of"]) == ("test", 6, 6)
    assert content["sample"]["line"].startswith("all 6 examples timed in one process")
    assert [speed["examples"] for speed in decoders["Δt = 1"]["speed"]] == [6, 6]
    for one in decoders.values():
        assert one["quality"]["rows"]["scored"] == one["totals"]["examples"] == 6
        assert one["other_splits"]["dev"]["quality"]["rows"]["scored"] == 12
    dev = decoders["Δt = 1"]["other_splits"]["dev"]
    assert set(dev["differences"]["rougeL"].values()) == {0.0}
    assert (dev["text_agreement"]["of"], decoders["Δt = 1"]["text_agreement"]["of"]) == (12, 6)
    rows = [" ".join(line.split()) for line in result.stdout.splitlines()]
    first, second = rows.index("quality, dev, 12 examples"), rows.index("quality, test, 6 examples")
    assert rows[first + 7].endswith("38.3 38.0"), "the paper's ROUGE-L on dev"
    assert rows[second + 7].endswith("34.9 34.6"), "and on test"
    names = ["pipelined-delay1-dev", "pipelined-delay1", "sequential-dev", "sequential"]
    assert {file.stem for file in (workspace / "generations").glob("*.jsonl")} == {*names}
    # one split alone, and data that have none
    reported("--split", "dev", "--delays", "1")
    content, decoders = report_of(workspace)
    assert (content["split"], decoders["Δt = 1"]["other_splits"]) == ("dev", {})
    others = ("--data", workspace / "data/dev.jsonl", "--split", "dev")
    assert "has no splits" in refused("report", *others, *QUICK)


def test_without_right_answers_decoders_are_compared_in_steps_speed_and_agreement(workspace):
    rows = [{"source": source} for source, _ in TOLD * 2]
    write_lines(workspace / "data/test.jsonl", *rows)
    result = reported("--delays", "1,2", columns=200)
    content, decoders = report_of(workspace)
    assert decoders["Δt = 1"]["quality"]["rows"]["scored"] == 0
    assert decoders["Δt = 1"]["text_agreement"]["of"] == 12
    assert decoders["sequential"]["text_agreement"] is None
    assert decoders["Δt = 1"]["totals"]["steps"] < decoders["sequential"]["totals"]["steps"]
    assert any("no right answers, so nothing is scored" in note for note in content["notes"])
    shown = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "agreement with the baseline, 12 examples" in shown
    assert not any(line.startswith(("quality", "signature")) for line in shown)
    assert "no right answers: nothing is scored but agreement" in result.stderr
    # right answers that are there for some examples only are refused as ever
    write_lines(workspace / "data/test.jsonl", *rows, {"source": "x", "target": "y"})
    assert "nothing to score against" in refused("report", "--delays", "1", *QUICK)


def test_decoders_that_write_what_has_nothing_to_do_with_the_answers_are_not_recommended(workspace):
    others = [right for _, right in TOLD[1:] + TOLD[:1]]
    write_data(workspace, [(source, right) for (source, _), right in zip(TOLD, others, strict=True)])
    said = " ".join(reported("--delays", "1,2").stdout.split())
    content, decoders = report_of(workspace)
    assert (content["advice"]["verdict"], content["advice"]["options"]) == ("unfit", None)
    assert "No advice: neither the plain model nor the pipelined decoder writes anything of use yet" in said
    for name in ("sequential", "Δt = 1", "Δt = 2"):
        assert "exchanged between" in decoders[name]["faults"][0]


def test_recipe_with_the_papers_delays_takes_those_that_a_checkpoint_was_trained_for(workspace):
    shutil.copytree(workspace / "models/pipelined", workspace / "models/pipelined-delay3")
    train_for(workspace / "models/pipelined", 1)
    train_for(workspace / "models/pipelined-delay3", 3)
    said = " ".join(reported("--recipe", "pubmed").stderr.split())
    assert "Δt = 2: left out, since pipedec-workspace/models/pipelined was trained for delay 1 only" in said
    assert "train --delay 2 --out pipedec-workspace/models/pipelined-delay2` one beside it" in said
    content, decoders = report_of(workspace)
    assert list(decoders) == ["sequential", "Δt = 1", "Δt = 3"]
    assert decoders["Δt = 3"]["options"] == "--model pipedec-workspace/models/pipelined-delay3 --delay 3"
    assert [row["delay"] for row in content["paper"]["delays"]] == [1, 2, 3]
    assert "trained for delay 1 only" in refused("report", "--recipe", "pubmed", "--delays", "1,2", *QUICK)


def test_peers_make_the_tokens_of_our_sequential_decoder(workspace):
    pytest.importorskip("ctranslate2")
    reported("--compare", "transformers,prompt-lookup,ctranslate2")
    _, decoders = report_of(workspace)
    for name in ("transformers", "prompt-lookup", "ctranslate2"):
        peer = decoders[name]
        assert (peer["agreement"], peer["role"]) == ({"equal": 3, "of": 3}, "peer")
        assert peer["settings"]["version"].split()[0] in ("transformers", "ctranslate2")


def test_exact_mode_stands_beside_the_delays_with_the_calls_of_draft_and_check(workspace):
    result = reported("--delays", "1,2", "--compare", "exact,prompt-lookup", "--batch-sizes", "1,2")
    content, decoders = report_of(workspace)
    names = ["exact-pipelined", "exact-source", "exact-jacobi"]
    assert list(decoders) == ["sequential", "Δt = 1", "Δt = 2", *names, "prompt-lookup"]
    plain, drafting = decoders["sequential"]["totals"], decoders["Δt = 1"]["totals"]
    for name in names:
        one, totals = decoders[name], decoders[name]["totals"]
        assert (one["role"], one["text_agreement"]["equal"]) == ("exact", 12)
        assert one["agreement"] == {"equal": 3, "of": 3}
        assert totals["draft_steps"] == (drafting["steps"] if name == "exact-pipelined" else 0)
        assert totals["tokens_per_check"] >= plain["tokens_per_step"]
        assert [speed["draft_calls"] > 0 for speed in one["speed"]] == [name == "exact-pipelined"] * 2
    option = "--exact pipedec-workspace/models/sequential --draft"
    assert decoders["exact-source"]["options"] == f"{option} source"
    assert decoders["exact-pipelined"]["options"] == f"{option} pipelined --delay 1"
    assert content["advice"]["options"] in (None, "--delay 1", "--delay 2")
    assert set(content["by_subsequences"]) == {"Δt = 1", "Δt = 2"}
    assert "steps that draft" in result.stdout and "tokens a call" in result.stdout
    # what `generate` writes with these options is taken as it is
    run("generate", *f"{option} source --device cpu --quiet".split())
    assert (
        "exact-source: all 12 predictions are in"
        in reported("--delays", "1", "--compare", "exact-source").stderr
    )


def test_absent_peer_is_named_and_own_data_without_segments_have_no_breakdown(workspace, monkeypatch):
    monkeypatch.setattr("pipedec_cli.evaluate.peers.find_spec", lambda name: None)
    row = {"source": TOLD[0][0], "target": " ".join(TOLD[0][1])}
    result = reported("--delays", "1", "--compare", "ctranslate2", "--data", write_lines("mine.jsonl", row))
    content, _ = report_of(workspace)
    assert "pip install .[peers]" in result.stderr
    assert "ctranslate2 is absent" in result.stdout
    assert content["absent"][0]["name"] == "ctranslate2"
    assert content["subsequences_per_target"] is None
    assert "the targets are not segmented" in result.stdout


def test_predictions_that_are_there_are_taken_all_some_or_with_their_grids(workspace):
    reported("--delays", "1")
    files = sorted((workspace / "generations").glob("*.jsonl"))
    assert [file.name for file in files] == ["pipelined-delay1.jsonl", "sequential.jsonl"]
    before = [file.stat().st_mtime_ns for file in files]
    assert "Δt = 1: all 12 predictions are in" in reported("--delays", "1").stderr
    assert [file.stat().st_mtime_ns for file in files] == before
    result = reported("--delays", "1", "--limit", "4")
    assert "made with --limit" not in result.stderr, "it was asked for"
    assert "Δt = 1: the first 4 predictions of" in result.stderr
    assert "decoder steps" not in result.stderr  # nothing was generated
    content, decoders = report_of(workspace)
    assert decoders["Δt = 1"]["totals"]["examples"] == content["sample"]["of"] == 4
    shutil.rmtree(workspace / "generations")
    run("generate", "--delay", "1", "--trace", "--device", "cpu", "--quiet")
    assert "Δt = 1: all 12 predictions are in" in reported("--delays", "1").stderr


def test_stopped_run_is_finished_and_one_of_other_data_begun_anew(workspace):
    reported("--delays", "1")
    file = workspace / "generations/pipelined-delay1.jsonl"
    whole = file.read_text(encoding="utf-8").splitlines(keepends=True)
    marked = whole[0].replace('"seconds": ', '"seconds": 77')
    file.write_text(marked + whole[1] + whole[2][:20], encoding="utf-8")
    reported("--delays", "1")
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    assert (lines[:2], len(lines)) == ([marked, whole[1]], 12)
    write_data(workspace, TOLD[:1])
    anew = "is of another run and is generated anew (cannot go on: the data changed)"
    assert anew in reported("--delays", "1").stderr
    assert (workspace / "generations/pipelined-delay1.jsonl.bak").exists()
    assert report_of(workspace)[0]["decoders"][0]["totals"]["examples"] == 1


@pytest.mark.parametrize(("there", "wait"), [("nothing", "wait"), ("unfinished", "sequential")])
def test_without_a_plain_t5_the_waiting_schedule_is_the_baseline_and_it_is_said(workspace, there, wait):
    remove(workspace / ("models/sequential" if there == "nothing" else "models/sequential/config.json"))
    result = reported("--delays", f"2,{wait}")
    content, decoders = report_of(workspace)
    assert list(decoders) == ["waiting schedule", "Δt = 2"]
    assert content["baseline"]["name"] == "waiting schedule"
    assert all("not the plain model" in said for said in (content["baseline"]["is"], result.stdout))
    assert "plain model" not in content["advice"]["text"]
    assert ("has not come to its end" in result.stderr) == (there == "unfinished")


def taught_by(teacher, model="pipedec-workspace/models/pipelined"):
    """Have a checkpoint say whose texts it was trained on."""
    write_lines(Path(model) / "training.json", {"settings": {"teacher": teacher}, "result": {}})


def test_a_taught_checkpoint_is_compared_with_its_teacher_unless_another_baseline_is_given(workspace):
    shutil.copytree(workspace / "models/sequential", "my-t5")
    taught_by({"name": "my-t5", "sha256": None})
    reported("--delays", "1")
    content, decoders = report_of(workspace)
    assert content["baseline"]["is"].startswith("the teacher (my-t5), the whole target")
    assert decoders["sequential"]["options"] == "--model my-t5"
    assert "the teacher" in content["advice"]["text"]
    reported("--delays", "1", "--baseline", workspace / "models/sequential")
    assert report_of(workspace)[0]["baseline"]["is"].startswith(
        "the plain model (pipedec-workspace/models/seq"
    )
    # the workspace's own goes by its usual name; one that is other than it was, and one that is gone
    taught_by({"name": "./pipedec-workspace/models/sequential", "sha256": "0" * 64})
    assert "is not the teacher that it was" in reported("--delays", "1").stderr
    content, decoders = report_of(workspace)
    assert content["baseline"]["is"].startswith("the teacher (pipedec-workspace/models/sequential)")
    assert decoders["sequential"]["options"] == "--decoder sequential"
    taught_by({"name": "./nowhere"})
    assert "is no longer at ./nowhere: --baseline says where it is" in reported("--delays", "1").stderr
    assert report_of(workspace)[0]["baseline"]["is"].startswith(
        "the plain model (pipedec-workspace/models/seq"
    )


def test_a_baseline_from_elsewhere_reads_what_the_pipelined_decoder_reads(workspace):
    change(workspace / "models/sequential/config.json", "pipedec")
    path = workspace / "models/pipelined/config.json"
    change(path, pipedec={**read_json(path)["pipedec"], "source_prefix": "say: ", "max_source_tokens": 30})
    reported("--delays", "1")
    for name in ("sequential", "pipelined-delay1"):
        settings = read_json(workspace / f"generations/{name}.manifest.json")["settings"]
        assert (settings["source_prefix"], settings["max_source_tokens"]) == ("say: ", 30)


@pytest.mark.parametrize("teacher", ["t5", {"name": ""}, {"name": 3}, {}, {"name": "a", "sha256": [1]}])
def test_a_teacher_that_is_none_is_one_clear_line(workspace, teacher):
    taught_by(teacher)
    assert "training.json: not what `pipedec train` writes" in refused("report", "--delays", "1", *QUICK)


def test_the_checkpoints_waiting_schedule_can_stand_beside_its_delays(workspace):
    reported("--delays", "wait,2,1")
    content, decoders = report_of(workspace)
    assert list(decoders) == ["sequential", "Δt = 1", "Δt = 2", "waiting schedule"]
    steps = [entry["totals"]["steps"] for entry in content["decoders"]]
    assert steps[1] < steps[2] < steps[3]
    assert decoders["waiting schedule"]["options"] == "--delay wait"
    assert "waiting schedule" not in content["advice"]["text"]


def test_exploration_rules_stand_side_by_side_and_json_is_all_that_goes_to_stdout(workspace):
    result = reported("--delays", "1", "--explore", "both", "--json", "--quiet", "--out", "elsewhere")
    content = json.loads(result.stdout)
    _, _, once = content["decoders"]
    names = [entry["name"] for entry in content["decoders"]]
    assert names == ["sequential", "Δt = 1, retry", "Δt = 1, once"]
    assert (once["options"], once["used_up_sub_max"]) == ("--delay 1 --explore once", 0.0)
    assert content == read_json("elsewhere/report.json")
    assert not (workspace / "report").exists()
    assert "timing" not in result.stderr


def test_starts_stand_beside_the_rule_with_the_options_that_give_them(workspace):
    result = reported("--delays", "1", "--starts", "0.6,0,1.1", "--json", "--quiet")
    decoders = json.loads(result.stdout)["decoders"][1:]
    assert {entry["name"]: entry["options"] for entry in decoders} == {
        "Δt = 1, retry": "--delay 1",
        "Δt = 1, start 0": "--delay 1 --start-when 0",
        "Δt = 1, start 0.6": "--delay 1 --start-when 0.6",
        "Δt = 1, start 1.1": "--delay 1 --start-when 1.1",
    }
    steps = [entry["totals"]["steps"] for entry in decoders[1:]]
    assert steps == sorted(steps)
    assert steps[-1] > steps[0]


def test_memory_is_measured_for_each_decoder_and_a_failure_is_no_end(workspace, monkeypatch):
    asked = []

    @contextmanager
    def weighing(factory, payload):
        json.dumps(payload)  # what cannot be sent to a child process fails here

        def peak(sources, batch_size):
            asked.append((len(sources), batch_size))
            if payload["choice"].get("delay") == 1:
                raise ChildError("killed")
            return Memory(1_000_000, 3_000_000, "c")

        yield SimpleNamespace(peak=peak)

    monkeypatch.setattr(measuring, "Child", weighing)
    result = reported("--delays", "1,2", "--memory")
    _, decoders = report_of(workspace)
    assert asked == [(3, 1)] * 3
    assert decoders["Δt = 2"]["memory"]["peak_bytes"] == 3_000_000
    assert decoders["Δt = 1"]["memory"] is None
    assert "the memory of Δt = 1 could not be measured: killed" in result.stderr


@pytest.mark.slow
def test_memory_is_that_of_a_process_of_its_own(workspace):
    pytest.importorskip("ctranslate2")
    reported("--delays", "1", "--compare", "transformers,ctranslate2", "--memory")
    memory = {name: entry["memory"] for name, entry in report_of(workspace)[1].items()}
    assert all(found["peak_bytes"] >= found["ready_bytes"] > 0 for found in memory.values())
    assert memory["ctranslate2"]["ready_bytes"] < memory["sequential"]["ready_bytes"] / 2  # no torch in there


@pytest.mark.parametrize(
    ("gone", "options", "words"),
    [
        ("models/pipelined", "", ("models/pipelined", "pipedec train")),
        ("data", "", ("data", "pipedec segment")),
        ("models/pipelined/config.json", "", ("models/pipelined", "pipedec train --resume")),
        (
            "models/sequential",
            "--compare transformers",
            ("plain model", "pipedec train --decoder sequential"),
        ),
        (
            "models/sequential",
            "--compare exact-source",
            ("exact-source would run the plain model", "--baseline"),
        ),
        ("", "--model pipedec-workspace/models/sequential", ("ordinary model", "--baseline")),
        ("", "--baseline pipedec-workspace/models/pipelined", ("pipelined decoder", "--decoder sequential")),
        ("", "--compare sequential,vllm", ("'vllm'", "ctranslate2")),
    ],
)
def test_what_is_missing_or_misplaced_is_refused_before_all(workspace, gone, options, words):
    if gone:
        remove(workspace / gone)
    said = refused("report", *options.split(), *QUICK)
    assert all(word in said for word in words), said
    assert not (workspace / "generations").exists()


def test_delay_that_was_not_trained_is_refused_and_needs_a_plain_t5(workspace):
    train_for(workspace / "models/pipelined", 1)
    assert "trained for delay 1 only" in refused("report", "--delays", "1,3", *QUICK)
    assert not (workspace / "generations").exists()
    shutil.rmtree(workspace / "models/sequential")
    said = refused("report", *QUICK)
    assert "nothing to compare with" in said and "pipedec train --decoder sequential" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *((f"--split {word}", "give one or more of train, dev, test") for word in ("dev,tset", ",")),
        *((f"--delays {word}", "whole numbers") for word in ("0", "1,,2", "a")),
        ("--batch-sizes 1,x", "whole numbers"),
        *((f"--starts={word}", "give numbers from 0 up") for word in ("-1", "nan", "often")),
    ],
)
def test_values_that_are_none_are_a_usage_error(options, said):
    assert said in run("report", *options.split(), exit_code=2).output


@pytest.mark.parametrize("written", ["2", '"2,1,sequential"', '[2, 1, "wait"]'])
def test_delays_may_stand_in_a_config_file(monkeypatch, tmp_path, written):
    monkeypatch.setattr("pipedec_cli.terminal.report.find_model", lambda settings: "")
    asked = []

    def compare(settings, *_):
        asked.append(settings.delays)
        raise typer.Exit

    monkeypatch.setattr(report, "compare", compare)
    (tmp_path / "settings.toml").write_text(f"[report]\ndelays = {written}\n")
    run("report", "--config", tmp_path / "settings.toml")
    assert asked == [(2,) if written == "2" else (1, 2, "wait")]
