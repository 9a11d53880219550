"""Decoder-only models at the command line: from segmenting to a score, prompts, chats, and what does not apply to whom."""

import contextlib
import io
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.model.scratch import SHAPES
from tests import running
from tests.checkpoints import SMALL, SOURCES, TOLD, change, tiny_checkpoint
from tests.jobs.report.running import QUICK
from tests.model.chats import DATED, foreign
from tests.running import generated, lines_of, read_json, run, write_lines

FEW = ("--max-steps", "2", "--batch-size", "4", "--device", "cpu")

LLAMA = ("--model", "scratch-tiny-llama")


@pytest.fixture(scope="module")
def segmented(tmp_path_factory):
    """A workspace with data. Not to be changed."""
    folder = tmp_path_factory.mktemp("segmented")
    rows = ({"source": source, "target": " ".join(told)} for source, told in TOLD * 4)
    write_lines(folder / "d.jsonl", *rows)
    run("segment", folder / "d.jsonl", "-w", folder / "work")
    return folder / "work"


@pytest.fixture
def workspace(segmented, tmp_path, monkeypatch):
    """A copy of that workspace."""
    monkeypatch.setitem(SHAPES, "scratch-tiny", SMALL)
    return Path(shutil.copytree(segmented, tmp_path / "work"))


def train(workspace: Path, *more: object) -> str:
    return run("train", "-w", workspace, *FEW, *more).stderr


def settings_of(folder: Path) -> dict[str, Any]:
    return dict(read_json(folder / "config.json")["pipedec"])


def test_a_llama_from_scratch_goes_from_segmenting_to_a_score_with_its_own_prompt(
    workspace,
):
    family, own = ("--model", "scratch-tiny-llama"), "Say {source} now:"
    prompt = ("--set", f"prompt_template={own}")
    talk = train(workspace, *family, *prompt)
    folder = workspace / "models" / "pipelined"
    assert "scratch-tiny" in talk and "parameters" in talk
    assert read_json(folder / "config.json")["model_type"] == "llama"
    trained = read_json(folder / "training.json")["settings"]
    assert (trained["model"], trained["prompt"], settings_of(folder)["prompt"]) == (
        "scratch-tiny-llama",
        own,
        own,
    )
    codec = load_checkpoint(str(folder)).codec()
    assert codec.decode(codec.source("The Mill")[0]).endswith("now:")
    few = (
        "generate",
        "-w",
        workspace,
        "--delay",
        "2",
        "--device",
        "cpu",
        "--max-tokens",
        "40",
    )
    run(*few)
    made = generated(workspace, "pipelined-delay2")
    asked = read_json(made.with_suffix(".manifest.json"))["settings"]
    assert (asked["prompt"], asked["chat"], asked["source_prefix"]) == (own, False, "")
    assert len(lines_of(made)) > 0
    there = (*few, "--out", workspace / "out.jsonl")
    run(*there)
    running.refused(*there, "--prompt-template", "{source}", "--resume")
    assert "ROUGE" in run("score", "-w", workspace, made).stdout
    change(folder / "training.json", "result")
    running.refused("train", "-w", workspace, *FEW, *prompt, "--resume")
    running.refused("train", "-w", workspace, *FEW, *family, "--resume")
    assert "going on from" in train(workspace, *family, *prompt, "--resume")


def test_a_chat_model_from_elsewhere_is_asked_in_its_template_and_ends_where_its_turn_does(
    tmp_path,
):
    model = foreign(tmp_path / "chat")
    options = ("--device", "cpu", "--max-tokens", "4", "--json")
    words = ("generate", "--text", SOURCES[0], "--model", model, *options)
    plain, chat = (
        run(*words, *more, "--set", "trace=true") for more in ((), ("--chat",))
    )
    assert plain.stdout != chat.stdout
    hinted = ["which --chat uses" in made.stderr for made in (plain, chat)]
    assert hinted == [True, False]
    data = write_lines(tmp_path / "d.jsonl", {"source": "a"})
    run("generate", data, *words[3:], "--chat", "--out", tmp_path / "o.jsonl")
    asked = read_json(tmp_path / "o.manifest.json")["settings"]
    assert (asked["prompt"], asked["chat"]) == ("{source}", True)

    from pipedec_cli.decoding.decoder import load

    decoder = load(model, device="cpu")
    assert decoder.method().eos == 1
    decoder.read_sources(chat=True)
    assert decoder.method().eos == decoder.checkpoint.tokenizer.convert_tokens_to_ids(
        "<|im_end|>"
    )
    decoder.read_sources("Say {source}")
    assert decoder.text.described["chat"] is True, "what is not said stays"
    decoder.read_sources(chat=False)
    assert (decoder.method().eos, decoder.text.described["prompt"]) == (
        1,
        "Say {source}",
    )


def test_a_chat_model_is_trained_to_end_its_turns(workspace, tmp_path):
    model = foreign(tmp_path / "chat")
    train(workspace, "--model", model, "--chat", "--decoder", "sequential")
    plain = workspace / "models" / "sequential"
    end = load_checkpoint(str(plain)).tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert read_json(plain / "config.json")["eos_token_id"] == end
    assert (settings_of(plain)["chat"], settings_of(plain)["prompt"]) == (
        True,
        "{source}",
    )
    made = run(
        "generate",
        "-w",
        workspace,
        "--model",
        "sequential",
        "--max-tokens",
        "8",
        "--device",
        "cpu",
    )
    assert "prediction" in made.stderr


@pytest.mark.parametrize("command", ["train", "generate"])
def test_a_prompt_template_without_a_source_is_refused_before_any_model_is_looked_for(
    command, tmp_path
):
    template = (
        ("--prompt-template", "none")
        if command == "generate"
        else ("--set", "prompt_template=none")
    )
    running.refused(command, "-w", tmp_path, "--model", "nowhere", *template)


@pytest.mark.slow
def test_how_the_teacher_is_asked_is_taken_over(workspace, tmp_path):
    asked = ("--set", "prompt_template=Say {source}:")
    train(workspace, *LLAMA, "--decoder", "sequential", *asked)
    teacher = workspace / "models" / "sequential"
    options = ("--split", "train", "--set", "trace=false", "--device", "cpu")
    run("generate", "-w", workspace, "--model", teacher, *options)
    kept = generated(workspace, "sequential-train")
    write_lines(
        kept,
        *({**row, "truncated": None, "prediction": "A. B."} for row in lines_of(kept)),
    )
    train(workspace, "--teacher", teacher)
    student = workspace / "models" / "pipelined"
    assert settings_of(student)["prompt"] == "Say {source}:"
    assert read_json(student / "training.json")["settings"]["prompt"] == "Say {source}:"


def test_prompts_are_refused_where_an_encoder_reads_and_families_for_other_weights(
    workspace, tmp_path
):
    t5 = tiny_checkpoint(tmp_path / "t5")
    for more in (("--chat",), ("--prompt-template", "{source}:"), ("--no-chat",)):
        asked = ("--set", "prompt_template={source}:") if len(more) > 1 else more
        running.refused("train", "-w", workspace, *FEW, *asked)
        running.refused("generate", "--text", "a", "--model", t5, *more)
    running.refused("train", "-w", workspace, "--model", "scratch-tiny-gpt2")
    model = foreign(tmp_path / "base", template=None)
    running.refused("generate", "--text", "a", "--model", model, "--chat")


@pytest.mark.extra("peft")
def test_adapters_are_trained_resumed_and_merged(workspace, tmp_path):
    model = foreign(tmp_path / "base")
    talk = train(workspace, "--model", model, "--lora", "4")
    assert "adamw at a learning rate of 0.0002" in talk
    folder = workspace / "models" / "pipelined"
    assert read_json(folder / "training.json")["settings"]["lora"] == 4
    assert (folder / "model.safetensors").exists()
    assert (folder / "checkpoint-2" / "adapter_model.safetensors").exists()
    assert not (folder / "checkpoint-2" / "model.safetensors").exists()
    change(folder / "training.json", "result")
    running.refused("train", "-w", workspace, *FEW, "--model", model, "--resume")
    assert "going on from" in train(
        workspace, "--model", model, "--lora", "4", "--resume"
    )
    running.refused("generate", "--text", "a", "--model", folder / "checkpoint-2")


@pytest.mark.parametrize(
    "more", [("--set", "prompt_template=Say {source} now:"), ("--chat",)]
)
def test_a_plain_models_own_lines_for_transformers_write_what_pipedec_writes(
    workspace, tmp_path, more
):
    from pipedec_cli.decoding.decoder import load

    base = foreign(tmp_path / "base", template=DATED)
    write_lines(
        base / "generation_config.json",
        {"num_beams": 2, "eos_token_id": 5, "min_length": 9},
    )
    train(workspace, "--model", base, "--decoder", "sequential", *more)
    folder, source = workspace / "models" / "sequential", SOURCES[0]
    card = ModelCard.load(folder / "README.md")
    assert (
        "llama" in card.data.tags
        and "# Llama with an ordinary, sequential decoder" in card.text
    )
    lines = re.search(r"```python\n(import torch.*?)```", card.text, re.DOTALL)
    assert lines is not None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(
            lines[1]
            .replace("FOLDER", str(folder))
            .replace("a source", source)
            .replace("=512", "=20"),
            {},
        )
    decoder = load(str(folder))
    (made,) = decoder.texts([source], decoder.method(max_tokens=20))
    assert printed.getvalue() == f"{made.text}\n"
    train(workspace, *LLAMA, "--out", tmp_path / "pipelined")
    assert "writes nothing of use" in (tmp_path / "pipelined" / "README.md").read_text()


def test_a_bart_is_asked_for_no_more_than_it_has_places_for(workspace):
    train(workspace, "--model", "scratch-tiny-bart", "--decoder", "sequential")
    assert settings_of(workspace / "models" / "sequential")["max_source_tokens"] == 1024


@pytest.mark.parametrize(("positions", "told"), [(12, True), (2048, False)])
def test_sources_beyond_the_positions_that_a_model_was_made_for_are_counted(
    workspace, positions, told
):
    base = foreign(workspace / "base", template=None)
    change(base / "config.json", max_position_embeddings=positions)
    talk = " ".join(train(workspace, "--model", base).split())
    assert (f"reach beyond the {positions:,} positions" in talk) is told


@pytest.mark.slow
def test_texts_beyond_the_positions_that_a_model_was_made_for_are_counted_as_they_are_generated(
    tmp_path,
):
    folder = tiny_checkpoint(tmp_path / "model", family="llama")
    asked = (
        "generate",
        "--model",
        folder,
        "--text",
        SOURCES[0],
        "--text",
        "a",
        "--json",
        "--device",
        "cpu",
    )
    plenty = run(*asked, "--set", "trace=true")
    assert "positions" not in plenty.stderr
    first, _ = map(json.loads, plenty.stdout.splitlines())
    last = max(
        row["start"] + len(row["tokens"]) + i for i, row in enumerate(first["grid"])
    )
    change(
        folder / "config.json",
        max_position_embeddings=len(first["source_token_ids"]) + last,
    )
    assert "positions" not in run(*asked).stderr
    change(
        folder / "config.json",
        max_position_embeddings=len(first["source_token_ids"]) + last - 1,
    )
    told = "1 of 2 sources was with text beyond the positions that the model was made for: id 1; --max"
    assert told in " ".join(run(*asked).stderr.split())


@pytest.mark.slow
def test_the_baseline_of_a_chat_model_is_trained_by_the_command_that_the_report_names(
    workspace,
):
    base = foreign(workspace / "a base")
    train(workspace, "--model", base, "--chat", "--delay", "1")
    report = ("report", "-w", workspace, *QUICK)
    (command,) = re.findall(
        "run `pipedec (.*?)` first, or give --baseline", running.refused(*report)
    )
    run(*shlex.split(command), *FEW[2:])
    made = [
        settings_of(workspace / "models" / name) for name in ("pipelined", "sequential")
    ]
    assert [(one["chat"], one["prompt"]) for one in made] == [(True, "{source}")] * 2
    trained = read_json(workspace / "models/sequential/training.json")["settings"]
    assert (trained["model"], trained["training"]["max_steps"]) == (str(base), 2)
    run(*report)
    manifests = [
        read_json(path)["settings"]
        for path in workspace.glob("generations/*.manifest.json")
    ]
    assert [(one["chat"], one["prompt"]) for one in manifests] == [
        (True, "{source}")
    ] * 2


def test_the_card_says_what_a_model_is_for_and_in_which_words_it_is_asked(workspace):
    base = foreign(workspace / "base")
    how = ("--set", "prompt_template=Say {source}!", "--max-source-tokens", "99")
    train(workspace, "--model", base, "--chat", *how)
    card = (workspace / "models" / "pipelined" / "README.md").read_text(
        encoding="utf-8"
    )
    purpose = re.search(r"## What it is for\n\n(.*?)\n\n## ", card, re.DOTALL)
    assert purpose is not None and "trained only to write targets" in purpose[1]
    assert (
        'read as "Say {source}!" in its chat template' in purpose[1]
        and "at most 99 tokens" in purpose[1]
    )
