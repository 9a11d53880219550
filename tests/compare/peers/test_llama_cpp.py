"""Other programs that decode, each in a process of its own."""

import json
import os
import time

import pytest

from pipedec_cli.compare.peers import make_peer
from pipedec_cli.compare.runners import EngineRunner
from pipedec_cli.decoding.decoder import load
from tests.running import refused, run

FEW = ("--subsequences", "3", "--tokens", "4", "--source", "12")
#: It answers with the number of tokens that it has read since it was reset, and ends
#: its process at a number of tokens.
LLAMA = """
import os, sys

class Llama:
    def __init__(self, path, **how):
        assert open(path, "rb").read(4) == b"GGUF" and how["n_ctx"] >= 12 + 13 and "torch" not in sys.modules
        print("no answer")

    def reset(self):
        self.read = 0

    def generate(self, tokens, temp):
        if len(tokens) == 13:
            sys.stderr.write("no such instruction\\n\\n")
            sys.stderr.flush()
            os.abort()
        self.read += len(tokens)
        while True:
            yield self.read
            self.read += 1
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A stand-in for llama.cpp, as if it were installed."""
    place = tmp_path / "packages"
    metadata = place / "llama_cpp_python-9.9.dist-info/METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Name: llama-cpp-python\nVersion: 9.9\n", encoding="utf-8")
    (place / "llama_cpp.py").write_text(LLAMA, encoding="utf-8")
    monkeypatch.syspath_prepend(place)
    monkeypatch.setenv("PYTHONPATH", str(place), prepend=os.pathsep)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Random weights in a GGUF file, whose rows are long enough for blocks of 32."""
    from tests.model.test_gguf import written

    return written(tmp_path_factory.mktemp("peers"), dtype="int8")


@pytest.fixture(scope="module")
def folder(file):
    """The same model, but for what int8 loses, in transformers' format."""
    from tests.model.test_gguf import made_checkpoint

    made, place = made_checkpoint(), file.parent / "plain"
    made.model.save_pretrained(place)
    made.tokenizer.save_pretrained(place)
    return place


def test_where_it_is_not_installed_it_is_refused_before_any_model_is_loaded(
    monkeypatch,
):
    monkeypatch.setattr("pipedec_cli.compare.peers.find_spec", lambda name: None)
    monkeypatch.setattr("pipedec_cli.model.checkpoint.load_checkpoint", None)
    refused("bench", "--compare", "sequential,llama.cpp")


@pytest.mark.extra("gguf")
@pytest.mark.parametrize("is_the_model", [True, False])
def test_llama_cpp_is_timed_beside_ours_on_a_file(
    folder, file, installed, is_the_model
):
    model = (
        ("--model", file)
        if is_the_model
        else ("--model", folder, "--set", f"peer_gguf={file}")
    )
    content = json.loads(
        run("bench", *model, *FEW, "--compare", "llama.cpp", "--json").stdout
    )
    peer = content["entries"][-1]
    assert (peer["name"], peer["role"], len(content["entries"])) == (
        "llama.cpp",
        "peer",
        3,
    )
    settings = {
        name: peer["settings"][name] for name in ("version", "dtype", "process")
    }
    assert settings == {
        "version": "llama-cpp-python 9.9",
        "dtype": "Q8_0",
        "process": "its own",
    }
    (speed,) = peer["speed"]
    assert (speed["decoder_calls"], speed["tokens"]) == (13, 13)
    assert 0 < speed["encoder_seconds"] < speed["seconds"]


@pytest.mark.extra("gguf")
def test_a_peer_whose_process_ends_is_absent_with_its_last_line(file, installed):
    few = (
        "--subsequences",
        "3",
        "--tokens",
        "4",
        "--source",
        "13",
    )
    content = json.loads(
        run("bench", "--model", file, *few, "--compare", "llama.cpp", "--json").stdout
    )
    (absent,) = content["conditions"]["absent"]
    why = "its process ended with SIGABRT: no such instruction"
    assert absent == {"name": "llama.cpp", "why": why}


@pytest.mark.extra("gguf")
def test_without_a_gguf_file_llama_cpp_is_refused_with_what_to_give(
    folder, installed, tmp_path, monkeypatch
):
    monkeypatch.setattr("pipedec_cli.model.checkpoint.load_checkpoint", None)
    compared = ("--compare", "llama.cpp")
    refused("bench", "--model", folder, *compared)
    refused("bench", *compared)
    refused(
        "bench", "--model", folder, *compared, "--set", f"peer_gguf={tmp_path}/no.gguf"
    )


@pytest.mark.extra("gguf")
def test_a_file_with_another_vocabulary_or_none_is_left_out_with_the_reason(
    folder, file, installed, tmp_path
):
    checkpoint = load(folder, consume=False).checkpoint
    checkpoint.model.config.vocab_size = 7
    absent = make_peer("llama.cpp", checkpoint, tmp_path, gguf=file)
    assert absent.why == f"{file} has 304 tokens, and the model 7"
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"PK")
    assert (
        "it is cut short"
        in make_peer("llama.cpp", checkpoint, tmp_path, gguf=broken).why
    )


@pytest.mark.extra("gguf")
def test_a_prompt_is_read_anew_in_every_pass_and_a_text_ends_with_its_eos(
    file, installed, tmp_path
):
    checkpoint = load(file, consume=False).checkpoint
    checkpoint.eos = 7
    peer = make_peer("llama.cpp", checkpoint, tmp_path, 9, places=25)
    for _ in range(2):
        made = peer.run([[3, 3, 3, 3], [3, 3, 3, 3, 3, 3]], 1, time.perf_counter)
        assert [(one.tokens, one.steps) for one in made.outputs] == [
            ((4, 5, 6), 4),
            ((6,), 2),
        ]
    assert peer.spec()[0].rpartition(":")[2] == "LlamaCpp"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.extra("llama_cpp")
def test_the_real_program_generates_and_in_a_float_type_begins_as_ours(
    dtype, folder, tmp_path
):
    from tests.model.test_gguf import written

    decoder, sources = (
        load(folder, consume=False),
        [[*range(9, 9 + count)] for count in (5, 40, 9)],
    )
    ours = EngineRunner(decoder, {"max_tokens": 20}).run(sources, 1, time.perf_counter)
    how = {"exactly": True, "places": 60, "gguf": written(tmp_path, dtype=dtype)}
    peer = make_peer("llama.cpp", decoder.checkpoint, tmp_path, 20, **how)
    theirs, again = (peer.run(sources, 1, time.perf_counter) for _ in range(2))
    assert [len(one.tokens) for one in theirs.outputs] == [20] * 3
    assert [one.tokens for one in again.outputs] == [
        one.tokens for one in theirs.outputs
    ]
    assert 0 < theirs.encoder_seconds < 20
    if dtype != "int8":
        assert [one.tokens[:5] for one in theirs.outputs] == [
            one.tokens[:5] for one in ours.outputs
        ]
