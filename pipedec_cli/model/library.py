"""The way in for Python: a checkpoint by name, ready to generate."""

from __future__ import annotations

from pathlib import Path

from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.model.device import choose_device, choose_dtype
from pipedec_cli.model.generation import Generator


def load(name: str | Path, *, batch_size: int = 1, dtype: str = "float32", device: str = "auto") -> Generator:
    """Load a checkpoint and make it ready to generate.

    The weights are in memory once, in the form that is fastest here: the generator's `checkpoint.model` may be empty.

    Args:
        name: a folder that `pipedec train` made, another local T5, or a hub name.
        batch_size: examples in flight at once.
        dtype: ``float32``, ``bfloat16`` or, on a GPU, ``float16``.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        UserError: the checkpoint is not there or is no T5, or the machine has no such device.
    """
    where = choose_device(device)
    checkpoint = load_checkpoint(str(name), dtype=choose_dtype(dtype, where), device=str(where))
    return Generator(checkpoint, batch_size=batch_size, consume=True)
