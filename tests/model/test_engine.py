"""The engine by family, what takes its steps, method and batch: the oracle's tokens, the logits of the full pass."""

import copy
import itertools
import random
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipedec_cli.model.engine import engine as engines
from pipedec_cli.model.engine.engine import Engine, lay_out
from pipedec_cli.model.engine.torch import context
from pipedec_cli.model.engine.torch import stepper as operators
from pipedec_cli.model.engine.torch.parts import distance_buckets
from pipedec_cli.pipeline.exact import Verify
from pipedec_cli.pipeline.grid import Limits, Method
from pipedec_cli.pipeline.schedule import Whole
from pipedec_cli.training.loss import full_states, head_of
from tests import fakes
from tests.checkpoints import examples_of
from tests.model.engines import (
    BOS,
    CAUSAL,
    ENCODED,
    EOS,
    FAMILIES,
    KINDS,
    MODULES,
    ODD,
    OFTEN,
    PROMPTED,
    SCHEDULES,
    SOURCES,
    STEPPINGS,
    TIE,
    VOCABULARY,
    all_logits,
    allowed_in,
    bos_of,
    by_torch,
    calls_of,
    engines_of,
    exact_logits,
    expected_of,
    flat,
    grid_rows,
    is_prompted,
    logits_of,
    make_engine,
    method_of,
    methods_of,
    needs_gpu,
    prompt_of,
    random_calls,
    row,
    run_engine,
    side_by_side,
    small_model,
    sources_of,
    together,
)
from tests.oracle import next_logits_of
from tests.running import slow

# --- Tokens
# -----------------------------------------------------------------------------------------------------------


@engines_of(
    *KINDS,
    *FAMILIES,
    slow=(
        "mt5",
        "qwen2",
        "qwen3",
        "smollm3",
        "mistral",
        "phi3",
        "granite",
        *MODULES,
        *ENCODED,
    ),
)  # each is near another in its code
@pytest.mark.parametrize("often", [True, slow(False)])
def test_tokens_are_the_oracles(kind, stepping, often, monkeypatch):
    """One at a time; three that leave and enter at different times, in calls that run in parts; and all at once."""
    for name in (name for name in methods_of(kind) if (name in OFTEN) is often):
        results, sources, method = (
            expected_of(kind, name),
            sources_of(kind),
            method_of(name, kind),
        )
        assert min(result.gap for result in results) >= TIE, name
        for sequences, most in ((1, 1024), (3, 4), (8, 1024)):
            monkeypatch.setattr(engines, "MOST_ROWS", most)
            order = random.Random(f"{name} {sequences}").sample(
                range(len(sources)), len(sources)
            )
            engine = make_engine(kind, stepping, sequences)
            outcomes = run_engine(engine, [sources[number] for number in order], method)
            assert (name, outcomes) == (
                name,
                [fakes.outcome_of(results[number]) for number in order],
            )


@engines_of(*KINDS, *FAMILIES)
def test_the_confidence_of_a_row_is_the_product_of_its_tokens_probabilities(
    kind, stepping
):
    """Among the allowed tokens. A blind row whose ends are noted ends early. Its best end is that of the whole row."""
    for name in (
        "together, few tokens",
        *(["blind, early"] if is_prompted(kind) else []),
    ):
        method = replace(method_of(name, kind), confident=True)
        ends = fakes.finished(
            make_engine(kind, stepping, 3), sources_of(kind), method, 3
        )
        for number, result in enumerate(expected_of(kind, name)):
            assert fakes.rows_of(ends[number].grid) == result.rows
            found, wanted = (
                [number for row in rows for number in (row.confidence, *row.best)]
                for rows in (ends[number].grid.subsequences, result.subsequences)
            )
            assert found == pytest.approx(wanted, rel=1e-3, abs=1e-4)
            if name == "blind, early":
                rows, whole = (
                    result.subsequences,
                    expected_of(kind, "blind")[number].subsequences,
                )
                assert [row.best for row in rows] == [row.best for row in whole]
                assert [
                    row.forced for row in ends[number].grid.subsequences
                ] == pytest.approx(
                    [row.forced for row in result.subsequences], abs=1e-3
                )


@pytest.mark.parametrize("kind", [*KINDS, *FAMILIES])
def test_the_texts_that_are_compared_are_worth_comparing(kind):
    """Many lengths; of T5s also failed explorations, texts that end and texts that are cut; of lists second items."""
    results = expected_of(kind, "1, retry")
    rows = [row.tokens for result in results for row in result.subsequences]
    assert any(row[-1] == EOS for row in rows)
    assert len(set(map(len, rows))) >= (5 if kind in KINDS else 3)
    if kind in KINDS:
        assert [EOS] in rows
        assert {result.truncated is None for result in results} == {True, False}
    assert max(len(result.rows) for result in expected_of(kind, "listed, 2")) > 4
    for name in ("together, few tokens", *(["blind"] if is_prompted(kind) else [])):
        rows = [
            row.tokens
            for result in expected_of(kind, name)
            for row in result.subsequences
        ]
        assert len(set(map(len, rows))) >= 3


@cache
def greedy(kind, number):
    """The first 24 tokens that transformers writes behind a source."""
    model = small_model(kind)
    source = sources_of(kind)[number]
    ids = torch.tensor([source])
    options = {"do_sample": False, "num_beams": 1, "max_new_tokens": 24}
    options["attention_mask"] = torch.ones_like(ids)
    made = model.generate(ids, **options)[0].tolist()
    made = made[1 if model.config.is_encoder_decoder else len(source) :]
    return made[: made.index(EOS) + 1] if EOS in made else made


def drafts_of(texts):
    """By number: none, the right ones, those that are wrong in their middle, and wrong ones."""
    halves = []
    for text in texts:
        middle = len(text) // 2
        halves.append([*text[:middle], 3, *text[middle:]])
    wrong = [[5, 5, 5, EOS]] * len(texts)
    return [dict(enumerate(drafts)) for drafts in ([], texts, halves, wrong)]


@engines_of(*KINDS, *FAMILIES, slow=("mt5", "qwen2", "smollm3", "bart", "t5gemma"))
def test_one_whole_text_is_that_of_transformers_greedy_whatever_draft_is_checked(
    kind, stepping
):
    """Without a draft, with a right one, one that is wrong in its middle, and a wrong one."""
    limits = Limits(None, None, 24)
    sources = sources_of(kind)
    texts = [greedy(kind, number) for number in range(len(sources))]
    cuts = [None if text[-1] == EOS else "max_tokens" for text in texts]
    assert None in cuts or kind not in KINDS
    bos = None if kind in PROMPTED else bos_of(kind)  # a prompt is gone on with
    for sequences in (1, 3):
        engine = make_engine(kind, stepping, sequences)
        methods = [Method(Whole(), bos, EOS, limits)]
        for drafts, jacobi in itertools.product(drafts_of(texts), (False, True)):
            # A method takes the drafts that it has used out of those that it was given.
            used = dict(drafts)
            methods.append(Verify(bos, EOS, limits, jacobi=jacobi, drafts=used))
        steps = []
        for method in methods:
            outcomes = run_engine(engine, sources, method)
            assert [rows[0][1] for rows, _, _ in outcomes] == texts
            assert [cut for _, _, cut in outcomes] == cuts
            steps.append(sum(steps for _, steps, _ in outcomes))
        least = 3 if kind in KINDS else 1
        assert max(steps[3:5]) < steps[0] / least, "where the draft is right"


@pytest.mark.parametrize(
    "stepping", ["plain", "fixed", pytest.param("graphs", marks=needs_gpu)]
)
def test_buffers_that_grow_on_the_way_change_nothing(stepping, monkeypatch):
    usual = run_engine(make_engine("t5", stepping, 2), SOURCES, method_of("whole"))
    monkeypatch.setattr(context, "FIRST_ROOM", 2)
    monkeypatch.setattr(operators, "COLUMNS", 3)
    monkeypatch.setattr(operators, "SOURCE_TOKENS", 2)
    assert (
        run_engine(make_engine("t5", stepping, 2), SOURCES, method_of("whole")) == usual
    )


@pytest.mark.parametrize("stepping", STEPPINGS)
def test_many_rows_are_fed_in_parts(stepping, monkeypatch):
    """Whose places are within keys as well as between them; with two examples in flight, 500 keys where that is quick."""
    draw, count = random.Random(3), 500 if stepping == "native" else 40
    keys = tuple(
        tuple(draw.choices(range(2, VOCABULARY), k=draw.randrange(5)))
        for _ in range(count)
    )
    method, results, sizes = together(keys, allowed_in, Limits(3)), [], []
    for most in (engines.MOST_ROWS if count == 500 else 50, 10_000):
        monkeypatch.setattr(engines, "MOST_ROWS", most)
        engine, largest = make_engine("t5", stepping, 2), []
        step = engine.stepper.step
        monkeypatch.setattr(
            engine.stepper,
            "step",
            lambda rows, step=step, largest=largest: (
                largest.append(len(rows)) or step(rows)
            ),
        )
        results.append(run_engine(engine, SOURCES[:2], method))
        sizes.append(max(largest))
    assert sizes[0] < sizes[1] == 2 * sum(1 + len(key) for key in keys)
    assert results[0] == results[1]
    assert [len(rows) for rows, _, _ in results[0]] == [count, count]


@pytest.mark.parametrize("kind", PROMPTED)
def test_a_long_prompt_is_read_in_parts_to_the_same_effect(kind, monkeypatch):
    prompts, method = (
        [prompt_of(length) for length in (23, 5, 16, 0)],
        method_of("2", kind),
    )
    whole = run_engine(make_engine(kind, "plain", 4), prompts, method)
    monkeypatch.setattr(operators, "PROMPT_TOKENS", 8)
    assert run_engine(make_engine(kind, "plain", 4), prompts, method) == whole
    logits = next_logits_of(small_model(kind), prompts[0])
    assert whole[0] == fakes.outcome_of(
        fakes.ask_oracle(logits, *SCHEDULES["2"], bos=method.bos, eos=EOS)
    )


# --- Logits
# -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@engines_of(*KINDS, ODD, *FAMILIES, *CAUSAL)
def test_logits_of_cached_steps_are_the_oracles_and_those_of_the_full_pass(
    kind, stepping, seed
):
    """Of two random grids side by side, behind sources or prompts of any length, in float32."""
    model, draw, keyed = (
        small_model(kind),
        random.Random(f"{kind} {seed}"),
        seed > 1 and kind not in ENCODED,
    )
    prompts = [
        prompt_of(draw.choice(some), seed)
        for some in ([1, 5, 12, 31], [0, 33, 64, 130])
    ]
    sources = (
        prompts if is_prompted(kind) else [[*prompt[:40], EOS] for prompt in prompts]
    )
    grids = [random_calls(sequence, seed, keyed) for sequence in (0, 1)]
    if kind in ENCODED:
        grids = [calls[:11] for calls in grids]  # BART has 80 places
    calls = side_by_side(*grids)
    logits = all_logits(make_engine(kind, stepping, 2), calls, *sources)
    for sequence, (source, own) in enumerate(zip(sources, grids, strict=True)):
        mine = logits[[one.sequence == sequence for one in flat(calls)]]
        others = [exact_logits(model, source, own)]
        if not (
            keyed and is_prompted(kind)
        ):  # whose places depend on the longest key of the first call
            others.append(full_pass(model, source, flat(own)))
        for theirs in others:
            assert (mine - theirs).abs().max() < 1e-5 * theirs.abs().max()


def full_pass(model, source, rows):
    """What training computes: the teacher-forced logits of the rows."""
    places = torch.tensor(
        [[slot.token, slot.subsequence, slot.time] for _, slot in rows]
    ).T[:, None]
    ids = torch.tensor([source], dtype=torch.int64)
    with torch.no_grad():
        return head_of(model)(full_states(model, ids, torch.ones_like(ids), *places))[
            0
        ].float()


@pytest.fixture(scope="module")
def learnt(trained):
    """The trained model's sources, and by schedule a method and what the oracle says to five of them."""
    sources, answers = [example.source for example in examples_of(trained)], {}
    for schedule in ("1", "2", "3", "wait"):
        bounds = (None, 6, 40) if schedule == "wait" else (14, 6)
        method = Method(SCHEDULES[schedule][0], BOS, EOS, Limits(*bounds), "stop")
        asked = (method.schedule, method.limits, "stop")
        logits = [next_logits_of(trained.model, source) for source in sources[:5]]
        answers[schedule] = method, [fakes.ask_oracle(one, *asked) for one in logits]
    return sources, answers


@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
def test_a_trained_model_has_no_ties_and_the_oracles_tokens(trained, learnt):
    for method, results in learnt[1].values():
        assert min(result.gap for result in results) > 100 * TIE
        for sequences in (1, 3):
            outcomes = run_engine(
                Engine(lay_out(trained.model), sequences), learnt[0][:5], method
            )
            assert outcomes == list(map(fakes.outcome_of, results))


@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
def test_bfloat16_says_what_a_trained_model_has_learnt_with_logits_near_those_in_float32(
    trained, learnt
):
    """To 3 % of the logits' spread; the engine sums up in float32 what the layers add."""
    (sources, answers), half = learnt, copy.deepcopy(trained.model).to(torch.bfloat16)
    weights = lay_out(half)
    engines = [Engine(one, 3) for one in (lay_out(trained.model), weights)]
    exact, rough = (run_engine(engine, sources, answers["2"][0]) for engine in engines)
    assert (
        sum(one == other for one, other in zip(exact, rough, strict=True))
        >= len(sources) - 1
    )
    for source in sources[4:6]:
        calls = calls_of(0, [0, 1, 2, 5], [9, 2, 6, 4], [0] * 4)
        logits = logits_of(weights, calls, source)
        for model in (trained.model, half):
            theirs = full_pass(model, source, flat(calls))
            assert (logits - theirs).abs().max() < 0.03 * (theirs.max() - theirs.min())


@pytest.mark.usefixtures("kernels")
def test_wo_may_stay_in_float32_beside_narrower_weights():
    """As transformers keeps it when it loads float16."""
    model, calls = (
        copy.deepcopy(small_model("gated")).to(torch.bfloat16),
        random_calls(0, 0),
    )
    for stack in (model.encoder, model.decoder):
        for block in stack.block:
            block.layer[-1].DenseReluDense.wo.float()
    exact = full_pass(small_model("gated"), SOURCES[0], flat(calls))
    logits = logits_of(lay_out(model), calls, SOURCES[0])
    assert (logits - exact).abs().mean() < 0.03 * (exact.max() - exact.min())


# --- Rows taken back, and fed together
# --------------------------------------------------------------------------------


def fresh(kind, stepping):
    """An engine with two sources."""
    engine = make_engine(kind, stepping, 2)
    engine.admit(list(enumerate(sources_of(kind)[:2])))
    return engine


def rows_of(call, fed):
    """The rows of a call, behind those that each sequence has been fed: tokens at successive times, subsequence i from i on."""
    rows = []
    for sequence, wanted in sorted(call.items()):
        for subsequence, count in sorted(wanted.items()):
            before = subsequence + sum(
                row.slot.subsequence == subsequence for row in fed[sequence]
            )
            rows += [
                row(sequence, subsequence, time)
                for time in range(before, before + count)
            ]
    return rows


#: A call: for some of two sequences, which of their subsequences get how many tokens.
calls = st.dictionaries(
    st.sampled_from([0, 1]),
    st.dictionaries(st.integers(1, 4), st.integers(1, 3), min_size=1, max_size=3),
    min_size=1,
)
#: Calls, and after each how many rows of each sequence are taken back (as far as it has
#: that many).
scripts = st.lists(
    st.tuples(calls, st.tuples(st.integers(0, 4), st.integers(0, 4))),
    min_size=1,
    max_size=5,
)


@engines_of("t5", "umt5", native=["gemma3_text"])
@settings(max_examples=25)
@given(script=scripts, last=calls)
def test_steps_take_back_and_steps_again_equal_the_run_that_never_took_them(
    kind, stepping, script, last
):
    engine, fed = fresh(kind, stepping), ([], [])
    kept = []  # what is left of each call
    for call, taken in script:
        kept.append(rows := rows_of(call, fed))
        engine.step(rows)
        for one in rows:
            fed[one.sequence].append(one)
        for sequence, wanted in enumerate(taken):
            count = min(wanted, len(fed[sequence]))
            engine.take_back(sequence, count)
            gone = [fed[sequence].pop() for _ in range(count)]
            kept = [[row for row in rows if row not in gone] for rows in kept]
    rows = rows_of(last, fed)
    logits, straight = engine.stepper.logits(rows), fresh(kind, stepping)
    for call_rows in filter(None, kept):
        straight.step(call_rows)
    exact = (
        0 if stepping == "native" else 1e-5
    )  # bit for bit, where the steps are compiled
    torch.testing.assert_close(
        logits, straight.stepper.logits(rows), rtol=exact, atol=exact
    )
    with pytest.raises(ValueError, match="99 rows"):
        engine.take_back(0, 99)


# --- Torch's operators
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 12), (7, 40)])
def test_buckets_are_those_of_transformers_at_every_distance(buckets, farthest):
    from transformers.models.t5.modeling_t5 import T5Attention

    table, distances = distance_buckets(buckets, farthest), torch.arange(2 * farthest)
    theirs = T5Attention._relative_position_bucket(-distances, False, buckets, farthest)
    assert table[distances.clamp(max=len(table) - 1)].equal(theirs)


def test_a_shape_is_made_once_serves_all_calls_that_fit_and_goes_with_its_memory_when_buffers_grow():
    """torch frees a pool with its last graph, and refuses to record into it again."""
    engine = make_engine("t5", "fixed", 1)
    engine.admit([(0, SOURCES[0])])
    for first, count in ((0, 3), (3, 4), (7, 4), (11, 1)):
        engine.step(grid_rows(0, count, first))
    assert list(engine.stepper._calls) == [
        (4, operators.COLUMNS),
        (1, operators.COLUMNS),
    ]
    engine.stepper._pool = "of graphs"
    engine.stepper._grow(1_000)
    assert engine.stepper._pool is None


def test_what_stands_in_the_spare_column_is_never_looked_at():
    """Rows that fill up a shape put their keys there: they may be anything."""
    logits = []
    for filling in (0.0, float("nan")):
        engine = make_engine("t5", "fixed", 2)
        engine.admit(list(enumerate(SOURCES[:2])))
        engine.step(grid_rows(1, 2))
        for both in engine.stepper.cache.grid:
            both[..., -1, :] = filling
        logits.append(
            [
                engine.stepper.logits(rows)
                for rows in (grid_rows(0, 3), grid_rows(0, 3, first=3))
            ]
        )
    torch.testing.assert_close(*logits, rtol=0, atol=0)


def test_graphs_are_for_gpus_can_be_turned_off_and_are_named(monkeypatch):
    assert operators.wants_graphs(
        torch.device("cuda:1")
    ) and not operators.wants_graphs(torch.device("cpu"))
    monkeypatch.setenv(operators.VARIABLE, "0")
    assert not operators.wants_graphs(torch.device("cuda:1"))
    monkeypatch.setattr(engines, "wants_graphs", lambda device: True)
    assert by_torch(small_model("t5")).kernels == "CUDA graphs"


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(kind, marks=needs_gpu) for kind in (torch.bfloat16, torch.float16)],
)
def test_narrow_dtypes_replay_what_they_compute(dtype):
    engine = Engine(lay_out(copy.deepcopy(small_model("t5")).to("cuda", dtype)), 2)
    assert engine.weights.kernels == "CUDA graphs"
    recorded = run_engine(engine, SOURCES, method_of("2"))
    assert run_engine(engine, SOURCES, method_of("2")) == recorded
