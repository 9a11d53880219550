"""Nothing is read or written beyond what was allocated, whatever the engine is told."""

from ctypes import Structure, c_int64

import pytest
import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.engine.engine import Engine
from pipedec_cli.model.engine.native import library as native
from pipedec_cli.model.engine.native.library import Library, library
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot
from tests.model.engines import (
    SOURCES,
    STEPPINGS,
    VOCABULARY,
    grid_rows,
    make_engine,
    needs_kernels,
    small_model,
)


@pytest.mark.parametrize("stepping", STEPPINGS)
@pytest.mark.parametrize("source", [[], [VOCABULARY], [3, -1, 1], [2**40, 1]])
def test_a_source_with_ids_beyond_the_embedding_is_not_admitted(stepping, source):
    engine = make_engine("t5", stepping, 2)
    with pytest.raises(UserError, match=r"the model's vocabulary goes from 0 to 39"):
        engine.admit([(0, SOURCES[0]), (1, source)])
    engine.admit([(0, SOURCES[0])])
    assert len(engine.step(grid_rows(0, 2))) == 2


@pytest.fixture
def stepper():
    """Of two sequences; the first has a source and no token yet."""
    engine = make_engine("gated", "native", 2)
    engine.admit([(0, SOURCES[0])])
    return engine.stepper


@needs_kernels
@pytest.mark.parametrize(
    "rows",
    [
        [],
        *([(0, 1, 0, token)] for token in (-1, VOCABULARY, 2**40)),
        *([(sequence, 1, 0, 3)] for sequence in (-1, 2)),
        *(
            [(0, subsequence, time, 3)]
            for subsequence, time in ((-1, 0), (1, -(2**29)), (2**31, 0), (1, 2**40))
        ),
        [(1, 1, 0, 3), (0, 1, 0, 3)],  # not in the order of the sequences
    ],
)
def test_a_step_takes_no_token_and_no_place_out_of_bounds(stepper, rows):
    with pytest.raises(IndexError):
        stepper.step([Row(sequence, Slot(*slot)) for sequence, *slot in rows])


@needs_kernels
def test_columns_and_sources_stay_within_the_cache(stepper):
    library, model, cache = stepper.weights.library, stepper.weights.struct, stepper._cache
    for column in (-1, cache.room):
        with pytest.raises(IndexError):
            library.step(model, cache, [3, 0, column, 1, 0, 0, 0])
    for sequence, length in ((2, 1), (-1, 1), (0, cache.source_room + 1)):
        with pytest.raises(IndexError):
            library.remember_source(model, cache, sequence, torch.zeros(length, model.width))
    for token in (-1, VOCABULARY):
        with pytest.raises(IndexError):
            library.step(model, cache, [3, 0, 0, 1, 0, 2, 0], [3, token])
    stepper._source_length[0] = cache.source_room + 1
    with pytest.raises(IndexError):
        library.step(model, stepper._cache, [3, 0, 0, 1, 0, 0, 0])


@needs_kernels
@pytest.mark.parametrize("sources", [[[VOCABULARY]], [[-1]], [[3], []], [[3, 4]], []])
def test_the_encoder_reads_its_own_embedding_alone(sources):
    engine = Engine(small_model("t5"))
    if not hasattr(engine.weights.encoder, "weights"):
        pytest.skip("torch encodes here")
    encoder = engine.weights.encoder.weights
    with pytest.raises(IndexError):
        encoder.library.encode(encoder.struct, sources, torch.zeros(max(1, len(sources)), 1, 32))


@needs_kernels
def test_structures_that_python_lays_out_in_another_way_are_refused(monkeypatch):
    class Longer(Structure):
        _fields_ = [*native.RowStruct._fields_, ("more", c_int64)]

    monkeypatch.setattr(native, "RowStruct", Longer)
    with pytest.raises(OSError, match="Longer is laid out in another way"):
        Library(str(library().path))
