"""From Python: what cannot be meant is refused in one line, and nothing is put in its place."""

import pytest
import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.model.decoder import Decoder, load
from pipedec_cli.pipeline.grid import Method
from pipedec_cli.pipeline.schedule import Fixed
from tests.checkpoints import SOURCES, tiny_checkpoint

NUMBERS = (0, -3, 1.5, 2.0, True, False, "3", [2], 10**7, float("nan"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_checkpoint(tmp_path_factory.mktemp("arguments"))


@pytest.fixture(scope="module")
def decoder(folder):
    return Decoder(load_checkpoint(str(folder)))


def refused(call, *parts):
    with pytest.raises(UserError) as error:
        call()
    assert "\n" not in str(error.value)
    assert all(part in str(error.value) for part in parts)


@pytest.mark.parametrize("value", NUMBERS)
def test_numbers_are_whole_and_from_one_on(decoder, value):
    said = "give a whole number from 1 to 1,000,000"
    for name in ("delay", "time_max", "sub_max", "max_tokens"):
        refused(lambda name=name: decoder.method(**{name: value}), f"{name} is {value!r}", said)
    for name in ("batch_size", "max_source_tokens"):
        refused(lambda name=name: Decoder(decoder.checkpoint, **{name: value}), f"{name} is {value!r}", said)
    for call in (decoder.texts, decoder.run):
        refused(lambda call=call: list(call(SOURCES, batch_size=value)), f"batch_size is {value!r}", said)
    refused(lambda: decoder.engine(value), f"batch_size is {value!r}", said)


def test_other_delays_and_rules_are_refused(decoder):
    for delay in ("often", "", "2", "WAIT"):
        refused(lambda delay=delay: decoder.method(delay), f"delay is {delay!r}", "or 'wait'")
    refused(lambda: decoder.method(empty_rows="retract"), "there is no rule 'retract'", "retry, stop")


@pytest.mark.parametrize("sources", ["abc", b"abc", 5, None])
def test_one_text_is_not_taken_for_its_letters(decoder, sources):
    for call in (decoder.texts, decoder.run):
        refused(lambda call=call: list(call(sources)), f"the sources are one {type(sources).__name__}")


@pytest.mark.parametrize("item", [None, 3, b"a", ["a"]])
def test_every_source_is_a_text(decoder, item):
    said = f"source 1 is of type {type(item).__name__}"
    refused(lambda: list(decoder.texts(["a", item], batch_size=2)), said)
    assert len(list(decoder.texts(["a"]))) == 1


def test_a_method_is_one_and_its_ids_are_the_models(decoder):
    refused(lambda: list(decoder.texts(SOURCES, 2)), "the method is 2", "decoder.method(...)")
    beyond = Method(Fixed(2), 427, 1)
    refused(lambda: list(decoder.texts(SOURCES, beyond)), "the model's vocabulary goes from 0 to 426")


@pytest.mark.parametrize("wrong", ["int3", None, 3, [1], torch.float32])
def test_there_are_five_dtypes_and_devices_are_named(folder, wrong):
    said = "float32, bfloat16, float16, int8, int4"
    refused(lambda: load(folder, dtype=wrong, device="cpu"), "there is no dtype", said)
    refused(lambda: load(folder, device=wrong), "there is no device", "auto, cpu, cuda or cuda:N")
