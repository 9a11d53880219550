"""Adapters: only they are trained, and what comes out is the plain model."""

import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from pipedec_cli.data.model_files import ADAPTER_FILES
from pipedec_cli.model import lora
from pipedec_cli.model.checkpoint import load_checkpoint, save_checkpoint
from pipedec_cli.training.trainer import train
from tests.checkpoints import QUICK, SMALL, examples_of, fresh_toy, refused, weights_of
from tests.running import slow

pytest.importorskip("peft")
pytestmark = pytest.mark.extra("peft")
FAMILIES = ("t5", "llama", "gemma3", "t5gemma", "bart")
HYPER = replace(QUICK, max_steps=4, learning_rate=1e-2)


def fresh(family="llama"):
    """A small model of a family for the toy data."""
    return fresh_toy(shape=replace(SMALL, family=family, dropout=0.0))


@pytest.fixture
def base(tmp_path):
    save_checkpoint(fresh(), tmp_path / "base")
    return tmp_path / "base"


def learn(checkpoint, folder, **options):
    examples = examples_of(checkpoint)
    return train(
        checkpoint, examples, options.pop("dev", examples[:2]), folder, HYPER, **options
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_the_decoders_linear_layers_alone_are_changed_and_the_result_is_a_plain_model(
    tmp_path, family
):
    checkpoint = fresh(family)
    before = weights_of(checkpoint)
    lora.add_adapters(checkpoint.model, 4, seed=0)
    learn(checkpoint, tmp_path)
    after = load_checkpoint(str(tmp_path))
    weights = weights_of(after)
    assert before.keys() == weights.keys() and not [*tmp_path.glob(ADAPTER_FILES)]
    changed = {name for name in before if not before[name].equal(weights[name])}
    assert not any(re.search(r"encoder\.|norm|embed", name) for name in changed)
    modules = after.model.get_decoder().modules()
    linear = [module for module in modules if isinstance(module, torch.nn.Linear)]
    assert len(changed) == len(linear) > 0


def test_a_training_goes_on_with_its_adapters_and_a_look_at_them_changes_nothing(
    tmp_path, base
):
    whole, begun = [load_checkpoint(str(base)) for _ in range(2)]
    for checkpoint in (whole, begun):
        lora.add_adapters(checkpoint.model, 4, seed=0)
    learn(whole, tmp_path / "whole")
    before = {
        name: one.detach().clone() for name, one in begun.model.named_parameters()
    }
    with lora.merged(begun.model):
        pass
    assert all(before[name].equal(one) for name, one in begun.model.named_parameters())

    def stop(progress):
        if progress.update > 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(begun, tmp_path / "begun", show=stop)
    again = load_checkpoint(str(base))
    lora.add_adapters(again.model, 4, seed=7)
    learn(again, tmp_path / "begun", resume=True)
    expected = weights_of(whole)
    assert all(
        weight.allclose(expected[name], atol=1e-6)
        for name, weight in weights_of(again).items()
    )


def test_an_adapter_is_no_model_and_one_that_is_written_over_leaves_no_files(
    tmp_path, base
):
    adapted = load_checkpoint(str(base))
    lora.add_adapters(adapted.model, 2, seed=0)
    save_checkpoint(adapted, tmp_path / "out")
    (tmp_path / "out" / "adapter_config.json").write_text("{}")
    refused(tmp_path / "out")
    learn(adapted, tmp_path / "out")
    assert not [*(tmp_path / "out").glob(ADAPTER_FILES)]
    assert [path.name for path in (tmp_path / "out").glob("*.safetensors")] == [
        "model.safetensors"
    ]


@pytest.mark.parametrize(
    "family", ["t5", "llama", *map(slow, ["gemma3", "t5gemma", "bart"])]
)
def test_weights_that_are_not_trained_may_be_in_bfloat16(tmp_path, family):
    """The adapters are in float32, and the loss nearly that of a base in float32."""
    save_checkpoint(fresh(family), tmp_path / "base")
    losses = []
    for dtype in (torch.float32, torch.bfloat16):
        checkpoint = fresh(family)
        checkpoint.model = load_checkpoint(str(tmp_path / "base"), dtype=dtype).model
        lora.add_adapters(checkpoint.model, 4, seed=0)
        kinds = {
            weight.requires_grad: weight.dtype
            for weight in checkpoint.model.parameters()
        }
        assert kinds == {True: torch.float32, False: dtype}
        examples = examples_of(checkpoint)
        hyper = replace(HYPER, bf16=True)
        losses.append(
            train(checkpoint, examples, examples[:2], tmp_path / f"{dtype}", hyper).loss
        )
        after = load_checkpoint(str(tmp_path / f"{dtype}")).model.parameters()
        assert {weight.dtype for weight in after} == {torch.float32}
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


@pytest.mark.parametrize("family", ["t5", "llama"])
def test_weights_that_did_not_change_are_saved_in_the_dtype_of_their_files(
    tmp_path, family
):
    stored = fresh(family)
    stored.model.bfloat16()
    save_checkpoint(stored, tmp_path / "base")
    checkpoint = load_checkpoint(str(tmp_path / "base"))
    lora.add_adapters(checkpoint.model, 4, seed=0)
    learn(checkpoint, tmp_path / "out")
    weights = load_file(tmp_path / "out" / "model.safetensors")
    wide = {name for name in weights if weights[name].dtype == torch.float32}
    assert weights.keys() == load_file(tmp_path / "base" / "model.safetensors").keys()
    assert wide and not any(re.search("encoder|norm|embed", name) for name in wide)
    loaded = load_checkpoint(str(tmp_path / "out"))
    expected = weights_of(checkpoint)
    for name, weight in weights_of(loaded).items():
        assert weight.equal(expected[name])
