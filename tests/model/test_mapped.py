"""Weights in files that are mapped."""

import ctypes

import psutil
import pytest
import torch
from safetensors.torch import save_file

from pipedec_cli.model.mapped import Mapping, close_holes, read_safetensors, release

PAGES = 1 << 20


def resident():
    """The bytes of this process that are in memory."""
    return psutil.Process().memory_info().rss


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16]
)
def test_weights_are_those_that_were_saved_also_after_their_memory_is_given_back(
    tmp_path, dtype
):
    saved = {
        "large": torch.randn(PAGES).to(dtype),
        "small": torch.arange(3.0).to(dtype),
        "odd": torch.randn(5, 7).to(dtype),
        "none": torch.empty(0, 4, dtype=dtype),
    }
    save_file(saved, tmp_path / "model.safetensors")
    mapping = Mapping(tmp_path / "model.safetensors")
    read = dict(read_safetensors(mapping))
    for _ in range(2):
        assert read.keys() == saved.keys()
        for name, weight in read.items():
            assert weight.dtype == dtype and torch.equal(weight, saved[name])
            release(weight)


def test_codes_of_numbers_are_refused(tmp_path):
    save_file({"codes": torch.zeros(4, dtype=torch.int8)}, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="codes"):
        dict(read_safetensors(Mapping(tmp_path / "x.safetensors")))


def test_memory_that_is_no_files_is_never_given_back():
    own = torch.ones(PAGES)
    release(own)
    assert own.sum() == PAGES


def test_bytes_at_an_odd_place_are_read_as_well(tmp_path):
    file = tmp_path / "bytes"
    numbers = torch.arange(9, dtype=torch.float32)
    file.write_bytes(b"x" + numbers.numpy().tobytes())
    mapping = Mapping(file)
    assert torch.equal(mapping.tensor(torch.float32, (3, 3), 1), numbers.view(3, 3))


def test_holes_between_pieces_in_use_are_given_back():
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("this system's memory has no holes that are kept")
    size = 1 << 16  # below what gets a mapping of its own
    pieces = [ctypes.create_string_buffer(size) for _ in range(1024)]
    kept = pieces[::2]
    before = resident()
    del pieces
    close_holes()
    assert before - resident() > len(kept) * size // 2
