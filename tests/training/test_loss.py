"""The full pass and its loss: held to the oracle, to plain transformers, and to the method's promises."""

import copy
import math
import random

import pytest
import torch

from pipedec_cli.pipeline.attention import PADDING
from pipedec_cli.pipeline.schedule import Whole
from pipedec_cli.training.collate import Encoded, collate
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

GRID = ("decoder_input_ids", "subsequence", "time")
#: Y_1 = A B C, Y_2 = D E and Y^F at Δt = 1.
FIGURE_2 = [
    *(Placed(1, time, token) for time, token in enumerate([BOS, 10, 11, 12, EOS])),
    *(Placed(2, 1 + time, token) for time, token in enumerate([BOS, 13, 14, EOS])),
    *(Placed(3, 2 + time, token) for time, token in enumerate([BOS, EOS])),
]


def collated(batch):
    """Sources and grids, padded with arbitrary ids."""
    places, length = (PADDING, PADDING, 35), max(len(grid) for _, grid in batch)
    longest = max(len(source) for source, _ in batch)
    grids = torch.tensor(
        [[*grid, *[places] * (length - len(grid))] for _, grid in batch]
    )
    mask = [[k < len(source) for k in range(longest)] for source, _ in batch]
    return {
        "input_ids": torch.tensor(
            [[*source, *[33] * (longest - len(source))] for source, _ in batch]
        ),
        "attention_mask": torch.tensor(mask).int(),
        **dict(
            zip(
                ("subsequence", "time", "decoder_input_ids"),
                grids.unbind(2),
                strict=True,
            )
        ),
    }


def full_pass(model, batch):
    """The logits of sources and grids."""
    made = collated(batch)
    with torch.no_grad():
        return head_of(model)(
            full_states(
                model, *(made[name] for name in ("input_ids", "attention_mask", *GRID))
            )
        )


def random_grid(chance):
    """A few subsequences at start times that grow, in any order; any id may stand in them, that of padding too."""
    grid, start = [], 0
    for number in range(1, chance.randint(2, 6)):
        start += chance.choice([0, 1, 1, 2, 3, 6]) if number > 1 else 0
        ids = [BOS, *chance.choices(range(VOCABULARY), k=chance.randint(0, 7)), EOS]
        grid += [Placed(number, start + j, token) for j, token in enumerate(ids)]
    chance.shuffle(grid)
    return grid


@pytest.mark.parametrize("kind", [*KINDS, *PROMPTED, *ENCODED])
@pytest.mark.parametrize("seed", range(3))
def test_random_grids_in_a_padded_batch_get_the_oracles_logits(kind, seed):
    """Sources and grids of any length, with pad ids inside: what is masked is told by position, never by id."""
    chance, model = random.Random(seed), small_model(kind)
    batch = [(source, random_grid(chance)) for source in sources_of(kind)]
    # One subsequence that is longer than the farthest bucket.
    batch[0] = (
        batch[0][0],
        [
            Placed(1, time, token)
            for time, token in enumerate([0, 7, 7, 0, 20, *range(4, 14)])
        ],
    )
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
    grid = [
        placed._replace(token=25) if placed == there else placed for placed in FIGURE_2
    ]
    before, after = (
        full_pass(small_model(kind), [(SOURCES[0], one)])[0] for one in (FIGURE_2, grid)
    )
    differs = {
        FIGURE_2[k]
        for k in range(len(grid))
        if not torch.allclose(before[k], after[k], atol=1e-5)
    }
    assert differs <= {placed for placed in FIGURE_2 if sees(placed, there)}
    assert there in differs


@pytest.mark.parametrize("kind", PROMPTED)
def test_a_plain_target_is_learnt_as_transformers_learns_it(kind):
    """Behind its prompt, whose last token tells the first one, at the model's own positions."""
    model, source, text = small_model(kind), [5, 9, 2, 11], [8, 30, 7]
    batch = collate(
        [Encoded(source, (text,))], [Whole()], bos=None, eos=EOS, pad=0, closing=False
    )
    ids = torch.tensor([[*source, *text, EOS]])
    labels = ids.clone()
    labels[:, : len(source)] = -100
    with torch.no_grad():
        wanted = model(
            input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels
        ).loss
        torch.testing.assert_close(TeacherForcing(model)(**batch)["loss"], wanted)


def test_the_oracles_first_row_stands_where_transformers_puts_the_next_token():
    model, prompt = small_model("llama"), PROMPTS[0]
    with torch.no_grad():
        wanted = model(input_ids=torch.tensor([[*prompt, 2]])).logits[0, -1]
    torch.testing.assert_close(
        oracle_prompted_logits(model, prompt, [Placed(1, 0, 2)])[0], wanted
    )


SHORTER = [
    Placed(1, 0, BOS),
    Placed(1, 1, 9),
    Placed(1, 2, EOS),
    Placed(2, 1, BOS),
    Placed(2, 2, EOS),
]


def training_batch():
    """Two examples: figure 2, and a shorter one that is padded."""
    labels = [
        [10, 11, 12, EOS, -100, 13, 14, EOS, -100, EOS, -100],
        [9, EOS, -100, EOS, *[-100] * (len(FIGURE_2) - 4)],
    ]
    return collated([(SOURCES[0], FIGURE_2), (SOURCES[1], SHORTER)]) | {
        "labels": torch.tensor(labels)
    }


@pytest.mark.parametrize("kind", ["t5", "umt5"])
def test_the_loss_is_the_mean_over_all_predictions_of_the_batch(kind):
    """Σ(m_i + 1) + 1 predictions an example: 3 + 1 + 2 + 1 + 1 and 1 + 1 + 1."""
    model, batch = small_model(kind), training_batch()
    surprise = []
    for source, grid, labels in zip(
        SOURCES, (FIGURE_2, SHORTER), batch["labels"].tolist(), strict=False
    ):
        for scores, label in zip(
            oracle_logits(model, source, grid).tolist(), labels, strict=False
        ):
            if label != -100:
                exps = [math.exp(value) for value in scores]
                surprise.append(-math.log(exps[label] / sum(exps)))
    with torch.no_grad():
        loss = TeacherForcing(model)(**batch)["loss"]
    assert len(surprise) == 8 + 3
    assert float(loss) == pytest.approx(sum(surprise) / 11, rel=1e-4)


def test_the_loss_is_divided_by_the_predictions_of_the_accumulated_batch_and_near_under_autocast():
    module = TeacherForcing(small_model("t5"))
    with torch.no_grad():
        alone = float(module(**training_batch())["loss"])
        shared = float(module(**training_batch(), num_items_in_batch=44)["loss"])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough = float(module(**training_batch())["loss"])
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
    batch, module = training_batch(), TeacherForcing(model)
    grid = (batch[name] for name in ("input_ids", "attention_mask", *GRID))
    logits = head_of(model)(full_states(model, *grid)).flatten(0, 1)
    whole = torch.nn.functional.cross_entropy(logits, batch["labels"].flatten())
    whole.backward()
    wanted = {
        name: one.grad.clone()
        for name, one in model.named_parameters()
        if one.grad is not None
    }
    module.zero_grad(set_to_none=True)
    monkeypatch.setattr("pipedec_cli.training.loss.LOGITS", 3 * VOCABULARY)
    loss = module(**batch)["loss"]
    (2 * loss).backward()
    torch.testing.assert_close(loss, whole, rtol=0, atol=1e-5)
    found = {
        name: one.grad for name, one in model.named_parameters() if one.grad is not None
    }
    assert found.keys() == wanted.keys() and (
        kind not in KINDS or len(found) == len([*model.parameters()])
    )
    size = torch.cat([gradient.flatten() for gradient in wanted.values()]).norm()
    for name, gradient in found.items():
        assert (gradient / 2 - wanted[name]).norm() < 1e-5 * size, name
    with torch.no_grad():
        torch.testing.assert_close(module(**batch)["loss"], whole, rtol=0, atol=1e-5)


def test_no_more_logits_exist_at_a_time_than_those_of_a_chunk(monkeypatch):
    monkeypatch.setattr("pipedec_cli.training.loss.LOGITS", 4 * VOCABULARY)
    model, rows = copy.deepcopy(small_model("gated")), []
    model.lm_head.register_forward_hook(lambda _, __, logits: rows.append(len(logits)))
    TeacherForcing(model)(**training_batch())["loss"].backward()
    assert rows == [4, 4, 3]
