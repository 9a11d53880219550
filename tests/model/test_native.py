"""Compiled steps and encoder of a T5: bound to their own sequence alone, and near the exact logits."""

import copy

import pytest
import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.engine.engine import Engine, lay_out
from pipedec_cli.model.engine.native.encoder import TOKENS_TOGETHER, NativeEncoder
from pipedec_cli.model.engine.native.packing import pack_native
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot
from tests.model.engines import (
    DTYPES,
    KINDS,
    SOURCES,
    compiled,
    grid_rows,
    in_every_dtype,
    last_logits,
    needs_kernels,
    odd_model,
    small_model,
)

#: Lengths of sources: around the sizes of panels and blocks, and beyond the distance at which T5's bias ends.
LENGTHS = (1, 2, 31, 32, 33, 50, 127, 300)


# --- The step ---------------------------------------------------------------------------------------------------------


def both_steps(model, calls, *sources):
    """The last logits of the compiled step, and of torch's operators."""
    return [
        last_logits(weights, calls, *sources)
        for weights in (lay_out(model, native=True), lay_out(model, prepack=False))
    ]


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_is_about_as_near_to_float32_as_operators_in_bfloat16_are(kind):
    calls = [grid_rows(0, 12), grid_rows(0, 9, first=12)]
    exact = last_logits(compiled(small_model(kind), torch.float32), calls, SOURCES[0])
    narrow, operators = both_steps(copy.deepcopy(small_model(kind)).bfloat16(), calls, SOURCES[0])
    assert (narrow - exact).abs().max() < 0.05 * exact.abs().max()
    # A CPU that multiplies bfloat16 in pairs rounds what goes in, as the operators do; one that does not is nearer.
    assert (narrow - exact).abs().mean() < 2 * (operators - exact).abs().mean()


@in_every_dtype
@pytest.mark.parametrize("rows", [1, 5, 12, 13, 40])
def test_a_row_depends_on_its_own_sequence_alone_bit_for_bit(rows, dtype):
    weights = compiled(small_model("gated"), dtype)
    sources = (SOURCES[0], SOURCES[3] * 9, SOURCES[1])
    before = [row for n in range(3) for row in grid_rows(n, 17 * n + 1)]
    call = [row for n in range(3) for row in grid_rows(n, rows, 17 * n + 1)]
    crowded = last_logits(weights, [before, call], *sources)
    for n, source in enumerate(sources):
        own = [[Row(0, row.slot) for row in some if row.sequence == n] for some in (before, call)]
        assert last_logits(weights, own, source).equal(crowded[n * rows : (n + 1) * rows])


@in_every_dtype
def test_a_row_does_not_depend_on_the_number_of_threads(set_threads, dtype):
    weights, logits = compiled(small_model("umt5"), dtype), []
    for count in (1, 2, 3, 16):  # 16 threads come late to most of the work wherever there are fewer cores
        set_threads(count)
        engine = Engine(None, weights=weights)
        engine.stepper.remember(torch.ones(1, 5, 32), [(0, [0] * 5)])
        logits.append(engine.logits(grid_rows(0, 30)))
    assert all(logits[0].equal(other) for other in logits)


@needs_kernels
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.05)])
def test_sizes_that_fill_no_panel_and_grids_beyond_the_first_room(dtype, tolerance):
    calls = [grid_rows(0, 100), grid_rows(1, 3), grid_rows(0, 61, 100) + grid_rows(1, 2, 3)]
    native, operators = both_steps(odd_model().to(dtype), calls, SOURCES[1], SOURCES[3] * 20)
    assert (native - operators).abs().max() < tolerance * operators.abs().max()


@needs_kernels
def test_the_step_answers_with_the_first_best_token():
    model = copy.deepcopy(small_model("gated"))
    with torch.no_grad():
        model.lm_head.weight[5:] = model.lm_head.weight[4]  # all of them tie
    weights, rows = lay_out(model, native=True), grid_rows(0, 6)
    engine = Engine(model, weights=weights)
    engine.admit([(0, SOURCES[0])])
    logits = last_logits(weights, [rows], SOURCES[0])
    assert engine.step(rows) == [int((row == row.max()).nonzero()[0]) for row in logits]


@pytest.mark.parametrize("dtype", [None, *DTYPES])
def test_weights_that_are_no_numbers_are_refused_at_the_first_answer(dtype):
    """By kernels in each dtype, and by torch's operators."""
    model = copy.deepcopy(small_model("gated"))
    with torch.no_grad():
        model.lm_head.weight[:] = torch.nan
    weights = compiled(model, dtype) if dtype else lay_out(model, native=False)
    engine = Engine(model, weights=weights)
    for rows in (grid_rows(0, 3), [Row(0, Slot(1, 0, 3, allowed=(4, 5)))]):
        for ask in (engine.step, engine.step_with_probabilities):
            engine.admit([(0, SOURCES[0])])
            with pytest.raises(UserError, match="no number"):
                ask(rows)


# --- The encoder ------------------------------------------------------------------------------------------------------


def source_of(length):
    return (SOURCES[3] * (length // len(SOURCES[3]) + 1))[:length]


def encode(encoder, *sources):
    """The states of each source, which are 0 behind its end."""
    states = encoder(sources)
    longest = max(map(len, sources))
    assert states.shape[:2] == (len(sources), longest)
    for rows, source in zip(states, sources, strict=True):
        assert rows[: len(source)].any(dim=-1).all()
        assert not rows[len(source) :].any()
    return [rows[: len(source)] for rows, source in zip(states, sources, strict=True)]


@needs_kernels
@pytest.mark.parametrize("kind", [*KINDS, "bfloat16", "sizes that fill no panel"])
def test_the_states_are_those_of_transformers_and_zero_beyond_a_sources_end(kind):
    """In float32, for a bfloat16 model too, of its own weights."""
    others = {
        "bfloat16": copy.deepcopy(small_model("t5")).bfloat16(),
        "sizes that fill no panel": odd_model(),
    }
    model = others.get(kind) or small_model(kind)
    sources, exact = [source_of(length) for length in LENGTHS], copy.deepcopy(model.encoder).float()
    for mine, source in zip(
        encode(NativeEncoder(model.encoder, pack_native(model)), *sources), sources, strict=True
    ):
        ids = torch.tensor([source])
        with torch.inference_mode():
            theirs = exact(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
        assert (mine - theirs).abs().max() < 1e-5 * theirs.abs().max()


@in_every_dtype
@pytest.mark.parametrize("kind", ["t5", "gated"])
def test_a_state_depends_on_its_own_source_alone_bit_for_bit(kind, dtype, set_threads):
    encoder = NativeEncoder(
        copy.deepcopy(small_model(kind)).encoder, compiled(small_model(kind), dtype).stepping, dtype
    )
    sources = [source_of(length) for length in (*LENGTHS, TOKENS_TOGETHER // 4, 5)]
    alone = [encode(encoder, source)[0] for source in sources]
    for threads in (1, 3):
        set_threads(threads)
        assert all(map(torch.equal, encode(encoder, *sources), alone))
