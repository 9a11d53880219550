"""What is told of a decoder, and our own ones on the engine."""

import json
import time

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.evaluate.competitor import Agreement, EngineRunner, Totals, from_spec
from pipedec_cli.evaluate.timing import Output, time_together
from pipedec_cli.model.decoder import load
from tests.checkpoints import TOLD, tiny_checkpoint
from tests.evaluate.decoders import competitor, timing


def test_competitor_and_its_totals_with_their_means_are_saved_as_json():
    means = ("steps_per_example", "tokens_per_example", "tokens_per_step")
    for totals, expected in (Totals(2, 30, 60), (15.0, 30.0, 2.0)), (Totals(0, 0, 0), (0.0, 0.0, 0.0)):
        content = totals.as_json()
        assert tuple(content.pop(name) for name in means) == expected
        assert content == totals._asdict()
    content = json.loads(json.dumps(competitor("a", timings={1: timing([2.0], 10)}).as_json()))
    assert (content["name"], content["role"]) == ("a", "pipelined")
    assert content["settings"] == {"dtype": "float32"}
    assert content["speed"][0]["examples_per_second"] == 0.5
    assert content["speed"][0]["over_baseline"] is None
    assert content["memory"] is content["quality"] is content["agreement"] is None


def test_agreement_counts_equal_examples_and_gains_are_taken_where_both_were_timed():
    one, other = [Output((1, 2), 3), Output((1,), 2)], [Output((1, 2), 1), Output((2,), 2)]
    assert Agreement.between(one, other) == Agreement(1, 2)
    mine = competitor(timings={1: timing([1.0], 1), 4: timing([1.0], 1)})
    assert list(mine.gains_over(competitor(timings={1: timing([2.0], 1)}))) == [1]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    return load(tiny_checkpoint(tmp_path_factory.mktemp("competitors") / "pipelined"))


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


def test_settings_tell_the_schedule_and_a_child_process_decodes_in_the_same_way(decoder, sources, tmp_path):
    runner = EngineRunner(decoder, {"delay": 3, "empty_rows": "stop"})
    told = [runner.settings[name] for name in ("schedule", "empty_rows", "time_max", "dtype")]
    assert told == ["delay3", "stop", "50", "float32"]
    factory, payload = runner.spec()
    assert factory.endswith(":from_spec")
    again = from_spec(**json.loads(json.dumps(payload)))
    assert again.settings == runner.settings
    made = [one.run(sources, 2, time.perf_counter).outputs for one in (again, runner)]
    assert made[0] == made[1]
    with pytest.raises(UserError, match="trained for delay 1 only"):
        EngineRunner(load(tiny_checkpoint(tmp_path / "fixed", delay=1)), {"delay": 2})
