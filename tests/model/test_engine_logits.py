"""The logits of cached steps are those of the full pass, whoever else is in flight."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.model.collate import encode
from pipedec_cli.model.steps.engine import Engine
from pipedec_cli.model.teacher_forcing import decoder_logits
from pipedec_cli.pipeline.decode import Method, Row, decode
from pipedec_cli.pipeline.grid import Limits
from pipedec_cli.pipeline.schedule import Fixed, Whole
from tests.checkpoints import toy_records
from tests.model.engines import FIXED, SCHEDULES
from tests.model.families import BOS, EOS, KINDS, SOURCES, Kind, small_model


class Recorder:
    """An engine whose logits are kept, by sequence and place in the grid."""

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
@pytest.mark.parametrize("schedule", ["1", "3", "wait"])
def test_cached_steps_give_the_logits_of_the_full_pass(kind: Kind, schedule: str) -> None:
    """In float32, to 1e-4: logits here are of the order of 10."""
    model = small_model(kind)
    recorder = Recorder(Engine(model, 2))
    method = Method(SCHEDULES[schedule][0], BOS, EOS, SCHEDULES[schedule][1])

    list(decode(recorder, enumerate(SOURCES[:2]), method, sequences=2))

    for sequence in (0, 1):
        rows = [row for row, _ in recorder.seen if row.sequence == sequence]
        cached = torch.stack([logits for row, logits in recorder.seen if row.sequence == sequence])
        torch.testing.assert_close(cached, full_pass(model, SOURCES[sequence], rows), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("schedule", ["1", "wait"])
def test_cached_steps_in_bfloat16_stay_near_the_full_pass_in_float32(
    trained: Checkpoint, schedule: str
) -> None:
    """To 3 % of the logits' spread, on a trained model; the engine sums up in float32 what the layers add."""
    half = copy.deepcopy(trained.model).to(torch.bfloat16)
    sources = [example.source for example in encode(trained, toy_records())][4:6]
    chosen, limits = SCHEDULES[schedule][0], Limits(time_max=24, sub_max=6)
    recorder = Recorder(Engine(half, 2))

    list(decode(recorder, enumerate(sources), Method(chosen, BOS, EOS, limits, "once"), sequences=2))

    for sequence in (0, 1):
        rows = [row for row, _ in recorder.seen if row.sequence == sequence]
        cached = torch.stack([logits for row, logits in recorder.seen if row.sequence == sequence])
        for model in (trained.model, half):
            exact = full_pass(model, sources[sequence], rows)
            assert (cached - exact).abs().max() < 0.03 * (exact.max() - exact.min())


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
def test_a_sequence_does_not_depend_on_the_others(kind: Kind) -> None:
    """The same rows alone, beside a longer source, beside other grids, and after another example in the sequence."""
    engine = Engine(small_model(kind), 3)
    method = Method(Fixed(1), BOS, EOS, FIXED)
    alone = Recorder(Engine(small_model(kind), 1))
    list(decode(alone, [(0, SOURCES[0])], method))

    for company in ([SOURCES[3]], [SOURCES[3], SOURCES[1]], [SOURCES[2], SOURCES[4]]):
        recorder = Recorder(engine)
        list(decode(recorder, enumerate([SOURCES[0], *company]), method, sequences=3))
        mine = [logits for row, logits in recorder.seen if row.sequence == 0]
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
