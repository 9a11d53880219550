"""Weights packed for the compiled kernels: no matrix in memory twice, the encoder that is fastest, and what is refused."""

import copy

import pytest
import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.decoding.decoder import load
from pipedec_cli.model.engine.engine import lay_out
from pipedec_cli.model.engine.native import kinds, store
from pipedec_cli.model.engine.native.library import BuildError
from pipedec_cli.model.engine.native.packing import pack_native
from pipedec_cli.model.engine.native.stepper import NativeEncoder
from tests.model.engines import (
    KINDS,
    SOURCES,
    by_torch,
    grid_rows,
    in_every_dtype,
    logits_of,
    narrowed_copy,
    needs_int8,
    needs_kernels,
    small_model,
)
from tests.model.test_files import saved


def copy_of(kind):
    return copy.deepcopy(small_model(kind))


# --- Packing
# ----------------------------------------------------------------------------------------------------------


@in_every_dtype
@pytest.mark.parametrize(
    "kind", [*KINDS, "llama, no panel", "qwen3, tied", "gemma3_text, windows"]
)
def test_a_consumed_model_gives_the_same_logits_and_no_matrix_is_in_memory_twice(
    kind, dtype
):
    """The embedding is left where it is not tied to the output matrix, or torch's encoder or int4 needs it."""
    model = narrowed_copy(small_model(kind), dtype)
    quantize = dtype if dtype in (torch.int8, torch.int4) else None
    tied = model.lm_head.weight is model.get_input_embeddings().weight
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    kept = logits_of(
        lay_out(model, quantize=quantize), [grid_rows(0, 9)], SOURCES[3] * 4
    )
    assert all(
        torch.equal(tensor, before[name]) for name, tensor in model.named_parameters()
    )
    weights = lay_out(model, quantize=quantize, consume=True)
    assert torch.equal(logits_of(weights, [grid_rows(0, 9)], SOURCES[3] * 4), kept)
    matrices = {
        name
        for name, tensor in model.named_parameters()
        if tensor.dim() > 1 and tensor.numel()
    }
    left = {name for name in matrices if "attention_bias" not in name}
    assert left <= {"shared.weight", "model.embed_tokens.weight"}
    assert (weights.stepping.struct.embedding is None) is (not left)
    if dtype not in (torch.bfloat16, torch.int4):
        assert bool(left) is not tied


def _set(name, value):
    return lambda model: setattr(model.config, name, value)


def _double(name):
    def change(model):
        config = copy.deepcopy(model.config)
        setattr(config, name, 2 * getattr(config, name))
        (model.decoder if hasattr(model, "decoder") else model).config = config

    return change


@needs_kernels
@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        ("t5", lambda model: model.half(), "neither all float32 nor all bfloat16"),
        ("t5", _set("dense_act_fn", "silu"), "activation is silu"),
        ("t5", _set("d_kv", 7), "width is odd"),
        *(
            ("t5", _double(name), "not of the size that the config says")
            for name in ("num_heads", "d_kv", "d_model", "d_ff")
        ),
        (
            "llama, no panel",
            lambda model: model.half(),
            "neither all float32 nor all bfloat16",
        ),
        ("llama, no panel", _set("hidden_act", "mish"), "activation is mish"),
        ("llama, no panel", _set("attention_bias", True), "biases"),
        ("llama, no panel", _set("mlp_bias", True), "biases"),
        ("llama, no panel", _set("model_type", "bart"), "no kernels for bart"),
        (
            "llama, no panel",
            lambda model: model.config.rope_parameters.update(rope_type="dynamic"),
            "is dynamic",
        ),
        (
            "gemma3_text, windows",
            _set("use_bidirectional_attention", True),
            "not causal",
        ),
        ("qwen3, tied", _set("head_dim", 36), "a part of each head"),
        *(
            ("qwen3, tied", _set(name, 48), "not of the size that the config says")
            for name in ("hidden_size", "intermediate_size", "num_attention_heads")
        ),
    ],
)
def test_a_model_that_the_kernels_cannot_run_is_refused(kind, change, reason):
    model = copy_of(kind)
    change(model)
    with pytest.raises(BuildError, match=reason):
        pack_native(model)


@needs_int8
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
def test_packed_weights_of_a_folder_are_kept_and_taken_by_the_next_start(
    tmp_path, monkeypatch, dtype
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "FEWEST_BYTES", 0)
    folder = tmp_path / "model"
    saved(folder, "llama, no panel")

    def logits():
        weights = load(str(folder), dtype=dtype, device="cpu").weights
        store.settle()
        return logits_of(weights, [grid_rows(0, 9)], SOURCES[3] * 4)

    first = logits()
    kept = [*(tmp_path / "cache/pipedec/packed").iterdir()]
    assert len(kept) == 1
    state = kept[0].stat()
    assert torch.equal(logits(), first)
    assert kept[0].stat().st_ino == state.st_ino


# --- The engine that is taken
# -----------------------------------------------------------------------------------------


def test_torch_steps_where_kernels_cannot_or_are_switched_off(monkeypatch):
    assert (
        "neither all float32 nor all bfloat16" in lay_out(copy_of("t5").half()).kernels
    )
    monkeypatch.setenv("PIPEDEC_NATIVE", "0")
    assert (
        lay_out(small_model("t5")).kernels
        == "transformers' modules; not compiled: PIPEDEC_NATIVE is 0"
    )
    with pytest.raises(
        UserError,
        match="int8 cannot be had here: PIPEDEC_NATIVE is 0; use --dtype bfloat16",
    ):
        lay_out(small_model("t5"), quantize=torch.int8)


@needs_kernels
@pytest.mark.parametrize(
    ("dtype", "slow", "way", "compiled"),
    [
        (torch.float32, True, "wide", torch.float32),
        (torch.float32, True, "tiles", torch.float32),
        (torch.float32, False, "wide", None),
        (torch.bfloat16, True, "wide", torch.float32),
        (torch.bfloat16, True, "pairs", torch.bfloat16),
        (torch.bfloat16, True, "tiles", torch.bfloat16),
    ],
)
def test_the_compiled_encoder_is_taken_where_it_is_faster(
    monkeypatch, dtype, slow, way, compiled
):
    """`slow`: torch's float32 products leave speed unused."""
    monkeypatch.setattr(kinds, "has_slow_products", lambda: slow)
    monkeypatch.setattr(kinds, "bfloat16_way", lambda kernels: way)
    model = copy_of("t5").to(dtype)
    encoder = lay_out(model).encoder
    assert isinstance(encoder, NativeEncoder) is (compiled is not None)
    if compiled is not None:
        assert encoder.weights.dtype == compiled
    assert not isinstance(by_torch(model).encoder, NativeEncoder)
