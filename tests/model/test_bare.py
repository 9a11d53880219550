"""Weights alone: loaded where kernels need no more, the same texts as of the whole model, and left to transformers else."""

import json
import subprocess
import sys

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from pipedec_cli.model.decoder import load
from pipedec_cli.model.engine.native.bare import BareModel, bare_model
from tests.checkpoints import change
from tests.model.engines import KINDS, VOCABULARY, needs_kernels, small_model
from tests.model.test_checkpoint import SETTINGS, words_tokenizer

TEXTS = ["w3 w9 w27", "w31", "w8 w8 w12 w30 w5 w6"]

#: Loads a folder in two dtypes, writes a text with each, and says what was imported on the way.
DECODE = """
import json, sys
from pipedec_cli.model.decoder import load
decoders = [load(sys.argv[1], dtype=dtype, device="cpu") for dtype in ("float32", "int8")]
tokens = [[made.tokens for made in decoder.texts(["w3 w9"])] for decoder in decoders]
heavy = [name for name in ("transformers.modeling_utils", "sympy", "scipy", "accelerate") if name in sys.modules]
print(json.dumps([tokens, heavy]))
"""


def saved(folder, kind="t5"):
    settings = msgspec.structs.replace(SETTINGS, delay="any", source_prefix="")
    save_checkpoint(Checkpoint(small_model(kind), words_tokenizer(VOCABULARY), settings, "x"), folder)
    return folder


def save_with(folder, weights):
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_weights_alone_write_what_the_whole_model_writes(kind, dtype, tmp_path):
    folder = saved(tmp_path, kind)
    bare, whole = (load(folder, dtype=dtype, device="cpu", consume=consume) for consume in (True, False))
    assert [isinstance(each.checkpoint.model, BareModel) for each in (bare, whole)] == [True, False]
    made = [[(one.text, one.grid) for one in decoder.texts(TEXTS, batch_size=2)] for decoder in (bare, whole)]
    assert made[0] == made[1]


@needs_kernels
def test_decoding_by_kernels_imports_no_model_code_of_transformers(tmp_path):
    command = [sys.executable, "-c", DECODE, str(saved(tmp_path))]
    tokens, heavy = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    here = [load(tmp_path, dtype=dtype, device="cpu").texts(["w3 w9"]) for dtype in ("float32", "int8")]
    assert (tokens, heavy) == ([[made.tokens for made in texts] for texts in here], [])


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_what_transformers_loads(kind, tmp_path):
    folder, model = saved(tmp_path, kind), small_model(kind)
    theirs = model.state_dict()
    for dtype in (torch.float32, torch.bfloat16):
        bare = bare_model(folder, model.config, dtype)
        mine = dict(bare.named_parameters(remove_duplicate=False))
        assert set(mine) == set(theirs)
        assert all(torch.equal(weight, theirs[name].to(dtype)) for name, weight in mine.items())
        assert (bare.dtype, bare.device.type, bare.decoder.config) == (dtype, "cpu", model.config)
        assert (bare.lm_head.weight is bare.decoder.embed_tokens.weight) is (kind != "gated")


def test_a_weight_that_the_first_t5s_hold_and_nothing_reads_is_passed_over(tmp_path):
    weights = load_file(saved(tmp_path) / "model.safetensors")
    unread = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": torch.ones(8, 4)}
    save_with(tmp_path, weights | unread)
    bare = bare_model(tmp_path, small_model("t5").config, torch.float32)
    assert {name for name, _ in bare.named_parameters()} <= set(weights)


@pytest.mark.parametrize(
    "hurt",
    [
        {"decoder.block.1.layer.2.layer_norm.weight": None},
        {"decoder.block.2.layer.0.layer_norm.weight": torch.ones(32)},
        {"decoder.final_layer_norm.weight": torch.ones(31)},
        {"shared.weight": torch.ones(VOCABULARY, 32, dtype=torch.int64)},
    ],
    ids=["missing", "one more", "another size", "integers"],
)
def test_other_weights_than_the_familys_are_left_to_transformers_and_its_words(hurt, tmp_path):
    weights = load_file(saved(tmp_path) / "model.safetensors") | hurt
    save_with(tmp_path, {name: weight for name, weight in weights.items() if weight is not None})
    assert bare_model(tmp_path, small_model("t5").config, torch.float32) is None
    if "shared.weight" in hurt:
        return  # which transformers converts
    with pytest.raises(UserError, match="cannot load the checkpoint") as bare:
        load(tmp_path, device="cpu")
    with pytest.raises(UserError) as whole:
        load_checkpoint(str(tmp_path))
    assert str(bare.value) == str(whole.value)


def test_a_file_that_is_none_and_weights_in_parts_are_left_to_transformers(tmp_path):
    folder, config = saved(tmp_path), small_model("t5").config
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    assert bare_model(folder, config, torch.float32) is None
    (folder / "model.safetensors").write_bytes(b"nothing of the kind")
    assert bare_model(folder, config, torch.float32) is None


@needs_kernels
def test_without_kernels_or_for_what_they_cannot_compute_it_is_the_whole_model(monkeypatch, tmp_path):
    def is_bare():
        return isinstance(load(tmp_path, device="cpu").checkpoint.model, BareModel)

    saved(tmp_path)
    assert is_bare()
    monkeypatch.setenv("PIPEDEC_NATIVE", "0")
    assert not is_bare()
    monkeypatch.delenv("PIPEDEC_NATIVE")
    change(tmp_path / "config.json", feed_forward_proj="silu", dense_act_fn="silu")
    assert not is_bare()
    assert list(load(tmp_path, device="cpu").texts(TEXTS))
