"""Checkpoints: what is saved comes back, here and in plain transformers."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs

from pipedec_cli.data.records import Segmentation
from pipedec_cli.data.segmentation import make_segmenter
from pipedec_cli.model.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from tests.checkpoints import fresh_toy
from tests.model.families import KINDS, SOURCES, Kind, small_model
from tests.model.saving import SETTINGS


def logits_of(model: Any) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(
            input_ids=torch.tensor([SOURCES[0]]), decoder_input_ids=torch.tensor([[0, 5, 6]])
        ).logits
    return logits


def test_the_settings_come_back_from_config_json(saved: Path) -> None:
    config = json.loads((saved / "config.json").read_text(encoding="utf-8"))

    checkpoint = load_checkpoint(str(saved))

    assert config["pipedec"]["delay"] == 2
    assert checkpoint.settings == SETTINGS
    assert checkpoint.settings.sub_max == 7
    assert checkpoint.name == str(saved)
    assert not checkpoint.model.training


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


def test_the_first_config_of_a_t5_v1_1_is_read_as_it_was_meant(saved: Path, tmp_path: Path) -> None:
    """Published ones say `tie_word_embeddings: false` and nothing of scaling."""
    model = copy.deepcopy(small_model("gated"))
    save_checkpoint(replace(fresh_toy(), model=model, settings=SETTINGS), tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    del config["scale_decoder_outputs"], config["pipedec"]
    path.write_text(json.dumps({**config, "tie_word_embeddings": False}), encoding="utf-8")

    checkpoint = load_checkpoint(str(tmp_path))

    assert checkpoint.settings is None
    assert logits_of(checkpoint.model).equal(logits_of(model))


def test_a_segmenter_is_kept_with_the_checkpoint(tmp_path: Path) -> None:
    text = "Mr. Smith eats. He likes it."
    segmenter = make_segmenter("sentence", targets=[text] * 5)
    settings = structs.replace(SETTINGS, segmentation=Segmentation("sentence", (), " "))

    save_checkpoint(replace(fresh_toy(), settings=settings, segmenter=segmenter), tmp_path)

    kept = load_checkpoint(str(tmp_path)).segmenter
    assert kept is not None
    assert kept.spans(text) == segmenter.spans(text)


def test_the_dtype_is_that_which_was_asked_for(saved: Path) -> None:
    assert load_checkpoint(str(saved), dtype=torch.bfloat16).model.dtype == torch.bfloat16


def test_saving_fails_whole_or_not_at_all(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full in the midst of it leaves what was there as it was, and nothing beside it."""
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    checkpoint = load_checkpoint(str(saved))
    with torch.no_grad():
        checkpoint.model.shared.weight.add_(1)

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.tokenizer, "save_pretrained", full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(checkpoint, saved)

    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before


def test_a_checkpoint_can_be_saved_over_the_one_it_was_loaded_from(saved: Path) -> None:
    checkpoint = load_checkpoint(str(saved))
    with torch.no_grad():
        checkpoint.model.shared.weight.add_(1)

    save_checkpoint(checkpoint, saved)

    assert load_checkpoint(str(saved)).model.shared.weight.equal(checkpoint.model.shared.weight)


def test_bos_and_eos_are_the_models() -> None:
    checkpoint = fresh_toy()
    assert (checkpoint.bos, checkpoint.eos) == (0, 1)

    checkpoint.model.config.decoder_start_token_id = None  # T5's own configs may leave it to the pad token
    checkpoint.model.config.pad_token_id = 5
    checkpoint.model.config.eos_token_id = [7, 8]

    assert (checkpoint.bos, checkpoint.eos) == (5, 7)


def test_the_codec_has_the_prefix_and_the_limit_that_were_trained_with(saved: Path) -> None:
    checkpoint = load_checkpoint(str(saved))

    codec = checkpoint.codec()

    assert (codec.prefix, codec.max_source_tokens, codec.eos) == ("summarize: ", 300, 1)
    checkpoint.settings = None
    assert (checkpoint.codec().prefix, checkpoint.codec().max_source_tokens) == ("", 2048)


def test_loading_leaves_transformers_talk_as_it_was(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from transformers.utils import logging

    level = logging.get_verbosity()

    load_checkpoint(str(saved))

    assert logging.get_verbosity() == level
    assert logging.is_progress_bar_enabled()
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_a_checkpoint_without_settings_is_an_ordinary_t5(tmp_path: Path) -> None:
    plain = fresh_toy()
    plain.model.save_pretrained(tmp_path)
    plain.tokenizer.save_pretrained(tmp_path)

    checkpoint = load_checkpoint(str(tmp_path))

    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.settings is None
    assert checkpoint.segmenter is None
