"""What encodes the sources: the compiled encoder where it is the fastest, else transformers' own."""

from __future__ import annotations

import copy
from typing import Any

import torch

from pipedec_cli.model.native.encoder import NativeEncoder
from pipedec_cli.model.native.library import Library
from pipedec_cli.model.products import has_bfloat16_products, has_slow_products


def make_encoder(model: Any, kernels: Library | None = None, *, consume: bool = False) -> Any:
    """The model's encoder, in the form and dtype that are fastest for it.

    An encoder is bound by arithmetic. On an x86 the compiled one comes closer to its limit than torch's operators. For
    bfloat16 there are matrix instructions on Arm and on an x86 with AMX, which torch uses; on any other x86 products in
    bfloat16 take half as long again as in float32, so the encoder is one in float32 there, with the very same weights.

    Args:
        model: a T5ForConditionalGeneration (or mT5, UMT5).
        kernels: the compiled kernels, where the decoder's step uses them too.
        consume: let the compiled encoder empty the model's own weights.

    Returns:
        A module that takes ``input_ids`` and ``attention_mask`` and gives ``last_hidden_state``, as transformers' does.
    """
    if model.device.type != "cpu" or (model.dtype == torch.bfloat16 and has_bfloat16_products()):
        return model.encoder
    if kernels is not None and has_slow_products():
        return NativeEncoder(model.encoder, kernels, consume=consume)
    return copy.deepcopy(model.encoder).float() if model.dtype == torch.bfloat16 else model.encoder
