"""How `report` and exact mode ask models that read prompts: both decoders and the peers alike."""

from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import SOURCES, change, tiny_checkpoint
from tests.jobs.report.running import options_of, remove, report_of, reported
from tests.model.chats import CHATML
from tests.running import lines_of, read_json, run


def talking(folder: Path) -> Path:
    """A checkpoint that has a chat template, as those do that were tuned from a chat model."""
    (folder / "chat_template.jinja").write_text(CHATML, encoding="utf-8")
    return folder


def from_elsewhere(folder: Path) -> Path:
    """The plain model, which `pipedec train` has not made, with a chat template."""
    change(
        tiny_checkpoint(folder, decoder="sequential", family="llama") / "config.json",
        "pipedec",
    )
    return talking(folder)


def asked_of(workspace: Path) -> list[tuple[Any, Any]]:
    """How each of the predictions in the workspace was asked for: the prompt, and whether it was a chat."""
    manifests = map(read_json, sorted(workspace.glob("generations/*.manifest.json")))
    return [
        (made["settings"].get("prompt"), made["settings"].get("chat"))
        for made in manifests
    ]


@pytest.mark.slow
def test_a_model_from_elsewhere_and_the_peers_are_asked_as_the_checkpoint(workspace):
    remove(workspace / "models")
    asked = {"prompt": "Say\n{source}", "chat": True}
    talking(tiny_checkpoint(workspace / "models/pipelined", family="llama", **asked))
    plain = from_elsewhere(Path("my-chat"))
    reported(
        "--baseline", plain, "--compare", "transformers,exact-source,exact-pipelined"
    )
    assert asked_of(workspace) == [("Say\n{source}", True)] * 4
    _, decoders = report_of(workspace)
    for name in ("transformers", "exact-source", "exact-pipelined"):
        assert decoders[name]["agreement"] == {"equal": 3, "of": 3}, name
    words = r" --prompt-template $'Say\n{source}' --chat"
    assert [options_of(one) for one in decoders.values() if one["command"]] == [
        f"--model {plain}{words}",
        "--delay 2",
        f"--delay 2 --exact {plain} --draft pipelined{words}",
        f"--exact {plain} --draft source{words}",
    ]
    # which is what `generate` makes of the same words
    told = (
        "--prompt-template",
        "Say\n{source}",
        "--chat",
        "--device",
        "cpu",
        "--out",
        "o.jsonl",
    )
    run("generate", "-w", workspace, "--model", plain, *told)
    (there,) = (path for path in workspace.glob("generations/my-chat-????????.jsonl"))
    made, kept = (
        [one["prediction"] for one in lines_of(path)] for path in ("o.jsonl", there)
    )
    assert made == kept


@pytest.mark.slow
def test_a_chat_model_beside_an_encoder_decoder_is_asked_as_it_was_as_a_teacher(
    workspace,
):
    remove(workspace / "models")
    tiny_checkpoint(workspace / "models/pipelined", prompt="{source}", chat=True)
    plain = from_elsewhere(Path("my-chat"))
    reported("--baseline", plain)
    assert sorted(asked_of(workspace), key=str) == [("{source}", True), (None, None)]
    assert (
        options_of(report_of(workspace)[1]["sequential"]) == f"--model {plain} --chat"
    )
    told = (
        "generate",
        "--exact",
        plain,
        "--draft",
        "pipelined",
        "--text",
        SOURCES[0],
        "--device",
        "cpu",
    )
    alone = ("generate", "--model", plain, "--text", SOURCES[0], "--device", "cpu")
    for more in ((), ("--no-chat",)):
        assert run(*told, *more).stdout == run(*alone, *more or ("--chat",)).stdout
