"""A checkpoint's weights as a tree of modules by their names: all that compiled kernels ask of a model.

To import transformers' own model classes takes seconds and 130 MB; decoding by kernels needs nothing of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from pipedec_cli.model.families import backbone_of

#: One file: large models, which have several, gain little.
_WEIGHTS: Final = "model.safetensors"


class BareModel(nn.Module):
    """Weights on the CPU and their config, which its parts have as well; it computes nothing."""

    device = torch.device("cpu")

    def __init__(self, config: Any, weights: Mapping[str, Tensor], shared: Mapping[str, str]) -> None:
        """Of tensors of one dtype by name, layers in order; `shared` are modules that have another's, if none of their own."""
        super().__init__()
        self.config = config
        self.dtype = next(iter(weights.values())).dtype
        for name, tensor in weights.items():
            _put(self, name.removesuffix(".weight").split("."), nn.Parameter(tensor, requires_grad=False))
        for name, owner in shared.items():
            if f"{name}.weight" not in weights:
                _put(self, name.split("."), self.get_parameter(f"{owner}.weight"))
        for part in self.children():
            part.config = config


def bare_model(folder: Path, config: Any, dtype: torch.dtype) -> BareModel | None:
    """The weights of a folder in a dtype; None unless they are just what the family says, of its sizes.

    What is wrong with others, transformers finds out.
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
    """Hang a weight into the tree; what has numbers is a list."""
    module = root
    for part, after in zip(path, [*path[1:], ""], strict=True):
        if part not in module._modules:
            module.add_module(part, nn.ModuleList() if after.isdigit() else nn.Module())
        module = module.get_submodule(part)
    module.weight = weight
