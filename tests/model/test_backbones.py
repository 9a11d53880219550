"""Families driven through transformers' modules: the training loss, and where a grid stands behind its prompt."""

import pytest
import torch

from pipedec_cli.model.training.collate import Encoded, collate
from pipedec_cli.model.training.loss import TeacherForcing
from pipedec_cli.pipeline.schedule import Fixed, Waiting, Whole
from tests.model.engines import EOS, FAMILIES, PROMPTED, PROMPTS, bos_of, small_model, sources_of
from tests.oracle import Placed, oracle_prompted_logits


@pytest.mark.parametrize("schedule", [Fixed(2), Waiting()])
@pytest.mark.parametrize("kind", FAMILIES)
def test_an_examples_loss_is_the_same_whoever_is_in_the_batch(kind, schedule):
    """Closed by the empty subsequence, behind prompts of different lengths."""
    model, (one, other, *_) = small_model(kind), sources_of(kind)
    examples = [Encoded(one, ([4, 9], [8, 7, 30], [6])), Encoded(other, ([5],))]
    given = {"bos": bos_of(kind), "eos": EOS, "pad": 0, "closing": True}
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
    model, source, text = small_model(kind), [5, 9, 2, 11], [8, 30, 7]
    batch = collate([Encoded(source, (text,))], [Whole()], bos=None, eos=EOS, pad=0, closing=False)
    ids = torch.tensor([[*source, *text, EOS]])
    labels = ids.clone()
    labels[:, : len(source)] = -100
    with torch.no_grad():
        wanted = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels).loss
        torch.testing.assert_close(TeacherForcing(model)(**batch)["loss"], wanted)


def test_places_are_counted_from_behind_the_prompt():
    """The first row's opener stands where transformers would put the next token, so their logits are the same."""
    model, prompt = small_model("llama"), PROMPTS[0]
    with torch.no_grad():
        wanted = model(input_ids=torch.tensor([[*prompt, 2]])).logits[0, -1]
    torch.testing.assert_close(oracle_prompted_logits(model, prompt, [Placed(1, 0, 2)])[0], wanted)
