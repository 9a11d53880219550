"""Families driven through transformers' modules: exact mode, the training loss, and long prompts."""

import pytest
import torch

from pipedec_cli.model.engine.torch import operators
from pipedec_cli.model.training.collate import Encoded, collate
from pipedec_cli.model.training.loss import TeacherForcing
from pipedec_cli.pipeline.exact import Verify
from pipedec_cli.pipeline.grid import Limits, Method
from pipedec_cli.pipeline.schedule import Fixed, Waiting, Whole
from tests import fakes
from tests.model.backbones import (
    BOS,
    ENCODED,
    EOS,
    PROMPTED,
    SOURCES,
    VOCABULARY,
    family_model,
    family_sources,
)
from tests.model.engines import SCHEDULES, engines_of, make_engine, method_of, outcome_of, run_engine
from tests.oracle import next_logits_of, oracle_prompted_logits

LONG = Limits(None, None, 14)


@pytest.mark.parametrize("jacobi", [False, True])
@engines_of(*PROMPTED)
def test_exact_mode_gives_the_plain_text_whatever_the_draft(kind, stepping, jacobi):
    plain = run_engine(make_engine(kind, stepping, 1), SOURCES, Method(Whole(), None, EOS, LONG))
    right = {number: rows[0][1] for number, (rows, *_) in enumerate(plain)}
    wrong = {number: [*tokens[:3], 5, 6, 7, 8] for number, tokens in right.items()}
    for drafts in ({}, right, wrong):
        check = Verify(None, EOS, LONG, jacobi, drafts=dict(drafts))
        outcomes = run_engine(make_engine(kind, stepping, 3), SOURCES, check)
        assert [rows[0][1] for rows, *_ in outcomes] == list(right.values())
        if drafts is right:
            assert sum(steps for _, steps, _ in outcomes) < sum(steps for _, steps, _ in plain)


@pytest.mark.parametrize("schedule", [Fixed(2), Waiting()])
@pytest.mark.parametrize("kind", [*PROMPTED, *ENCODED])
def test_an_examples_loss_is_the_oracles_whoever_is_in_the_batch(kind, schedule):
    """Closed by the empty subsequence, behind prompts of different lengths."""
    model, (one, other, *_) = family_model(kind), family_sources(kind)
    examples = [Encoded(one, ([4, 9], [8, 7, 30], [6])), Encoded(other, ([5],))]
    given = {"bos": BOS, "eos": EOS, "pad": 0, "closing": True}
    together = collate(examples, [schedule] * 2, **given)
    apart = [collate([example], [schedule], **given) for example in examples]
    with torch.no_grad():
        losses = [TeacherForcing(model)(**batch)["loss"] for batch in apart]
        both = TeacherForcing(model)(**together)["loss"]
    counts = [int((batch["labels"] != -100).sum()) for batch in apart]
    mean = sum(loss * count for loss, count in zip(losses, counts, strict=True)) / sum(counts)
    torch.testing.assert_close(both, mean)


@pytest.mark.parametrize("kind", PROMPTED)
def test_a_plain_target_is_learnt_as_transformers_learns_it(kind):
    """Behind its prompt, whose last token tells the first one, at the model's own positions."""
    model, source, text = family_model(kind), [5, 9, 2, 11], [8, 30, 7]
    batch = collate([Encoded(source, (text,))], [Whole()], bos=None, eos=EOS, pad=0, closing=False)
    ids = torch.tensor([[*source, *text, EOS]])
    labels = ids.clone()
    labels[:, : len(source)] = -100
    with torch.no_grad():
        wanted = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels).loss
        torch.testing.assert_close(TeacherForcing(model)(**batch)["loss"], wanted)


@pytest.mark.parametrize("kind", PROMPTED)
def test_a_long_prompt_is_read_in_parts_to_the_same_effect(kind, monkeypatch):
    prompts = [[(7 * n) % VOCABULARY for n in range(length)] for length in (23, 5, 16, 0)]
    method = method_of("2", kind=kind)
    whole = run_engine(make_engine(kind, "plain", 4), prompts, method)
    monkeypatch.setattr(operators, "PROMPT_TOKENS", 8)
    assert run_engine(make_engine(kind, "plain", 4), prompts, method) == whole
    answers = fakes.ask_oracle(
        next_logits_of(family_model(kind), prompts[0]), *SCHEDULES["2"], bos=BOS, eos=EOS
    )
    assert whole[0] == outcome_of(answers)


def test_places_are_counted_from_behind_the_prompt():
    """The first row's opener stands where transformers would put the next token, so their logits are the same."""
    model, prompt = family_model("llama"), SOURCES[0]
    with torch.no_grad():
        wanted = model(input_ids=torch.tensor([[*prompt, BOS]])).logits[0, -1]
    first = fakes.Placed(1, 0, BOS)
    torch.testing.assert_close(oracle_prompted_logits(model, prompt, [first])[0], wanted)
