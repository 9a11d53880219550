"""CTranslate2: what it takes, in which dtype, and its process."""

import time
from dataclasses import replace

import pytest

from pipedec_cli.compare.child import ChildError
from pipedec_cli.compare.peers import ctranslate2, make_peer
from pipedec_cli.decoding.decoder import load
from pipedec_cli.model.checkpoint import save_checkpoint
from tests.checkpoints import SMALL, fresh_toy
from tests.running import refused

MOST = 40
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 4.0,
    "low_freq_factor": 1.0,
}
_LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 4096}


def test_where_it_is_not_installed_it_is_refused_before_any_model_is_loaded(
    monkeypatch,
):
    monkeypatch.setattr("pipedec_cli.compare.peers.find_spec", lambda name: None)
    monkeypatch.setattr("pipedec_cli.model.checkpoint.load_checkpoint", None)
    refused("report", "--compare", "sequential,ctranslate2:int8")


@pytest.mark.extra("ctranslate2")
def test_a_family_that_ctranslate2_does_not_know_is_absent_in_one_line(tmp_path):
    save_checkpoint(
        fresh_toy("sequential", shape=replace(SMALL, family="smollm3")),
        tmp_path / "smollm3",
    )
    checkpoint = load(str(tmp_path / "smollm3"), consume=False).checkpoint
    absent = make_peer("ctranslate2", checkpoint, tmp_path / "converted")
    assert absent.why.endswith(
        "No conversion is registered for the model configuration SmolLM3Config"
    )


@pytest.mark.extra("ctranslate2")
@pytest.mark.parametrize(
    ("family", "special", "words"),
    [
        ("llama", {"head_dim": 16}, "not as wide as the model"),
        ("llama", {"rope_parameters": _LLAMA3}, "not made for 8,192 tokens"),
        (
            "qwen3",
            {"use_sliding_window": True, "layer_types": ["sliding_attention"]},
            "with windows",
        ),
        (
            "gemma3_text",
            {"query_pre_attn_scalar": 256},
            "not scaled by the heads' width",
        ),
    ],
)
def test_what_ctranslate2_would_pass_over_is_said(family, special, words):
    from transformers import AutoConfig

    sizes = {
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_hidden_layers": 1,
        "head_dim": 8,
    }
    alike = {"query_pre_attn_scalar": 8} if family == "gemma3_text" else {}
    assert (
        ctranslate2.unsupported(AutoConfig.for_model(family, **sizes, **alike)) is None
    )
    assert words in ctranslate2.unsupported(
        AutoConfig.for_model(family, **sizes | special)
    )


@pytest.mark.extra("ctranslate2")
def test_ctranslate2_has_a_process_of_its_own_and_goes_on_after_errors(
    plain, sources, tmp_path
):
    peer = make_peer("ctranslate2", plain, tmp_path / "converted", MOST)
    assert peer.settings["process"] == "its own"
    with pytest.raises(ChildError, match="IndexError"):
        peer.run([[10**9]], 1, time.perf_counter)
    assert peer.run(sources[:1], 1, time.perf_counter).outputs
    peer.device = "cuda"  # its memory there is not known rather than wrong
    with pytest.raises(ChildError, match="no counter"):
        peer.spec()


@pytest.mark.extra("ctranslate2")
def test_ctranslate2_in_another_dtype_shares_the_files_or_is_absent(
    plain, sources, tmp_path, monkeypatch
):
    place, converted = tmp_path / "converted", []
    real = ctranslate2.convert
    monkeypatch.setattr(
        ctranslate2, "convert", lambda *given: converted.append(given) or real(*given)
    )
    for name, dtype in ("ctranslate2", "float32"), ("ctranslate2:int8", "int8"):
        peer = make_peer(name, plain, place, MOST)
        assert len(peer.run(sources, 4, time.perf_counter).outputs) == len(sources)
        assert (peer.settings["dtype"], peer.settings["threads"].isdigit()) == (
            dtype,
            True,
        )
    assert len(converted) == 1
    monkeypatch.setattr(ctranslate2, "compute_type", lambda *_: "float32")
    assert (
        make_peer("ctranslate2:bfloat16", plain, place).why
        == "CTranslate2 has no bfloat16 on this device"
    )


@pytest.mark.extra("ctranslate2")
def test_ctranslate2_without_the_dtype_falls_back_to_float32(monkeypatch):
    import ctranslate2 as package

    for there, expected in ({"int8"}, "float32"), ({"bfloat16"}, "bfloat16"):
        found = {"float32", *there}
        monkeypatch.setattr(
            package, "get_supported_compute_types", lambda *_, found=found: found
        )
        assert ctranslate2.compute_type("bfloat16", "cpu") == expected
