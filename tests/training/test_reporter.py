"""Checkpoints that take long are left out."""

from types import SimpleNamespace

from pipedec_cli.training.reporter import Reporter


def test_checkpoints_that_take_long_take_a_twentieth_of_the_time_and_the_last_is_written(
    monkeypatch,
):
    now = 0.0
    saved = []
    monkeypatch.setattr("pipedec_cli.training.reporter.time.perf_counter", lambda: now)
    reporter = Reporter(lambda _: None, patience=None, keeps=False)
    for update in range(1, 31):  # of 10 seconds; a checkpoint takes 6
        now += 10
        control = SimpleNamespace(
            should_save=True, should_log=True, should_training_stop=update == 30
        )
        state = SimpleNamespace(global_step=update)
        reporter.on_step_end(SimpleNamespace(eval_strategy="no"), state, control)
        if control.should_save:
            saved.append(update)
            now += 6
            reporter.on_save()
    assert saved == [1, 11, 21, 30]
