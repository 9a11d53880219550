"""The full pass and its loss: held to the oracle, to plain transformers, and to the method's promises."""

import copy
import math
import random

import pytest
import torch

from pipedec_cli.pipeline.attention import PADDING
from pipedec_cli.pipeline.schedule import Whole
from pipedec_cli.training.collate import collate
from pipedec_cli.training.encoded import Encoded
from pipedec_cli.training.loss import TeacherForcing, full_states, head_of
from tests.model.engines import (
    BOS,
    ENCODED,
    EOS,
    KINDS,
    PROMPTED,
    PROMPTS,
    SOURCES,
    VOCABULARY,
    small_model,
    sources_of,
)
from tests.oracle import (
    Placed,
    next_logits_of,
    oracle_logits,
    oracle_prompted_logits,
    sees,
)


def row(number, start, tokens):
    """A subsequence that starts at that time."""
    return [Placed(number, start + j, token) for j, token in enumerate(tokens)]


#: Y_1 = A B C, Y_2 = D E and Y^F at Δt = 1.
FIGURE_2 = [
    *row(1, 0, [BOS, 10, 11, 12, EOS]),
    *row(2, 1, [BOS, 13, 14, EOS]),
    *row(3, 2, [BOS, EOS]),
]
SHORTER = [*row(1, 0, [BOS, 9, EOS]), *row(2, 1, [BOS, EOS])]


def padded(rows, filling):
    longest = max(len(row) for row in rows)
    filled = []
    for row in rows:
        missing = longest - len(row)
        filled.append([*row, *[filling] * missing])
    return torch.tensor(filled)


def collated(batch):
    """Sources and grids, padded with arbitrary ids."""
    sources = [source for source, _ in batch]
    grids = padded([grid for _, grid in batch], (PADDING, PADDING, 35))
    subsequence, time, tokens = grids.unbind(2)
    return {
        "input_ids": padded(sources, 33),
        "attention_mask": padded([[1] * len(source) for source in sources], 0).int(),
        "decoder_input_ids": tokens,
        "subsequence": subsequence,
        "time": time,
    }


def logits_of(model, batch):
    """The logits of a batch, with gradients."""
    names = ("input_ids", "attention_mask", "decoder_input_ids", "subsequence", "time")
    given = [batch[name] for name in names]
    states = full_states(model, *given)
    return head_of(model)(states)


def full_pass(model, batch):
    """The logits of sources and grids."""
    with torch.no_grad():
        return logits_of(model, collated(batch))


def random_grid(chance):
    """A few subsequences at start times that grow, in any order; any id may stand in them, that of padding too."""
    grid = []
    start = 0
    for number in range(1, chance.randint(2, 6)):
        if number > 1:
            start += chance.choice([0, 1, 1, 2, 3, 6])
        text = chance.choices(range(VOCABULARY), k=chance.randint(0, 7))
        grid += row(number, start, [BOS, *text, EOS])
    chance.shuffle(grid)
    return grid


@pytest.mark.parametrize("kind", [*KINDS, *PROMPTED, *ENCODED])
@pytest.mark.parametrize("seed", range(3))
def test_random_grids_in_a_padded_batch_get_the_oracles_logits(kind, seed):
    """Sources and grids of any length, with pad ids inside: what is masked is told by position, never by id."""
    chance = random.Random(seed)
    model = small_model(kind)
    batch = [(source, random_grid(chance)) for source in sources_of(kind)]
    # One subsequence that is longer than the farthest bucket.
    batch[0] = (batch[0][0], row(1, 0, [0, 7, 7, 0, 20, *range(4, 14)]))
    together = full_pass(model, batch)
    assert together.isfinite().all()
    for logits, (source, grid) in zip(together, batch, strict=True):
        expected = torch.tensor(next_logits_of(model, source)(grid, range(len(grid))))
        torch.testing.assert_close(logits[: len(grid)], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["t5", "umt5"])
@pytest.mark.parametrize("changed", range(len(FIGURE_2)))
def test_a_changed_token_leaves_earlier_times_and_earlier_subsequences_as_they_were(
    kind, changed
):
    there = FIGURE_2[changed]
    grid = [*FIGURE_2]
    grid[changed] = there._replace(token=25)
    model = small_model(kind)
    before = full_pass(model, [(SOURCES[0], FIGURE_2)])[0]
    after = full_pass(model, [(SOURCES[0], grid)])[0]
    differs = ~torch.isclose(before, after, atol=1e-5).all(dim=1)
    for placed, differ in zip(FIGURE_2, differs.tolist(), strict=True):
        assert sees(placed, there) or not differ
    assert differs[changed]


@pytest.mark.parametrize("kind", PROMPTED)
def test_a_plain_target_is_learnt_as_transformers_learns_it(kind):
    """Behind its prompt, whose last token tells the first one, at the model's own positions."""
    model = small_model(kind)
    source, text = [5, 9, 2, 11], [8, 30, 7]
    batch = collate(
        [Encoded(source, (text,))], [Whole()], bos=None, eos=EOS, pad=0, closing=False
    )
    ids = torch.tensor([[*source, *text, EOS]])
    labels = ids.clone()
    labels[:, : len(source)] = -100
    mask = torch.ones_like(ids)
    with torch.no_grad():
        wanted = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        torch.testing.assert_close(TeacherForcing(model)(**batch)["loss"], wanted)


def test_the_oracles_first_row_stands_where_transformers_puts_the_next_token():
    model = small_model("llama")
    ids = torch.tensor([[*PROMPTS[0], 2]])
    with torch.no_grad():
        wanted = model(input_ids=ids).logits[0, -1]
    rows = oracle_prompted_logits(model, PROMPTS[0], [Placed(1, 0, 2)])
    torch.testing.assert_close(rows[0], wanted)


def training_batch():
    """Two examples: figure 2, and a shorter one that is padded."""
    labels = [
        [10, 11, 12, EOS, -100, 13, 14, EOS, -100, EOS, -100],
        [9, EOS, -100, EOS, *[-100] * (len(FIGURE_2) - 4)],
    ]
    batch = collated([(SOURCES[0], FIGURE_2), (SOURCES[1], SHORTER)])
    batch["labels"] = torch.tensor(labels)
    return batch


@pytest.mark.parametrize("kind", ["t5", "umt5"])
def test_the_loss_is_the_mean_over_all_predictions_of_the_batch(kind):
    """Σ(m_i + 1) + 1 predictions an example: 3 + 1 + 2 + 1 + 1 and 1 + 1 + 1."""
    model = small_model(kind)
    batch = training_batch()
    total = 0.0
    grids = [(SOURCES[0], FIGURE_2), (SOURCES[1], SHORTER)]
    for (source, grid), labels in zip(grids, batch["labels"].tolist(), strict=True):
        rows = oracle_logits(model, source, grid).tolist()
        for scores, label in zip(rows, labels, strict=False):
            if label != -100:
                partition = sum(math.exp(score) for score in scores)
                total += math.log(partition) - scores[label]
    with torch.no_grad():
        loss = TeacherForcing(model)(**batch)["loss"]
    assert float(loss) == pytest.approx(total / (8 + 3), rel=1e-4)


def test_the_loss_is_divided_by_the_predictions_of_the_accumulated_batch_and_near_under_autocast():
    module = TeacherForcing(small_model("t5"))
    batch = training_batch()
    with torch.no_grad():
        alone = float(module(**batch)["loss"])
        shared = float(module(**batch, num_items_in_batch=44)["loss"])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough = float(module(**batch)["loss"])
    assert shared == pytest.approx(alone * 11 / 44)
    assert rough == pytest.approx(alone, rel=0.05)


def test_dropout_acts_in_training_and_not_otherwise():
    model = copy.deepcopy(small_model("t5"))
    model.config.dropout_rate = 0.5
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.5
    module = TeacherForcing(model)
    for training in (False, True):
        model.train(training)
        with torch.no_grad():
            one, other = (module(**training_batch())["loss"] for _ in range(2))
        assert (one != other) == training


@pytest.mark.parametrize("kind", [*KINDS, *PROMPTED, *ENCODED])
def test_the_loss_over_chunks_is_the_loss_over_all_logits_with_the_same_gradients(
    kind, monkeypatch
):
    """Three predictions at a time, of 11; logits at other positions are not computed. Gemma's logits are capped.

    Every parameter of a T5 takes part: one without a gradient would stop a training on
    several devices.
    """
    model = copy.deepcopy(small_model(kind))
    if kind in ("gemma3_text", "t5gemma"):
        getattr(model.config, "decoder", model.config).final_logit_softcapping = 3.0
    batch = training_batch()
    module = TeacherForcing(model)
    logits = logits_of(model, batch).flatten(0, 1)
    whole = torch.nn.functional.cross_entropy(logits, batch["labels"].flatten())
    whole.backward()
    wanted = gradients_of(model)
    module.zero_grad(set_to_none=True)
    monkeypatch.setattr("pipedec_cli.training.loss.LOGITS", 3 * VOCABULARY)
    loss = module(**batch)["loss"]
    (2 * loss).backward()
    torch.testing.assert_close(loss, whole, rtol=0, atol=1e-5)
    gradients = gradients_of(model)
    assert gradients.keys() == wanted.keys()
    assert kind not in KINDS or len(gradients) == len([*model.parameters()])
    size = torch.cat([gradient.flatten() for gradient in wanted.values()]).norm()
    for name, gradient in gradients.items():
        assert (gradient / 2 - wanted[name]).norm() < 1e-5 * size, name
    with torch.no_grad():
        torch.testing.assert_close(module(**batch)["loss"], whole, rtol=0, atol=1e-5)


def gradients_of(model):
    return {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }


def test_no_more_logits_exist_at_a_time_than_those_of_a_chunk(monkeypatch):
    monkeypatch.setattr("pipedec_cli.training.loss.LOGITS", 4 * VOCABULARY)
    model = copy.deepcopy(small_model("gated"))
    rows = []
    model.lm_head.register_forward_hook(lambda _, __, logits: rows.append(len(logits)))
    TeacherForcing(model)(**training_batch())["loss"].backward()
    assert rows == [4, 4, 3]
