"""`pipedec bench` as a user runs it, on a small model."""

import json
import threading
from dataclasses import replace
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import pytest

from pipedec_cli.cli import signals
from pipedec_cli.compare.comparison import Bench, Sample
from pipedec_cli.compare.runners import Lengths
from pipedec_cli.jobs import measuring
from pipedec_cli.model.scratch import SHAPES
from pipedec_cli.view.results import bench_sheets
from tests.checkpoints import tiny_checkpoint
from tests.compare.decoders import entry, timing
from tests.jobs.report.reports import THERE, conditions
from tests.model.engines import needs_int8
from tests.model.test_gguf import written
from tests.running import refused, run

FEW = ("--subsequences", "3", "--tokens", "4", "--source", "12")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("bench") / "pipelined")


def test_json_compares_the_decoders_on_forced_lengths(folder):
    several = [
        "--delays",
        "1,2",
        "--dtypes",
        "float32,bfloat16",
        "--batch-sizes",
        "1,2",
        "--json",
    ]
    result = run("bench", "--model", folder, *FEW, *several)
    content = json.loads(result.stdout)
    decoders = {decoder["name"]: decoder for decoder in content["entries"]}
    assert list(decoders) == [
        *("sequential", "Δt = 1", "Δt = 2"),
        *("sequential, bfloat16", "Δt = 1, bfloat16", "Δt = 2, bfloat16"),
        "transformers",
    ]
    # what only a report fills is not there
    common = ["conditions", "entries", "manifest", "sample"]
    assert sorted(content) == sorted([*common, "lengths", "model", "ratios"])
    assert [*decoders["Δt = 1"]] == [
        "name",
        "role",
        "settings",
        "delay",
        "speed",
        "memory",
    ]
    calls = {
        name: decoder["speed"][0]["decoder_calls"] for name, decoder in decoders.items()
    }
    assert (
        calls["sequential"] == calls["transformers"] == 13
    )  # 3 · 4 tokens and an <eos>
    assert (calls["Δt = 1"], calls["Δt = 2"]) == (
        7,
        9,
    )  # (3 − 1) · Δt + 4 tokens and an <eos>
    assert {speed["batch_size"] for speed in decoders["Δt = 1"]["speed"]} == {1, 2}
    assert set(content["conditions"]["rows"]) == {"float32", "bfloat16"}


@pytest.mark.extra("gguf")
@needs_int8
def test_a_gguf_file_is_timed_as_it_is_stored(tmp_path):
    path = written(tmp_path, dtype="Q4_0")
    dtypes = ("--dtypes", "stored,int8", "--json")
    content = json.loads(run("bench", "--model", path, *FEW, *dtypes).stdout)
    kinds = [each["settings"]["dtype"] for each in content["entries"]]
    assert kinds == ["stored", "stored", "int8", "int8"]
    assert content["conditions"]["absent"][0]["name"] == "transformers"


@pytest.mark.slow
@pytest.mark.extra("ctranslate2")
def test_a_decoder_only_model_reads_a_prompt_in_the_encoders_place(tmp_path):
    folder = tiny_checkpoint(tmp_path / "qwen3", family="qwen3")
    command = (
        "bench",
        "--model",
        folder,
        *FEW,
        "--compare",
        ",".join(("sequential", *THERE)),
    )
    said = " ".join(run(*command).stdout.split())
    assert (
        "reading the prompt" in said
        and "source keys" not in said
        and "encoder" not in said
    )
    decoders = {
        one["name"]: one["speed"][0]
        for one in json.loads(run(*command, "--json").stdout)["entries"]
    }
    calls = {name: speed["decoder_calls"] for name, speed in decoders.items()}
    assert calls == {
        "sequential": 13,
        "Δt = 1": 7,
        **dict.fromkeys(THERE, 13),
    }
    assert {speed["setup_seconds"] for speed in decoders.values()} == {None}
    assert (
        decoders["sequential"]["encoder_seconds"] > 0
        and decoders["transformers"]["encoder_seconds"] > 0
    )


@pytest.mark.slow
@pytest.mark.parametrize("memory", [False, True])
def test_fields_are_timed_beside_blind_rows(tmp_path, memory):
    folder = tiny_checkpoint(tmp_path / "qwen3", family="qwen3")
    few = ("--shape", "fields", "--subsequences", "3", "--tokens", "2", *FEW[4:])
    how = ("--compare", "transformers", "--set", f"memory={memory}".lower(), "--json")
    content = json.loads(run("bench", "--model", folder, *few, *how).stdout)
    calls = {
        one["name"]: one["speed"][0]["decoder_calls"] for one in content["entries"]
    }
    # As one text each value has 4 more tokens; each text ends with <eos>.
    assert calls == {
        "sequential": 19,
        "fields together": 3,
        "blind rows": 3,
        "transformers": 19,
    }
    assert all(bool(one["memory"]) is memory for one in content["entries"])
    over = [(one["entry"], one["over"]) for one in content["ratios"]]
    assert ("blind rows", "transformers") in over and (
        "transformers",
        "sequential",
    ) not in over


def test_fresh_weights_are_named(monkeypatch):
    small = replace(
        SHAPES["scratch-tiny"],
        d_model=32,
        d_ff=48,
        layers=1,
        heads=2,
        vocabulary=300,
        d_kv=16,
    )
    monkeypatch.setitem(SHAPES, "scratch-tiny", small)
    result = run(
        "bench", "--model", "scratch-tiny", *FEW, "--compare", "transformers", "--json"
    )
    assert json.loads(result.stdout)["model"].endswith("fresh weights of a T5")


@pytest.mark.slow
def test_tables_name_the_lengths_the_memory_and_the_machine(folder):
    result = run(
        "bench",
        "--model",
        folder,
        *FEW,
        "--compare",
        "sequential",
        "--set",
        "memory=true",
    )
    lengths = (
        "Forced lengths: 12 source tokens, 12 target tokens in 3 subsequences of 4"
    )
    for words in (
        lengths,
        "decoding, ms per call",
        "over sequential",
        "peak, MB",
        "used;",
    ):
        assert words in " ".join(result.stdout.split()), words
    assert "transformers greedy" not in result.stdout


@pytest.mark.parametrize("code", [signals.INTERRUPTED, signals.TERMINATED])
def test_an_interrupted_bench_shows_its_rounds_and_ends_as_interrupted(
    folder, monkeypatch, code
):
    passes = count(1)
    monkeypatch.setattr(signals, "terminated", threading.Event())

    def pause_once() -> None:
        if next(passes) > 2:  # behind a round that counts, of two decoders
            if code == signals.TERMINATED:
                signals.terminated.set()
            raise KeyboardInterrupt

    monkeypatch.setattr(measuring, "pause", pause_once)
    few = (
        "--delays",
        "1",
        "--batch-sizes",
        "1,2",
        "--compare",
        "sequential",
        *FEW,
        "--json",
    )
    result = run("bench", "--model", folder, *few, exit_code=code)
    content = json.loads(result.stdout)
    assert [
        [len(speed["repeats"]) for speed in one["speed"]] for one in content["entries"]
    ] == [[1], [1]]
    assert content["conditions"]["stopped"] in result.stderr
    assert (
        "more at batch size 1; Ctrl-C shows what is measured by then" in result.stderr
    )


def test_a_bench_that_is_interrupted_before_a_round_shows_nothing(folder, monkeypatch):
    monkeypatch.setattr(measuring, "pause", Mock(side_effect=KeyboardInterrupt))
    assert run("bench", "--model", folder, *FEW, exit_code=130).stdout == ""


@pytest.mark.parametrize(
    ("repeats", "unsure"), [([1.0, 20.0], True), ([1.0, 4.5], False)]
)
def test_a_ratio_whose_repeats_disagree_on_which_is_faster_is_questioned(
    repeats, unsure
):
    plain = entry("sequential", "baseline", timings={1: timing([9.0, 9.0], 9)})
    ours = entry("Δt = 1", timings={1: timing(repeats, 1)})
    made = Bench(
        entries=(plain, ours),
        conditions=conditions(),
        sample=Sample(1, 1, 2),
        model="m",
        lengths=Lengths.even(5, 2, 10),
    )
    _, ratios, _ = bench_sheets(made)
    assert ratios.sections[0].rows[0][1].endswith(" ?") == unsure
    assert any(note.startswith("?: faster in some repeats") for note in ratios.notes)


@pytest.mark.parametrize(
    "options",
    [
        "--compare exact-source",
        "--compare exact",
        "--compare foo",
        "--subsequences 3",
        "--shape fields --delays 2",
        "--shape msqa --subsequences 3 --tokens 2",
        "--model nowhere",
    ],
)
def test_what_cannot_be_measured_is_refused(options):
    refused("bench", *options.split())
    assert "float32" in run("bench", "--dtypes", "float32,int3", exit_code=2).output
