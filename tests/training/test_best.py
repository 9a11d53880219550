"""The best weights: what a training leaves when it gets worse again, when it ends early, and after a kill."""

from dataclasses import replace

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.trained import best_folders, clean
from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.training import trainer
from pipedec_cli.training.trainer import Evaluation
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
    checkpoint, seen = fresh_toy(shape=SMALL), {}

    def score():
        update = begins + len(seen) + 1
        if update == killed:
            raise InterruptedError
        seen[update] = {
            name: weight.clone() for name, weight in weights_of(checkpoint).items()
        }
        return SCORES[update - 1]

    examples = examples_of(checkpoint)
    made = run(
        checkpoint,
        folder,
        hyper,
        examples=examples[:7],
        dev=examples[7:],
        score=score,
        **options,
    )
    return made, weights_of(load_checkpoint(str(folder))), seen


def equal(one, other):
    return all(weight.equal(other[name]) for name, weight in one.items())


@pytest.mark.parametrize(("keep", "update"), [("best", 4), ("last", 6)])
def test_a_training_that_gets_worse_after_its_best_evaluation_leaves_the_best_weights(
    tmp_path, keep, update
):
    made, left, seen = scored(tmp_path, replace(EACH, keep=keep))
    assert equal(left, seen[update]) and not equal(left, seen[10 - update])
    assert (made.updates, made.weights_update) == (6, update)
    assert made.best_by == ("dev_score" if keep == "best" else None)
    assert (made.dev_update, made.dev_score) == (update, SCORES[update - 1])
    assert [folder.name for folder in best_folders(tmp_path)] == ["best-4"] * (
        keep == "best"
    )


def test_where_nothing_is_scored_the_loss_says_which_weights_are_the_best(tmp_path):
    checkpoint = fresh_toy(shape=SMALL)
    dev = examples_of(checkpoint)[7:]
    rising = replace(EACH, learning_rate=0.5, schedule="constant", warmup=0.0)
    made = run(
        checkpoint, tmp_path, rising, examples=examples_of(checkpoint)[:3], dev=dev
    )
    losses = {
        point["update"]: point["dev_loss"]
        for point in made.curve
        if "dev_loss" in point
    }
    assert (
        made.weights_update == min(losses, key=losses.__getitem__)
        and made.best_by == "dev_loss"
    )
    assert made.dev_loss == min(losses.values()) < losses[6]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What came of a training that nobody killed, and its weights."""
    return scored(tmp_path_factory.mktemp("whole"))[:2]


@pytest.mark.slow
@pytest.mark.parametrize("killed", [slow(2), 4, slow(5), 6])
def test_a_killed_training_goes_on_to_the_same_best_weights(
    tmp_path, undisturbed, killed
):
    made, whole = undisturbed
    with pytest.raises(InterruptedError):
        scored(tmp_path / "killed", killed=killed)
    again, left, _ = scored(tmp_path / "killed", begins=killed - 1, resume=True)
    assert equal(left, whole)
    assert (
        (again.weights_update, again.dev_score)
        == (made.weights_update, made.dev_score)
        == (4, 50.0)
    )


@pytest.mark.parametrize("step", ["save_checkpoint", "write_json", "forget"])
def test_a_training_that_is_killed_while_it_keeps_its_best_weights_loses_none(
    tmp_path, monkeypatch, undisturbed, step
):
    usual = getattr(trainer, step)

    def kill(*given):
        if (tmp_path / "killed/checkpoint-3").exists():
            raise InterruptedError
        usual(*given)

    with monkeypatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(trainer, step, kill)
        scored(tmp_path / "killed")
    there = [folder.name for folder in best_folders(tmp_path / "killed")]
    assert there == (["best-2", "best-4"] if step == "forget" else ["best-2"])
    clean(tmp_path / "killed")
    _, left, _ = scored(tmp_path / "killed", begins=3, resume=True)
    assert equal(left, undisturbed[1])


@pytest.mark.slow
def test_a_training_ends_when_its_patience_does_and_is_not_gone_on_with(tmp_path):
    hyper = replace(EACH, patience=1)
    made, left, seen = scored(tmp_path, hyper)
    assert (made.updates, made.weights_update, made.examples_seen) == (
        3,
        2,
        3 * hyper.batch_size,
    )
    assert equal(left, seen[2])
    again, left, seen = scored(tmp_path, hyper, begins=3, resume=True)
    assert (again.updates, again.weights_update, seen) == (3, 2, {})
    last = replace(hyper, keep="last")
    assert [
        scored(tmp_path / f"{n}", replace(last, patience=n))[0].updates for n in (1, 2)
    ] == [3, 6]


@pytest.mark.parametrize("name", ["best.json", "model.safetensors"])
def test_best_weights_that_cannot_be_read_are_one_line(tmp_path, name):
    with pytest.raises(InterruptedError):
        scored(tmp_path, killed=6)
    (tmp_path / "best-4" / name).write_text("{}")
    with pytest.raises(UserError, match=r"best-4") as raised:
        scored(tmp_path, begins=5, resume=True)
    assert "\n" not in str(raised.value)


def test_the_better_of_two_evaluations_has_the_higher_score_else_the_lower_loss():
    nothing, lost = Evaluation(1, 2.0), Evaluation(1, float("nan"))
    assert Evaluation(2, 1.0).better_than(nothing) and not nothing.better_than(
        Evaluation(2, 2.0)
    )
    assert nothing.better_than(lost) and not lost.better_than(nothing)
    assert Evaluation(2, 3.0, 50.0).better_than(Evaluation(1, 1.0, 49.0))
    assert Evaluation(2, 0.5, 50.0).better_than(Evaluation(1, 1.0, 50.0))


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
    hyper = replace(EACH, batch_size=4, accumulation=2, evaluations=asked)
    assert hyper.evaluated(updates) == evaluations


def test_checkpoints_come_also_between_evaluations(tmp_path):
    checkpoint = fresh_toy(shape=SMALL)
    data = {
        "examples": examples_of(checkpoint)[:7],
        "dev": examples_of(checkpoint)[7:],
        "score": lambda: 1.0,
    }
    made = run(checkpoint, tmp_path, replace(EACH, evaluations=None), keep=9, **data)
    assert [point["update"] for point in made.curve if "dev_loss" in point] == [6]
    assert len(list(tmp_path.glob("checkpoint-*"))) == 6
