"""What exact mode would take: acceptance from a report, calls from a bench."""

import json
from random import Random

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.evaluate.bench import StepSpeed
from pipedec_cli.evaluate.projection import Acceptance, project, read_acceptance, rows_of
from tests.evaluate.decoders import competitor, timing
from tests.trials.mutations import hurt


def decoder(name, role="exact", **speed):
    told = {"batch_size": 1, "examples": 4, "tokens": 116, "decoder_calls": 30, "rows_per_call": 3.5}
    return {"name": name, "role": role, "delay": 2, "speed": [{**told, "batch_size": 4}, told | speed]}


def written(path, *decoders):
    path.write_text(json.dumps({"decoders": decoders}), encoding="utf-8")
    return path


def test_acceptance_is_that_of_one_example_at_a_time_with_the_calls_of_the_draft_left_out(tmp_path):
    path = written(
        tmp_path / "report.json",
        decoder("sequential", "baseline"),
        decoder("exact-pipelined", draft_calls=10),
        decoder("prompt-lookup", "peer", decoder_calls=40, rows_per_call=None),
        decoder("Δt = 2", "pipelined"),
    )
    found = read_acceptance(path)
    assert found == [Acceptance("exact-pipelined", 2, 6.0, 3.5), Acceptance("prompt-lookup", None, 3.0, None)]
    assert rows_of(found) == {1, 3, 4}
    assert rows_of([]) == set()


@pytest.mark.parametrize(
    ("decoders", "said"),
    [
        ([], "holds no exact mode that was timed one example at a time"),
        ([decoder("prompt-lookup", "peer")], "holds no exact mode"),
        ([decoder("exact-source", batch_size=2)], "holds no exact mode"),
        ([decoder("exact-source", rows_per_call=1e9)], "the calls of exact-source do not fit"),
        ([decoder("exact-source", rows_per_call=None)], "the calls of exact-source do not fit"),
        ([decoder("exact-source", draft_calls=30)], "0 to check"),
        ([decoder("exact-source", tokens=-1)], "not what `pipedec report --compare exact` writes"),
        ([5], "not what `pipedec report --compare exact` writes"),
    ],
)
def test_a_report_that_tells_no_acceptance_is_refused_in_a_line(tmp_path, decoders, said):
    path = written(tmp_path / "report.json", *decoders)
    with pytest.raises(UserError) as error:
        read_acceptance(path)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_report_that_chance_has_hurt_is_taken_or_refused_in_a_line(tmp_path):
    whole = written(tmp_path / "whole.json", decoder("exact-pipelined", draft_calls=10)).read_bytes()
    for number in range(300):
        path = tmp_path / "report.json"
        path.write_bytes(hurt(whole, path.name, Random(number)))
        try:
            assert all(one.rows is None or 1 <= one.rows <= 64 for one in read_acceptance(path))
        except UserError as error:
            assert "\n" not in str(error)


def test_seconds_are_those_of_encoder_checks_and_draft():
    """A call of one row takes 2 s, a step of 3 rows 1.5 and of 4 rows 2 times as long as one of a single row."""
    plain = competitor("sequential", "baseline", timings={1: timing([125.0], 60, 5.0)})
    drafter = competitor("Δt = 2", delay=2, timings={1: timing([20.0], 10, 1.0)})
    theirs = competitor("transformers", "peer", timings={1: timing([242.0], 60, 2.0)})
    steps = [StepSpeed("float32", rows, took, 1, 1.0, 1.0) for rows, took in ((1, 4.0), (3, 6.0), (4, 8.0))]
    found = [
        Acceptance("exact-pipelined", 2, 6.0, 3.5),
        Acceptance("exact-source", None, 2.0, 1.0),
        Acceptance("prompt-lookup", None, 3.0, None),
    ]
    drafted, source, looked_up = project(found, [plain, drafter, theirs], steps, 59)
    assert (drafted.checks, drafted.check_seconds, drafted.draft_seconds) == (10, 3.5, 20.0)
    assert (drafted.seconds, source.seconds) == (5 + 10 * 3.5 + 20, 5 + 30 * 2)
    assert drafted.speedups == {"sequential": 125 / 60, "Δt = 2": 20 / 60, "transformers": 242 / 60}
    assert (looked_up.name, looked_up.seconds) == ("prompt-lookup", 2 + 20 * 4)
