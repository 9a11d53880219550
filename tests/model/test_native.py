"""Compiled step and encoder: bound to their own sequence alone, near the exact logits, and a fallback that says why."""

import copy

import pytest
import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.engine.engine import Engine, lay_out, make_encoder
from pipedec_cli.model.engine.native import kinds
from pipedec_cli.model.engine.native.build import BuildError, compiled, is_compiled
from pipedec_cli.model.engine.native.encoder import TOKENS_TOGETHER, NativeEncoder
from pipedec_cli.model.engine.native.packing import pack_native
from pipedec_cli.model.engine.torch.block_layers import BlockLayers
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot
from tests.model.engines import KINDS, SOURCES, grid_rows, needs_kernels, odd_model, small_model, weights_of

#: Of sources: around the sizes of panels and blocks, and beyond the distance at which T5's bias ends.
LENGTHS = (1, 2, 31, 32, 33, 50, 127, 300)
in_both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
in_every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])


def in_dtype(model, dtype):
    """A model, and its weights laid out for the compiled step; a test is passed over where there is no int8."""
    if dtype != torch.int8:
        model = copy.deepcopy(model).to(dtype)
    try:
        return model, lay_out(model, native=True, quantize=dtype == torch.int8)
    except (UserError, BuildError) as error:
        pytest.skip(str(error))


@pytest.fixture
def set_threads():
    """Sets the number of threads, until the test is over."""
    threads = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(threads)


# --- The step ---------------------------------------------------------------------------------------------------------


def last_logits(model, weights, calls, *sources):
    """The logits of the last call of a new engine, which takes the sources in one after the other."""
    engine = Engine(model, len(sources), weights=weights)
    for newcomer in enumerate(sources):
        engine.admit([newcomer])
    return [engine.logits(rows) for rows in calls][-1].float()


def both_steps(model, calls, *sources):
    """From the compiled step and from torch's operators."""
    native, operators = lay_out(model, native=True), lay_out(model, prepack=False)
    return last_logits(model, native, calls, *sources), last_logits(model, operators, calls, *sources)


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_is_about_as_near_to_float32_as_operators_in_bfloat16_are(kind):
    calls = [grid_rows(0, 12), grid_rows(0, 9, first=12)]
    exact, _ = both_steps(small_model(kind), calls, SOURCES[0])
    narrow, operators = both_steps(copy.deepcopy(small_model(kind)).bfloat16(), calls, SOURCES[0])
    assert (narrow - exact).abs().max() < 0.05 * exact.abs().max()
    # A CPU that multiplies bfloat16 in pairs rounds what goes in, as the operators do; one that does not is nearer.
    assert (narrow - exact).abs().mean() < 2 * (operators - exact).abs().mean()


@needs_kernels
@in_every_dtype
@pytest.mark.parametrize("rows", [1, 2, 5, 12, 13, 16, 40])
def test_a_row_depends_on_its_own_sequence_alone_bit_for_bit(rows, dtype):
    model, weights = in_dtype(small_model("gated"), dtype)
    sources = (SOURCES[0], SOURCES[3] * 9, SOURCES[1])
    before = [row for n in range(3) for row in grid_rows(n, 17 * n + 1)]
    call = [row for n in range(3) for row in grid_rows(n, rows, 17 * n + 1)]
    crowded = last_logits(model, weights, [before, call], *sources)
    for n, source in enumerate(sources):
        own = [[Row(0, row.slot) for row in some if row.sequence == n] for some in (before, call)]
        assert last_logits(model, weights, own, source).equal(crowded[n * rows : (n + 1) * rows])


@needs_kernels
@in_every_dtype
def test_a_row_does_not_depend_on_the_number_of_threads(set_threads, dtype):
    model, weights = in_dtype(small_model("umt5"), dtype)
    logits = []
    for count in (1, 2, 3):
        set_threads(count)
        engine = Engine(model, weights=weights)
        engine.stepper.remember(torch.ones(1, 5, 32), [(0, [0] * 5)])
        logits.append(engine.logits(grid_rows(0, 30)))
    assert logits[0].equal(logits[1])
    assert logits[0].equal(logits[2])


@needs_kernels
@in_both_dtypes
def test_sizes_that_fill_no_panel_and_grids_beyond_the_first_room(dtype):
    calls = [grid_rows(0, 100), grid_rows(1, 3), grid_rows(0, 61, 100) + grid_rows(1, 2, 3)]
    native, operators = both_steps(odd_model().to(dtype), calls, SOURCES[1], SOURCES[3] * 20)
    tolerance = 1e-4 if dtype == torch.float32 else 0.05
    assert (native - operators).abs().max() < tolerance * operators.abs().max()


@needs_kernels
def test_the_step_answers_with_the_first_best_token():
    model = copy.deepcopy(small_model("gated"))
    with torch.no_grad():
        model.lm_head.weight[5:] = model.lm_head.weight[4]  # all of them tie
    weights, rows = lay_out(model, native=True), grid_rows(0, 6)
    engine = Engine(model, weights=weights)
    engine.admit([(0, SOURCES[0])])
    logits = last_logits(model, weights, [rows], SOURCES[0])
    assert engine.step(rows) == [int((row == row.max()).nonzero()[0]) for row in logits]


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.bfloat16, torch.int8])
def test_weights_that_are_no_numbers_are_refused_at_the_first_answer(dtype):
    """By kernels in each dtype, and by torch's operators."""
    model = copy.deepcopy(small_model("gated"))
    with torch.no_grad():
        model.lm_head.weight[:] = torch.nan
    model, weights = in_dtype(model, dtype) if dtype else (model, lay_out(model, native=False))
    engine = Engine(model, weights=weights)
    for rows in (grid_rows(0, 3), [Row(0, Slot(1, 0, 3, allowed=(4, 5)))]):
        for ask in (engine.step, engine.step_with_probabilities):
            engine.admit([(0, SOURCES[0])])
            with pytest.raises(UserError, match="no number"):
                ask(rows)


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_is_consumed_gives_the_same_logits_and_is_not_in_memory_twice(kind):
    model = copy.deepcopy(small_model(kind))
    whole = sum(parameter.nbytes for parameter in model.parameters())
    logits = [
        last_logits(model, weights, [grid_rows(0, 6)], SOURCES[0])
        for weights in (weights_of(kind, "native"), lay_out(model, consume=True))
    ]
    assert torch.equal(*logits)
    assert sum(parameter.nbytes for parameter in model.parameters()) < whole / 2
    again = Engine(small_model(kind), weights=weights_of(kind, "native"))
    again.admit([(0, SOURCES[0])])  # what was not given away still serves
    assert again.kernels.startswith("native (")


# --- The encoder ------------------------------------------------------------------------------------------------------


def source_of(length):
    return (SOURCES[3] * (length // len(SOURCES[3]) + 1))[:length]


def encode(encoder, *sources):
    """The states of each source, without padding; the compiled encoder's states of padding are zero."""
    longest = max(map(len, sources))
    ids = torch.tensor([[*source, *[0] * (longest - len(source))] for source in sources])
    mask = torch.tensor([[1] * len(source) + [0] * (longest - len(source)) for source in sources])
    compiled = isinstance(encoder, NativeEncoder)
    with torch.inference_mode():
        states = (
            encoder(sources) if compiled else encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        )
    assert states.shape[:2] == ids.shape
    if compiled:
        assert not states[mask == 0].any()
        assert states[mask == 1].any(dim=-1).all()
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
    compiled = NativeEncoder(model.encoder, pack_native(model))
    for mine, source in zip(encode(compiled, *sources), sources, strict=True):
        theirs = encode(exact, source)[0]
        assert (mine - theirs).abs().max() < 1e-5 * theirs.abs().max()


@needs_kernels
@in_every_dtype
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", ["t5", "gated"])
def test_a_state_depends_on_its_own_source_alone_bit_for_bit(kind, threads, dtype, set_threads):
    model, weights = in_dtype(small_model(kind), dtype)
    encoder = NativeEncoder(model.encoder, weights.stepping, dtype)
    sources = [source_of(length) for length in (*LENGTHS, TOKENS_TOGETHER // 4, 5)]
    alone = [encode(encoder, source)[0] for source in sources]
    set_threads(threads)
    assert all(map(torch.equal, encode(encoder, *sources), alone))


@needs_kernels
@pytest.mark.parametrize(
    ("dtype", "slow", "narrow", "way", "compiled"),
    [
        (torch.float32, True, False, "wide", torch.float32),
        (torch.float32, True, True, "tiles", torch.float32),
        (torch.float32, False, False, "wide", None),
        (torch.bfloat16, True, False, "wide", torch.float32),
        (torch.bfloat16, True, True, "wide", None),
        (torch.bfloat16, True, False, "pairs", torch.bfloat16),
        (torch.bfloat16, True, True, "tiles", torch.bfloat16),
    ],
)
def test_the_compiled_encoder_is_taken_where_it_is_faster(monkeypatch, dtype, slow, narrow, way, compiled):
    """`slow`: torch's float32 products leave speed unused; `narrow`: its bfloat16 products are fast."""
    monkeypatch.setattr(kinds, "has_slow_products", lambda: slow)
    monkeypatch.setattr(kinds, "has_bfloat16_products", lambda: narrow)
    monkeypatch.setattr(kinds, "bfloat16_way", lambda kernels: way)
    model = copy.deepcopy(small_model("t5")).to(dtype)
    encoder = lay_out(model).encoder
    assert isinstance(encoder, NativeEncoder) is (compiled is not None)
    if compiled is not None:
        assert encoder.weights.dtype == compiled
    assert not isinstance(lay_out(model, native=False).encoder, NativeEncoder)


@pytest.mark.parametrize("products", [False, True])
def test_without_kernels_the_encoder_of_a_bfloat16_model_is_in_the_faster_dtype_with_the_same_weights(
    monkeypatch, products
):
    monkeypatch.setattr(kinds, "has_bfloat16_products", lambda: products)
    model = copy.deepcopy(small_model("t5")).bfloat16()
    encoder = make_encoder(model)
    assert (encoder.encoder is model.encoder) is products
    for mine, theirs in zip(encoder.parameters(), model.encoder.parameters(), strict=True):
        assert mine.dtype == (torch.bfloat16 if products else torch.float32)
        assert torch.equal(mine, theirs.to(mine.dtype))
    assert make_encoder(small_model("t5")).encoder is small_model("t5").encoder


# --- Where there are none ---------------------------------------------------------------------------------------------


def test_the_environment_and_an_argument_switch_the_kernels_off(monkeypatch):
    assert isinstance(lay_out(small_model("t5"), native=False).stepping, BlockLayers)
    monkeypatch.setenv("PIPEDEC_NATIVE", "0")
    weights = lay_out(small_model("t5"))
    assert isinstance(weights.stepping, BlockLayers)
    assert "PIPEDEC_NATIVE is 0" in weights.kernels
    with pytest.raises(BuildError, match="PIPEDEC_NATIVE"):  # asked for, and not to be had
        lay_out(small_model("t5"), native=True)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda model: model.half(), "neither all float32 nor all bfloat16"),
        (lambda model: setattr(model.config, "dense_act_fn", "silu"), "activation is silu"),
        (lambda model: setattr(model.config, "d_kv", 7), "width is odd"),
    ],
)
def test_a_model_that_the_kernels_cannot_run_is_left_to_operators(change, reason):
    model = copy.deepcopy(small_model("t5"))
    change(model)
    with pytest.raises(BuildError, match=reason):
        pack_native(model)
    assert reason in lay_out(model).kernels


def test_without_a_compiler_there_are_none_and_nothing_to_compile(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert is_compiled()
    with pytest.raises(BuildError, match=r"no C\+\+ compiler"):
        compiled()
