"""What to decode on: the device and the number format by name, and how many examples there is room for."""

from __future__ import annotations

import re
from typing import Any, Final

import torch

from pipedec_cli.data.errors import UserError

DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
#: Beyond this many examples a step is bound by arithmetic, and more of them gain little.
MOST_ON_CPU: Final = 8
MOST_ON_GPU: Final = 64
#: The share of the free memory that examples in flight may take.
_SHARE: Final = 0.25
#: Tokens of a grid that room is reckoned for.
_GRID_TOKENS: Final = 512


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


def choose_batch_size(model: Any, source_tokens: int, examples: int) -> int:
    """As many examples as make a step worth its while and fit a share of the free memory, with sources so long."""
    most = MOST_ON_CPU if model.device.type == "cpu" else MOST_ON_GPU
    fitting = int(_SHARE * _free_memory(model.device) / bytes_per_example(model, source_tokens))
    return max(1, min(most, fitting, examples))


def bytes_per_example(model: Any, source_tokens: int) -> int:
    """Memory that one example in flight takes at most: in the encoder, and in the decoder's cache."""
    config = model.config
    width = torch.finfo(model.dtype).bits // 8
    # scores of every head over all pairs of source tokens, before and after the softmax, which is in float32
    attention = 3 * config.num_heads * source_tokens**2 * 4
    hidden = source_tokens * (4 * config.d_model + 2 * config.d_ff) * 4
    column = 2 * config.num_decoder_layers * config.num_heads * config.d_kv * width
    return int(attention + hidden + column * (source_tokens + _GRID_TOKENS))


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    import psutil

    return int(psutil.virtual_memory().available)
