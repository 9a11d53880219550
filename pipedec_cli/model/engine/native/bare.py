"""A checkpoint's weights without transformers' model classes, which take seconds and 130 MB to import.

The compiled kernels need no more of a model than its weights, as a tree of modules with the usual names.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from pipedec_cli.model.engine.native.build import BuildError
from pipedec_cli.model.engine.native.kinds import encoder_dtype
from pipedec_cli.model.engine.native.library import team_library
from pipedec_cli.model.engine.native.specs import require_t5
from pipedec_cli.model.families import backbone_of

#: The file of the weights. Models in several files are left to transformers: they would gain little.
_WEIGHTS: Final = "model.safetensors"


class BareModel(nn.Module):
    """Weights on the CPU with their config, which the parts of the model have as well. It computes nothing."""

    device = torch.device("cpu")

    def __init__(self, config: Any, weights: Mapping[str, Tensor], shared: Mapping[str, str]) -> None:
        """Build the tree.

        Args:
            config: the model's.
            weights: tensors of one dtype by name, layers in order.
            shared: modules that use the weight of another module, by name, unless they have a weight.
        """
        super().__init__()
        self.config, self.dtype = config, next(iter(weights.values())).dtype
        for name, tensor in weights.items():
            _put(self, name.removesuffix(".weight").split("."), nn.Parameter(tensor, requires_grad=False))
        for name, owner in shared.items():
            if f"{name}.weight" not in weights:
                _put(self, name.split("."), self.get_parameter(f"{owner}.weight"))
        for part in self.children():
            part.config = config


def weights_suffice(config: Any, dtype: torch.dtype) -> bool:
    """Whether a model needs no more than its weights: kernels encode and decode it in this dtype on this CPU."""
    try:
        require_t5(config)
        return encoder_dtype(team_library(), dtype) is not None
    except BuildError:
        return False


def bare_model(folder: Path, config: Any, dtype: torch.dtype) -> BareModel | None:
    """Load the weights of a folder in a dtype. None unless their names and sizes are just those of the family.

    Transformers says what is wrong with others.
    """
    backbone = backbone_of(config)
    if backbone.parameters is None:
        return None
    sizes, found = backbone.parameters(config), dict[str, Tensor]()
    with suppress(OSError, SafetensorError), safe_open(folder / _WEIGHTS, "pt") as file:
        there, may_lack = set(file.keys()), {f"{name}.weight" for name in backbone.shared}
        if there - set(sizes) - set(backbone.unread) or set(sizes) - there - may_lack:
            return None
        for name in filter(there.__contains__, sizes):
            tensor = file.get_tensor(name)
            if tuple(tensor.shape) != sizes[name] or not tensor.is_floating_point():
                return None
            found[name] = tensor.to(dtype)
        return BareModel(config, found, backbone.shared)
    return None


def _put(root: nn.Module, path: list[str], weight: nn.Parameter) -> None:
    """Put a weight into the tree; modules with numbered children are lists."""
    module = root
    for part, after in zip(path, [*path[1:], ""], strict=True):
        if part not in module._modules:
            module.add_module(part, nn.ModuleList() if after.isdigit() else nn.Module())
        module = module.get_submodule(part)
    module.weight = weight
