"""Sequential models that were trained on the spot, for the tests of what users would take instead."""

import pytest

from pipedec_cli.decoding.decoder import load
from tests.checkpoints import TOLD, tiny_checkpoint
from tests.running import slow


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
