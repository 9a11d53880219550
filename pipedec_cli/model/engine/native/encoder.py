"""The compiled encoder of a T5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from pipedec_cli.model.engine.native.packing import NativeWeights, pack
from pipedec_cli.model.engine.native.specs import describe_t5

#: Tokens that are encoded together, unless one source has more: enough for the arithmetic, with small buffers.
TOKENS_TOGETHER: Final = 2048


class NativeEncoder(nn.Module):
    """A T5's encoder in C++. The states of a source depend on this source alone."""

    def __init__(
        self,
        encoder: Any,
        decoder: NativeWeights,
        dtype: torch.dtype = torch.float32,
        *,
        consume: bool = False,
    ) -> None:
        """Pack an encoder of transformers in a dtype. The packed decoder may share its embedding."""
        super().__init__()
        beside = decoder if decoder.dtype == dtype else None
        self.weights = pack(describe_t5(encoder), decoder.library, dtype, consume=consume, beside=beside)

    def forward(self, sources: Sequence[Sequence[int]]) -> Tensor:
        """Encode sources of token ids, none of them empty: float32 [sources, longest, d_model], 0 behind a source's end."""
        longest, weights = max(map(len, sources)), self.weights
        states = torch.zeros(len(sources), longest, weights.struct.width)
        together = max(1, TOKENS_TOGETHER // longest)
        for first in range(0, len(sources), together):
            weights.library.encode(weights.struct, sources[first : first + together], states[first:])
        return states
