"""Checkpoints: what is saved comes back, here and in plain transformers; what cannot be loaded is one clear line."""

from __future__ import annotations

import copy
import json
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Segmentation
from pipedec_cli.data.segmentation import make_segmenter
from pipedec_cli.model.checkpoint import MethodSettings, load_checkpoint, save_checkpoint
from tests.checkpoints import fresh_toy
from tests.model.families import KINDS, SOURCES, Kind, small_model

PHRASES = Segmentation("phrase", (";", " / "), "; ", sub_max=7)
SETTINGS = MethodSettings("pipelined", 2, PHRASES, "summarize: ", max_source_tokens=300, time_max=33)
IN_CONFIG = msgspec.to_builtins(SETTINGS)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder as `pipedec train` leaves it."""
    save_checkpoint(replace(fresh_toy(), settings=SETTINGS), tmp_path / "saved")
    return tmp_path / "saved"


def logits_of(model: Any) -> torch.Tensor:
    with torch.no_grad():
        ids = {"input_ids": torch.tensor([SOURCES[0]]), "decoder_input_ids": torch.tensor([[0, 5, 6]])}
        logits: torch.Tensor = model(**ids).logits
    return logits


def changed_config(folder: Path, *missing: str, **values: Any) -> None:
    path = folder / "config.json"
    config = {**json.loads(path.read_text(encoding="utf-8")), **values}
    path.write_text(json.dumps({key: config[key] for key in config if key not in missing}), encoding="utf-8")


def refused(name: str | Path) -> str:
    """The one line with which a checkpoint is refused."""
    with pytest.raises(UserError) as error:
        load_checkpoint(str(name))
    line = str(error.value)
    assert "\n" not in line
    assert len(line) < 400
    return line


# --- what comes back --------------------------------------------------------------------------------------


def test_the_settings_come_back_from_config_json(saved: Path) -> None:
    checkpoint = load_checkpoint(str(saved))
    assert json.loads((saved / "config.json").read_text(encoding="utf-8"))["pipedec"]["delay"] == 2
    assert checkpoint.settings == SETTINGS
    assert checkpoint.name == str(saved)
    assert not checkpoint.model.training
    codec = checkpoint.codec()
    assert (codec.prefix, codec.max_source_tokens, codec.eos) == ("summarize: ", 300, 1)
    checkpoint.settings = None
    assert (checkpoint.codec().prefix, checkpoint.codec().max_source_tokens) == ("", 2048)


@pytest.mark.parametrize("kind", KINDS)
def test_every_family_comes_back_with_the_same_logits(tmp_path: Path, kind: Kind) -> None:
    """Also where the output matrix is its own and is not scaled, as in v1.1 and Flan-T5."""
    model = copy.deepcopy(small_model(kind))
    save_checkpoint(replace(fresh_toy(), model=model, settings=SETTINGS), tmp_path)
    loaded = load_checkpoint(str(tmp_path)).model
    assert type(loaded) is type(model)
    assert logits_of(loaded).equal(logits_of(model))
    again = tmp_path / "again"
    save_checkpoint(replace(fresh_toy(), model=loaded, settings=SETTINGS), again)
    assert logits_of(load_checkpoint(str(again)).model).equal(logits_of(model))


def test_the_first_config_of_a_t5_v1_1_is_read_as_it_was_meant(tmp_path: Path) -> None:
    """Published ones say `tie_word_embeddings: false` and nothing of scaling."""
    model = copy.deepcopy(small_model("gated"))
    save_checkpoint(replace(fresh_toy(), model=model, settings=SETTINGS), tmp_path)
    changed_config(tmp_path, "scale_decoder_outputs", "pipedec", tie_word_embeddings=False)
    checkpoint = load_checkpoint(str(tmp_path))
    assert checkpoint.settings is None
    assert checkpoint.segmenter is None
    assert logits_of(checkpoint.model).equal(logits_of(model))


def test_a_segmenter_is_kept_with_the_checkpoint(tmp_path: Path) -> None:
    text = "Mr. Smith eats. He likes it."
    segmenter = make_segmenter("sentence", targets=[text] * 5)
    settings = msgspec.structs.replace(SETTINGS, segmentation=Segmentation("sentence", (), " "))
    save_checkpoint(replace(fresh_toy(), settings=settings, segmenter=segmenter), tmp_path)
    kept = load_checkpoint(str(tmp_path)).segmenter
    assert kept is not None
    assert kept.spans(text) == segmenter.spans(text)


def test_saving_fails_whole_or_not_at_all(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full in the midst of it leaves what was there as it was, and nothing beside it."""
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    checkpoint = load_checkpoint(str(saved))
    with torch.no_grad():
        checkpoint.model.shared.weight.add_(1)

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.tokenizer, "save_pretrained", full)
        with pytest.raises(OSError, match="No space left"):
            save_checkpoint(checkpoint, saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    save_checkpoint(checkpoint, saved)  # over the one that it was loaded from
    assert load_checkpoint(str(saved)).model.shared.weight.equal(checkpoint.model.shared.weight)


def test_bos_and_eos_are_the_models() -> None:
    checkpoint = fresh_toy()
    assert (checkpoint.bos, checkpoint.eos) == (0, 1)
    checkpoint.model.config.decoder_start_token_id = None  # T5's own configs may leave it to the pad token
    checkpoint.model.config.pad_token_id = 5
    checkpoint.model.config.eos_token_id = [7, 8]
    assert (checkpoint.bos, checkpoint.eos) == (5, 7)


def test_loading_leaves_transformers_talk_as_it_was(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from transformers.utils import logging

    level = logging.get_verbosity()
    load_checkpoint(str(saved))
    assert logging.get_verbosity() == level
    assert logging.is_progress_bar_enabled()
    assert tuple(capfd.readouterr()) == ("", "")


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["nowhere", "./no/where", "/no/where", "~/no", "a/b/c", "", "pyproject.toml"]
)
def test_a_folder_that_is_not_there_is_said_not_to_be(name: str) -> None:
    assert refused(name).startswith(f"no checkpoint folder '{name}'; give a folder that `pipedec train` made")


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart"])
def test_what_is_no_t5_is_refused_by_name(tmp_path: Path, family: str) -> None:
    from transformers import AutoConfig

    AutoConfig.for_model(family).save_pretrained(tmp_path)
    assert refused(tmp_path) == (
        f"{tmp_path} is a {family!r} model, not a T5; use a checkpoint of one of these families: t5, mt5, umt5"
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [("config.json", content) for content in (b"", b"{", b"{}", b"[]", b"null", b'"t5"')]
    + [("model.safetensors", content) for content in (0, 4, 100, 20_000, b"\xff" * 1000, None)]
    + [("tokenizer.json", content) for content in (b"", b"{}", b'{"model": {"type": "none"}}')],
)
def test_a_folder_with_a_spoilt_file_is_refused(saved: Path, name: str, content: bytes | int | None) -> None:
    """It holds something else, its first bytes only, or nothing, since it is not there."""
    whole = (saved / name).read_bytes()
    (saved / name).unlink()
    if content is not None:
        (saved / name).write_bytes(whole[:content] if isinstance(content, int) else content)
    assert refused(saved).startswith(f"cannot load the checkpoint {saved}: ")


def without_a_part(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights.pop("decoder.block.1.layer.0.SelfAttention.q.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def without(pattern: str) -> Callable[[Path], object]:
    return lambda folder: [path.unlink() for path in folder.glob(pattern)]


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (without("*"), ""),
        (lambda folder: changed_config(folder, d_ff=64), ""),
        (without_a_part, "decoder.block.1.layer.0.SelfAttention.q.weight"),  # rather than made up
        (without("*token*"), "it has no tokenizer"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused(
    saved: Path, spoil: Callable[[Path], object], what: str
) -> None:
    spoil(saved)
    line = refused(saved)
    assert line.startswith(f"cannot load the checkpoint {saved}: ")
    assert what in line


@pytest.mark.parametrize(
    "settings",
    [
        {"decoder": "pipelined"},
        {**IN_CONFIG, "colour": "red"},
        {**IN_CONFIG, "segmentation": {"level": "phrase"}},
        {**IN_CONFIG, "segmentation": "phrase"},
        {**IN_CONFIG, "segmentation": 3},
        {**IN_CONFIG, "decoder": "parallel"},
        {**IN_CONFIG, "delay": 0},
        {**IN_CONFIG, "delay": "often"},
        "pipelined",
        [1],
    ],
)
def test_settings_of_another_version_are_refused(saved: Path, settings: Any) -> None:
    changed_config(saved, pipedec=settings)
    line = refused(saved)
    assert line.startswith(f"{saved}/config.json: the settings under 'pipedec' are not of this version")
    assert line.endswith("train the checkpoint anew, or use the version that wrote it")


# --- the hub is asked for names that only it can know, and for nothing else --------------------------------


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Attempts to reach the network, each of which fails; the hub's own offline switch is off."""
    made: list[str] = []

    def fail(*args: Any, **kwargs: Any) -> Any:
        made.append(repr(args))
        raise OSError("the network is not to be used")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # the hub's client tries again, and waits
    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, fail)
    monkeypatch.setattr(socket.socket, "connect", fail)
    return made


@pytest.mark.parametrize(
    "missing", [None, "tokenizer.json", "tokenizer_config.json", "model.safetensors", "config.json"]
)
def test_a_local_folder_whole_or_broken_never_calls_the_hub(
    saved: Path, calls: list[str], missing: str | None
) -> None:
    if missing is None:
        save_checkpoint(load_checkpoint(str(saved)), saved)
    else:
        (saved / missing).unlink()
        refused(saved)
    assert calls == []


def test_a_hub_name_without_the_hub_is_one_line() -> None:
    """The tests run with HF_HUB_OFFLINE."""
    assert refused("google-t5/t5-none").startswith("cannot load the checkpoint google-t5/t5-none: ")


def test_a_hub_name_that_cannot_be_reached_is_one_line(calls: list[str]) -> None:
    test_a_hub_name_without_the_hub_is_one_line()
    assert calls
