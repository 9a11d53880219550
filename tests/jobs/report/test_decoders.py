"""Which decoders `pipedec report` sets side by side, on which predictions and splits; nothing here asserts how fast anything is."""

import json
import re
import shutil
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

import pipedec_cli as pipedec
from pipedec_cli.compare.child import ChildError, Memory
from pipedec_cli.compare.peers import Absent
from pipedec_cli.jobs import measuring
from pipedec_cli.model.engine.sequences import Sequences
from tests.checkpoints import TOLD, tiny_checkpoint
from tests.jobs.report.reports import THERE
from tests.jobs.report.running import (
    QUICK,
    options_of,
    remove,
    report_of,
    reported,
    trained_with,
    write_data,
)
from tests.running import generated, read_json, refused, run, write_lines


def test_every_decoder_stands_beside_the_others_and_the_papers_figures_and_is_saved(
    workspace, page_of
):
    write_data(workspace, TOLD * 2, recipe="wikihowqa")
    several = ("--delays", "1,2", "--compare", "sequential,transformers")
    result = reported(*several, "--batch-sizes", "1,2")
    content, decoders = report_of(workspace)
    assert list(decoders) == ["sequential", "Δt = 1", "Δt = 2", "transformers"]
    for word in ("By delay", "By number of target subsequences", "paper: Δt = 1"):
        assert word in result.stdout
    written = (workspace / "report/report.md").read_text(encoding="utf-8")
    assert content["advice"]["text"].split()[0] in result.stdout
    assert written.startswith("# Decoders compared")
    called = "the sequential model (pipedec-workspace/models/sequential)"
    assert content["baseline"]["description"].startswith(called)
    first, peer = decoders["Δt = 1"], decoders["transformers"]
    assert [speed["batch_size"] for speed in first["speed"]] == [1, 2]
    assert (peer["agreement"], peer["role"]) == ({"equal": 3, "of": 3}, "peer")
    assert set(first["differences"]["rougeL"]) == {"value", "low", "high"}
    # 12 examples: what they have learnt to say is known, and so are the steps of the
    # grid.
    names = ("Δt = 1", "Δt = 2", "sequential")
    steps = [decoders[name]["totals"]["steps"] for name in names]
    assert len({decoders[name]["totals"]["tokens"] for name in names}) == 1
    assert steps == sorted(set(steps))
    assert content["manifest"]["settings"]["delays"] == [1, 2]
    saved = pipedec.read_report()
    assert (saved.advice, saved.content) == (content["advice"]["text"], content)


def test_rows_by_number_of_subsequences_hold_all_examples(workspace):
    reported("--delays", "1")
    content, _ = report_of(workspace)
    rows = {row["subsequences"]: row for row in content["by_subsequences"]["Δt = 1"]}
    counts = {1: 2, 2: 4, 3: 2, 4: 2, 5: 2} | dict.fromkeys(range(6, 10), 0)
    assert {size: row["examples"] for size, row in rows.items()} == counts
    assert rows[1]["fewer_steps"] < rows[5]["fewer_steps"]


@pytest.mark.slow
@pytest.mark.extra("ctranslate2")
def test_a_decoder_only_model_stands_beside_its_plain_form_its_peers_and_exact_mode(
    workspace, page_of
):
    remove(workspace / "models")
    for kind in ("pipelined", "sequential"):
        tiny_checkpoint(workspace / "models" / kind, decoder=kind, family="qwen3")
    others = ",".join(("sequential", "exact", *THERE))
    result = reported("--delays", "1,2", "--compare", others, columns=250)
    _, decoders = report_of(workspace)
    exact = [f"exact-{draft}" for draft in ("pipelined", "source", "jacobi")]
    assert list(decoders) == ["sequential", "Δt = 1", "Δt = 2", *exact, *THERE]
    for name in (*exact, *THERE):
        assert decoders[name]["agreement"] == {"equal": 3, "of": 3}, name
    totals = {name: one["totals"] for name, one in decoders.items() if one["totals"]}
    # Without the calls that draft: how far they are used hangs on what rows cost here.
    steps = {
        name: one["steps"] - (one["draft_steps"] or 0) for name, one in totals.items()
    }
    assert (
        steps["Δt = 1"]
        < steps["Δt = 2"]
        < steps["sequential"]
        > steps["exact-pipelined"]
    )
    assert (
        "reading the prompt, ms" in result.stdout and "encoder, ms" not in result.stdout
    )
    page = page_of(workspace / "report/report.html")
    told = re.search(
        '<script type="application/json" id="data-replay">(.*?)</script>',
        page,
        re.DOTALL,
    )
    plain, *ours = json.loads(told[1])["examples"][0]["runs"][:3]
    assert [run["rows"][0][3:] for run in (plain, *ours)] == [["…"], [], []]


def test_quality_on_dev_stands_beside_that_on_test_and_every_test_example_can_be_timed(
    workspace,
):
    shutil.copy(workspace / "data/test.jsonl", workspace / "data/dev.jsonl")
    write_data(workspace, TOLD)
    every = ("--delays", "1", "--set", "timing_examples=all", "--batch-sizes", "1,4")
    result = reported(
        "--split", "test,dev", *every, "--config", "wikihowqa", columns=200
    )
    content, decoders = report_of(workspace)
    sample = content["sample"]
    assert (content["split"], sample["timed"], sample["of"]) == ("test", 6, 6)
    assert "a warm-up of each over 6 examples, batch size 1" in result.stderr
    assert [speed["examples"] for speed in decoders["Δt = 1"]["speed"]] == [6, 6]
    for entry in decoders.values():
        assert entry["quality"]["rows"]["scored"] == entry["totals"]["examples"] == 6
        assert entry["other_splits"]["dev"]["quality"]["rows"]["scored"] == 12
    dev = decoders["Δt = 1"]["other_splits"]["dev"]
    assert set(dev["differences"]["rougeL"].values()) == {0.0}
    assert dev["text_agreement"]["of"] == 12
    shown = " ".join(result.stdout.split())
    # The paper's ROUGE-L on both.
    for words in ("dev, 12 examples", "38.3 38.0", "test, 6 examples", "34.9 34.6"):
        assert words in shown
    for name in ("pipelined-delay1", "sequential"):
        assert generated(workspace, name).is_file()
        assert generated(workspace, f"{name}-dev").is_file()


def test_one_split_stands_alone_and_data_of_ones_own_have_none(workspace):
    dev = workspace / "data/dev.jsonl"
    shutil.copy(workspace / "data/test.jsonl", dev)
    reported("--split", "dev", "--delays", "1")
    content, decoders = report_of(workspace)
    assert (content["split"], decoders["Δt = 1"]["other_splits"]) == ("dev", {})
    others = (workspace / "data/dev.jsonl", "--split", "dev")
    refused("report", *others, *QUICK)
    assert (
        "from 1 to 1,000,000 or wait"
        in run("report", "--delays", "0", exit_code=2).stderr
    )


def test_without_right_answers_decoders_are_compared_in_steps_speed_and_agreement(
    workspace,
):
    rows = [{"source": source} for source, _ in TOLD * 2]
    write_lines(workspace / "data/test.jsonl", *rows)
    result = reported("--delays", "1,2", columns=200)
    content, decoders = report_of(workspace)
    assert decoders["Δt = 1"]["quality"]["rows"]["scored"] == 0
    assert decoders["Δt = 1"]["text_agreement"]["of"] == 12
    assert decoders["sequential"]["text_agreement"] is None
    assert (
        decoders["Δt = 1"]["totals"]["steps"]
        < decoders["sequential"]["totals"]["steps"]
    )
    assert any(
        "no right answers, so nothing is scored" in note for note in content["notes"]
    )
    shown = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "agreement with the baseline, 12 examples" in " ".join(shown)
    assert not any(line.startswith(("quality", "signature")) for line in shown)
    assert "no right answers: nothing is scored but agreement" in result.stderr
    # right answers that are there for some examples only are refused as ever
    write_lines(workspace / "data/test.jsonl", *rows, {"source": "x", "target": "y"})
    refused("report", "--delays", "1", *QUICK)


def test_decoders_that_write_what_has_nothing_to_do_with_the_answers_are_not_recommended(
    workspace,
):
    others = [right for _, right in TOLD[1:] + TOLD[:1]]
    write_data(
        workspace,
        [(source, right) for (source, _), right in zip(TOLD, others, strict=True)],
    )
    said = " ".join(reported("--delays", "1,2").stdout.split())
    content, decoders = report_of(workspace)
    assert (content["advice"]["verdict"], content["advice"]["command"]) == (
        "unfit",
        None,
    )
    assert "the sequential model and of the pipelined decoder are useless" in said
    for name in ("sequential", "Δt = 1", "Δt = 2"):
        assert "texts of other inputs" in decoders[name]["faults"][0]


def test_each_delay_of_the_paper_has_the_checkpoint_that_was_trained_for_it(workspace):
    other = workspace / "models/pipelined-delay3"
    shutil.copytree(workspace / "models/pipelined", other)
    trained_with(workspace / "models/pipelined", delay=1)
    trained_with(other, delay=3)
    reported("--config", "pubmed", "--delays", "1,3")
    content, decoders = report_of(workspace)
    assert list(decoders) == ["sequential", "Δt = 1", "Δt = 3"]
    assert options_of(decoders["Δt = 3"]) == f"--model {other} --delay 3"
    assert [row["delay"] for row in content["paper"]["delays"]] == [1, 2, 3]


@pytest.mark.slow
def test_exact_mode_stands_beside_the_delays_with_the_calls_of_draft_and_check(
    workspace,
):
    result = reported(
        "--delays", "1,2", "--compare", "exact,transformers", "--batch-sizes", "1,2"
    )
    content, decoders = report_of(workspace)
    names = ["exact-pipelined", "exact-source", "exact-jacobi"]
    assert list(decoders) == ["sequential", "Δt = 1", "Δt = 2", *names, "transformers"]
    plain, drafting = decoders["sequential"]["totals"], decoders["Δt = 1"]["totals"]
    for name in names:
        one, totals = decoders[name], decoders[name]["totals"]
        assert (one["role"], one["text_agreement"]["equal"]) == ("exact", 12)
        assert one["agreement"] == {"equal": 3, "of": 3}
        assert totals["draft_steps"] == (
            drafting["steps"] if name == "exact-pipelined" else 0
        )
        assert totals["tokens_per_check"] >= plain["tokens_per_step"]
        assert [speed["draft_calls"] > 0 for speed in one["speed"]] == [
            name == "exact-pipelined"
        ] * 2
    option = "--exact pipedec-workspace/models/sequential --draft"
    assert options_of(decoders["exact-source"]) == f"{option} source"
    assert options_of(decoders["exact-pipelined"]) == f"--delay 1 {option} pipelined"
    assert content["advice"]["entry"] in (None, "Δt = 1", "Δt = 2")
    assert set(content["by_subsequences"]) == {"Δt = 1", "Δt = 2"}
    assert "steps that draft" in result.stdout and "tokens per call" in result.stdout
    # what `generate` writes with these options is taken as it is
    run("generate", *f"{option} source --device cpu --quiet".split())
    again = reported("--delays", "1", "--compare", "exact-source")
    assert "exact-source: all 12 predictions are in" in again.stderr


def test_absent_peer_is_named_and_own_data_without_segments_have_no_breakdown(
    workspace, monkeypatch
):
    absent = Absent("transformers", "it cannot take the checkpoint")
    monkeypatch.setattr("pipedec_cli.jobs.measuring.make_peer", lambda *_, **__: absent)
    row = {"source": TOLD[0][0], "target": " ".join(TOLD[0][1])}
    result = reported(
        "--delays", "1", "--compare", "transformers", write_lines("mine.jsonl", row)
    )
    content, _ = report_of(workspace)
    assert "transformers is absent: it cannot take the checkpoint" in result.stderr
    assert "transformers is absent" in result.stdout
    assert content["conditions"]["absent"][0]["name"] == "transformers"
    assert content["subsequences_per_target"] is None
    assert "the targets are not segmented" in result.stdout


def test_the_checkpoints_waiting_schedule_can_stand_beside_its_delays(workspace):
    reported("--delays", "wait,2,1")
    content, decoders = report_of(workspace)
    assert list(decoders) == ["sequential", "Δt = 1", "Δt = 2", "waiting schedule"]
    steps = [entry["totals"]["steps"] for entry in content["entries"]]
    assert steps[1] < steps[2] < steps[3]
    assert options_of(decoders["waiting schedule"]) == "--delay wait"
    assert "waiting schedule" not in content["advice"]["text"]


def test_entries_with_the_same_weights_read_a_source_once_and_timed_passes_each_time(
    workspace, monkeypatch
):
    admit, known, timed = Sequences.admit, [], []

    def noted(sequences, newcomers, encode=None):
        found = admit(sequences, newcomers, encode)
        (known if sequences.kept.most else timed).extend(found)
        return found

    monkeypatch.setattr(Sequences, "admit", noted)
    reported("--delays", "1,2")
    assert any(known) and timed and not any(timed)


def test_json_is_all_that_goes_to_stdout(workspace):
    result = reported("--delays", "1", "--json", "--quiet", "--out", "elsewhere")
    content = json.loads(result.stdout)
    assert content == read_json("elsewhere/report.json")
    assert not (workspace / "report").exists()
    assert "timing" not in result.stderr


# ---- predictions that are there
# -----------------------------------------------------------------------------------


def test_predictions_that_are_there_are_taken_all_some_or_with_their_grids(workspace):
    reported("--delays", "1")
    files = sorted((workspace / "generations").glob("*.jsonl"))
    assert files == [
        generated(workspace, name) for name in ("pipelined-delay1", "sequential")
    ]
    before = [file.stat().st_mtime_ns for file in files]
    assert "Δt = 1: all 12 predictions are in" in reported("--delays", "1").stderr
    assert [file.stat().st_mtime_ns for file in files] == before
    result = reported("--delays", "1", "--limit", "4")
    assert "made with --limit" not in result.stderr, "it was asked for"
    content, decoders = report_of(workspace)
    assert decoders["Δt = 1"]["totals"]["examples"] == content["sample"]["of"] == 4
    shutil.rmtree(workspace / "generations")
    run("generate", "--delay", "1", "--set", "trace=true", "--device", "cpu", "--quiet")
    assert "Δt = 1: all 12 predictions are in" in reported("--delays", "1").stderr


def test_the_files_of_a_report_are_replaced_together_or_stay(workspace):
    reported("--delays", "1")
    folder = workspace / "report"
    (folder / "report.md").unlink()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "report.md").mkdir()
    with pytest.raises(IsADirectoryError):
        reported("--delays", "1,2")
    assert {name: (folder / name).read_bytes() for name in before} == before


# ---- memory
# ---------------------------------------------------------------------------------------------------------


def test_memory_is_measured_for_each_decoder_and_a_failure_is_no_end(
    workspace, monkeypatch
):
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
    result = reported("--delays", "1,2", "--set", "memory=true")
    _, decoders = report_of(workspace)
    assert asked == [(3, 1)] * 3
    assert decoders["Δt = 2"]["memory"]["peak_bytes"] == 3_000_000
    assert decoders["Δt = 1"]["memory"] is None
    assert "the memory of Δt = 1 could not be measured: killed" in result.stderr


# ---- splits of which only some have right answers
# ------------------------------------------------------------------

LACKING = "the data have no right answers"


def write_split(place, name, *, answers):
    rows = (
        {"source": source, **({"keyphrases": list(parts)} if answers else {})}
        for source, parts in TOLD * 2
    )
    write_lines(place / f"data/{name}.jsonl", *rows)


def absent_f1(lines, split):
    """The row of a split in the table of qualities: the last but for the difference."""
    heading = f"| **quality, {split}, 12 examples** |  |  |  |"
    return lines[lines.index(heading) + 10]


@pytest.mark.parametrize(
    ("lacking", "scored", "more"),
    [
        ("dev", "test", ""),
        ("test", "dev", ", and there are no rows by number of subsequences"),
    ],
)
def test_a_split_without_right_answers_has_no_figures_beside_the_other(
    workspace, lacking, scored, more
):
    write_split(workspace, lacking, answers=False)
    write_split(workspace, scored, answers=True)
    run("report", "--split", "dev,test", "--delays", "1,2", *QUICK)
    lines = (workspace / "report/report.md").read_text(encoding="utf-8").splitlines()
    assert absent_f1(lines, lacking) == "| absent F1@M | – | – | – |"
    assert re.match(r"\| absent F1@M \| \d", absent_f1(lines, scored))
    assert any(line.startswith("- signature: chan2019") for line in lines)
    content, decoders = report_of(workspace)
    assert content["metric"] == "present_f1@M"
    dev = decoders["Δt = 1"]["other_splits"]["dev"]["quality"]
    assert dev["task"] == "keyphrases"
    nothing = f"{LACKING} on {lacking}, so nothing is scored there"
    assert content["notes"][-1] == nothing + more


def test_nothing_is_written_before_all_of_a_report_is_made(workspace, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("pipedec_cli.view.results.report_markdown", fail)
    with pytest.raises(ZeroDivisionError):
        run("report", "--delays", "1", *QUICK)
    assert not (workspace / "report").exists()
