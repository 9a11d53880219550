"""LoRA: low-rank adapters beside the linear layers of the decoder. Only they are trained.

peft adds them to the model. The ``checkpoint-N`` folders of a training hold the
adapters alone. At the end they are merged into the model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from pipedec_cli.data.errors import UserError

_WEIGHTS: Final = "adapter_model.safetensors"
_PREFIX: Final = "base_model.model."  # of the names of weights in peft's files
_NAME: Final = "default"  # of the adapter within the model


def add_adapters(model: Any, rank: int, seed: int) -> None:
    """Add adapters of this rank, scaled by 2, to all linear layers of the decoder, and freeze all other weights.

    An adapter is a product of two narrow matrices that is added to a layer's own one.
    The `seed` draws its weights, which are in float32, in whatever dtype the model is.
    A `UserError` if peft is not installed.
    """
    try:
        import peft
    except ImportError:
        what = "LoRA needs peft, which is not installed"
        raise UserError(what, todo="pip install '.[lora]'") from None
    torch.manual_seed(seed)
    decoder = {*model.get_decoder().modules()}
    linear = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and module in decoder:
            linear.append(name)
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=linear)
    peft.inject_adapter_in_model(config, model, adapter_name=_NAME)
    for weight in _weights(model).values():
        weight.data = weight.data.float()


def adapted(model: Any) -> dict[str, Any]:
    """The layers with an adapter that is not merged, by name."""
    return {
        name: module
        for name, module in model.named_modules()
        if hasattr(module, "lora_A")
    }


def merge(model: Any) -> None:
    """Add the adapters to the weights for good. The model is a plain one again."""
    for name, layer in adapted(model).items():
        layer.merge()
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, layer.get_base_layer())
    model.requires_grad_(True)
    del model.peft_config


@contextmanager
def merged(model: Any) -> Iterator[None]:
    """Merge the adapters for a while. Afterwards all weights are bit for bit as before."""
    layers = adapted(model).values()
    before = [layer.get_base_layer().weight.detach().clone() for layer in layers]
    for layer in layers:
        layer.merge()
    try:
        yield
    finally:
        with torch.no_grad():
            for layer, weight in zip(layers, before, strict=True):
                layer.unmerge()
                layer.get_base_layer().weight.copy_(weight)


def _weights(model: Any) -> dict[str, Tensor]:
    """The weights of the adapters by their names in a file."""
    return {
        _PREFIX + name.replace(f".{_NAME}.", "."): weight
        for name, weight in model.named_parameters()
        if ".lora_" in name
    }


def save_adapters(model: Any, folder: Path) -> None:
    """Write the weights of the adapters, for a training that goes on."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: weight.detach().contiguous() for name, weight in _weights(model).items()
    }
    save_file(weights, folder / _WEIGHTS)


def load_adapters(model: Any, folder: Path) -> None:
    """Load a folder's weights into the adapters of a model. A ValueError if names or shapes differ."""
    from safetensors.torch import load_file

    weights = _weights(model)
    saved = load_file(folder / _WEIGHTS)
    if _shapes(saved) != _shapes(weights):
        raise ValueError(f"{_WEIGHTS} is of another model or rank")
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(saved[name])


def _shapes(weights: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {name: weight.shape for name, weight in weights.items()}
