"""Chats with a model that is not ours end in a process of its own where they end here."""

import importlib
import json

import pytest

from pipedec_cli.evaluate.peers import make_peer
from pipedec_cli.evaluate.runners import EngineRunner, make_runner
from pipedec_cli.model.decoder import load
from pipedec_cli.model.exact import ExactDecoder
from tests.model.chats import foreign


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    found = load(foreign(tmp_path_factory.mktemp("chat")), device="cpu", consume=False)
    found.read_sources(chat=True)
    return found


@pytest.mark.parametrize("kind", ["sequential", "exact", "transformers"])
def test_a_turn_ends_in_a_child_as_here(decoder, tmp_path, kind):
    runner = {
        "sequential": lambda: EngineRunner(decoder, {}),
        "exact": lambda: make_runner(ExactDecoder(decoder, "source"), {}),
        "transformers": lambda: make_peer("transformers", decoder.checkpoint, tmp_path),
    }[kind]()
    factory, payload = runner.spec()
    module, _, name = factory.partition(":")
    again = getattr(importlib.import_module(module), name)(**json.loads(json.dumps(payload)))
    checkpoint = again.checkpoint if kind == "transformers" else again.decoder.checkpoint
    assert checkpoint.eos == decoder.checkpoint.tokenizer.convert_tokens_to_ids("<|im_end|>")
    if kind == "sequential":
        assert again.method.eos == checkpoint.eos
