"""What users would take instead, on a plain T5 that was trained on the spot."""

import importlib
import json
import time
from importlib.util import find_spec

import pytest

from pipedec_cli.compare.entry import TokenAgreement
from pipedec_cli.compare.peers import PEERS, Absent, make_peer
from pipedec_cli.compare.runners import EngineRunner
from pipedec_cli.decoding.decoder import load
from tests.checkpoints import TOLD, tiny_checkpoint
from tests.running import extra

MOST = 40
#: Left out where it was taken out of the package.
CTRANSLATE2 = [extra(name) for name in PEERS if name == "ctranslate2"]


@pytest.fixture(scope="module")
def ours(decoder, sources):
    return EngineRunner(decoder, {"max_tokens": MOST}).run(
        sources, 1, time.perf_counter
    )


@pytest.fixture(params=["transformers", *CTRANSLATE2], scope="module")
def peer(request, plain, tmp_path_factory):
    return make_peer(
        request.param, plain, tmp_path_factory.mktemp("peers") / "converted", MOST
    )


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
