"""A training on one GPU sees that one alone, and leaves the environment as it was."""

import os
from contextlib import suppress

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.jobs.gpus import only_gpu

GPUS = "CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("before", "device", "seen"),
    [
        (None, "cuda:1", "1"),
        ("3,5", "cuda:1", "5"),
        ("3,5", "cuda:2", ""),
        ("", "cuda:0", ""),
        ("3,5", "cuda", "3,5"),
        (None, "cpu", None),
    ],
)
@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_one_gpu_alone_is_seen_while_it_is_trained_on(
    before, device, seen, error, monkeypatch
):
    monkeypatch.delenv(GPUS, raising=False)
    if before is not None:
        monkeypatch.setenv(GPUS, before)
    with suppress(KeyboardInterrupt), only_gpu(device) as kind:
        assert (kind, os.environ.get(GPUS)) == (device.partition(":")[0], seen)
        if error:
            raise error
    assert os.environ.get(GPUS) == before


def test_a_gpu_is_not_hidden_from_a_process_that_uses_it(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(UserError), only_gpu("cuda:1"):
        pass
