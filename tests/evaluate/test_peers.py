"""What users would take instead, on a plain T5 that was trained on the spot."""

import gc
import time

import psutil
import pytest

from pipedec_cli.evaluate import peers
from pipedec_cli.evaluate.contenders import DecodingChoice, EngineDecoder
from pipedec_cli.evaluate.memory import MeasuringError, Weighable
from pipedec_cli.evaluate.peers import PEERS, Absent, Agreement, agreement, make_peer
from pipedec_cli.evaluate.timing import Output
from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.model.decoder import Decoder
from tests.checkpoints import TOLD, tiny_checkpoint
from tests.evaluate.decoders import FakeClock

MOST = 40


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tiny_checkpoint(tmp_path_factory.mktemp("plain") / "sequential", decoder="sequential")
    return load_checkpoint(str(folder))


@pytest.fixture(scope="module")
def sources(plain):
    codec = plain.codec()
    return [codec.source(source)[0] for source, _ in TOLD]


@pytest.fixture(scope="module")
def ours(plain, sources):
    return EngineDecoder("ours", Decoder(plain), DecodingChoice(max_tokens=MOST)).run(
        sources, 1, time.perf_counter
    )


@pytest.fixture(params=PEERS)
def peer(request, plain, tmp_path):
    if request.param == "ctranslate2":
        pytest.importorskip("ctranslate2")
    return make_peer(request.param, plain, tmp_path / "converted", MOST)


def test_peer_makes_the_tokens_of_our_sequential_decoder(peer, sources, ours):
    made = peer.run(sources, 1, time.perf_counter)
    assert agreement(made.outputs, ours.outputs) == Agreement(len(sources), len(sources))
    assert made.calls == sum(output.steps for output in made.outputs)


def test_peer_makes_the_same_in_batches(peer, sources, ours):
    if peer.largest_batch == 1:
        pytest.skip("takes one at a time")
    made = peer.run(sources, 4, time.perf_counter)
    assert [output.tokens for output in made.outputs] == [output.tokens for output in ours.outputs]
    assert [output.steps for output in made.outputs] == [output.steps for output in ours.outputs]
    assert made.calls < ours.calls


def test_peer_that_takes_one_token_a_call_makes_as_many_calls_as_ours(plain, sources, ours, tmp_path):
    made = make_peer("transformers", plain, tmp_path, MOST).run(sources, 1, time.perf_counter)
    assert [output.steps for output in made.outputs] == [output.steps for output in ours.outputs]
    looked_up = make_peer("prompt-lookup", plain, tmp_path, MOST).run(sources, 1, time.perf_counter)
    assert looked_up.calls <= made.calls


def test_text_is_cut_at_the_bound(plain, sources, tmp_path):
    for name in PEERS:
        peer = make_peer(name, plain, tmp_path / name, 3)
        if not isinstance(peer, Absent):
            made = peer.run(sources[:1], 1, time.perf_counter)
            assert len(made.outputs[0].tokens) == 3


def test_settings_tell_version_and_dtype(peer):
    assert peer.settings["version"].split()[0] in ("transformers", "ctranslate2")
    assert peer.settings["dtype"] == "float32"
    assert peer.settings["max_tokens"] == str(MOST)


def test_child_process_decodes_in_the_same_way(peer, sources, ours):
    import importlib

    assert isinstance(peer, Weighable)
    factory, payload = peer.blueprint(sources, 1)
    module, _, name = factory.partition(":")
    made = getattr(importlib.import_module(module), name)(**payload)()
    assert [output.tokens for output in made.outputs] == [output.tokens for output in ours.outputs]


def test_peer_that_is_not_installed_is_absent_and_says_how_to_get_it(plain, tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    absent = make_peer("ctranslate2", plain, tmp_path)
    assert isinstance(absent, Absent)
    assert "pip install pipedec[peers]" in absent.why


def test_peer_that_cannot_take_the_checkpoint_is_absent_and_says_why(plain, tmp_path, monkeypatch):
    pytest.importorskip("ctranslate2")
    from pipedec_cli.evaluate import ctranslate2_peer

    def convert(checkpoint, folder):
        raise ValueError("no such layer")

    monkeypatch.setattr(ctranslate2_peer, "convert", convert)
    absent = make_peer("ctranslate2", plain, tmp_path)
    assert isinstance(absent, Absent)
    assert "no such layer" in absent.why


@pytest.mark.parametrize(("seconds", "expected"), [({1: 1.0, 4: 3.0}, 1), ({1: 3.0, 4: 1.0}, 4)])
def test_ctranslate2_gets_the_threads_with_which_it_is_fastest(monkeypatch, tmp_path, seconds, expected):
    from pipedec_cli.evaluate import ctranslate2_peer

    clock = FakeClock()

    class Tried:
        eos = 1

        def __init__(self, folder, *, threads, **rest):
            self.threads = threads

        def run(self, sources, batch_size, clock):
            clock.pass_by(seconds[self.threads])

    monkeypatch.setattr(ctranslate2_peer, "CTranslate2Decoder", Tried)
    find = ctranslate2_peer.fastest_threads

    assert find(tmp_path, device="cpu", compute_type="float32", most=4, clock=clock) == expected
    assert find(tmp_path, device="cuda", compute_type="float32", most=4, clock=clock) == 4


def test_ctranslate2_has_a_process_of_its_own_which_ends_with_the_peer(plain, sources, tmp_path):
    pytest.importorskip("ctranslate2")
    before = set(psutil.Process().children())
    peer = make_peer("ctranslate2", plain, tmp_path / "converted", MOST)
    (child,) = set(psutil.Process().children()) - before
    peer.run(sources[:1], 1, time.perf_counter)
    assert child.is_running()
    assert peer.settings["process"] == "its own"

    del peer
    gc.collect()

    assert not child.is_running()


def test_ctranslate2_that_fails_or_dies_is_an_error_with_its_reason(plain, sources, tmp_path):
    pytest.importorskip("ctranslate2")
    peer = make_peer("ctranslate2", plain, tmp_path / "converted", MOST)
    with pytest.raises(MeasuringError, match="IndexError"):
        peer.run([[10**9]], 1, time.perf_counter)
    assert peer.run(sources[:1], 1, time.perf_counter).outputs  # and it goes on
    peer._child.kill()
    with pytest.raises(MeasuringError, match="process ended"):
        peer.run(sources[:1], 1, time.perf_counter)


def test_ctranslate2_without_the_dtype_falls_back_to_float32(monkeypatch):
    ctranslate2 = pytest.importorskip("ctranslate2")
    from pipedec_cli.evaluate.ctranslate2_peer import compute_type

    monkeypatch.setattr(ctranslate2, "get_supported_compute_types", lambda *_: {"float32", "int8"})
    assert compute_type("bfloat16", "cpu") == "float32"
    monkeypatch.setattr(ctranslate2, "get_supported_compute_types", lambda *_: {"float32", "bfloat16"})
    assert compute_type("bfloat16", "cpu") == "bfloat16"


def test_memory_of_ctranslate2_on_a_gpu_is_not_known_rather_than_wrong(plain, tmp_path):
    pytest.importorskip("ctranslate2")
    peer = make_peer("ctranslate2", plain, tmp_path / "converted", MOST)
    peer.device = "cuda"
    with pytest.raises(MeasuringError, match="no counter"):
        peer.blueprint([[5, 1]], 1)


def test_agreement_counts_examples_whose_tokens_are_all_equal():
    one = [Output((1, 2), 3), Output((1,), 2)]
    other = [Output((1, 2), 1), Output((2,), 2)]
    assert agreement(one, other) == Agreement(1, 2)
    assert agreement(one, other).rate == 0.5
    assert Agreement(0, 0).rate == 0.0
