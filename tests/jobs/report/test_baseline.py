"""What `pipedec report` compares with: the sequential model, a teacher, the waiting schedule."""

import shutil
from pathlib import Path

import pytest

from tests.jobs.report.running import (
    QUICK,
    options_of,
    remove,
    report_of,
    reported,
    trained_with,
)
from tests.running import refused, write_lines


@pytest.mark.parametrize("gone", ["models/sequential", "models/sequential/config.json"])
def test_without_a_plain_t5_the_waiting_schedule_is_the_baseline_and_it_is_said(
    workspace, gone
):
    remove(workspace / gone)
    result = reported("--delays", "2,wait")
    content, decoders = report_of(workspace)
    assert list(decoders) == ["waiting schedule", "Δt = 2"]
    assert content["baseline"]["name"] == "waiting schedule"
    for said in (content["baseline"]["description"], result.stdout):
        assert "not the sequential model" in said
    lacking = "There is no sequential model to compare with: `pipedec train --decoder sequential` makes one. "
    assert content["advice"]["text"].startswith(lacking)
    assert ("has not come to its end" in result.stderr) == gone.endswith("config.json")


@pytest.mark.parametrize("stops", [True, False])
def test_the_waiting_schedule_follows_the_rule_of_the_delays_beside_it(
    workspace, stops
):
    remove(workspace / "models/sequential")
    rules = {"empty_rows": "stop", "stop_on_repeat": stops}
    trained_with(workspace / "models/pipelined", **rules)
    reported("--delays", "1")
    content, decoders = report_of(workspace)
    assert options_of(decoders["waiting schedule"]) == "--delay wait"
    assert (
        "ends a text that repeats itself" in content["baseline"]["description"]
    ) == stops


def taught_by(teacher, model="pipedec-workspace/models/pipelined"):
    """Have a checkpoint say whose texts it was trained on."""
    write_lines(
        Path(model) / "training.json", {"settings": {"teacher": teacher}, "result": {}}
    )


def test_models_that_were_trained_for_different_lengths_are_named_before_anything_is_timed(
    workspace,
):
    for name, seen in (("pipelined", 1_000), ("sequential", 2_000)):
        write_lines(
            workspace / "models" / name / "training.json",
            {"result": {"examples_seen": seen}},
        )
    said = "warning: the pipelined model was trained on 1,000 examples, the sequential one 2,000"
    assert said in reported("--delays", "1").stderr


@pytest.mark.slow
def test_a_taught_checkpoint_is_compared_with_its_teacher_unless_another_baseline_is_given(
    workspace,
):
    shutil.copytree(workspace / "models/sequential", "my-t5")
    taught_by({"name": "my-t5", "sha256": None})
    reported("--delays", "1")
    content, decoders = report_of(workspace)
    assert content["baseline"]["description"].startswith(
        "the teacher (my-t5), the whole target"
    )
    assert options_of(decoders["sequential"]) == "--model my-t5"
    assert "the teacher" in content["advice"]["text"]
    reported("--delays", "1", "--baseline", workspace / "models/sequential")
    own = "the sequential model (pipedec-workspace/models/seq"
    assert report_of(workspace)[0]["baseline"]["description"].startswith(own)
    # the workspace's own goes by its usual name; one that is other than it was, and one
    # that is gone
    taught_by({"name": "./pipedec-workspace/models/sequential", "sha256": "0" * 64})
    assert "is not the teacher that it was" in reported("--delays", "1").stderr
    content, decoders = report_of(workspace)
    assert content["baseline"]["description"].startswith(
        "the teacher (pipedec-workspace/models/sequential)"
    )
    assert options_of(decoders["sequential"]) == "--model sequential"
    for name, made in (
        ("./nowhere", None),
        ("my/run", "0" * 64),
    ):  # a hub model could be called so
        taught_by({"name": name, "sha256": made})
        assert (
            f"is no longer at {name}: --baseline says where it is"
            in reported("--delays", "1").stderr
        )
    assert report_of(workspace)[0]["baseline"]["description"].startswith(own)


@pytest.mark.parametrize(
    "teacher", ["t5", {"name": ""}, {"name": 3}, {}, {"name": "a", "sha256": [1]}]
)
def test_a_teacher_that_is_none_is_one_clear_line(workspace, teacher):
    taught_by(teacher)
    refused("report", "--delays", "1", *QUICK)
