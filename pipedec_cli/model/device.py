"""Device and number format by name, as options and the library take them."""

from __future__ import annotations

import re
from typing import Final

import torch

from pipedec_cli.data.errors import UserError

DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(name: str = "auto") -> torch.device:
    """The device of that name; ``auto`` takes a CUDA GPU where there is one, else the CPU.

    Raises:
        UserError: there is no such device here, or it is not supported.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.partition(":")[0] == "mps":
        raise UserError("Apple's GPU is not supported", todo="use --device cpu")
    form = re.fullmatch(r"cpu|cuda(?::(\d+))?", name)
    if form is None:
        raise UserError(f"there is no device {name!r}", todo="use auto, cpu, cuda or cuda:N")
    number = int(form[1] or 0)
    if name != "cpu" and (not torch.cuda.is_available() or number >= torch.cuda.device_count()):
        raise UserError(f"{name} is not here", todo="use --device cpu")
    return torch.device(name)


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype of that name.

    Raises:
        UserError: it is not known, or not to be used on that device.
    """
    if name not in DTYPES:
        raise UserError(f"there is no dtype {name!r}", todo=f"use one of {', '.join(DTYPES)}")
    if name == "float16" and device.type == "cpu":
        raise UserError("float16 is not for the CPU", todo="use bfloat16 or float32")
    return DTYPES[name]
