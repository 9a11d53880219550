"""Where the weights of a model stand in GGUF files, what they are called there, and their numbers."""

import json
from collections.abc import Mapping as Table
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from pipedec_cli.model import notes
from pipedec_cli.model.bare import parameter, require_finite
from pipedec_cli.model.engine.native.blocks import Blocks
from pipedec_cli.model.engine.native.library import library
from pipedec_cli.model.mapped import Mapping

#: A bare folder's file that says where the weights are.
WEIGHTS: Final = "weights.json"
#: ggml's types that are numbers, and no blocks of them.
_FLOATS: Final = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16}


class StoredTensor(NamedTuple):
    """A tensor of a file: its shape, ggml's type and its first byte."""

    file: Path
    shape: tuple[int, ...]
    type: int
    start: int

    def values(self) -> Any:
        """The numbers of the tensor: float32 of its shape."""
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

        elements, size = GGML_QUANT_SIZES[self.type]
        stored = (prod(self.shape[:-1]), self.shape[-1] // elements * size)
        rows = np.memmap(self.file, np.uint8, "r", self.start, stored)
        values = dequantize(rows, GGMLQuantizationType(self.type))
        return values.reshape(self.shape)


class Place(NamedTuple):
    """Where a weight is: the number of its file, its shape, ggml's type and its first byte; and how it differs."""

    file: int
    shape: tuple[int, ...]
    type: int
    start: int
    heads: int = 0  # llama.cpp has another order of the rows of so many heads
    is_larger: bool = False  # by 1, as the norms of Gemma are

    @property
    def order(self) -> Any:
        """Which row of the file each row of the weight is, int64; None if their order is the same."""
        if not self.heads:
            return None
        rows = torch.arange(self.shape[0]).view(self.heads, -1, 2)
        return rows.swapaxes(1, 2).reshape(-1)

    def floats(self, files: Sequence[Path]) -> Any:
        """The numbers of the weight as transformers has them: float32 of its shape in the file, one of `files`."""
        stored = StoredTensor(files[self.file], self.shape, self.type, self.start)
        values = stored.values()
        if self.order is not None:
            values = values[self.order.numpy()]
        return values - 1 if self.is_larger else values


def write_places(
    folder: Path,
    places: Table[str, Place],
    own: dict[str, str],
) -> None:
    """Say in a bare folder where each weight is, by its `own` name in transformers."""
    written = {own[name]: list(place) for name, place in places.items()}
    content = json.dumps(written)
    (folder / WEIGHTS).write_text(content, encoding="utf-8")


def read_weights(
    folder: Path,
    mappings: Sequence[Mapping],
    dtype: torch.dtype,
) -> dict[str, Any]:
    """The weights of a model in mapped GGUF files, by transformers' names.

    The folder says where they are. Matrices in blocks stay as they are, all others
    become parameters; those of one dimension have the dtype. A ValueError for blocks of
    a type that the kernels do not have, or if parameters are NaN or infinite.
    """
    content = (folder / WEIGHTS).read_text(encoding="utf-8")
    kernels = library()
    files = [mapping.path for mapping in mappings]
    unchecked = {file for file in files if not notes.is_finite(file)}
    weights = dict[str, Any]()
    for name, (number, shape, *rest) in json.loads(content).items():
        place = Place(number, tuple(shape), *rest)
        mapping = mappings[number]
        if place.type in _FLOATS:
            values = mapping.tensor(_FLOATS[place.type], place.shape, place.start)
            if mapping.path in unchecked:
                require_finite(name, values)
            weights[name] = _as_parameter(values, place, dtype)
        elif len(shape) == 2 and kernels.kind_of_blocks(place.type) >= 0:
            weights[name] = _as_blocks(mapping, place)
        else:
            raise ValueError(f"{name} is of type {place.type}")
    for file in unchecked:
        notes.note_finite(file)
    return weights


def _as_parameter(
    values: torch.Tensor,
    place: Place,
    dtype: torch.dtype,
) -> torch.nn.Parameter:
    """A weight as transformers has it, of the numbers in a file: in transformers' order of rows.

    `place` says how they differ. A weight of several dimensions keeps its own dtype.
    """
    if place.order is not None:
        values = values[place.order]
    if place.is_larger:
        values = values - 1
    if values.ndim > 1:
        dtype = values.dtype
    return parameter(values, dtype)


def _as_blocks(mapping: Mapping, place: Place) -> Blocks:
    """A matrix in ggml's blocks, as it is in the file."""
    from gguf import GGML_QUANT_SIZES

    outputs, inputs = place.shape
    elements, size = GGML_QUANT_SIZES[place.type]
    rows = outputs, inputs // elements * size
    data = mapping.tensor(torch.uint8, rows, place.start)
    return Blocks(data, place.type, inputs, place.order)


def named_weights(model: Any, family: str) -> dict[str, torch.Tensor]:
    """The weights of a model of transformers, by their names in GGUF, or by their own where GGUF has none.

    Where GGUF has two weights for one they are views of its halves. The output matrix
    is left out where it is the embedding.
    """
    names = _names_of(model, family)
    weights = dict[str, torch.Tensor]()
    for name, weight in untied(model).items():
        experts, is_both, _ = name.partition("gate_up_proj")
        if is_both and weight.ndim == 3:
            gate, up = weight.chunk(2, dim=1)
            weights[f"{experts}gate_proj.weight"] = gate
            weights[f"{experts}up_proj.weight"] = up
        elif weight.ndim == 3:
            weights[f"{name}.weight"] = weight.squeeze()
        else:
            weights[name] = weight.squeeze()
    return {_in_gguf(names, name): weight for name, weight in weights.items()}


def own_names(model: Any, family: str) -> dict[str, str]:
    """What transformers calls a model's weights, by their names in GGUF; the halves of experts' weights are left out."""
    names = _names_of(model, family)
    return {_in_gguf(names, name): name for name in untied(model)}


def _names_of(model: Any, family: str) -> Any:
    """The table of names of a family that the package gguf has."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    families = {name: architecture for architecture, name in MODEL_ARCH_NAMES.items()}
    return get_tensor_name_map(families[family], model.config.num_hidden_layers)


def _in_gguf(names: Any, name: str) -> str:
    """A weight's name in GGUF; its own if it has none there."""
    return names.get_name(name, (".weight", ".bias")) or name


def untied(model: Any) -> dict[str, torch.Tensor]:
    """The weights of a model by name, without the output matrix where it is the embedding."""
    weights: dict[str, torch.Tensor] = model.state_dict()
    if model.config.tie_word_embeddings:
        del weights["lm_head.weight"]
    return weights
