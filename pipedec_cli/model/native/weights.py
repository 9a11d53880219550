"""A decoder's weights packed for the compiled step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from pipedec_cli.model.layers import bias_embeddings, decoder_layers, distance_buckets, output_scale
from pipedec_cli.model.native.build import BuildError
from pipedec_cli.model.native.library import DecoderStruct, LayerStruct, Library, library
from pipedec_cli.model.native.packing import Packing, floats
from pipedec_cli.model.products import has_bfloat16_products

DTYPES: Final = (torch.float32, torch.bfloat16)
ACTIVATIONS: Final = ("relu", "gelu_new")

#: From the encoder's states, [tokens, d_model], to keys and values, float32 [tokens, heads · d].
SourceKeysValues = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class NativeWeights:
    """What the compiled step needs of a model.

    Attributes:
        library: the kernels.
        struct: sizes and addresses for them.
        source_keys_values: each layer's keys and values of the source.
        dtype: of the weights and of what is cached.
        kept: the tensors and structures that `struct` points into.
    """

    library: Library
    struct: DecoderStruct
    source_keys_values: tuple[SourceKeysValues, ...]
    dtype: torch.dtype
    kept: tuple[object, ...]

    @property
    def words(self) -> int:
        """Numbers in a 32-bit word: 1 of float32, 2 of bfloat16."""
        return 1 if self.dtype == torch.float32 else 2

    @property
    def kernels(self) -> str:
        """What computes, for tables and logs."""
        return f"native ({self.library.features})"


def unsuited(model: Any) -> str | None:
    """Why the compiled step cannot run a model, in a few words; None if it can."""
    weights = [parameter for parameter in model.decoder.parameters() if parameter.dim() > 1]
    dtype, device = model.lm_head.weight.dtype, model.lm_head.weight.device
    if device.type != "cpu":
        return f"the device is {device.type}"
    if dtype not in DTYPES or any(weight.dtype != dtype for weight in weights):
        return "the weights are neither all float32 nor all bfloat16"
    if model.config.dense_act_fn not in ACTIVATIONS:
        return f"the activation is {model.config.dense_act_fn}"
    if model.config.d_kv % 2:
        return "the heads' width is odd"
    return None


def pack_native(model: Any, *, consume: bool = False) -> NativeWeights:
    """Pack the decoder of a T5ForConditionalGeneration (or mT5, UMT5).

    Matrices are copied, but for the embedding and, in float32, those of the source's keys and values.

    Args:
        model: the model, on the CPU.
        consume: empty what is copied, so that it is not in memory twice; the model is of no use afterwards.

    Raises:
        BuildError: the kernels cannot be had, or cannot run this model.
    """
    if (reason := unsuited(model)) is not None:
        raise BuildError(reason)
    kernels = library()
    if torch.get_num_threads() > 1 and "one thread" in kernels.features:
        raise BuildError("the compiler has no OpenMP")
    config, layers = model.config, decoder_layers(model)
    embedding: Tensor = model.decoder.embed_tokens.weight.detach()
    feeds = [layer.feed_forward.DenseReluDense for layer in layers]
    gated = hasattr(feeds[0], "wi_0")
    packing = Packing(kernels, embedding.dtype, consume=consume)
    for layer, feed in zip(layers, feeds, strict=True):
        own, cross = layer.self_attention, layer.cross_attention
        packing.add([own.q.weight, own.k.weight, own.v.weight])
        packing.add([own.o.weight])
        packing.add([cross.q.weight])
        packing.add([cross.o.weight])
        packing.add(*([[feed.wi_0.weight], [feed.wi_1.weight]] if gated else [[feed.wi.weight]]))
        packing.add([feed.wo.weight])
    head = model.lm_head.weight
    vocabulary = len(head)
    packing.add([head], keep=head.data_ptr() == embedding.data_ptr())
    arena, addresses = packing.pack()
    tables = _bias_tables(model)
    norms = [
        [floats(norm.weight) for norm in (layer.self_norm, layer.cross_norm, layer.feed_forward.layer_norm)]
        for layer in layers
    ]
    final_norm = floats(model.decoder.final_layer_norm.weight)
    structs = (LayerStruct * len(layers))(
        *(
            LayerStruct(*(t.data_ptr() for t in (*three, table)), *(next(addresses) for _ in range(6)))
            for three, table in zip(norms, tables, strict=True)
        )
    )
    struct = DecoderStruct(
        layers=len(layers),
        heads=config.num_heads,
        head_width=config.d_kv,
        width=config.d_model,
        feed_width=config.d_ff,
        vocabulary=vocabulary,
        hidden=tables[0].shape[1] - 1,
        bfloat16=embedding.dtype == torch.bfloat16,
        gated=gated,
        gelu=config.dense_act_fn == "gelu_new",
        epsilon=config.layer_norm_epsilon,
        scale=output_scale(config),
        embedding=embedding.data_ptr(),
        final_norm=final_norm.data_ptr(),
        head=next(addresses),
        layer=structs,
    )
    return NativeWeights(
        library=kernels,
        struct=struct,
        source_keys_values=tuple(_source_keys_values(layer.cross_attention) for layer in layers),
        dtype=embedding.dtype,
        kept=(arena, tables, norms, final_norm, structs, embedding),
    )


def _bias_tables(model: Any) -> list[Tensor]:
    """Position bias by distance for each layer, float32 [heads, max_distance + 2]; the last column, −∞, hides."""
    buckets = distance_buckets(model.config)
    made: dict[int, Tensor] = {}
    for embedding in bias_embeddings(model):
        if id(embedding) not in made:
            made[id(embedding)] = F.pad(floats(embedding.weight)[buckets].T, (0, 1), value=-torch.inf)
    return [made[id(embedding)].contiguous() for embedding in bias_embeddings(model)]


def _source_keys_values(attention: Any) -> SourceKeysValues:
    keys, values = (_for_products(module.weight.detach()) for module in (attention.k, attention.v))

    def both(memory: Tensor) -> tuple[Tensor, Tensor]:
        states = memory.to(keys.dtype)
        return F.linear(states, keys).float(), F.linear(states, values).float()

    return both


def _for_products(weight: Tensor) -> Tensor:
    """A weight in the dtype in which this CPU multiplies large matrices fastest."""
    return weight.float() if weight.dtype == torch.bfloat16 and not has_bfloat16_products() else weight
