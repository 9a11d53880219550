"""Families driven through transformers' modules: the oracle's tokens, the full pass's logits, and the plain way transformers' own."""

import random
from functools import cache

import pytest
import torch

from pipedec_cli.model.engine import engine as engines
from pipedec_cli.model.engine.torch import operators
from pipedec_cli.model.training.collate import Encoded, collate
from pipedec_cli.model.training.loss import TeacherForcing, full_logits
from pipedec_cli.pipeline.decode import decode
from pipedec_cli.pipeline.grid import Limits, Method, Opening
from pipedec_cli.pipeline.schedule import Fixed, Together, Waiting, Whole
from pipedec_cli.pipeline.verify import Verify
from tests import fakes
from tests.model.backbones import (
    BOS,
    ENCODED,
    EOS,
    PROMPTED,
    SOURCES,
    VOCABULARY,
    family_engine,
    family_model,
    method_of,
    source_of,
)
from tests.model.engines import SCHEDULES, TIE, needs_kernels, outcome_of, run_engine
from tests.oracle import next_logits_of, oracle_prompted_logits, oracle_together

FAMILIES = (*PROMPTED, *ENCODED)
#: Kinds of steps with the families that they serve.
STEPPINGS = [
    *((kind, stepping) for kind in FAMILIES for stepping in ("plain", "fixed")),
    *(pytest.param(kind, "native", marks=needs_kernels) for kind in PROMPTED),
]
LONG = Limits(None, None, 14)


@cache
def expected(kind, schedule, empty_rows="retry", *more):
    """The oracle's outcomes of three sources, none of which has a near-tie; kept for the tests that ask again."""
    results = []
    for number in range(3):
        answers = next_logits_of(family_model(kind), source_of(kind, number))
        results.append(fakes.ask_oracle(answers, *SCHEDULES[schedule], empty_rows, *more, bos=BOS, eos=EOS))
    assert min(result.gap for result in results) >= TIE
    assert min(result.doubt for result in results) >= 1e-5
    return [outcome_of(result) for result in results]


@pytest.mark.parametrize("schedule", ["1", "2", "3", "wait", "drawn"])
@pytest.mark.parametrize(("kind", "stepping"), STEPPINGS)
def test_tokens_are_the_oracles_one_at_a_time_and_eight(kind, stepping, schedule):
    sources = [source_of(kind, number) for number in range(3)]
    for sequences in (1, 8):
        engine = family_engine(kind, stepping, sequences)
        order = random.Random(sequences).choices(range(3), k=sequences + 2)
        outcomes = run_engine(engine, [sources[number] for number in order], method_of(*SCHEDULES[schedule]))
        assert outcomes == [expected(kind, schedule)[number] for number in order]


def test_what_the_oracle_says_is_worth_asking():
    """Rows of several lengths that end, more of them than one; so in every family."""
    for kind in FAMILIES:
        texts = [tokens for rows, *_ in expected(kind, "2") for _, tokens in rows]
        assert any(tokens[-1] == EOS for tokens in texts)
        assert len({len(tokens) for tokens in texts}) > 2


@pytest.mark.parametrize("min_start_prob", [0.0, 0.3])
@pytest.mark.parametrize(("kind", "stepping"), STEPPINGS)
def test_attempts_that_are_taken_back_get_the_oracles_tokens(kind, stepping, min_start_prob):
    sources = [source_of(kind, number) for number in range(3)]
    method = method_of(*SCHEDULES["2"], "retract", False, min_start_prob)
    assert run_engine(family_engine(kind, stepping, 3), sources, method) == expected(
        kind, "2", "retract", False, min_start_prob
    )


@pytest.mark.parametrize("delay", [1, 3])
@pytest.mark.parametrize(("kind", "stepping"), STEPPINGS)
def test_cached_logits_are_those_of_the_full_pass(kind, stepping, delay):
    """Of the training pass, whose batch holds all three grids, padded."""
    model, sources = family_model(kind), [source_of(kind, number) for number in range(3)]
    engine, kept = family_engine(kind, stepping, 3), [[], [], []]

    class Kept:
        admit, release = engine.admit, engine.release

        def step(self, rows):
            logits = engine.logits(rows)
            for row, scores in zip(rows, logits, strict=True):
                kept[row.sequence].append((row.slot, scores))
            return logits.argmax(dim=-1).tolist()

    list(decode(Kept(), enumerate(sources), method_of(Fixed(delay), Limits(10, 4)), 3))
    width, count = max(map(len, sources)), max(map(len, kept))
    ids, mask = torch.zeros(2, 3, width, dtype=torch.long)
    grids = torch.full((3, 3, count), 1 << 20)
    grids[0] = 0
    for n, (source, slots) in enumerate(zip(sources, kept, strict=True)):
        ids[n, : len(source)], mask[n, : len(source)] = torch.tensor(source), 1
        for at, (slot, _) in enumerate(slots):
            grids[:, n, at] = torch.tensor([slot.token, slot.subsequence, slot.time])
    with torch.no_grad():
        whole = full_logits(model, ids, mask, *grids)
    for n, slots in enumerate(kept):
        mine = torch.stack([scores for _, scores in slots])
        assert (mine - whole[n, : len(slots)]).abs().max() <= 1e-5 * whole.abs().max()


@pytest.mark.parametrize(("kind", "stepping"), STEPPINGS)
def test_the_plain_way_is_transformers_own_greedy_search(kind, stepping):
    model, sources = family_model(kind), [source_of(kind, number) for number in range(len(SOURCES))]
    wanted = []
    for source in sources:
        ids = torch.tensor([source])
        options = {"max_new_tokens": LONG.max_tokens, "do_sample": False, "num_beams": 1}
        made = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0].tolist()
        made = made[len(source) :] if kind in PROMPTED else made[1:]
        wanted.append(made[: made.index(EOS) + 1] if EOS in made else made)
    assert len({tuple(text) for text in wanted}) > 1
    method = method_of(Whole(), LONG, plain=kind in PROMPTED)
    for sequences in (1, 8):
        outcomes = run_engine(family_engine(kind, stepping, sequences), sources, method)
        assert [rows[0][1] for rows, *_ in outcomes] == wanted


@pytest.mark.parametrize("jacobi", [False, True])
@pytest.mark.parametrize("stepping", ["plain", "fixed", pytest.param("native", marks=needs_kernels)])
@pytest.mark.parametrize("kind", PROMPTED)
def test_exact_mode_gives_the_plain_text_whatever_the_draft(kind, stepping, jacobi):
    plain = run_engine(family_engine(kind, stepping, 1), SOURCES, method_of(Whole(), LONG, plain=True))
    right = {number: rows[0][1] for number, (rows, *_) in enumerate(plain)}
    wrong = {number: [*tokens[:3], 5, 6, 7, 8] for number, tokens in right.items()}
    for drafts in ({}, right, wrong):
        check = Verify(None, EOS, LONG, jacobi, drafts=dict(drafts))
        outcomes = run_engine(family_engine(kind, stepping, 3), SOURCES, check)
        assert [rows[0][1] for rows, *_ in outcomes] == list(right.values())
        if drafts is right:
            assert sum(steps for _, steps, _ in outcomes) < sum(steps for _, steps, _ in plain)


KEYS = ((7, 3), (12,), (30, 8, 3, 9), (), (7, 3))


@pytest.mark.parametrize(("kind", "stepping"), STEPPINGS)
def test_fields_stand_behind_the_longest_key(kind, stepping, monkeypatch):
    sources, results = [source_of(kind, number) for number in range(3)], []
    for source in sources:
        answers = next_logits_of(family_model(kind), source)
        results.append(oracle_together(answers, KEYS, bos=BOS, eos=EOS, time_max=7))
    assert min(result.gap for result in results) >= TIE
    method = Method(Together(), BOS, EOS, Limits(7, None), openings=tuple(map(Opening, KEYS)))
    for sequences, most in ((1, 1024), (2, 1024), (2, 4)):  # also where a call is taken in parts
        monkeypatch.setattr(engines, "MOST_ROWS", most)
        outcomes = run_engine(family_engine(kind, stepping, sequences), sources, method)
        assert outcomes == [outcome_of(result) for result in results]


@pytest.mark.parametrize("schedule", [Fixed(2), Waiting()])
@pytest.mark.parametrize("kind", FAMILIES)
def test_an_examples_loss_is_the_oracles_whoever_is_in_the_batch(kind, schedule):
    """Closed by the empty subsequence, behind prompts of different lengths."""
    model = family_model(kind)
    examples = [Encoded(source_of(kind, 0), ([4, 9], [8, 7, 30], [6])), Encoded(source_of(kind, 1), ([5],))]
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
    method = method_of(*SCHEDULES["2"])
    whole = run_engine(family_engine(kind, "plain", 4), prompts, method)
    monkeypatch.setattr(operators, "PROMPT_TOKENS", 8)
    assert run_engine(family_engine(kind, "plain", 4), prompts, method) == whole
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
