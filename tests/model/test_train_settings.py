"""How many updates there are, and what is usual for fresh and for trained weights."""

from __future__ import annotations

from dataclasses import replace

from pipedec_cli.model.train_settings import TrainSettings, updates_for, usual_settings


def test_updates_are_whole_epochs_rounded_up_to_batches() -> None:
    settings = TrainSettings(epochs=2, batch_size=4, accumulation=2)

    assert updates_for(16, settings) == 4
    assert updates_for(17, settings) == 6
    assert updates_for(17, settings, devices=2) == 4
    assert updates_for(1, replace(settings, epochs=0.1)) == 1
    assert updates_for(16, replace(settings, epochs=0.5)) == 1
    assert updates_for(10_000, replace(settings, max_steps=3)) == 3


def test_trained_weights_get_the_papers_settings_and_fresh_ones_a_relative_rate() -> None:
    paper, fresh = usual_settings(fresh=False), usual_settings(fresh=True)

    assert (paper.optimizer, paper.learning_rate, paper.batch_size, paper.epochs) == ("adamw", 1e-4, 24, 10)
    assert (fresh.optimizer, fresh.learning_rate, fresh.batch_size) == ("adafactor", 3e-2, 8)
    assert usual_settings(fresh=True, optimizer="adamw").learning_rate == 1e-3
    assert usual_settings(fresh=False, optimizer="adafactor").learning_rate == 1e-3
