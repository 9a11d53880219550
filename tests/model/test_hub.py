"""Models of the hub: read from its cache like any other folder."""

import shutil

import pytest
import torch

from pipedec_cli.model.bare import BareModel
from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.model.hub import snapshot
from tests.checkpoints import tiny_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """A model in the hub's cache, as a download leaves it, and the folder that holds its files."""
    cache = tmp_path / "hub"
    repository = cache / "models--owner--name"
    folder = repository / "snapshots" / COMMIT
    folder.parent.mkdir(parents=True)
    shutil.copytree(tiny_checkpoint(tmp_path / "model"), folder)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    return folder


def test_a_model_in_the_hubs_cache_is_its_folder(cached):
    assert snapshot("owner/name") == cached


@pytest.mark.parametrize("name", ["owner/other", "no name of the hub"])
def test_a_model_that_cannot_be_had_is_none(cached, name):
    assert snapshot(name) is None


def test_a_model_without_weights_in_safetensors_is_none(cached):
    for file in cached.glob("model*.safetensors"):
        file.unlink()
    assert snapshot("owner/name") is None


def test_a_model_of_the_hub_is_mapped_like_a_folder_and_knows_its_commit(cached):
    read = load_checkpoint("owner/name", computed=torch.float32)
    assert isinstance(read.model, BareModel)
    assert read.model.config._commit_hash == COMMIT
