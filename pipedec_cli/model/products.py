"""In which dtype, and by whom, this machine multiplies large matrices fastest."""

from __future__ import annotations

import platform
from collections.abc import Callable

import torch


def has_slow_products() -> bool:
    """Whether torch leaves some of this CPU's speed in float32 unused: so on x86; on Arm the system's library does not."""
    return platform.machine().lower() in ("x86_64", "amd64")


def has_bfloat16_products() -> bool:
    """Whether this CPU multiplies matrices faster in bfloat16 than in float32: with AMX, or on Arm."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return True
    told: Callable[[], bool] | None = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return told is not None and told()
