"""The engine: the tokens of the oracle, whatever the schedule, the rule, the family, the lanes and the kernels."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.model.engine import Engine
from pipedec_cli.model.linear import can_prepack
from pipedec_cli.model.teacher_forcing import decoder_logits
from pipedec_cli.model.training import encode_all
from pipedec_cli.model.weights import lay_out
from pipedec_cli.pipeline.decode import Finished, Method, Row, decode
from pipedec_cli.pipeline.grid import Explore, Limits
from pipedec_cli.pipeline.schedule import Drawn, Fixed, Schedule, Sequential, Whole
from tests.checkpoints import toy_records
from tests.model.families import BOS, EOS, KINDS, SOURCES, Kind, next_logits_of, small_model
from tests.oracle import OracleResult, oracle_decode
from tests.pipeline.driving import oracle_schedule

#: Two best logits closer than this are a near-tie: float32 rounding may turn them round.
TIE: Final = 1e-4
FIXED: Final = Limits(time_max=12, sub_max=5)
SCHEDULES: Final[dict[str, tuple[Schedule, Limits]]] = {
    "1": (Fixed(1), FIXED),
    "2": (Fixed(2), FIXED),
    "3": (Fixed(3), FIXED),
    "sequential": (Sequential(), Limits(time_max=None, sub_max=5, max_tokens=20)),
    "whole": (Whole(), Limits(time_max=None, sub_max=None, max_tokens=12)),
    "drawn": (Drawn((1, 4, float("inf"), 2)), FIXED),
}
PACKED: Final = [
    pytest.param(False, id="plain"),
    pytest.param(
        True,
        id="packed",
        marks=pytest.mark.skipif(not can_prepack(torch.float32), reason="no oneDNN kernels here"),
    ),
]


@pytest.fixture(params=["operators", "what is fastest here"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same test with torch's operators, and with compiled kernels where they can be had."""
    if request.param == "operators":
        monkeypatch.setenv("PIPEDEC_NATIVE", "0")


@dataclass(frozen=True)
class Outcome:
    """What came of an example, in the words of both sides."""

    rows: list[tuple[int, list[int]]]
    steps: int
    truncated: str | None


@cache
def lay_out_small(kind: Kind, *, packed: bool) -> Any:
    return lay_out(small_model(kind), prepack=packed)


@cache
def expected_of(kind: Kind, schedule: str, explore: Explore, source: int) -> OracleResult:
    """The oracle's answer, kept for the tests that ask again."""
    return ask_oracle(small_model(kind), SOURCES[source], *SCHEDULES[schedule], explore)


def ask_oracle(
    model: Any, source: Sequence[int], schedule: Schedule, limits: Limits, explore: Explore
) -> OracleResult:
    return oracle_decode(
        next_logits_of(model, source),
        oracle_schedule(schedule),
        bos=BOS,
        eos=EOS,
        explore=explore,
        time_max=limits.time_max,
        sub_max=limits.sub_max,
        max_tokens=limits.max_tokens,
    )


def run_engine(engine: Engine, sources: Sequence[Sequence[int]], method: Method) -> list[Outcome]:
    """All sources through an engine, with all of its lanes in use."""
    found: dict[int, Outcome] = {}
    for event in decode(engine, enumerate(sources), method, engine.lanes):
        if isinstance(event, Finished):
            rows = [(row.start, row.tokens) for row in event.subsequences]
            found[event.example] = Outcome(rows, event.steps, event.truncated)
    return [found[number] for number in range(len(sources))]


def outcome_of(result: OracleResult) -> Outcome:
    return Outcome(result.rows, result.steps, result.truncated)


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("lanes", [1, 2, 3, 8])
@pytest.mark.parametrize("explore", ["retry", "once"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tokens_are_the_oracles(schedule: str, explore: Explore, lanes: int, packed: bool) -> None:
    """With fewer lanes than sources, examples leave and enter at different times."""
    order = random.Random(f"{schedule} {lanes}").sample(range(len(SOURCES)), len(SOURCES))
    method = Method(SCHEDULES[schedule][0], BOS, EOS, SCHEDULES[schedule][1], explore)
    engine = Engine(small_model("t5"), lanes, weights=lay_out_small("t5", packed=packed))

    outcomes = run_engine(engine, [SOURCES[number] for number in order], method)

    results = [expected_of("t5", schedule, explore, number) for number in order]
    assert [result.gap < TIE for result in results].count(True) == 0
    assert outcomes == [outcome_of(result) for result in results]


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("schedule", ["1", "2", "3", "sequential", "whole"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "t5"])
def test_every_family_gets_the_oracles_tokens(kind: Kind, schedule: str, packed: bool) -> None:
    method = Method(SCHEDULES[schedule][0], BOS, EOS, SCHEDULES[schedule][1])
    weights = lay_out_small(kind, packed=packed)

    alone = run_engine(Engine(small_model(kind), 1, weights=weights), SOURCES[:3], method)
    together = run_engine(Engine(small_model(kind), 2, weights=weights), SOURCES[:3], method)

    results = [expected_of(kind, schedule, "retry", number) for number in range(3)]
    assert [result.gap < TIE for result in results].count(True) == 0
    assert alone == together == [outcome_of(result) for result in results]


@pytest.mark.parametrize("kind", KINDS)
def test_the_texts_that_are_compared_are_worth_comparing(kind: Kind) -> None:
    """Many lengths, failed explorations, texts that end and texts that are cut."""
    results = [
        expected_of(kind, "1", "retry", number) for number in range(3 if kind != "t5" else len(SOURCES))
    ]
    lengths = {len(row.tokens) for result in results for row in result.subsequences}

    assert len(lengths) >= 5
    assert any(row.tokens == [EOS] for result in results for row in result.subsequences)
    assert {result.truncated is None for result in results} == {True, False}


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("schedule", ["1", "2", "3", "sequential"])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_trained_model_has_no_ties_and_the_oracles_tokens(
    trained: Checkpoint, schedule: str, lanes: int
) -> None:
    sources = [example.source for example in encode_all(trained, toy_records())][:5]
    chosen, limits = SCHEDULES[schedule][0], Limits(time_max=None, sub_max=6, max_tokens=40)
    limits = limits if schedule == "sequential" else Limits(time_max=14, sub_max=6)

    outcomes = run_engine(Engine(trained.model, lanes), sources, Method(chosen, BOS, EOS, limits, "once"))

    results = [ask_oracle(trained.model, source, chosen, limits, "once") for source in sources]
    assert min(result.gap for result in results) > 100 * TIE
    assert outcomes == [outcome_of(result) for result in results]


class Recorder:
    """An engine whose logits are kept, by lane and place in the grid."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.seen: list[tuple[Row, Tensor]] = []
        self.admit = engine.admit
        self.release = engine.release

    def step(self, rows: Sequence[Row]) -> list[int]:
        logits = self.engine.logits(rows)
        self.seen += zip(rows, logits.float(), strict=True)
        best: list[int] = logits.argmax(dim=-1).tolist()
        return best


def full_pass(model: Any, source: Sequence[int], rows: Sequence[Row]) -> Tensor:
    """The teacher-forced logits of the same tokens, in the order of the rows."""
    places = torch.tensor([[row.slot.token, row.slot.subsequence, row.slot.time] for row in rows]).T[:, None]
    mask = torch.ones(1, len(source), dtype=torch.long)
    with torch.no_grad():
        memory = model.encoder(input_ids=torch.tensor([list(source)]), attention_mask=mask).last_hidden_state
        return decoder_logits(model, places[0], places[1], places[2], memory, mask)[0].float()


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schedule", ["1", "3", "sequential"])
def test_cached_steps_give_the_logits_of_the_full_pass(kind: Kind, schedule: str) -> None:
    """In float32, to 1e-4: logits here are of the order of 10."""
    model = small_model(kind)
    recorder = Recorder(Engine(model, 2))
    method = Method(SCHEDULES[schedule][0], BOS, EOS, SCHEDULES[schedule][1])

    list(decode(recorder, enumerate(SOURCES[:2]), method, lanes=2))

    for lane in (0, 1):
        rows = [row for row, _ in recorder.seen if row.lane == lane]
        cached = torch.stack([logits for row, logits in recorder.seen if row.lane == lane])
        torch.testing.assert_close(cached, full_pass(model, SOURCES[lane], rows), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("schedule", ["1", "sequential"])
def test_cached_steps_in_bfloat16_stay_near_the_full_pass_in_float32(
    trained: Checkpoint, schedule: str
) -> None:
    """To 3 % of the logits' spread, on a trained model; the engine sums up in float32 what the layers add."""
    half = copy.deepcopy(trained.model).to(torch.bfloat16)
    sources = [example.source for example in encode_all(trained, toy_records())][4:6]
    chosen, limits = SCHEDULES[schedule][0], Limits(time_max=24, sub_max=6)
    recorder = Recorder(Engine(half, 2))

    list(decode(recorder, enumerate(sources), Method(chosen, BOS, EOS, limits, "once"), lanes=2))

    for lane in (0, 1):
        rows = [row for row, _ in recorder.seen if row.lane == lane]
        cached = torch.stack([logits for row, logits in recorder.seen if row.lane == lane])
        for model in (trained.model, half):
            exact = full_pass(model, sources[lane], rows)
            assert (cached - exact).abs().max() < 0.03 * (exact.max() - exact.min())


@pytest.mark.usefixtures("kernels")
def test_bfloat16_says_what_a_trained_model_has_learnt(trained: Checkpoint) -> None:
    sources = [example.source for example in encode_all(trained, toy_records())]
    method = Method(Fixed(2), BOS, EOS, Limits(time_max=14, sub_max=6), "once")

    exact = run_engine(Engine(trained.model, 3), sources, method)
    rough = run_engine(Engine(copy.deepcopy(trained.model).to(torch.bfloat16), 3), sources, method)

    assert sum(one == other for one, other in zip(exact, rough, strict=True)) >= len(sources) - 1


@pytest.mark.usefixtures("kernels")
def test_wo_may_stay_in_float32_beside_narrower_weights() -> None:
    """As transformers keeps it when it loads float16."""
    model = copy.deepcopy(small_model("gated")).to(torch.bfloat16)
    for stack in (model.encoder, model.decoder):
        for block in stack.block:
            block.layer[-1].DenseReluDense.wo.float()
    recorder = Recorder(Engine(model))

    list(decode(recorder, [(0, SOURCES[0])], Method(Fixed(1), BOS, EOS, FIXED)))

    rows = [row for row, _ in recorder.seen]
    exact = full_pass(small_model("gated"), SOURCES[0], rows)
    cached = torch.stack([logits for _, logits in recorder.seen])
    assert (cached - exact).abs().mean() < 0.03 * (exact.max() - exact.min())


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", ["t5", "umt5"])
def test_a_lane_does_not_depend_on_who_sits_in_the_others(kind: Kind) -> None:
    """The same rows alone, beside a longer source, beside other grids, and after another example in the lane."""
    engine = Engine(small_model(kind), 3)
    method = Method(Fixed(1), BOS, EOS, FIXED)
    alone = Recorder(Engine(small_model(kind), 1))
    list(decode(alone, [(0, SOURCES[0])], method))

    for company in ([SOURCES[3]], [SOURCES[3], SOURCES[1]], [SOURCES[2], SOURCES[4]]):
        recorder = Recorder(engine)
        list(decode(recorder, enumerate([SOURCES[0], *company]), method, lanes=3))
        mine = [logits for row, logits in recorder.seen if row.lane == 0]
        torch.testing.assert_close(
            torch.stack(mine), torch.stack([logits for _, logits in alone.seen]), rtol=1e-4, atol=1e-4
        )


@pytest.mark.usefixtures("kernels")
def test_newcomers_leave_those_in_flight_as_they_are() -> None:
    engine = Engine(small_model("t5"), 2)
    rows = [Row(0, slot) for slot in Method(Whole(), BOS, EOS, FIXED).new_grid().plan()]
    engine.admit([(0, SOURCES[1])])
    engine.admit([(1, SOURCES[3])])  # longer: the room for sources grows

    crowded = engine.logits(rows)

    engine.release(0)
    engine.release(1)
    engine.admit([(0, SOURCES[1])])
    torch.testing.assert_close(crowded, engine.logits(rows), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", KINDS)
def test_one_whole_text_is_that_of_transformers_greedy(kind: Kind) -> None:
    """Both where the text ends by itself and where it is cut by the bound on tokens."""
    model = small_model(kind)
    bound = 9
    method = Method(Whole(), BOS, EOS, Limits(time_max=None, sub_max=None, max_tokens=bound))

    outcomes = run_engine(Engine(model, 2), SOURCES, method)

    assert {outcome.truncated for outcome in outcomes} <= {None, "max_tokens"}
    for source, outcome in zip(SOURCES, outcomes, strict=True):
        ids = torch.tensor([source])
        expected = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=1, max_new_tokens=bound
        )[0].tolist()
        assert [BOS, *outcome.rows[0][1]] == expected
        assert outcome.truncated == (
            "max_tokens" if len(expected) == bound + 1 and expected[-1] != EOS else None
        )


def test_greedy_texts_both_end_and_are_cut() -> None:
    """What the test above compares has both kinds."""
    method = Method(Whole(), BOS, EOS, Limits(time_max=None, sub_max=None, max_tokens=9))
    outcomes = [out for kind in KINDS for out in run_engine(Engine(small_model(kind), 2), SOURCES, method)]

    assert {outcome.truncated for outcome in outcomes} == {None, "max_tokens"}


def test_a_text_longer_than_the_first_room_is_that_of_transformers_greedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cache grows on the way, with two lanes in flight."""
    monkeypatch.setattr("pipedec_cli.model.cache.FIRST_ROOM", 4)
    model = copy.deepcopy(small_model("t5"))
    with torch.no_grad():
        model.lm_head.weight[EOS] = 0  # and with it the embedding: the text never ends
    bound = 20
    method = Method(Whole(), BOS, EOS, Limits(time_max=None, sub_max=None, max_tokens=bound))

    outcomes = run_engine(Engine(model, 2, weights=lay_out(model, prepack=False)), SOURCES[:2], method)

    for source, outcome in zip(SOURCES, outcomes, strict=False):
        ids = torch.tensor([source])
        expected = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=1, max_new_tokens=bound
        )
        assert [BOS, *outcome.rows[0][1]] == expected[0].tolist()


@pytest.mark.usefixtures("kernels")
def test_an_engine_serves_one_method_after_another() -> None:
    """Nothing of an earlier decoding is left, though the buffers are."""
    engine = Engine(small_model("t5"), 2)
    for schedule in ("1", "whole", "3"):
        chosen, limits = SCHEDULES[schedule]
        outcomes = run_engine(engine, SOURCES, Method(chosen, BOS, EOS, limits))
        assert outcomes == [
            outcome_of(expected_of("t5", schedule, "retry", number)) for number in range(len(SOURCES))
        ]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_gives_the_tokens_of_the_cpu(kind: Kind) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    model = copy.deepcopy(small_model(kind)).to("cuda")
    method = Method(Fixed(2), BOS, EOS, FIXED)

    assert run_engine(Engine(model, 3), SOURCES, method) == [
        outcome_of(expected_of(kind, "2", "retry", number)) for number in range(len(SOURCES))
    ]
