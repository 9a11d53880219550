"""The GPUs that a training sees."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pipedec_cli.data.errors import UserError

#: The variable that says which GPUs torch sees.
_GPUS: Final = "CUDA_VISIBLE_DEVICES"


@contextmanager
def only_gpu(device: str) -> Iterator[str]:
    """Hide all GPUs but that of ``cuda:N`` from torch, since the Trainer takes all that it sees; gives the kind of device.

    Afterwards the environment is as it was. A UserError if torch has counted several
    GPUs before.
    """
    kind, _, number = device.partition(":")
    if not number:
        yield kind
        return
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_initialized() and torch.cuda.device_count() > 1:
        what = f"this process uses GPUs already, and cannot train on {device} alone any more"
        raise UserError(what, todo="train in a process of its own")
    before = os.environ.get(_GPUS)
    visible = number
    if before is not None:  # some are hidden already, and numbers count the others
        visible = "".join(before.split(",")[int(number) :][:1])
    os.environ[_GPUS] = visible
    try:
        yield kind
    finally:
        if before is None:
            del os.environ[_GPUS]
        else:
            os.environ[_GPUS] = before
