"""LoRA: low-rank adapters beside the decoder's linear layers, which are trained while all else stands still.

peft puts them in. A folder with an adapter refers to a base model on this machine and holds no weights of its own; what is
loaded from it is the plain model with the adapter merged into it, for which peft is not needed.
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
_BEFORE: Final = "base_model.model."  # of the names in a file, as peft has them
_NAME: Final = "default"  # of the one adapter within a model


#: Settings of peft with which an adapter is more or other than two matrices that are added to a layer.
_MORE: Final = (
    *("use_dora", "use_rslora", "use_qalora", "use_bdlora", "fan_in_fan_out", "lora_bias", "modules_to_save"),
    *("rank_pattern", "alpha_pattern", "layer_replication", "target_parameters", "trainable_token_indices"),
    *("alora_invocation_tokens", "arrow_config", "kasa_config", "monteclora_config", "velora_config"),
)


class Adapter(Struct):
    """What is read of an adapter_config.json: plain LoRA and nothing else."""

    base_model_name_or_path: str
    r: Annotated[int, Meta(ge=1, le=1 << 14)]
    lora_alpha: Annotated[float, Meta(ge=0, le=1e6)]
    target_modules: list[str] | str | None = None
    peft_type: Literal["LORA"] = "LORA"
    task_type: str | None = None  # by which peft knows what to load the base model as
    bias: Literal["none"] = "none"
    #: Others, as "pissa", begin by changing the base model, which is not kept with the adapter.
    init_lora_weights: bool | Literal["gaussian", "eva", "orthogonal"] = True


def add_adapters(model: Any, rank: int, seed: int) -> None:
    """Put adapters of this rank, scaled by 2, beside all linear layers of the decoder; nothing else is trained from now on.

    A UserError where peft is missing.
    """
    try:
        import peft
    except ImportError:
        raise UserError("LoRA needs peft, which is not installed", todo="pip install '.[lora]'") from None
    torch.manual_seed(seed)
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=_linear_layers(model))
    peft.inject_adapter_in_model(config, model, adapter_name=_NAME)


def _linear_layers(model: Any) -> list[str]:
    within = {*model.get_decoder().modules()}
    found = model.named_modules()
    return [name for name, module in found if isinstance(module, nn.Linear) and module in within]


def has_adapters(model: Any) -> bool:
    """Whether `add_adapters` has been there, and `merge` not yet."""
    return bool(_adapted(model))


def _adapted(model: Any) -> dict[str, Any]:
    """The layers with an adapter, by their names."""
    return {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}


def merge(model: Any) -> None:
    """Make the plain model of it again, with what the adapters have learnt in its weights."""
    for name, layer in _adapted(model).items():
        layer.merge()
        around, _, own = name.rpartition(".")
        setattr(model.get_submodule(around), own, layer.get_base_layer())
    model.requires_grad_(True)
    del model.peft_config


@contextmanager
def merged(model: Any) -> Iterator[None]:
    """The weights with what the adapters have learnt, for a while; to the bit what they were afterwards."""
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
    named = model.named_parameters()
    return {_BEFORE + name.replace(f".{_NAME}.", "."): weight for name, weight in named if ".lora_" in name}


def save_adapter(model: Any, base: str, folder: Path) -> None:
    """Write the adapter alone, as peft does, with the name of what it is for; a base that is a folder by its whole path."""
    from safetensors.torch import save_file

    config = model.peft_config[_NAME]
    base = str(Path(base).resolve()) if Path(base).is_dir() else base
    kind = "SEQ_2_SEQ_LM" if model.config.is_encoder_decoder else "CAUSAL_LM"
    told = Adapter(base, config.r, config.lora_alpha, sorted(config.target_modules), task_type=kind)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: weight.detach().contiguous() for name, weight in _weights(model).items()}, folder / _WEIGHTS
    )
    write_json(folder / ADAPTER, to_builtins(told))


def load_adapter(model: Any, folder: Path) -> None:
    """Give a model's adapters the weights of a folder; a ValueError unless they are of these names and sizes."""
    from safetensors.torch import load_file

    found, wanted = load_file(folder / _WEIGHTS), _weights(model)
    if {name: one.shape for name, one in found.items()} != {name: one.shape for name, one in wanted.items()}:
        raise ValueError(f"{_WEIGHTS} is of another model or rank")
    with torch.no_grad():
        for name, weight in wanted.items():
            weight.copy_(found[name])


def base_of(folder: Path) -> Path | None:
    """The folder of the model that an adapter is for; None where a folder holds none. A UserError if it cannot be taken."""
    if not (folder / ADAPTER).is_file():
        return None
    base = Path(_read(folder).base_model_name_or_path)
    if not (base / "config.json").is_file():
        todo = "put it there, or write its folder into the file"
        raise UserError(
            f"the adapter's base model is not at {str(base)[:200]!r}", where=str(folder / ADAPTER), todo=todo
        )
    if (base / ADAPTER).exists():
        what = f"the adapter's base model {str(base)[:200]!r} is itself an adapter"
        raise UserError(what, where=str(folder / ADAPTER), todo="merge that one first")
    return base


def _read(folder: Path) -> Adapter:
    path = folder / ADAPTER
    content = as_json(contents(path), str(path))
    found: Adapter = checked(content, Adapter, str(path))
    if more := next(filter(content.get, _MORE), None):
        raise UserError(f"with {more!r} it is no plain LoRA", where=str(path), todo="merge it with peft")
    return found


def apply_adapter(model: Any, folder: Path) -> None:
    """Add a folder's adapter to the weights of its base; a ValueError where it does not fit them."""
    from safetensors.torch import load_file

    told, found = _read(folder), load_file(folder / _WEIGHTS)
    names = {name.removeprefix(_BEFORE).rpartition(".lora_")[0] for name in found}
    layers = dict(model.named_modules())
    if not found or len(found) != 2 * len(names):
        raise ValueError(f"{_WEIGHTS} holds other things than two matrices a layer")
    with torch.no_grad():
        for name in sorted(names):
            down, up = (found.get(f"{_BEFORE}{name}.lora_{one}.weight") for one in "AB")
            layer = layers.get(name)
            if down is None or up is None or not isinstance(layer, nn.Linear):
                raise ValueError(
                    f"{_WEIGHTS} has no two matrices for a layer {name[:80]!r} of the base model"
                )
            if (up.shape[0], down.shape[1]) != layer.weight.shape or {up.shape[1], down.shape[0]} != {told.r}:
                raise ValueError(f"{_WEIGHTS} is not of the sizes of {name[:80]!r}")
            wider = layer.weight.float() + told.lora_alpha / told.r * (up.float() @ down.float())
            layer.weight.copy_(wider)
