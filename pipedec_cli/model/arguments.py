"""What a caller asks for, made into what is used, or a `UserError` that says what to give instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from numbers import Integral
from typing import Any, Final

import torch

from pipedec_cli.data.errors import UserError

DTYPES: Final = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.int8,
}
#: More of anything is a mistake: of examples at a time, tokens, time-steps.
MOST: Final = 1_000_000


def whole(name: str, value: Any, otherwise: str | None = None) -> int | None:
    """A whole number from 1 to a million, or None; the text says what else may be given."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= MOST:
        todo = f"give a whole number from 1 to {MOST:,}" + (f" or {otherwise!r}" if otherwise else "")
        raise UserError(f"{name} is {value!r}", todo=todo)
    return int(value)


def several(sources: Iterable[str]) -> Iterator[str]:
    """Texts one after the other; a single one is not taken for its letters."""
    if isinstance(sources, str | bytes) or not isinstance(sources, Iterable):
        raise UserError(f"the sources are one {type(sources).__name__}", todo="give a list of texts")
    for number, text in enumerate(sources):
        if not isinstance(text, str):
            raise UserError(f"source {number} is of type {type(text).__name__}", todo="give texts")
        yield text


def computes_bfloat16() -> bool:
    """Whether torch has fast matrices in bfloat16 on this CPU, as far as oneDNN, which computes them, can tell."""
    there: Any = torch.backends.mkldnn
    return not there.is_available() or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def choose_device(name: str = "auto") -> torch.device:
    """The device of that name, or a UserError; ``auto`` takes a CUDA GPU where there is one, else the CPU."""
    name = str(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.partition(":")[0] == "mps":
        raise UserError("Apple's GPU is not supported", todo="use --device cpu")
    form = re.fullmatch(r"cpu|cuda(?::(\d+))?", name)
    if form is None:
        raise UserError(f"there is no device {name!r}", todo="use auto, cpu, cuda or cuda:N")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name != "cpu" and int(form[1] or 0) >= there:
        raise UserError(f"{name} is not here", todo="use --device cpu")
    return torch.device(name)


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype of that name, or a UserError where it is not known or not to be used on that device."""
    if str(name) not in DTYPES:
        raise UserError(f"there is no dtype {name!r}", todo=f"use one of {', '.join(DTYPES)}")
    if name == "float16" and device.type == "cpu":
        raise UserError("float16 is not for the CPU", todo="use bfloat16 or float32")
    if name == "int8" and device.type != "cpu":
        raise UserError("int8 is for the CPU", todo="use bfloat16, or --device cpu")
    return DTYPES[name]
