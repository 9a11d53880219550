"""The buffers of an engine: they grow without losing anything, and a cleared sequence holds nothing."""

from __future__ import annotations

import torch

from pipedec_cli.model.cache import FIRST_ROOM, Cache
from pipedec_cli.model.layers import PADDING


def make_cache(sequences: int = 2, dtype: torch.dtype = torch.float32) -> Cache:
    return Cache(sequences, layers=2, heads=3, width=4, dtype=dtype, device=torch.device("cpu"))


def fill(cache: Cache, sequence: int, column: int, number: float) -> None:
    for layer in cache.layers:
        layer.keys[sequence, :, column] = number
        layer.values[sequence, :, column] = -number
    cache.subsequence[sequence, column] = int(number)
    cache.time[sequence, column] = 2 * int(number)


def test_a_new_cache_has_room_and_nothing_in_it() -> None:
    cache = make_cache(dtype=torch.bfloat16)

    assert cache.room == FIRST_ROOM
    assert cache.filled == [0, 0]
    assert [layer.keys.shape for layer in cache.layers] == [(2, 3, FIRST_ROOM, 4)] * 2
    assert all(layer.values.dtype == torch.bfloat16 for layer in cache.layers)
    assert (cache.subsequence == PADDING).all()
    assert (cache.time == PADDING).all()


def test_growing_keeps_what_is_there_and_opens_empty_columns() -> None:
    cache = make_cache()
    fill(cache, sequence=1, column=FIRST_ROOM - 1, number=5)

    cache.reserve(FIRST_ROOM + 1)

    assert cache.room == 2 * FIRST_ROOM
    for layer in cache.layers:
        assert (layer.keys[1, :, FIRST_ROOM - 1] == 5).all()
        assert (layer.values[1, :, FIRST_ROOM - 1] == -5).all()
        assert layer.keys.isfinite().all()  # what no token has written is multiplied by a weight of 0
        assert layer.values.isfinite().all()
    assert cache.subsequence[1, FIRST_ROOM - 1] == 5
    assert cache.time[1, FIRST_ROOM - 1] == 10
    assert (cache.subsequence[:, FIRST_ROOM:] == PADDING).all()
    assert (cache.time[:, FIRST_ROOM:] == PADDING).all()


def test_a_leap_beyond_twice_the_room_is_made_at_once() -> None:
    cache = make_cache()

    cache.reserve(5 * FIRST_ROOM)

    assert cache.room == 5 * FIRST_ROOM


def test_room_that_is_there_is_not_made_anew() -> None:
    cache = make_cache()
    keys = cache.layers[0].keys

    cache.reserve(FIRST_ROOM)
    cache.reserve(1)

    assert cache.layers[0].keys is keys


def test_sources_grow_to_the_longest_and_new_places_are_hidden() -> None:
    cache = make_cache()
    cache.reserve_source(3)
    cache.source_hidden[0, :3] = False
    cache.layers[1].source_keys[0] = 7

    cache.reserve_source(5)
    cache.reserve_source(2)

    assert cache.source_hidden.tolist() == [[False] * 3 + [True] * 2, [True] * 5]
    assert cache.layers[1].source_keys.shape == (2, 3, 5, 4)
    assert (cache.layers[1].source_keys[0, :, :3] == 7).all()
    assert cache.layers[1].source_values.isfinite().all()


def test_a_cleared_sequence_is_empty_and_the_others_are_as_they_were() -> None:
    cache = make_cache()
    cache.reserve_source(2)
    for sequence in (0, 1):
        fill(cache, sequence, 0, 1)
        cache.filled[sequence] = 1
        cache.source_length[sequence] = 2
        cache.source_hidden[sequence] = False

    cache.clear(0)

    assert cache.filled == [0, 1]
    assert cache.source_length == [0, 2]
    assert (cache.subsequence[0] == PADDING).all()
    assert (cache.time[0] == PADDING).all()
    assert cache.subsequence[1, 0] == 1
    assert cache.source_hidden.tolist() == [[True, True], [False, False]]
