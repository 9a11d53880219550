"""Training on the Trainer: it learns, looks at the dev set, and leaves a plain T5 without pickles."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipedec_cli.training.trainer import train
from tests.checkpoints import QUICK, SMALL, examples_of, fresh_toy, weights_of
from tests.training.trainings import PICKLED, run
from tests.words import refusing


def test_the_loss_falls_and_each_update_is_shown_once(tmp_path):
    checkpoint = fresh_toy()
    shown = []
    hyper = replace(QUICK, batch_size=5, max_steps=40, learning_rate=3e-3)
    dev = examples_of(checkpoint)[:2]
    result = run(checkpoint, tmp_path, hyper, dev=dev, show=shown.append)
    assert [progress.update for progress in shown] == [*range(1, 41)]
    assert {progress.updates for progress in shown} == {40}
    losses = [*dict.fromkeys(progress.loss for progress in shown if progress.loss)]
    assert losses[-1] < 0.5 * losses[0]
    assert result.loss == pytest.approx(sum(losses) / len(losses), rel=1e-3)
    assert (result.updates, result.examples_seen) == (40, 200)
    assert shown[0].left is None and shown[-1].left == 0
    assert all(progress.left for progress in shown[1:-1])
    assert shown[-1].dev_loss is not None
    assert not checkpoint.model.training


def test_dev_examples_are_looked_at_and_scored_and_never_trained_on(tmp_path):
    checkpoint = fresh_toy()
    examples = examples_of(checkpoint)
    shown = []
    trained = set()
    evaluated = set()

    def watch(module, args, inputs):
        seen = trained if torch.is_grad_enabled() else evaluated
        rows = zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
        seen.update(tuple(ids[mask.bool()].tolist()) for ids, mask in rows)

    checkpoint.model.encoder.register_forward_pre_hook(watch, with_kwargs=True)
    run(
        checkpoint,
        tmp_path,
        examples=examples[:6],
        dev=examples[6:],
        show=shown.append,
        score=lambda: 42.0,
    )
    assert trained == {tuple(example.source) for example in examples[:6]}
    assert evaluated == {tuple(example.source) for example in examples[6:]}
    looks = [one for one in shown if one.dev_loss]
    assert [(one.update, one.dev_score) for one in looks] == [(3, 42.0), (6, 42.0)]


def test_the_saved_folder_is_plain_transformers_and_holds_no_pickle(trained):
    """Optimizer and chance are kept in checkpoint-N, and can be read without running what they hold."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
    from transformers.trainer_pt_utils import safe_globals

    files = [path for path in Path(trained.name).rglob("*") if path.is_file()]
    plain = {".json", ".safetensors"}
    pickles = [path for path in files if path.suffix not in plain]
    assert {path.name for path in pickles} == {*PICKLED}
    for path in pickles:
        assert path.parent.name.startswith("checkpoint-")
        with safe_globals():
            torch.load(path, weights_only=True)
    tokenizer = AutoTokenizer.from_pretrained(trained.name)
    source, _ = trained.codec().source("red 3")
    assert tokenizer("red 3")["input_ids"] == source
    ids = {
        "input_ids": torch.tensor([[5, 6, 1]]),
        "decoder_input_ids": torch.tensor([[0, 8, 9]]),
    }
    with torch.no_grad():
        logits = AutoModelForSeq2SeqLM.from_pretrained(trained.name)(**ids).logits
        assert logits.equal(trained.model(**ids).logits)


def test_adafactors_steps_are_in_proportion_to_each_matrix(tmp_path):
    checkpoint = fresh_toy()
    before = weights_of(checkpoint)
    run(checkpoint, tmp_path, replace(QUICK, optimizer="adafactor", max_steps=1))
    sizes = []
    for name, after in weights_of(checkpoint).items():
        if after.dim() < 2:
            continue
        size = float(before[name].pow(2).mean().sqrt())
        moved = float((after - before[name]).pow(2).mean().sqrt())
        assert 0.3 < moved / (QUICK.learning_rate * size) <= 1.01, name
        sizes.append(size)
    assert max(sizes) / min(sizes) > 10


def test_no_examples_are_refused(tmp_path):
    with refusing():
        train(fresh_toy(), [], [], tmp_path, QUICK)


def test_every_file_of_a_model_has_the_mode_that_the_user_wants(tmp_path):
    before = os.umask(0o027)
    try:
        run(fresh_toy(shape=SMALL), tmp_path, replace(QUICK, max_steps=1))
    finally:
        os.umask(before)
    names = set()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert path.stat().st_mode & 0o777 == 0o640
            names.add(path.name)
    assert "model.safetensors" in names
