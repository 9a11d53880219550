"""How `report` and exact mode ask models that read prompts: both decoders and the peers alike."""

from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import SOURCES, TOLD, change, tiny_checkpoint
from tests.jobs.report.running import options_of, report_of, reported, write_data
from tests.model.chats import CHATML
from tests.running import lines_of, read_json, run


@pytest.fixture
def workspace(empty_folder, monkeypatch):
    monkeypatch.setattr("pipedec_cli.evaluate.timing.PAUSE_SECONDS", 0.0)
    place = Path("pipedec-workspace")
    write_data(place, TOLD[:3])
    return place


def talking(folder: Path) -> Path:
    """A checkpoint that has a chat template, as those do that were tuned from a chat model."""
    (folder / "chat_template.jinja").write_text(CHATML, encoding="utf-8")
    return folder


def from_elsewhere(folder: Path) -> Path:
    """The plain model, which `pipedec train` has not made, with a chat template."""
    change(tiny_checkpoint(folder, decoder="sequential", family="llama") / "config.json", "pipedec")
    return talking(folder)


def asked_of(workspace: Path) -> dict[str, tuple[Any, Any]]:
    """How each of the predictions in the workspace was asked for: the prompt, and whether it was a chat."""
    found = {}
    for path in sorted(workspace.glob("generations/*.manifest.json")):
        settings = read_json(path)["settings"]
        found[path.name.partition(".")[0]] = (settings.get("prompt"), settings.get("chat"))
    return found


def test_a_model_from_elsewhere_and_the_peers_are_asked_as_the_checkpoint(workspace):
    asked = {"prompt": "Say\n{source}", "chat": True}
    talking(tiny_checkpoint(workspace / "models/pipelined", family="llama", **asked))
    plain = from_elsewhere(Path("my-chat"))
    reported("--baseline", plain, "--compare", "transformers,exact-source,exact-pipelined")
    asked = asked_of(workspace)
    assert len(asked) == 4 and {*asked.values()} == {("Say\n{source}", True)}
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
    told = ("--prompt-template", "Say\n{source}", "--chat", "--device", "cpu", "--out", "o.jsonl")
    run("generate", "-w", workspace, "--model", plain, *told)
    (there,) = (path for path in workspace.glob("generations/sequential-*.jsonl"))
    made, kept = ([one["prediction"] for one in lines_of(path)] for path in ("o.jsonl", there))
    assert made == kept


def test_a_chat_model_beside_an_encoder_decoder_is_asked_as_it_was_as_a_teacher(workspace):
    tiny_checkpoint(workspace / "models/pipelined", prompt="{source}", chat=True)
    plain = from_elsewhere(Path("my-chat"))
    reported("--baseline", plain)
    assert [*asked_of(workspace).values()] == [(None, None), ("{source}", True)]
    assert options_of(report_of(workspace)[1]["sequential"]) == f"--model {plain} --chat"
    told = ("generate", "--exact", plain, "--draft", "pipelined", "--text", SOURCES[0], "--device", "cpu")
    alone = ("generate", "--model", plain, "--text", SOURCES[0], "--device", "cpu")
    for more in ((), ("--no-chat",)):
        assert run(*told, *more).stdout == run(*alone, *more or ("--chat",)).stdout
