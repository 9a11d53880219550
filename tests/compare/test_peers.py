"""What users would take instead, on a plain T5 that was trained on the spot."""

import importlib
import json
import time
from dataclasses import replace
from importlib.util import find_spec

import pytest

from pipedec_cli.compare.child import ChildError
from pipedec_cli.compare.entry import TokenAgreement
from pipedec_cli.compare.peers import PEERS, Absent, make_peer
from pipedec_cli.compare.runners import EngineRunner
from pipedec_cli.decoding.decoder import load
from pipedec_cli.model.checkpoint import save_checkpoint
from tests.checkpoints import SMALL, TOLD, fresh_toy, tiny_checkpoint
from tests.running import extra, slow

MOST = 40
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 4.0,
    "low_freq_factor": 1.0,
}
_LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 4096}


@pytest.fixture(params=["t5", "qwen3", slow("llama"), slow("qwen2")], scope="module")
def decoder(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("plain") / "sequential"
    return load(
        tiny_checkpoint(place, decoder="sequential", family=request.param),
        consume=False,
    )


@pytest.fixture(scope="module")
def plain(decoder):
    return decoder.checkpoint


@pytest.fixture(scope="module")
def sources(decoder):
    return [decoder.text.source(source)[0] for source, _ in TOLD]


@pytest.fixture(scope="module")
def ours(decoder, sources):
    return EngineRunner(decoder, {"max_tokens": MOST}).run(
        sources, 1, time.perf_counter
    )


@pytest.fixture(params=["transformers", extra("ctranslate2")], scope="module")
def peer(request, plain, tmp_path_factory):
    return make_peer(
        request.param, plain, tmp_path_factory.mktemp("peers") / "converted", MOST
    )


@pytest.fixture
def ctranslate2():
    from pipedec_cli.compare.peers import ctranslate2

    return ctranslate2


def test_peer_makes_the_tokens_of_our_sequential_decoder_here_in_batches_and_in_a_child(
    peer, sources, ours
):
    assert peer.settings["version"].split()[0] in ("transformers", "ctranslate2")
    assert (peer.settings["dtype"], peer.settings["max_tokens"]) == (
        "float32",
        str(MOST),
    )
    made = peer.run(sources, 1, time.perf_counter)
    assert TokenAgreement.between(made.outputs, ours.outputs) == TokenAgreement(
        len(sources), len(sources)
    )
    steps = [output.steps for output in made.outputs]
    assert steps == [output.steps for output in ours.outputs]
    assert made.calls == sum(steps)
    factory, payload = peer.spec()
    module, _, name = factory.partition(":")
    again = getattr(importlib.import_module(module), name)(
        **json.loads(json.dumps(payload))
    )
    told = again.run(sources, 1, time.perf_counter).outputs
    assert [output.tokens for output in told] == [
        output.tokens for output in ours.outputs
    ]
    if peer.largest_batch != 1:
        made = peer.run(sources, 4, time.perf_counter)
        batched, alone = (
            [(one.tokens, one.steps) for one in run.outputs] for run in (made, ours)
        )
        assert batched == alone
        assert made.calls < ours.calls


@pytest.mark.parametrize("name", PEERS)
def test_peer_makes_no_more_tokens_than_it_is_told(plain, sources, tmp_path, name):
    family = name.partition(":")[0]
    if family not in ("transformers", *filter(find_spec, ["ctranslate2"])):
        pytest.skip(f"{family} is not installed")
    peer = make_peer(name, plain, tmp_path, 3)
    if not isinstance(peer, Absent):
        (made,) = peer.run(sources[:1], 1, time.perf_counter).outputs
        assert len(made.tokens) == 3


def test_transformers_in_bfloat16_has_its_own_weights_or_is_absent(
    plain, sources, tmp_path, monkeypatch
):
    monkeypatch.setattr("pipedec_cli.model.arguments.computes_bfloat16", lambda: True)
    peer = make_peer("transformers:bfloat16", plain, tmp_path, 3, exactly=True)
    assert len(peer.run(sources[:1], 1, time.perf_counter).outputs[0].tokens) == 3
    dtypes = (
        peer.settings["dtype"],
        str(peer.checkpoint.model.dtype),
        str(plain.model.dtype),
    )
    assert dtypes == ("bfloat16", "torch.bfloat16", "torch.float32")
    assert (peer.checkpoint.eos, peer.spec()[1]["dtype"]) == (plain.eos, "bfloat16")
    monkeypatch.setattr("pipedec_cli.model.arguments.computes_bfloat16", lambda: False)
    absent = make_peer("transformers:bfloat16", plain, tmp_path)
    assert absent == Absent(
        "transformers:bfloat16", "this CPU has no instructions for bfloat16"
    )


def test_transformers_decodes_greedily_whatever_the_checkpoint_would_have_it_do(
    tmp_path,
):
    place = tiny_checkpoint(tmp_path / "sequential", decoder="sequential")
    asked = {
        "repetition_penalty": 9.0,
        "no_repeat_ngram_size": 2,
        "num_beams": 3,
        "forced_bos_token_id": 7,
    }
    (place / "generation_config.json").write_text(json.dumps(asked), encoding="utf-8")
    decoder = load(place, consume=False)
    sources = [decoder.text.source(source)[0] for source, _ in TOLD]
    ours = EngineRunner(decoder, {"max_tokens": MOST}).run(
        sources, 1, time.perf_counter
    )
    peer = make_peer("transformers", decoder.checkpoint, tmp_path, MOST).run(
        sources, 1, time.perf_counter
    )
    assert [output.tokens for output in peer.outputs] == [
        output.tokens for output in ours.outputs
    ]


@pytest.mark.extra("ctranslate2")
def test_a_family_that_ctranslate2_does_not_know_is_absent_in_one_line(
    tmp_path, ctranslate2
):
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
def test_what_ctranslate2_would_pass_over_is_said(ctranslate2, family, special, words):
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
    plain, sources, tmp_path, ctranslate2
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
    plain, sources, tmp_path, monkeypatch, ctranslate2
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
def test_ctranslate2_without_the_dtype_falls_back_to_float32(monkeypatch, ctranslate2):
    import ctranslate2 as package

    for there, expected in ({"int8"}, "float32"), ({"bfloat16"}, "bfloat16"):
        found = {"float32", *there}
        monkeypatch.setattr(
            package, "get_supported_compute_types", lambda *_, found=found: found
        )
        assert ctranslate2.compute_type("bfloat16", "cpu") == expected
