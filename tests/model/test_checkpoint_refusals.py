"""A checkpoint that cannot be loaded is one clear line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.model.saving import SETTINGS, refused

SAVED = msgspec.to_builtins(SETTINGS)


@pytest.mark.parametrize("name", ["nowhere", "./no/where", "/no/where", "~/no", "a/b/c", ""])
def test_a_folder_that_is_not_there_is_said_not_to_be(name: str) -> None:
    assert refused(name).startswith(f"no checkpoint folder '{name}'; give a folder that `pipedec train` made")


def test_a_file_is_no_checkpoint_folder(saved: Path) -> None:
    assert "no checkpoint folder" in refused(saved / "config.json")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path).startswith(f"cannot load the checkpoint {tmp_path}: ")


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart"])
def test_what_is_no_t5_is_refused_by_name(tmp_path: Path, family: str) -> None:
    from transformers import AutoConfig

    AutoConfig.for_model(family).save_pretrained(tmp_path)

    line = refused(tmp_path)

    assert line == (
        f"{tmp_path} is a {family!r} model, not a T5; use a checkpoint of one of these families: t5, mt5, umt5"
    )


def test_a_folder_without_a_model_type_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")

    assert "cannot load the checkpoint" in refused(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '"t5"'])
def test_a_config_that_is_no_config_is_refused(saved: Path, content: str) -> None:
    (saved / "config.json").write_text(content, encoding="utf-8")

    assert "cannot load the checkpoint" in refused(saved)


@pytest.mark.parametrize("kept", [0, 4, 100, 20_000])
def test_weights_that_were_cut_off_are_refused(saved: Path, kept: int) -> None:
    weights = saved / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])

    assert f"cannot load the checkpoint {saved}" in refused(saved)


def test_weights_that_are_no_weights_are_refused(saved: Path) -> None:
    (saved / "model.safetensors").write_bytes(b"\xff" * 1000)

    assert "cannot load the checkpoint" in refused(saved)


def test_missing_weights_are_refused(saved: Path) -> None:
    (saved / "model.safetensors").unlink()

    assert "cannot load the checkpoint" in refused(saved)


def test_weights_that_lack_a_part_are_refused_rather_than_made_up(saved: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(saved / "model.safetensors")
    weights.pop("decoder.block.1.layer.0.SelfAttention.q.weight")
    save_file(weights, saved / "model.safetensors", metadata={"format": "pt"})

    assert "decoder.block.1.layer.0.SelfAttention.q.weight" in refused(saved)


def test_weights_of_another_shape_are_refused(saved: Path) -> None:
    path = saved / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "d_ff": 64}), encoding="utf-8")

    assert "cannot load the checkpoint" in refused(saved)


def test_a_missing_tokenizer_is_refused(saved: Path) -> None:
    for path in saved.glob("*token*"):
        path.unlink()

    assert "it has no tokenizer" in refused(saved)


@pytest.mark.parametrize("content", ["", "{}", '{"model": {"type": "none"}}'])
def test_a_broken_tokenizer_is_refused(saved: Path, content: str) -> None:
    (saved / "tokenizer.json").write_text(content, encoding="utf-8")

    assert "cannot load the checkpoint" in refused(saved)


@pytest.mark.parametrize(
    "settings",
    [
        {"decoder": "pipelined"},
        {**SAVED, "colour": "red"},
        {**SAVED, "segmentation": {"level": "phrase"}},
        {**SAVED, "segmentation": "phrase"},
        {**SAVED, "segmentation": 3},
        {**SAVED, "decoder": "parallel"},
        {**SAVED, "delay": 0},
        {**SAVED, "delay": "often"},
        "pipelined",
        [1],
    ],
)
def test_settings_of_another_version_are_refused(saved: Path, settings: Any) -> None:
    path = saved / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "pipedec": settings}), encoding="utf-8")

    line = refused(saved)

    assert line.startswith(f"{path}: the settings under 'pipedec' are not of this version")
    assert line.endswith("train the checkpoint anew, or use the version that wrote it")
