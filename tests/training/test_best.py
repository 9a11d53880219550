"""The best weights: what a training leaves when it gets worse again, when it ends early, and after a kill."""

from dataclasses import replace

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.trained import best_checkpoint, checkpoints, clean
from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.training import trainer
from pipedec_cli.training.best import best_of, is_over
from tests.checkpoints import QUICK, SMALL, examples_of, fresh_toy, weights_of
from tests.running import slow
from tests.training.trainings import run

#: Six updates, each of them evaluated, and the scores of the weights behind each.
EACH = replace(QUICK, max_steps=6, evaluations=6)
SCORES = (10.0, 40.0, 30.0, 50.0, 20.0, 20.0)


def scored(folder, hyper=EACH, *, begins=0, killed=None, **options):
    """Train, from update `begins`, with these scores: the result, the weights left, and the weights behind each update.

    With `killed` the training is killed when this update is scored.
    """
    checkpoint = fresh_toy(shape=SMALL)
    seen = {}

    def score():
        update = begins + len(seen) + 1
        if update == killed:
            raise InterruptedError
        seen[update] = weights_of(checkpoint)
        return SCORES[update - 1]

    examples = examples_of(checkpoint)
    options |= {"examples": examples[:7], "dev": examples[7:], "score": score}
    result = run(checkpoint, folder, hyper, **options)
    return result, weights_of(load_checkpoint(str(folder))), seen


def equal(weights, others):
    return all(weight.equal(others[name]) for name, weight in weights.items())


def names_of(folder):
    return [path.name for path in checkpoints(folder)]


@pytest.mark.parametrize(
    ("keep", "update", "kept"),
    [("best", 4, ["checkpoint-4", "checkpoint-6"]), ("last", 6, ["checkpoint-6"])],
)
def test_a_training_that_gets_worse_after_its_best_evaluation_leaves_the_best_weights(
    tmp_path, keep, update, kept
):
    result, left, seen = scored(tmp_path, replace(EACH, keep=keep), keep=1)
    assert equal(left, seen[update]) and not equal(left, seen[10 - update])
    assert (result.updates, result.weights_update) == (6, update)
    assert result.best_by == ("dev_score" if keep == "best" else None)
    assert (result.dev_update, result.dev_score) == (update, SCORES[update - 1])
    assert names_of(tmp_path) == kept
    assert best_checkpoint(tmp_path) == (tmp_path / kept[0] if keep == "best" else None)


def test_where_nothing_is_scored_the_loss_says_which_weights_are_the_best(tmp_path):
    checkpoint = fresh_toy(shape=SMALL)
    examples = examples_of(checkpoint)
    rising = replace(EACH, learning_rate=0.5, schedule="constant", warmup=0.0)
    result = run(checkpoint, tmp_path, rising, examples=examples[:3], dev=examples[7:])
    evaluated = [point for point in result.curve if "dev_loss" in point]
    losses = {point["update"]: point["dev_loss"] for point in evaluated}
    assert result.weights_update == min(losses, key=losses.__getitem__)
    assert result.best_by == "dev_loss"
    assert result.dev_loss == min(losses.values()) < losses[6]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What came of a training that nobody killed, and its weights."""
    return scored(tmp_path_factory.mktemp("whole"))[:2]


@pytest.mark.slow
@pytest.mark.parametrize("killed", [slow(2), 4, slow(5), 6])
def test_a_killed_training_goes_on_to_the_same_best_weights(
    tmp_path, undisturbed, killed
):
    whole, weights = undisturbed
    with pytest.raises(InterruptedError):
        scored(tmp_path, killed=killed)
    again, left, _ = scored(tmp_path, begins=killed - 1, resume=True)
    assert equal(left, weights)
    assert again.weights_update == whole.weights_update == 4
    assert again.dev_score == whole.dev_score == 50.0


def test_a_training_that_is_killed_while_it_saves_its_best_weights_loses_none(
    tmp_path, monkeypatch, undisturbed
):
    usual = trainer.save_checkpoint

    def kill(checkpoint, folder):
        usual(checkpoint, folder)
        if folder.name == "checkpoint-4":
            raise InterruptedError

    with monkeypatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(trainer, "save_checkpoint", kill)
        scored(tmp_path)
    assert best_checkpoint(tmp_path) == tmp_path / "checkpoint-2"
    clean(tmp_path)
    _, left, _ = scored(tmp_path, begins=3, resume=True)
    assert equal(left, undisturbed[1])


@pytest.mark.slow
def test_a_training_ends_when_its_patience_does_and_is_not_gone_on_with(tmp_path):
    hyper = replace(EACH, patience=1)
    result, left, seen = scored(tmp_path, hyper)
    assert (result.updates, result.weights_update) == (3, 2)
    assert result.examples_seen == 3 * hyper.batch_size
    assert equal(left, seen[2])
    again, left, seen = scored(tmp_path, hyper, begins=3, resume=True)
    assert (again.updates, again.weights_update, seen) == (3, 2, {})


def test_best_weights_that_cannot_be_read_are_one_line(tmp_path):
    with pytest.raises(InterruptedError):
        scored(tmp_path, killed=6)
    (tmp_path / "checkpoint-4" / "model.safetensors").write_text("{}")
    with pytest.raises(UserError) as raised:
        scored(tmp_path, begins=5, resume=True)
    assert raised.value.where == str(tmp_path / "checkpoint-4")
    assert "\n" not in str(raised.value)


def log(*figures):
    """The Trainer's log of evaluations with these losses and scores."""
    history = [{"step": 1, "loss": 1.0}]
    for step, (loss, score) in enumerate(figures, start=1):
        evaluation = {"step": step, "eval_loss": loss}
        history.append(
            evaluation if score is None else {**evaluation, "eval_score": score}
        )
    return history


@pytest.mark.parametrize(
    ("figures", "best"),
    [
        ([], None),
        ([(2.0, None), (1.0, None), (1.0, None)], 2),
        ([(float("nan"), None), (2.0, None)], 2),
        ([(1.0, 49.0), (3.0, 50.0)], 2),
        ([(1.0, 50.0), (0.5, 50.0)], 2),
        ([(1.0, 0.0), (2.0, 0.0)], 1),
    ],
)
def test_the_best_evaluation_has_the_highest_score_else_the_lowest_loss(figures, best):
    found = best_of(log(*figures))
    assert (found and found.update) == best


def test_a_training_is_over_after_as_many_worse_evaluations_as_patience_allows():
    worse = log((1.0, 50.0), (1.0, 40.0), (1.0, 30.0))
    assert [is_over(worse, patience) for patience in (None, 1, 2, 3)] == [
        False,
        True,
        True,
        False,
    ]
    assert not is_over([], 1)


def test_checkpoints_come_also_between_evaluations(tmp_path):
    checkpoint = fresh_toy(shape=SMALL)
    examples = examples_of(checkpoint)
    hyper = replace(EACH, evaluations=None)
    result = run(
        checkpoint, tmp_path, hyper, keep=9, examples=examples[:7], dev=examples[7:]
    )
    assert [point["update"] for point in result.curve if "dev_loss" in point] == [6]
    assert len(names_of(tmp_path)) == 6
