"""Our own decoders as contenders."""

import time

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.evaluate.contenders import DecodingChoice, EngineDecoder, workload
from pipedec_cli.evaluate.timing import Contestant, time_decoders
from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.model.decoder import Decoder
from tests.checkpoints import TOLD, tiny_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_checkpoint(tmp_path_factory.mktemp("contenders") / "pipelined")


@pytest.fixture(scope="module")
def checkpoint(folder):
    return load_checkpoint(str(folder))


def sources(checkpoint):
    codec = checkpoint.codec()
    return [codec.source(source)[0] for source, _ in TOLD]


def test_outputs_are_the_same_in_batches_and_one_at_a_time(checkpoint):
    decoder = EngineDecoder("a", Decoder(checkpoint), DecodingChoice(delay=2))
    told = sources(checkpoint)
    alone = [decoder.run([source], 1, time.perf_counter).outputs[0] for source in told]
    together = decoder.run(told, 4, time.perf_counter)
    assert list(together.outputs) == alone
    assert together.calls < sum(output.steps for output in alone)
    codec = checkpoint.codec()
    for output, (_, segments) in zip(alone, TOLD, strict=True):
        assert codec.decode(output.tokens).split() == " ".join(segments).split()


def test_parts_add_up_to_no_more_than_the_whole(checkpoint):
    decoder = EngineDecoder("a", Decoder(checkpoint), DecodingChoice(delay=1))
    contest = [Contestant(decoder, sources(checkpoint))]
    timing = time_decoders(contest, repeats=1, rest=lambda: None)["a"]
    assert timing.encoder_seconds > 0
    assert timing.setup_seconds >= 0
    assert timing.encoder_seconds + timing.setup_seconds + timing.decoding_seconds == pytest.approx(
        timing.seconds
    )
    assert timing.calls == sum(output.steps for output in timing.outputs)


def test_child_process_decodes_in_the_same_way(checkpoint):
    decoder = EngineDecoder("a", Decoder(checkpoint), DecodingChoice(delay=3, explore="once"))
    told = sources(checkpoint)
    factory, payload = decoder.blueprint(told, 2)
    assert factory.endswith(":workload")
    assert workload(**payload)().outputs == decoder.run(told, 2, time.perf_counter).outputs


def test_settings_tell_schedule_bounds_and_dtype(checkpoint):
    settings = EngineDecoder("a", Decoder(checkpoint), DecodingChoice(delay=3, explore="once")).settings
    assert settings["schedule"] == "delay3"
    assert (settings["explore"], settings["time_max"], settings["dtype"]) == ("once", "50", "float32")


def test_delay_that_was_not_trained_is_refused(tmp_path):
    fixed = load_checkpoint(str(tiny_checkpoint(tmp_path / "fixed", delay=1)))
    with pytest.raises(UserError, match="trained for delay 1 only"):
        EngineDecoder("a", Decoder(fixed), DecodingChoice(delay=2))
