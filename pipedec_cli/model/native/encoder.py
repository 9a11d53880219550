"""The compiled encoder, in the place of transformers' own."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from pipedec_cli.model.layers import encoder_layers, offset_buckets
from pipedec_cli.model.native.library import EncoderLayerStruct, EncoderStruct, Library
from pipedec_cli.model.native.packing import Packing, floats

#: Tokens that are encoded together, unless a single source has more: enough to use the arithmetic fully, few enough
#: for the buffers to stay small.
TOKENS_TOGETHER: Final = 2048


class NativeEncoder(nn.Module):
    """A T5's encoder in float32, in one call of C++ for several sources. A state depends on its own source alone."""

    def __init__(self, encoder: Any, kernels: Library, *, consume: bool = False) -> None:
        """Pack the weights; all but a float32 embedding are copied.

        Args:
            encoder: transformers' encoder of a T5 (or mT5, UMT5), in any dtype.
            kernels: the compiled kernels.
            consume: empty what is copied, so that it is not in memory twice; the encoder is of no use afterwards.
        """
        super().__init__()
        config, layers = encoder.config, encoder_layers(encoder)
        feeds = [layer.feed_forward.DenseReluDense for layer in layers]
        gated = hasattr(feeds[0], "wi_0")
        packing = Packing(kernels, torch.float32, consume=consume)
        for layer, feed in zip(layers, feeds, strict=True):
            own = layer.self_attention
            packing.add([own.q.weight, own.k.weight, own.v.weight])
            packing.add([own.o.weight])
            packing.add(*([[feed.wi_0.weight], [feed.wi_1.weight]] if gated else [[feed.wi.weight]]))
            packing.add([feed.wo.weight])
        arena, addresses = packing.pack()
        buckets = offset_buckets(config)
        made: dict[int, Tensor] = {}
        for layer in layers:
            if id(layer.bias) not in made:
                made[id(layer.bias)] = floats(layer.bias.weight)[buckets].T.contiguous()
        norms = [
            (floats(layer.self_norm.weight), floats(layer.feed_forward.layer_norm.weight)) for layer in layers
        ]
        structs = (EncoderLayerStruct * len(layers))(
            *(
                EncoderLayerStruct(
                    *(tensor.data_ptr() for tensor in (*pair, made[id(layer.bias)])),
                    *(next(addresses) for _ in range(4)),
                )
                for layer, pair in zip(layers, norms, strict=True)
            )
        )
        embedding, final_norm = floats(encoder.embed_tokens.weight), floats(encoder.final_layer_norm.weight)
        self.kernels = kernels
        self.width: int = config.d_model
        self.struct = EncoderStruct(
            layers=len(layers),
            heads=config.num_heads,
            head_width=config.d_kv,
            width=config.d_model,
            feed_width=config.d_ff,
            reach=config.relative_attention_max_distance,
            gated=gated,
            gelu=config.dense_act_fn == "gelu_new",
            epsilon=config.layer_norm_epsilon,
            embedding=embedding.data_ptr(),
            final_norm=final_norm.data_ptr(),
            layer=structs,
        )
        # The tensors and structures that `struct` points into.
        self.kept = (arena, list(made.values()), norms, structs, embedding, final_norm)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> BaseModelOutput:
        """Encode as transformers does.

        Args:
            input_ids: int64 [sources, longest].
            attention_mask: 1 for what belongs to a source, and then 0; int64 [sources, longest].

        Returns:
            ``last_hidden_state`` float32 [sources, longest, d_model], 0 beyond a source's end.
        """
        longest = input_ids.shape[1]
        sources = [
            ids[:length]
            for ids, length in zip(input_ids.tolist(), attention_mask.sum(dim=1).tolist(), strict=True)
        ]
        states = torch.zeros(len(sources), longest, self.width)
        together = max(1, TOKENS_TOGETHER // longest)
        for first in range(0, len(sources), together):
            self.kernels.encode(
                self.struct,
                sources[first : first + together],
                torch.get_num_threads(),
                states[first:].data_ptr(),
                longest,
            )
        return BaseModelOutput(last_hidden_state=states)
