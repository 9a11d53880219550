"""How long a training is, how often it is evaluated, and what is usual for each start."""

from dataclasses import replace

import pytest

from pipedec_cli.training.hyperparameters import usual_tuning
from tests.checkpoints import QUICK


@pytest.mark.parametrize(
    ("changed", "examples", "updates"),
    [
        ({}, 16, 4),
        ({}, 17, 6),
        ({"epochs": 0.1}, 1, 1),
        ({"epochs": 0.5}, 16, 1),
        ({"max_steps": 3}, 10_000, 3),
    ],
)
def test_updates_are_whole_epochs_rounded_up_to_batches(changed, examples, updates):
    hyper = replace(QUICK, epochs=2, batch_size=4, accumulation=2, max_steps=None)
    assert replace(hyper, **changed).updates(examples) == updates


def test_the_processes_of_a_training_share_its_updates(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    hyper = replace(QUICK, epochs=2, batch_size=4, accumulation=2, max_steps=None)
    assert hyper.updates(17) == 4


@pytest.mark.parametrize(
    ("asked", "updates", "evaluations"),
    [
        (None, 2, 1),
        (None, 40, 1),
        (None, 250, 4),
        (None, 1500, 10),
        (3, 2, 3),
        (20, 1500, 20),
    ],
)
def test_a_short_training_is_evaluated_less_often_unless_it_is_asked_for(
    asked, updates, evaluations
):
    hyper = replace(QUICK, batch_size=4, accumulation=2, evaluations=asked)
    assert hyper.evaluated(updates) == evaluations


@pytest.mark.parametrize(
    ("start", "fields", "optimizer", "expected"),
    [
        ("published", False, None, ("adamw", 1e-4, 24)),
        ("fresh", False, None, ("adafactor", 3e-2, 8)),
        ("fresh", False, "adamw", ("adamw", 1e-3, 8)),
        ("from-scratch", False, None, ("adafactor", 1e-2, 8)),
        ("from-scratch", True, "adamw", ("adamw", 3e-4, 8)),
        ("published", True, "adafactor", ("adafactor", 1e-3, 24)),
        ("fresh", True, None, ("adafactor", 1e-2, 8)),
        ("fresh", True, "adamw", ("adamw", 1e-3, 8)),
    ],
)
def test_trained_weights_get_the_papers_settings_and_fresh_ones_a_relative_rate(
    start, fields, optimizer, expected
):
    usual = usual_tuning(start, fields=fields, optimizer=optimizer)
    names = ("optimizer", "learning_rate", "batch_size")
    assert tuple(usual[name] for name in names) == expected
