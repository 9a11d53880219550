"""The full pass and its loss: held to transformers' own blocks, and to the method's promises."""

import copy
import math
import random

import pytest
import torch

from pipedec_cli.model.training.loss import TeacherForcing, decoder_states, full_states, head_of
from pipedec_cli.pipeline.attention import PADDING
from tests.model.engines import BOS, ENCODED, EOS, KINDS, PROMPTED, SOURCES, VOCABULARY, small_model
from tests.oracle import Placed, oracle_logits, sees

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
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
    grids = torch.tensor([[*grid, *[places] * (length - len(grid))] for _, grid in batch])
    return {
        "input_ids": torch.tensor([[*source, *[33] * (longest - len(source))] for source, _ in batch]),
        "attention_mask": torch.tensor(
            [[k < len(source) for k in range(longest)] for source, _ in batch]
        ).int(),
        **dict(zip(("subsequence", "time", "decoder_input_ids"), grids.unbind(2), strict=True)),
    }


def full_pass(model, batch):
    """The logits of sources and grids."""
    given = collated(batch)
    ids, mask, *grid = (given[name] for name in ("input_ids", "attention_mask", *GRID))
    with torch.no_grad():
        memory = model.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        return head_of(model)(decoder_states(model, *grid, memory, mask))


def random_grid(rng):
    """A few subsequences at start times that grow, in any order."""
    grid = []
    start = 0
    for number in range(1, rng.randint(2, 6)):
        start += rng.choice([0, 1, 1, 2, 3, 6]) if number > 1 else 0
        length = rng.randint(0, 7)
        ids = [BOS, *(rng.randrange(VOCABULARY) for _ in range(length)), EOS]
        grid += [Placed(number, start + j, token) for j, token in enumerate(ids)]
    rng.shuffle(grid)
    return grid


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_random_grids_get_the_oracles_logits(kind, seed):
    rng = random.Random(seed)
    source, grid = rng.choice(SOURCES), random_grid(rng)
    if seed == 0:  # one subsequence, longer than the farthest bucket, pad ids inside
        grid = [Placed(1, time, token) for time, token in enumerate([0, 7, 7, 0, 20, *range(4, 14)])]
    logits = full_pass(small_model(kind), [(source, grid)])[0]
    torch.testing.assert_close(logits, oracle_logits(small_model(kind), source, grid), **CLOSE)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_of_sources_and_grids_changes_nothing(kind):
    rng = random.Random(1)
    batch = [(source, random_grid(rng)) for source in SOURCES]
    together = full_pass(small_model(kind), batch)
    for row, (source, grid) in enumerate(batch):
        alone = full_pass(small_model(kind), [(source, grid)])[0]
        torch.testing.assert_close(together[row, : len(grid)], alone, **CLOSE)
    assert together.isfinite().all()


@pytest.mark.parametrize("kind", ["t5", "umt5"])
@pytest.mark.parametrize("changed", range(len(FIGURE_2)))
def test_a_changed_token_leaves_earlier_times_and_earlier_subsequences_as_they_were(kind, changed):
    there = FIGURE_2[changed]
    grid = [placed._replace(token=25) if placed == there else placed for placed in FIGURE_2]
    before = full_pass(small_model(kind), [(SOURCES[0], FIGURE_2)])[0]
    after = full_pass(small_model(kind), [(SOURCES[0], grid)])[0]
    differs = {FIGURE_2[k] for k in range(len(grid)) if not torch.allclose(before[k], after[k], atol=1e-5)}
    assert differs <= {placed for placed in FIGURE_2 if sees(placed, there)}
    assert there in differs


def test_a_pad_id_inside_a_text_or_a_source_counts():
    """<bos> is T5's pad: what is masked is told by position, never by id."""
    model = small_model("t5")
    place = next(k for k, placed in enumerate(FIGURE_2) if placed.token == 10)
    padded = [placed._replace(token=BOS) if k == place else placed for k, placed in enumerate(FIGURE_2)]
    left_out = [placed for k, placed in enumerate(FIGURE_2) if k != place]
    with_pad = full_pass(model, [(SOURCES[0], padded)])[0]
    without = full_pass(model, [(SOURCES[0], left_out)])[0]
    source_without = full_pass(model, [([token for token in SOURCES[2] if token], FIGURE_2)])[0]
    assert not torch.allclose(with_pad[-1], without[-1], atol=1e-3)
    torch.testing.assert_close(with_pad, oracle_logits(model, SOURCES[0], padded), **CLOSE)
    assert not torch.allclose(full_pass(model, [(SOURCES[2], FIGURE_2)])[0], source_without, atol=1e-3)


SHORTER = [Placed(1, 0, BOS), Placed(1, 1, 9), Placed(1, 2, EOS), Placed(2, 1, BOS), Placed(2, 2, EOS)]


def training_batch():
    """Two examples: figure 2, and a shorter one that is padded."""
    labels = [
        [10, 11, 12, EOS, -100, 13, 14, EOS, -100, EOS, -100],
        [9, EOS, -100, EOS, *[-100] * (len(FIGURE_2) - 4)],
    ]
    return collated([(SOURCES[0], FIGURE_2), (SOURCES[1], SHORTER)]) | {"labels": torch.tensor(labels)}


@pytest.mark.parametrize("kind", ["t5", "umt5"])
def test_the_loss_is_the_mean_over_all_predictions_of_the_batch(kind):
    """Σ(m_i + 1) + 1 predictions an example: 3 + 1 + 2 + 1 + 1 and 1 + 1 + 1."""
    model, batch = small_model(kind), training_batch()
    surprise = []
    for source, grid, labels in zip(SOURCES, (FIGURE_2, SHORTER), batch["labels"].tolist(), strict=False):
        for scores, label in zip(oracle_logits(model, source, grid).tolist(), labels, strict=False):
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


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_takes_part(kind):
    """Training on several devices relies on it: a parameter without a gradient would stop them."""
    module = TeacherForcing(small_model(kind))
    module(**training_batch())["loss"].backward()
    assert [name for name, parameter in module.named_parameters() if parameter.grad is None] == []
    module.zero_grad(set_to_none=True)


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
def test_the_loss_over_chunks_is_the_loss_over_all_logits_with_the_same_gradients(kind, monkeypatch):
    """Three predictions at a time, of 11; logits at other positions are not computed. Gemma's logits are capped."""
    model = copy.deepcopy(small_model(kind))
    if kind in ("gemma3_text", "t5gemma"):
        getattr(model.config, "decoder", model.config).final_logit_softcapping = 3.0
    batch, module = training_batch(), TeacherForcing(model)
    grid = (batch[name] for name in ("input_ids", "attention_mask", *GRID))
    logits = head_of(model)(full_states(model, *grid)).flatten(0, 1)
    whole = torch.nn.functional.cross_entropy(logits, batch["labels"].flatten())
    whole.backward()
    wanted = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    module.zero_grad(set_to_none=True)
    monkeypatch.setattr("pipedec_cli.model.training.loss.LOGITS", 3 * VOCABULARY)
    loss = module(**batch)["loss"]
    (2 * loss).backward()
    torch.testing.assert_close(loss, whole, rtol=0, atol=1e-5)
    found = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    assert found.keys() == wanted.keys()
    size = torch.cat([gradient.flatten() for gradient in wanted.values()]).norm()
    for name, gradient in found.items():
        assert (gradient / 2 - wanted[name]).norm() < 1e-5 * size, name
    with torch.no_grad():
        torch.testing.assert_close(module(**batch)["loss"], whole, rtol=0, atol=1e-5)


def test_no_more_logits_exist_at_a_time_than_those_of_a_chunk(monkeypatch):
    monkeypatch.setattr("pipedec_cli.model.training.loss.LOGITS", 4 * VOCABULARY)
    model, rows = copy.deepcopy(small_model("gated")), []
    model.lm_head.register_forward_hook(lambda _, __, logits: rows.append(len(logits)))
    TeacherForcing(model)(**training_batch())["loss"].backward()
    assert rows == [4, 4, 3]
