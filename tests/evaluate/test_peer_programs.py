"""Other programs that decode, each in a process of its own, as another environment has them."""

import json
import os
import sys
import time

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.evaluate.peers import find_python, make_peer
from pipedec_cli.evaluate.runners import EngineRunner
from pipedec_cli.model.decoder import load
from tests.running import refused, run

FEW = ("--subsequences", "3", "--tokens", "4", "--source", "12", "--set", "repeats=1")
#: It answers with the number of tokens that it has read since it was reset, and quantizes nothing.
LLAMA = """
import sys
from types import SimpleNamespace

LLAMA_FTYPE_MOSTLY_Q4_0 = 2
llama_model_quantize_default_params = SimpleNamespace
llama_model_quantize = lambda source, target, how: how.ftype

llama_vocab_is_eog = lambda vocab, token: token == vocab

class LlamaGrammar:
    from_json_schema = lambda schema, verbose: schema

class Llama:
    _model = SimpleNamespace(vocab=8)

    def __init__(self, path, **how):
        assert open(path, "rb").read(4) == b"GGUF" and how["n_ctx"] >= 12 + 13 and "torch" not in sys.modules
        print("no answer")

    def reset(self):
        self.read = 0

    def generate(self, tokens, temp, grammar):
        self.read += len(tokens)
        while True:
            yield len(grammar or "") + self.read
            self.read += 1
"""
#: It loads, and ends the process when it generates.
OPENVINO = """
import os, sys
from types import SimpleNamespace

SchedulerConfig = GenerationConfig = SimpleNamespace
LLMPipeline = TokenizedInputs = lambda *_, **__: SimpleNamespace(generate=lambda *_: dying())

def dying():
    sys.stderr.write("no such instruction\\n\\n")
    sys.stderr.flush()
    os.abort()
"""


@pytest.fixture
def python(tmp_path):
    """A Python with packages of its own: stand-ins for llama.cpp and OpenVINO."""
    place = tmp_path / "environment"
    for package, version in ("llama_cpp_python", "9.9"), ("openvino_genai", "8.8"):
        metadata = place / f"{package}-{version}.dist-info/METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f"Name: {package.replace('_', '-')}\nVersion: {version}\n", encoding="utf-8")
    (place / "llama_cpp.py").write_text(LLAMA, encoding="utf-8")
    (place / "openvino_genai.py").write_text(OPENVINO, encoding="utf-8")
    (place / "openvino.py").write_text("Tensor = lambda given: None", encoding="utf-8")
    path = place / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH={place} exec {sys.executable} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Random weights, whose rows are long enough for blocks of 32."""
    pytest.importorskip("gguf")
    from tests.model.test_gguf import made_checkpoint

    made, place = made_checkpoint(), tmp_path_factory.mktemp("peers") / "plain"
    made.model.save_pretrained(place)
    made.tokenizer.save_pretrained(place)
    return place


def test_peers_of_another_environment_are_timed_beside_ours_and_one_that_fails_is_absent_with_its_reason(
    folder, python
):
    compared = ("--compare", "llama.cpp,llama.cpp:q4_0,openvino", "--set", f"peer_python={python}")
    content = json.loads(run("bench", "--model", folder, *FEW, *compared, "--json").stdout)
    peer = content["entries"][-1]
    assert (peer["name"], peer["role"], len(content["entries"])) == ("llama.cpp", "peer", 3)
    settings = {name: peer["settings"][name] for name in ("version", "dtype", "process")}
    assert settings == {"version": "llama-cpp-python 9.9", "dtype": "Q8_0", "process": "its own"}
    (speed,) = peer["speed"]
    assert (speed["decoder_calls"], speed["tokens"]) == (13, 13)
    assert 0 < speed["encoder_seconds"] < speed["seconds"]
    absent = {one["name"]: one["why"] for one in content["conditions"]["absent"]}
    assert absent == {
        "llama.cpp:q4_0": "ValueError: llama.cpp cannot make Q4_0 of the weights",
        "openvino": "its process ended with SIGABRT: no such instruction",
    }


def test_a_prompt_is_read_anew_in_every_pass_and_a_text_ends_with_its_eos(folder, python, tmp_path):
    checkpoint = load(folder, consume=False).checkpoint
    checkpoint.eos = 7
    peer = make_peer("llama.cpp", checkpoint, tmp_path, 9, places=25, pythons=(str(python),))
    for _ in range(2):
        made = peer.run([[3, 3, 3, 3], [3, 3, 3, 3, 3, 3]], 1, time.perf_counter)
        assert [(one.tokens, one.steps) for one in made.outputs] == [((4, 5, 6), 4), ((6,), 2)]
    also = make_peer("llama.cpp", checkpoint, tmp_path, 9, places=25, pythons=(str(python),), ends=(6,))
    assert also.run([[3, 3, 3, 3]], 1, time.perf_counter).outputs[0].tokens == (4, 5)
    factory, payload = peer.spec()
    assert (factory.rpartition(":")[2], payload["python"]) == ("LlamaCpp", str(python))


def test_a_grammar_holds_a_text_to_a_schema_and_ends_it_with_any_end(folder, python, tmp_path):
    checkpoint = load(folder, consume=False).checkpoint
    how = {"places": 25, "pythons": (str(python),), "ends": (6,)}
    peer = make_peer("llama.cpp:json", checkpoint, tmp_path, 9, schema="{}", **how)
    (made,) = peer.run([[3, 3, 3]], 1, time.perf_counter).outputs
    assert (made.tokens, made.steps) == ((5, 6, 7), 4)  # 6 would end a line, and 8 is the program's own end
    assert "JSON grammar" in peer.settings["decoding"]
    assert "by a schema" in make_peer("llama.cpp:json", checkpoint, tmp_path, 9, **how).why


@pytest.mark.parametrize("name", ["llama.cpp:q4_0", "openvino"])
def test_a_package_that_no_python_has_is_refused_with_the_command_that_brings_it(
    name, python, folder, monkeypatch
):
    monkeypatch.setattr("pipedec_cli.evaluate.peers.find_spec", lambda name: None)
    monkeypatch.setattr("pipedec_cli.model.checkpoint.load_checkpoint", None)
    package = {"openvino": "openvino-genai"}.get(name, "llama-cpp-python")
    said = refused("bench", "--model", folder, "--compare", name)
    assert f"--compare: {name} is not installed; `pip install {package} msgspec` brings it" in said
    (python.parent / f"{package.replace('-', '_').removesuffix('_python')}.py").unlink()
    said = refused("bench", "--model", folder, "--compare", name, "--set", f"peer_python={python}")
    assert f"`{python} -m pip install {package} msgspec` brings it" in said
    said = refused("bench", "--model", folder, "--compare", name, "--set", "peer_python=./nowhere")
    assert "./nowhere: No such file or directory; give a Python program" in said


@pytest.mark.parametrize("name", ["llama.cpp:bf16", "llama.cpp", "llama.cpp:q4_0", "openvino"])
def test_the_real_program_generates_alone_and_in_batches_and_in_a_float_type_begins_as_ours(
    name, folder, tmp_path
):
    """PEER_PYTHON names the Pythons that have the packages, commas between."""
    pythons = tuple(filter(None, os.environ.get("PEER_PYTHON", "").split(",")))
    try:
        find_python(name, pythons)
    except UserError as error:
        pytest.skip(str(error))
    decoder, sources = load(folder, consume=False), [[*range(9, 9 + count)] for count in (5, 40, 9)]
    ours = EngineRunner(decoder, {"max_tokens": 20}).run(sources, 1, time.perf_counter)
    peer = make_peer(name, decoder.checkpoint, tmp_path, 20, exactly=True, places=60, pythons=pythons)
    alone, together = (
        peer.run(sources, size, time.perf_counter) for size in (1, peer.largest_batch or len(sources))
    )
    assert [len(one.tokens) for one in alone.outputs] == [20] * 3
    assert [one.tokens for one in together.outputs] == [one.tokens for one in alone.outputs]
    assert 0 < alone.encoder_seconds < 20
    if name == "llama.cpp:bf16":
        firsts = ([one.tokens[:5] for one in made.outputs] for made in (alone, ours))
        assert next(firsts) == next(firsts)
