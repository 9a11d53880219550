"""A model without code: weights as they stand in files, in a tree of modules with transformers' names."""

from collections.abc import Mapping as Names
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import torch
from torch import Tensor, nn

from pipedec_cli.model import notes
from pipedec_cli.model.engine.native.blocks import Blocks
from pipedec_cli.model.engine.native.describing import DECODERS
from pipedec_cli.model.engine.native.library import BuildError, library
from pipedec_cli.model.families import T5, backbone_of
from pipedec_cli.model.mapped import Mapping, read_safetensors, release

Weight = nn.Parameter | Blocks
Weights = Names[str, Weight]

#: A weight of fewer numbers is converted when it is read. A larger one stays in its
#: file until it is packed.
SMALL: Final = 1 << 18
#: Numbers of a large weight that are in memory at once while they are checked.
_TOGETHER: Final = 1 << 22
#: A weight that the first T5s hold and nothing reads.
UNREAD: Final = "EncDecAttention.relative_attention_bias.weight"


class BareModel(nn.Module):
    """Weights on the CPU, and their config. It computes nothing.

    Matrices have the dtype of their files; `dtype` says how exact they count.
    """

    device = torch.device("cpu")

    def __init__(
        self,
        config: SimpleNamespace,
        weights: Weights,
        dtype: torch.dtype,
        mappings: Sequence[Mapping] = (),
    ) -> None:
        """Put the weights into modules with transformers' names.

        A ValueError if they are not those that the config counts. The `mappings` of
        their files live as long as the model, so that memory can be given back.
        """
        super().__init__()
        self.config = config
        self.dtype = dtype
        self.mappings = mappings
        self.files = tuple(mapping.path for mapping in mappings)
        is_t5 = config.model_type in T5.model_types
        # The names under which the embedding stands once more.
        copies = list[str]()
        shared = "model.embed_tokens.weight"
        if is_t5:
            shared = "shared.weight"
            copies = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"]
        has_head = is_t5 and "lm_head.weight" in weights  # whose config need not say so
        if config.tie_word_embeddings and not has_head:
            copies.append("lm_head.weight")
        if weights.keys() & {*copies}:
            raise ValueError("a weight that is another one is there as well")
        for name in sorted(weights, key=_by_number):
            self._put(name, weights[name])
        for name in copies:
            self._put(name, weights[shared])
        for stack in self.children():
            vars(stack)["config"] = config
            vars(stack)["files"] = self.files
        self._check(weights.keys())

    def get_input_embeddings(self) -> Any:
        """The embedding of a decoder-only model, as transformers has it."""
        return self.model.embed_tokens  # type: ignore[union-attr]

    def _put(self, name: str, weight: Weight) -> None:
        """Put a weight into the module that its name leads to, and make the modules on the way that are not there yet.

        Modules with numbered children are lists.
        """
        module: Any = self
        steps = name.split(".")
        for step, after in pairwise(steps):
            if step not in module._modules:
                child = nn.ModuleList() if after.isdigit() else nn.Module()
                module.add_module(step, child)
            module = module._modules[step]
        if isinstance(weight, Blocks):
            setattr(module, steps[-1], weight)
        else:
            module.register_parameter(steps[-1], weight)

    def _check(self, names: Any) -> None:
        """Raise a ValueError unless the `names` are just those of the model's weights: no step would miss a bias, say."""
        config: Any = self.config
        embedding = backbone_of(config).embedding(self).weight
        if config.model_type in T5.model_types:
            fits = self._is_t5_whole(names)
        else:
            fits = {*names} - {"lm_head.weight"} == self._decoder_names()
        if not fits or len(embedding) != config.vocab_size:
            raise ValueError("weights are missing, or more than config.json says")

    def _is_t5_whole(self, names: Any) -> bool:
        """Whether a T5 has as many layers as its config says, each with a gate if it says so."""
        config: Any = self.config
        model: Any = self
        counts = config.num_layers, config.num_decoder_layers
        gates = sum(name.endswith("wi_0.weight") for name in names)
        blocks = len(model.encoder.block), len(model.decoder.block)
        return blocks == counts and gates == config.is_gated_act * sum(counts)

    def _decoder_names(self) -> set[str]:
        """The names of all weights of a decoder-only model but the output matrix."""
        config: Any = self.config
        names = {"model.embed_tokens.weight", "model.norm.weight"}
        for number in range(config.num_hidden_layers):
            for name in DECODERS[config.model_type].weights:
                names.add(f"model.layers.{number}.{name}")
        return names


def _by_number(name: str) -> list[tuple[int, int, str]]:
    """What a weight's name is sorted by: layer 10 comes behind layer 9, as a list of modules has them."""
    steps = name.split(".")
    return [(0, int(step), "") if step.isdigit() else (1, 0, step) for step in steps]


def parameter(tensor: Tensor, dtype: torch.dtype) -> nn.Parameter:
    """A weight of a file. A small one gets the dtype at once."""
    if tensor.numel() < SMALL:
        tensor = tensor.to(dtype, copy=True)
    return nn.Parameter(tensor, requires_grad=False)


def read_bare(folder: Path, config: SimpleNamespace, dtype: torch.dtype) -> BareModel:
    """Read the weights of a folder's safetensors files, which stay mapped, into a model without code.

    A ValueError if they are not those of the config, or if some are NaN or infinite. A
    file that was found finite once is not checked again.
    """
    mappings = [Mapping(file) for file in sorted(folder.glob("model*.safetensors"))]
    weights = dict[str, Weight]()
    for mapping in mappings:
        file = mapping.path
        is_checked = notes.is_finite(file)
        for name, tensor in read_safetensors(mapping):
            if name.endswith(UNREAD):
                continue
            if not is_checked:
                require_finite(name, tensor)
            weights[name] = parameter(tensor, dtype)
        if not is_checked:
            notes.note_finite(file)
    return BareModel(config, weights, dtype, mappings)


def require_finite(name: str, weight: Tensor) -> None:
    """A ValueError if a weight holds NaN or an infinite number."""
    flat = weight.detach().reshape(-1)
    for first in range(0, len(flat), _TOGETHER):
        chunk = flat[first : first + _TOGETHER]
        if not _are_finite(chunk):
            raise ValueError(
                f"its weights hold numbers that are NaN or infinite, as in {name}"
            )
        release(chunk)


def _are_finite(numbers: Tensor) -> bool:
    """Whether none of the numbers is NaN or infinite. Without the kernels torch says so, in more time."""
    try:
        kernels = library()
    except BuildError:
        return bool(numbers.isfinite().all())
    return kernels.are_finite(numbers)
