"""Commands with a GGUF file as their model."""

import json

import pytest

from pipedec_cli.data.trained import is_model
from pipedec_cli.decoding.decoder import load
from pipedec_cli.model.checkpoint import load_checkpoint
from tests.checkpoints import SOURCES
from tests.model.test_gguf import made_checkpoint, written
from tests.running import lines_of, read_json, refused, run, write_lines

pytestmark = [pytest.mark.usefixtures("empty_folder"), pytest.mark.extra("gguf")]


def test_a_file_generates_in_a_chat_until_its_turn_ends(tmp_path):
    path = written(tmp_path)
    run(
        "generate",
        "--model",
        path,
        "--chat",
        "--text",
        "a",
        "--max-tokens",
        "5",
        "--out",
        "out.jsonl",
    )
    decoder = load(str(path))
    decoder.read_sources(chat=True)
    (made,) = decoder.texts(["a"], decoder.method(max_tokens=5))
    assert decoder.text.eos == 2
    assert lines_of("out.jsonl")[0]["prediction"] == made.text
    assert read_json("out.manifest.json")["model"]["name"] == str(path)


def test_a_file_counts_the_tokens_of_targets(tmp_path):
    target = "a b. It is so."
    data = write_lines(
        tmp_path / "one.jsonl",
        *[{"source": f"{n}", "target": target} for n in range(5)],
    )
    whole = ("--set", "held_out=0", "--level", "phrase")
    run("segment", data, "--tokenizer", written(tmp_path), *whole)
    ids = made_checkpoint().tokenizer(target, add_special_tokens=False)["input_ids"]
    details = read_json("pipedec-workspace/data/segmentation.json")
    assert (details["unit"], details["counts"]["longest"]) == ("tokens", len(ids))
    refused("segment", data, "--tokenizer", "none.gguf", *whole)


@pytest.mark.slow
def test_a_file_serves_wherever_a_model_is_named(tmp_path):
    path = written(tmp_path)
    rows = [
        {"source": text, "target": f"{text}. It is so."}
        for text in SOURCES
        for _ in range(6)
    ]
    run("segment", write_lines(tmp_path / "data.jsonl", *rows), "--level", "sentence")
    short = ("--set", "time_max=9")
    few = ("--max-steps", 1, "--batch-size", 2, "--set", "limit=2", *short)
    refused(
        "train", "--teacher", path, *few
    )  # its weights are random, so its texts do not end
    run("train", "--model", path, *few)
    folder = tmp_path / "pipedec-workspace/models/pipelined"
    assert load_checkpoint(str(folder)).backbone.name == "Llama"
    assert read_json(folder / "training.json")["settings"]["model"] == str(path)
    assert is_model(path)  # a teacher that is still there
    words = f"--exact {path} --draft source --limit 2 --max-tokens 9 --out exact.jsonl"
    run("generate", *words.split())
    assert len(lines_of("exact.jsonl")) == 2
    run("report", "--baseline", path, "--delays", 1, "--limit", 2, "--out", "report")
    assert str(path) in json.dumps(read_json("report/report.json")["entries"][0])
    words = (
        f"--model {path} --subsequences 2 --tokens 2 --source 4 --compare sequential"
    )
    run("bench", *words.split())
