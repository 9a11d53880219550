"""Checks of what a caller passes: each gives the value to use, or raises a `UserError` that says what to give."""

import re
from collections.abc import Iterable, Iterator
from numbers import Integral
from typing import Any, Final

import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import MOST

DTYPES: Final[dict[str, torch.dtype]] = {
    name: getattr(torch, name)
    for name in ("float32", "bfloat16", "float16", "int8", "int4")
}
#: torch's stubs lack it.
INT4: Final = DTYPES["int4"]
#: Weights as a GGUF file holds them, in blocks of several types. It is no dtype of
#: weights elsewhere.
STORED: Final = torch.uint8
DTYPES["stored"] = STORED


def name_of(dtype: torch.dtype) -> str:
    """The name of a dtype in `DTYPES`."""
    return next(name for name, known in DTYPES.items() if known == dtype)


def check_positive_int(
    name: str, value: Any, otherwise: str | None = None
) -> int | None:
    """Return a setting's value if it is a whole number from 1 to a million, or None; else raise a UserError.

    `name` is what the message calls it, and `otherwise` another value that may be given
    in its place, which the message names.
    """
    if value is None:
        return None
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or not 1 <= int(value) <= MOST:
        todo = f"give a whole number from 1 to {MOST:,}"
        if otherwise:
            todo += f" or {otherwise!r}"
        raise UserError(f"{name} is {value!r}", todo=todo)
    return int(value)


def check_texts(sources: Iterable[str]) -> Iterator[str]:
    """Pass on texts one after the other, with a UserError for what is no text.

    A single string is refused, not read letter by letter.
    """
    if isinstance(sources, str | bytes) or not isinstance(sources, Iterable):
        what = f"the sources are one {type(sources).__name__}"
        raise UserError(what, todo="give a list of texts")
    return _each_text(sources)


def _each_text(sources: Iterable[str]) -> Iterator[str]:
    for number, text in enumerate(sources):
        if not isinstance(text, str):
            raise UserError(
                f"source {number} is of type {type(text).__name__}", todo="give texts"
            )
        yield text


def computes_bfloat16() -> bool:
    """Whether torch multiplies bfloat16 matrices fast on this CPU. True where oneDNN, which knows, is not there."""
    onednn: Any = torch.backends.mkldnn
    if not onednn.is_available():
        return True
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def choose_device(name: str = "auto") -> torch.device:
    """The device of that name; ``auto`` is a CUDA GPU if there is one, else the CPU. A UserError if it is not here."""
    name = str(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.partition(":")[0] == "mps":
        raise UserError("Apple's GPU is not supported", todo="use --device cpu")
    form = re.fullmatch(r"cpu|cuda(?::(\d+))?", name)
    if form is None:
        todo = "use auto, cpu, cuda or cuda:N"
        raise UserError(f"there is no device {name!r}", todo=todo)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name != "cpu" and int(form[1] or 0) >= count:
        raise UserError(f"{name} is not here", todo="use --device cpu")
    return torch.device(name)


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype of that name, if the device can use it; else a UserError."""
    if str(name) not in DTYPES:
        todo = f"use one of {', '.join(DTYPES)}"
        raise UserError(f"there is no dtype {name!r}", todo=todo)
    if name == "float16" and device.type == "cpu":
        raise UserError("float16 is not for the CPU", todo="use bfloat16 or float32")
    if name in ("int8", "int4", "stored") and device.type != "cpu":
        raise UserError(f"{name} is for the CPU", todo="use bfloat16, or --device cpu")
    return DTYPES[name]
