"""The processes that train together, as `torchrun` and `accelerate launch` start them: what these tell each of them."""

from __future__ import annotations

import os
from typing import Any, Final

from pipedec_cli.data.errors import UserError

_WHOLE: Final = "FULL_STATE_DICT"  # FSDP's name for weights that one process puts together


def count() -> int:
    """How many there are."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main() -> bool:
    """Whether this is the one that writes and talks."""
    return os.environ.get("RANK", "0") == "0"


def refuse_unsharded() -> None:
    """Refuse FSDP where accelerate leaves it out: it would train, unsharded, and say nothing."""
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() in {"1", "true"}:
        todo = "leave out --use_fsdp; torchrun starts several processes on CPUs"
        raise UserError("FSDP takes several GPUs, one for each process", todo=todo)


def check_sharding(plugin: Any, optimizer: str) -> None:
    """Refuse what FSDP, by accelerate's plugin, cannot do with these models.

    The decoder's blocks are not called as modules; tied weights come apart on the meta device, and one of them would not be
    learnt; pieces of weights are read back by pickle, and are no model.
    """
    asked = (plugin.fsdp_version, plugin.auto_wrap_policy, plugin.state_dict_type.name)
    if asked != (2, None, _WHOLE) or plugin.cpu_ram_efficient_loading:
        flags = {"version": 2, "auto_wrap_policy": "NO_WRAP", "state_dict_type": _WHOLE}
        flags["cpu_ram_efficient_loading"] = "false"
        todo = f"launch with {' '.join(f'--fsdp_{name} {value}' for name, value in flags.items())}"
        raise UserError("FSDP can shard these models as a whole only", todo=todo)
    if optimizer == "adafactor":
        raise UserError("transformers' Adafactor cannot be sharded", todo="give --optimizer adamw")
