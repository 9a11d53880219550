"""The processes that train together. `torchrun` and `accelerate launch` start them and set their environment."""

from __future__ import annotations

import os
from typing import Any, Final

from pipedec_cli.data.errors import UserError

#: FSDP's name for a state dict that one process puts together.
_FULL_STATE: Final = "FULL_STATE_DICT"


def count() -> int:
    """The number of processes."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main() -> bool:
    """Whether this process is the one that writes files and messages."""
    return os.environ.get("RANK", "0") == "0"


def refuse_unsharded() -> None:
    """Refuse FSDP where accelerate ignores it. Without this check the training would run unsharded, silently."""
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() in {"1", "true"}:
        todo = "leave out --use_fsdp; torchrun starts several processes on CPUs"
        raise UserError("FSDP takes several GPUs, one for each process", todo=todo)


def check_sharding(plugin: Any, optimizer: str) -> None:
    """Refuse the settings of accelerate's FSDP `plugin` that do not work with these models.

    The decoder's blocks are not called as modules, so they cannot be wrapped. On the meta device tied weights come
    apart, and one of them would not be learnt. Sharded state dicts are read by pickle and hold no model.
    """
    asked = (plugin.fsdp_version, plugin.auto_wrap_policy, plugin.state_dict_type.name)
    if asked != (2, None, _FULL_STATE) or plugin.cpu_ram_efficient_loading:
        flags = {"version": 2, "auto_wrap_policy": "NO_WRAP", "state_dict_type": _FULL_STATE}
        flags["cpu_ram_efficient_loading"] = "false"
        todo = f"launch with {' '.join(f'--fsdp_{name} {value}' for name, value in flags.items())}"
        raise UserError("FSDP can shard these models as a whole only", todo=todo)
    if optimizer == "adafactor":
        raise UserError("transformers' Adafactor cannot be sharded", todo="give --set optimizer=adamw")
