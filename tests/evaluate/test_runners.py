"""Our decoders on the engine, as runners."""

import json
import time

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.evaluate.runners import EngineRunner, from_spec
from pipedec_cli.evaluate.timing import time_together
from pipedec_cli.model.decoder import load
from tests.checkpoints import TOLD, tiny_checkpoint


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    return load(tiny_checkpoint(tmp_path_factory.mktemp("runners") / "pipelined"))


@pytest.fixture(scope="module")
def sources(decoder):
    return [decoder.text.source(source)[0] for source, _ in TOLD]


def test_outputs_are_the_same_in_batches_and_one_at_a_time(decoder, sources):
    runner = EngineRunner(decoder, {"delay": 2})
    alone = [runner.run([source], 1, time.perf_counter).outputs[0] for source in sources]
    together = runner.run(sources, 4, time.perf_counter)
    assert list(together.outputs) == alone
    assert together.calls < sum(output.steps for output in alone)
    for output, (_, segments) in zip(alone, TOLD, strict=True):
        assert decoder.text.decode(output.tokens).split() == " ".join(segments).split()


def test_parts_add_up_to_no_more_than_the_whole(decoder, sources):
    contest = {"a": (EngineRunner(decoder, {"delay": 1}), sources)}
    found = time_together(contest, repeats=1, rest=lambda: None)["a"]
    assert found.encoder_seconds > 0 and found.setup_seconds >= 0
    parts = found.encoder_seconds + found.setup_seconds + found.decoding_seconds
    assert parts == pytest.approx(found.seconds)
    assert found.decoder_calls == sum(output.steps for output in found.outputs)


def test_settings_have_the_schedule_and_a_child_process_decodes_in_the_same_way(decoder, sources, tmp_path):
    runner = EngineRunner(decoder, {"delay": 3, "empty_rows": "stop"})
    shown = [runner.settings[name] for name in ("schedule", "empty_rows", "time_max", "dtype")]
    assert shown == ["delay3", "stop", "50", "float32"]
    factory, payload = runner.spec()
    assert factory.endswith(":from_spec")
    again = from_spec(**json.loads(json.dumps(payload)))
    assert again.settings == runner.settings
    made = [one.run(sources, 2, time.perf_counter).outputs for one in (again, runner)]
    assert made[0] == made[1]
    with pytest.raises(UserError, match="trained for delay 1 only"):
        EngineRunner(load(tiny_checkpoint(tmp_path / "fixed", delay=1)), {"delay": 2})
