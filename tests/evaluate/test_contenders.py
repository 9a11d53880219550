"""Our own decoders as contenders."""

import time

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.evaluate.contenders import DecodingChoice, EngineDecoder, places_used_up, workload
from pipedec_cli.evaluate.timing import Contestant, time_decoders
from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.pipeline.decode import Finished, Method
from pipedec_cli.pipeline.grid import Limits, Subsequence
from pipedec_cli.pipeline.schedule import Fixed, Sequential
from tests.models import TOLD, tiny_checkpoint

BOS, EOS = 0, 1


def finished(texts, delay=1, truncated=None):
    rows = tuple(Subsequence(number * delay, [*text, EOS], ended=True) for number, text in enumerate(texts))
    return Finished(0, rows, 1, 1, truncated)


def method(sub_max, delay=1, explore="retry"):
    return Method(Fixed(delay), BOS, EOS, Limits(50, sub_max), explore)


LONG, SHORT, EMPTY = (5,) * 9, (5,), ()


@pytest.mark.parametrize(
    ("texts", "sub_max", "expected"),
    [
        ((LONG, EMPTY, EMPTY), 3, True),  # the first is still being written when a fourth is due
        ((LONG, EMPTY, LONG), 3, True),
        ((LONG, LONG, LONG), 3, False),  # full, but with texts
        ((LONG, EMPTY), 3, False),  # a place was left
        ((SHORT, SHORT, EMPTY), 3, False),  # all had ended before another was due
        ((LONG, EMPTY, EMPTY), None, False),
    ],
)
def test_places_are_used_up_when_another_subsequence_was_due(texts, sub_max, expected):
    assert places_used_up(finished(texts), method(sub_max)) is expected


def test_places_cannot_be_used_up_without_retrying_or_without_a_fixed_delay():
    cut = finished((LONG, EMPTY, EMPTY))
    assert not places_used_up(cut, method(3, explore="once"))
    assert not places_used_up(cut, Method(Sequential(), BOS, EOS, Limits(50, 3)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_checkpoint(tmp_path_factory.mktemp("contenders") / "pipelined")


@pytest.fixture(scope="module")
def checkpoint(folder):
    return load_checkpoint(str(folder))


def sources(checkpoint):
    encoder = checkpoint.encoder()
    return [encoder.source(source)[0] for source, _ in TOLD]


def test_outputs_are_the_same_in_batches_and_one_at_a_time(checkpoint):
    decoder = EngineDecoder("a", checkpoint, DecodingChoice(delay=2))
    told = sources(checkpoint)
    alone = [decoder.run([source], 1, time.perf_counter).outputs[0] for source in told]
    together = decoder.run(told, 4, time.perf_counter)
    assert list(together.outputs) == alone
    assert together.calls < sum(output.steps for output in alone)
    text = checkpoint.encoder()
    for output, (_, segments) in zip(alone, TOLD, strict=True):
        assert text.text(output.tokens).split() == " ".join(segments).split()


def test_parts_add_up_to_no_more_than_the_whole(checkpoint):
    decoder = EngineDecoder("a", checkpoint, DecodingChoice(delay=1))
    contest = [Contestant(decoder, sources(checkpoint))]
    timing = time_decoders(contest, repeats=1, rest=lambda: None)["a"]
    assert timing.encoder_seconds > 0
    assert timing.setup_seconds >= 0
    assert timing.encoder_seconds + timing.setup_seconds + timing.decoding_seconds == pytest.approx(
        timing.seconds
    )
    assert timing.calls == sum(output.steps for output in timing.outputs)


def test_child_process_decodes_in_the_same_way(checkpoint):
    decoder = EngineDecoder("a", checkpoint, DecodingChoice(delay=3, explore="once"))
    told = sources(checkpoint)
    factory, payload = decoder.blueprint(told, 2)
    assert factory.endswith(":workload")
    assert workload(**payload)().outputs == decoder.run(told, 2, time.perf_counter).outputs


def test_settings_tell_schedule_bounds_and_dtype(checkpoint):
    settings = EngineDecoder("a", checkpoint, DecodingChoice(delay=3, explore="once")).settings
    assert settings["schedule"] == "delay3"
    assert (settings["explore"], settings["time_max"], settings["dtype"]) == ("once", "50", "float32")


def test_delay_that_was_not_trained_is_refused(tmp_path):
    fixed = load_checkpoint(str(tiny_checkpoint(tmp_path / "fixed", delay=1)))
    with pytest.raises(UserError, match="trained for delay 1 only"):
        EngineDecoder("a", fixed, DecodingChoice(delay=2))
