"""The compiled encoder, in the place of transformers' own."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from pipedec_cli.model.native.library import Library
from pipedec_cli.model.native.weights import pack_encoder

#: Tokens that are encoded together, unless a single source has more: enough to use the arithmetic fully, few enough
#: for the buffers to stay small.
TOKENS_TOGETHER: Final = 2048


class NativeEncoder(nn.Module):
    """A T5's encoder in float32, in one call of C++ for several sources. A state depends on its own source alone."""

    def __init__(self, encoder: Any, kernels: Library, *, consume: bool = False) -> None:
        super().__init__()
        self.weights = pack_encoder(encoder, kernels, consume=consume)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> BaseModelOutput:
        """Encode as transformers does: ids and mask int64 [sources, longest], each source's padding behind it.

        ``last_hidden_state`` is float32 [sources, longest, d_model], 0 beyond a source's end.
        """
        longest = input_ids.shape[1]
        lengths = attention_mask.sum(dim=1).tolist()
        sources = [ids[:length] for ids, length in zip(input_ids.tolist(), lengths, strict=True)]
        states = torch.zeros(len(sources), longest, self.weights.struct.width)
        together = max(1, TOKENS_TOGETHER // longest)
        for first in range(0, len(sources), together):
            self.weights.library.encode(
                self.weights.struct, sources[first : first + together], states[first:]
            )
        return BaseModelOutput(last_hidden_state=states)
