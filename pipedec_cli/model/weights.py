"""A decoder's weights laid out for stepping: q, k and v in one matrix, matrices packed for the machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pipedec_cli.model.encoder import make_encoder
from pipedec_cli.model.layers import bias_embeddings, decoder_layers, distance_buckets, output_scale
from pipedec_cli.model.linear import Linear, can_prepack, make_linear
from pipedec_cli.model.native.build import BuildError
from pipedec_cli.model.native.weights import NativeWeights, pack_native


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer's matrices as functions from rows to rows, [rows, in] → [rows, out].

    Attributes:
        self_norm: norm before self-attention.
        qkv: query, key and value of self-attention side by side.
        self_out: its output.
        cross_norm: norm before attention over the source.
        cross_q: its query.
        cross_kv: key and value of the source, side by side.
        cross_out: its output.
        feed_norm: norm before the feed-forward part.
        feed: the feed-forward part without its residual.
        bias: position bias by distance, [heads, max_distance + 2]; the last column is for what is not visible.
    """

    self_norm: Linear
    qkv: Linear
    self_out: Linear
    cross_norm: Linear
    cross_q: Linear
    cross_kv: Linear
    cross_out: Linear
    feed_norm: Linear
    feed: Linear
    bias: Tensor


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All that a decoder step needs of a model.

    Attributes:
        embedding: token embeddings, [vocabulary, d_model].
        layers: first to last; none where `native` holds them.
        final_norm: the norm after the last layer, with the output scale of the family in it.
        head: from hidden states to logits.
        heads: attention heads.
        dtype: of the matrices and of what is cached.
        device: where they are.
        native: the weights packed for the compiled step, if that is to be used.
        kernels: what computes the steps, for tables and logs: which kernels, and why no faster ones.
        encoder: what encodes the sources; see `make_encoder`.
    """

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: Linear
    head: Linear
    heads: int
    dtype: torch.dtype
    device: torch.device
    native: NativeWeights | None
    kernels: str
    encoder: Any

    @property
    def invisible(self) -> int:
        """The column of a layer's bias for pairs that do not see each other."""
        return self.layers[0].bias.shape[1] - 1


def lay_out(
    model: Any, *, prepack: bool | None = None, native: bool | None = None, consume: bool = False
) -> DecoderWeights:
    """Take the decoder of a T5ForConditionalGeneration (or mT5, UMT5) apart.

    Args:
        model: the model, in the dtype and on the device to decode with.
        prepack: whether to pack the matrices for oneDNN; by default wherever that is possible.
        native: whether to pack them for the compiled step; by default wherever that is possible, unless `prepack`
            is given: it is about the other step.
        consume: let the compiled kernels empty the matrices that they have copied, so that they are not in memory
            twice. The model itself is of no use afterwards, but for its config.

    Raises:
        BuildError: the compiled step was asked for by name and cannot be had.
    """
    packed_native, reason = None, ""
    if native or (native is None and prepack is None):
        try:
            packed_native = pack_native(model, consume=consume)
        except BuildError as error:
            if native:
                raise
            reason = f"; not compiled: {error}" if model.device.type == "cpu" else ""
    embedding: Tensor = model.decoder.embed_tokens.weight.detach()
    dtype, device = embedding.dtype, embedding.device
    packed = device.type == "cpu" and can_prepack(dtype) if prepack is None else prepack
    packed = packed and packed_native is None
    operators = ("oneDNN prepacked" if packed else "plain operators") + reason

    def linear(*modules: Any) -> Linear:
        weight = (
            torch.cat([module.weight.detach() for module in modules])
            if len(modules) > 1
            else modules[0].weight
        )
        return make_linear(weight.detach(), prepack=packed and weight.dtype == dtype)

    config = model.config
    tables = _bias_tables(model)
    layers = tuple(
        LayerWeights(
            self_norm=_norm(layer.self_norm, config, dtype),
            qkv=linear(layer.self_attention.q, layer.self_attention.k, layer.self_attention.v),
            self_out=linear(layer.self_attention.o),
            cross_norm=_norm(layer.cross_norm, config, dtype),
            cross_q=linear(layer.cross_attention.q),
            cross_kv=linear(layer.cross_attention.k, layer.cross_attention.v),
            cross_out=linear(layer.cross_attention.o),
            feed_norm=_norm(layer.feed_forward.layer_norm, config, dtype),
            feed=_feed_forward(layer.feed_forward.DenseReluDense, linear),
            bias=table,
        )
        for layer, table in zip(decoder_layers(model), tables, strict=True)
        if packed_native is None
    )
    return DecoderWeights(
        embedding=embedding,
        layers=layers,
        final_norm=_norm(model.decoder.final_layer_norm, config, dtype, scale=output_scale(config)),
        head=linear(model.lm_head),
        heads=config.num_heads,
        dtype=dtype,
        device=device,
        native=packed_native,
        kernels=packed_native.kernels if packed_native else operators,
        encoder=make_encoder(model, packed_native.library if packed_native else None, consume=consume),
    )


def _norm(module: Any, config: Any, dtype: torch.dtype, scale: float = 1.0) -> Linear:
    """T5's norm, from the float32 residual stream to the matrices' dtype."""
    weight = module.weight.detach().float()
    width, epsilon = (weight.numel(),), float(config.layer_norm_epsilon)

    def norm(x: Tensor) -> Tensor:
        normed = F.rms_norm(x, width, weight, epsilon)
        return (normed * scale if scale != 1.0 else normed).to(dtype)

    return norm


def _feed_forward(dense: Any, linear: Callable[..., Linear]) -> Linear:
    """wo(act(wi x)), or wo(act(wi_0 x) · wi_1 x) where it is gated; ``wo`` may be kept in a wider dtype."""
    act, outward, wide = dense.act, linear(dense.wo), dense.wo.weight.dtype
    if hasattr(dense, "wi"):
        inward = linear(dense.wi)
        return lambda x: outward(act(inward(x)).to(wide))
    both = linear(dense.wi_0, dense.wi_1)

    def gated(x: Tensor) -> Tensor:
        gate, value = both(x).chunk(2, dim=-1)
        return outward((act(gate) * value).to(wide))

    return gated


def _bias_tables(model: Any) -> list[Tensor]:
    """Position bias by distance for each layer, and a last column that hides; layers that share one share the tensor."""
    buckets = distance_buckets(model.config).to(model.decoder.embed_tokens.weight.device)
    made: dict[int, Tensor] = {}
    for embedding in bias_embeddings(model):
        if id(embedding) not in made:
            values = embedding.weight.detach()[buckets].T
            hidden = torch.full_like(values[:, :1], torch.finfo(values.dtype).min)
            made[id(embedding)] = torch.cat([values, hidden], dim=1).contiguous()
    return [made[id(embedding)] for embedding in bias_embeddings(model)]
