"""LoRA: low-rank adapters beside the linear layers of the decoder. Only they are trained.

peft adds them to the model. A folder with an adapter names a base model on this machine and holds no other weights.
Loading it merges the adapter into the base model, and does not need peft.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import torch
from msgspec import Meta, Struct, to_builtins
from torch import Tensor, nn

from pipedec_cli.data.checking import checked
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import as_json, contents
from pipedec_cli.data.trained import ADAPTER
from pipedec_cli.data.writing import write_json

_WEIGHTS: Final = "adapter_model.safetensors"
_PREFIX: Final = "base_model.model."  # of the names of weights in peft's files
_NAME: Final = "default"  # of the adapter within the model

#: Settings of peft that make an adapter more than two matrices added to each layer.
_UNSUPPORTED: Final = (
    *("use_dora", "use_rslora", "use_qalora", "use_bdlora", "fan_in_fan_out", "lora_bias", "modules_to_save"),
    *("rank_pattern", "alpha_pattern", "layer_replication", "target_parameters", "trainable_token_indices"),
    *("alora_invocation_tokens", "arrow_config", "kasa_config", "monteclora_config", "velora_config"),
)


class Adapter(Struct, frozen=True):
    """The fields of adapter_config.json that are read: those of plain LoRA."""

    base_model_name_or_path: str
    r: Annotated[int, Meta(ge=1, le=1 << 14)]
    lora_alpha: Annotated[float, Meta(ge=0, le=1e6)]
    target_modules: list[str] | str | None = None
    peft_type: Literal["LORA"] = "LORA"
    task_type: str | None = None  # peft chooses the class of the base model by it
    bias: Literal["none"] = "none"
    #: Other ways, such as "pissa", change the base model first, and that change is not saved with the adapter.
    init_lora_weights: bool | Literal["gaussian", "eva", "orthogonal"] = True


def add_adapters(model: Any, rank: int, seed: int) -> None:
    """Add adapters of this rank, scaled by 2, to all linear layers of the decoder, and freeze all other weights.

    The adapters are in float32, in whatever dtype the weights are. A `UserError` if peft is not installed.
    """
    try:
        import peft
    except ImportError:
        raise UserError("LoRA needs peft, which is not installed", todo="pip install '.[lora]'") from None
    torch.manual_seed(seed)
    decoder = {*model.get_decoder().modules()}
    linear = [
        name for name, module in model.named_modules() if isinstance(module, nn.Linear) and module in decoder
    ]
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=linear)
    peft.inject_adapter_in_model(config, model, adapter_name=_NAME)
    for weight in _weights(model).values():
        weight.data = weight.data.float()


def has_adapters(model: Any) -> bool:
    """Whether the model has adapters that are not merged."""
    return bool(_adapted(model))


def _adapted(model: Any) -> dict[str, Any]:
    """The layers with an adapter, by name."""
    return {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}


def merge(model: Any) -> None:
    """Add the adapters to the weights for good. The model is a plain one again."""
    for name, layer in _adapted(model).items():
        layer.merge()
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, layer.get_base_layer())
    model.requires_grad_(True)
    del model.peft_config


@contextmanager
def merged(model: Any) -> Iterator[None]:
    """Merge the adapters for a while. Afterwards all weights are bit for bit as before."""
    layers = _adapted(model).values()
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
    named = model.named_parameters()
    return {_PREFIX + name.replace(f".{_NAME}.", "."): weight for name, weight in named if ".lora_" in name}


def save_adapter(model: Any, base: str, folder: Path) -> None:
    """Write the adapters as peft does, with the name of the base model; of a local base, its absolute path."""
    from safetensors.torch import save_file

    config = model.peft_config[_NAME]
    base = str(Path(base).resolve()) if Path(base).is_dir() else base
    task = "SEQ_2_SEQ_LM" if model.config.is_encoder_decoder else "CAUSAL_LM"
    adapter = Adapter(base, config.r, config.lora_alpha, sorted(config.target_modules), task_type=task)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: weight.detach().contiguous() for name, weight in _weights(model).items()}
    save_file(weights, folder / _WEIGHTS)
    write_json(folder / ADAPTER, to_builtins(adapter))


def load_adapter(model: Any, folder: Path) -> None:
    """Load a folder's weights into the adapters of a model. A ValueError if names or shapes differ."""
    from safetensors.torch import load_file

    found, wanted = load_file(folder / _WEIGHTS), _weights(model)
    shapes = [{name: weight.shape for name, weight in weights.items()} for weights in (found, wanted)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{_WEIGHTS} is of another model or rank")
    with torch.no_grad():
        for name, weight in wanted.items():
            weight.copy_(found[name])


def base_of(folder: Path) -> Path | None:
    """The folder of the base model, None if `folder` holds no adapter. A `UserError` if the base cannot be used."""
    path = folder / ADAPTER
    if not path.is_file():
        return None
    base = Path(_read(folder).base_model_name_or_path)
    shown = repr(str(base)[:200])
    if not (base / "config.json").is_file():
        todo = "put it there, or write its folder into the file"
        raise UserError(f"the adapter's base model is not at {shown}", where=str(path), todo=todo)
    if (base / ADAPTER).exists():
        what = f"the adapter's base model {shown} is itself an adapter"
        raise UserError(what, where=str(path), todo="merge that one first")
    return base


def _read(folder: Path) -> Adapter:
    path = folder / ADAPTER
    content = as_json(contents(path), str(path))
    adapter = checked(content, Adapter, str(path))
    if more := next(filter(content.get, _UNSUPPORTED), None):
        raise UserError(f"with {more!r} it is no plain LoRA", where=str(path), todo="merge it with peft")
    return adapter


def apply_adapter(model: Any, folder: Path) -> None:
    """Add a folder's adapter, scale · B A for each layer, to the weights of its base. A ValueError if it does not fit."""
    from safetensors.torch import load_file

    adapter, found = _read(folder), load_file(folder / _WEIGHTS)
    names = {name.removeprefix(_PREFIX).rpartition(".lora_")[0] for name in found}
    layers = dict(model.named_modules())
    if not found or len(found) != 2 * len(names):
        raise ValueError(f"{_WEIGHTS} holds other things than two matrices a layer")
    with torch.no_grad():
        for name in sorted(names):
            down, up = (found.get(f"{_PREFIX}{name}.lora_{matrix}.weight") for matrix in "AB")
            layer, shown = layers.get(name), repr(name[:80])
            if down is None or up is None or not isinstance(layer, nn.Linear):
                raise ValueError(f"{_WEIGHTS} has no two matrices for a layer {shown} of the base model")
            outputs, inputs = layer.weight.shape
            if up.shape != (outputs, adapter.r) or down.shape != (adapter.r, inputs):
                raise ValueError(f"{_WEIGHTS} is not of the sizes of {shown}")
            scale = adapter.lora_alpha / adapter.r
            layer.weight.copy_(layer.weight.float() + scale * (up.float() @ down.float()))
