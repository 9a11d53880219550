"""The engine: the tokens of the oracle and the logits of the full pass, whoever else is in flight and whatever computes."""

import copy
import random
from functools import cache, partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipedec_cli.model.engine.engine import Engine, lay_out
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Limits, Method, Slot
from pipedec_cli.pipeline.schedule import Whole
from tests.checkpoints import examples_of
from tests.model.engines import (
    BOS,
    EOS,
    FAMILIES,
    KINDS,
    PROMPTED,
    SCHEDULES,
    SOURCES,
    STEPPINGS,
    TIE,
    VOCABULARY,
    Recorder,
    ask_oracle,
    bos_of,
    engines_of,
    expected_of,
    expected_outcomes,
    make_engine,
    method_of,
    model_of,
    outcome_of,
    run_engine,
    small_model,
    sources_of,
)

# --- Tokens -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stepping", STEPPINGS)
@pytest.mark.parametrize("sequences", [1, 3, 8])
@pytest.mark.parametrize("rule", [("retry",), ("stop",), ("stop", True)])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tokens_are_the_oracles(schedule, rule, sequences, stepping):
    """With fewer sequences than sources, examples leave and enter at different times."""
    order = random.Random(f"{schedule} {sequences}").sample(range(len(SOURCES)), len(SOURCES))
    engine = make_engine("t5", stepping, sequences)
    outcomes = run_engine(engine, [SOURCES[number] for number in order], method_of(schedule, *rule))
    expected = expected_outcomes("t5", schedule, *rule)
    assert outcomes == [expected[number] for number in order]


@pytest.mark.parametrize("schedule", SCHEDULES)
@engines_of("gated", "mt5", "umt5", *FAMILIES)
def test_every_family_gets_the_oracles_tokens(kind, stepping, schedule):
    """One at a time and two, whatever the engine has decoded before."""
    sources, expected = sources_of(kind)[:3], expected_outcomes(kind, schedule, count=3)
    for sequences in (1, 2):
        engine = make_engine(kind, stepping, sequences)
        assert run_engine(engine, sources, method_of(schedule, kind=kind)) == expected
    assert run_engine(engine, sources, method_of("1", kind=kind)) == expected_outcomes(kind, "1", count=3)


@pytest.mark.parametrize("kind", [*KINDS, *FAMILIES])
def test_the_texts_that_are_compared_are_worth_comparing(kind):
    """Many lengths; of T5s also failed explorations, texts that end and texts that are cut."""
    count = len(SOURCES) if kind == "t5" else 3
    results = [expected_of(kind, "1", "retry", number) for number in range(count)]
    rows = [row.tokens for result in results for row in result.subsequences]
    assert any(row[-1] == EOS for row in rows)
    assert len(set(map(len, rows))) >= (5 if kind in KINDS else 3)
    if kind in KINDS:
        assert [EOS] in rows
        assert {result.truncated is None for result in results} == {True, False}


@pytest.fixture(scope="module")
def learnt(trained):
    """The trained model's sources, and by schedule a method and what the oracle says to five of them."""
    sources, answers = [example.source for example in examples_of(trained)], {}
    for schedule in ("1", "2", "3", "wait"):
        bounds = (None, 6, 40) if schedule == "wait" else (14, 6)
        method = Method(SCHEDULES[schedule][0], BOS, EOS, Limits(*bounds), "stop")
        asked = (method.schedule, method.limits, "stop")
        answers[schedule] = method, [ask_oracle(trained.model, source, *asked) for source in sources[:5]]
    return sources, answers


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("schedule", ["1", "2", "3", "wait"])
def test_a_trained_model_has_no_ties_and_the_oracles_tokens(trained, learnt, schedule):
    sources, (method, results) = learnt[0][:5], learnt[1][schedule]
    assert min(result.gap for result in results) > 100 * TIE
    for sequences in (1, 3):
        outcomes = run_engine(Engine(trained.model, sequences), sources, method)
        assert outcomes == [outcome_of(result) for result in results]


@pytest.mark.usefixtures("kernels")
def test_bfloat16_says_what_a_trained_model_has_learnt(trained, learnt):
    sources, method = learnt[0], learnt[1]["2"][0]
    exact = run_engine(Engine(trained.model, 3), sources, method)
    rough = run_engine(Engine(copy.deepcopy(trained.model).to(torch.bfloat16), 3), sources, method)
    assert sum(one == other for one, other in zip(exact, rough, strict=True)) >= len(sources) - 1


# --- Transformers' own greedy search ----------------------------------------------------------------------------------


@cache
def greedy(kind, source, bound):
    """The tokens that transformers writes behind a source, by its number."""
    return greedy_text(model_of(kind), sources_of(kind)[source], bound)


def greedy_text(model, source, bound):
    ids, options = torch.tensor([source]), {"do_sample": False, "num_beams": 1, "max_new_tokens": bound}
    made = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0].tolist()
    made = made[1 if model.config.is_encoder_decoder else len(source) :]
    return made[: made.index(EOS) + 1] if EOS in made else made


def assert_greedy(engine, sources, bos, texts, bound):
    """A whole text is that of transformers, and is cut where that is."""
    outcomes = run_engine(engine, sources, Method(Whole(), bos, EOS, Limits(None, None, bound)))
    assert [rows[0][1] for rows, _, _ in outcomes] == texts
    cuts = ["max_tokens" if len(text) == bound and text[-1] != EOS else None for text in texts]
    assert [truncated for _, _, truncated in outcomes] == cuts


@engines_of(*KINDS, *FAMILIES)
def test_one_whole_text_is_that_of_transformers_greedy(kind, stepping):
    texts = [greedy(kind, number, 14) for number in range(len(SOURCES))]
    bos = None if kind in PROMPTED else bos_of(kind)  # a prompt is gone on with
    for sequences in (1, 3):
        assert_greedy(make_engine(kind, stepping, sequences), sources_of(kind), bos, texts, 14)


def test_transformers_texts_end_or_are_cut():
    ends = [greedy(kind, number, 14)[-1] for kind in KINDS for number in range(len(SOURCES))]
    assert {end == EOS for end in ends} == {True, False}


def test_a_text_longer_than_the_first_room_is_that_of_transformers_greedy(monkeypatch):
    """The cache grows on the way, with two sequences in flight."""
    monkeypatch.setattr("pipedec_cli.model.engine.torch.context.FIRST_ROOM", 4)
    model = copy.deepcopy(small_model("t5"))
    with torch.no_grad():
        model.lm_head.weight[EOS] = 0  # and with it the embedding: the text never ends
    texts = [greedy_text(model, source, 20) for source in SOURCES[:2]]
    assert_greedy(Engine(model, 2, weights=lay_out(model, prepack=False)), SOURCES[:2], BOS, texts, 20)


# --- Logits -----------------------------------------------------------------------------------------------------------


@engines_of(*KINDS, *FAMILIES)
@pytest.mark.parametrize("schedule", ["1", "3", "wait"])
def test_cached_steps_give_the_logits_of_the_full_pass(kind, stepping, schedule):
    """In float32, to 1e-4: logits here are of the order of 10."""
    method = method_of(schedule, kind=kind)
    recorder = Recorder(make_engine(kind, stepping, 2), sources_of(kind)[:2], method)
    for sequence in (0, 1):
        torch.testing.assert_close(*recorder.both(model_of(kind), sequence), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("schedule", ["1", "wait"])
def test_cached_steps_in_bfloat16_stay_near_the_full_pass_in_float32(trained, learnt, schedule):
    """To 3 % of the logits' spread, on a trained model; the engine sums up in float32 what the layers add."""
    half = copy.deepcopy(trained.model).to(torch.bfloat16)
    recorder = Recorder(Engine(half, 2), learnt[0][4:6], learnt[1][schedule][0])
    for sequence in (0, 1):
        for model in (trained.model, half):
            cached, exact = recorder.both(model, sequence)
            assert (cached - exact).abs().max() < 0.03 * (exact.max() - exact.min())


@pytest.mark.usefixtures("kernels")
def test_wo_may_stay_in_float32_beside_narrower_weights():
    """As transformers keeps it when it loads float16."""
    model = copy.deepcopy(small_model("gated")).to(torch.bfloat16)
    for stack in (model.encoder, model.decoder):
        for block in stack.block:
            block.layer[-1].DenseReluDense.wo.float()
    recorder = Recorder(Engine(model), SOURCES[:1], method_of("1"))
    cached, exact = recorder.both(small_model("gated"), 0)
    assert (cached - exact).abs().mean() < 0.03 * (exact.max() - exact.min())


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", ["t5", "umt5"])
def test_a_sequence_does_not_depend_on_the_others(kind):
    """The same rows alone, beside a longer source, beside other grids, and after another example in the sequence."""
    engine = Engine(small_model(kind), 3)
    alone = Recorder(Engine(small_model(kind), 1), SOURCES[:1], method_of("1")).cached(0)
    for company in ([SOURCES[3]], [SOURCES[3], SOURCES[1]], [SOURCES[2], SOURCES[4]]):
        crowded = Recorder(engine, [SOURCES[0], *company], method_of("1")).cached(0)
        torch.testing.assert_close(crowded, alone, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("kernels")
def test_newcomers_leave_those_in_flight_as_they_are():
    engine = Engine(small_model("t5"), 2)
    rows = [Row(0, slot) for slot in method_of("whole").new_grid().plan()]
    logits = []
    for company in ([(1, SOURCES[3])], []):  # longer: the room for sources grows
        for newcomer in ((0, SOURCES[1]), *company):
            engine.admit([newcomer])
        logits.append(engine.logits(rows))
        engine.release(0)
    torch.testing.assert_close(*logits, rtol=1e-5, atol=1e-5)


# --- Rows taken back, fed together, and with probabilities --------------------------------------------------------------

two_at_once = cache(partial(make_engine, sequences=2))


def fresh(kind, stepping):
    """An engine with two sources and nothing of what was decoded before."""
    engine = two_at_once(kind, stepping)
    for sequence in (0, 1):
        engine.release(sequence)
    engine.admit(list(enumerate(SOURCES[:2])))
    return engine


def rows_of(call, fed):
    """The rows of a call, given those that each sequence has been fed: tokens at successive times, subsequence i from i on."""
    rows = []
    for sequence, wanted in sorted(call.items()):
        for subsequence, count in sorted(wanted.items()):
            before = sum(row.slot.subsequence == subsequence for row in fed[sequence])
            for time in range(subsequence + before, subsequence + before + count):
                token = (7 * sequence + 5 * subsequence + 3 * time) % (VOCABULARY - 2) + 2
                rows.append(Row(sequence, Slot(subsequence, time, token)))
    return rows


def assert_same(one, other, stepping):
    """Bit for bit, where the steps are compiled."""
    exact = 0 if stepping == "native" else 1e-5
    torch.testing.assert_close(one, other, rtol=exact, atol=exact)


#: A call: for some of two sequences, which of their subsequences get how many tokens.
calls = st.dictionaries(
    st.sampled_from([0, 1]),
    st.dictionaries(st.integers(1, 4), st.integers(1, 3), min_size=1, max_size=3),
    min_size=1,
)
#: Calls, and after each how many rows of each sequence are taken back (as far as it has that many).
scripts = st.lists(st.tuples(calls, st.tuples(st.integers(0, 4), st.integers(0, 4))), min_size=1, max_size=5)


@pytest.mark.parametrize("stepping", STEPPINGS)
@pytest.mark.parametrize("kind", ["t5", "umt5"])
@settings(max_examples=25)
@given(script=scripts, last=calls)
def test_steps_take_back_and_steps_again_equal_the_run_that_never_took_them(kind, stepping, script, last):
    engine = fresh(kind, stepping)
    fed = ([], [])
    kept = []  # what is left of each call
    for call, taken in script:
        kept.append(rows := rows_of(call, fed))
        engine.step(rows)
        for row in rows:
            fed[row.sequence].append(row)
        for sequence, wanted in enumerate(taken):
            count = min(wanted, len(fed[sequence]))
            engine.take_back(sequence, count)
            gone = [fed[sequence].pop() for _ in range(count)]
            kept = [[row for row in rows if row not in gone] for rows in kept]
    rows = rows_of(last, fed)
    logits = engine.logits(rows)
    straight = fresh(kind, stepping)
    for call_rows in filter(None, kept):
        straight.step(call_rows)
    assert_same(logits, straight.logits(rows), stepping)


@pytest.mark.parametrize("stepping", STEPPINGS)
@pytest.mark.parametrize("kind", ["gated", "umt5"])
def test_several_rows_of_one_subsequence_at_once_equal_one_by_one_feeding(kind, stepping):
    """Beside another subsequence that runs at the same time, and beside another sequence."""
    known = [Row(0, Slot(2, 3 + place, 9 + place)) for place in range(5)]
    logits = []
    for calls in ([known], [[row] for row in known]):
        engine = fresh(kind, stepping)
        engine.step(rows_of({0: {1: 2, 2: 1}, 1: {1: 3}}, ([], [])))
        logits.append(torch.cat([engine.logits(rows) for rows in calls]))
    assert_same(*logits, stepping)


@pytest.mark.parametrize("stepping", STEPPINGS)
@pytest.mark.parametrize("kind", ["t5", "gated"])
def test_probabilities_are_the_softmax_of_the_logits_and_tokens_those_of_a_plain_step(kind, stepping):
    engine = fresh(kind, stepping)
    engine.step(rows_of({0: {1: 2}, 1: {1: 1}}, ([], [])))
    rows = rows_of({0: {1: 1, 2: 2}, 1: {1: 1}}, ([Row(0, Slot(1, 0, 0))] * 2, [Row(1, Slot(1, 0, 0))]))
    found = []
    for step in (engine.logits, engine.step_with_probabilities, engine.step):
        found.append(step(rows))
        for sequence, count in ((0, 3), (1, 1)):
            engine.take_back(sequence, count)
    logits, (tokens, probabilities), plain = found
    assert tokens == plain == logits.float().argmax(dim=-1).tolist()
    assert probabilities == pytest.approx(logits.float().softmax(dim=-1).amax(dim=-1).tolist(), rel=1e-5)


@pytest.mark.parametrize("stepping", STEPPINGS)
def test_more_rows_than_a_sequence_has_cannot_be_taken_back(stepping):
    engine = fresh("t5", stepping)
    engine.step(rows_of({0: {1: 2}}, ([], [])))
    with pytest.raises(ValueError, match="3 rows"):
        engine.take_back(0, 3)
