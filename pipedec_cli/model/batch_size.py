"""How many examples to decode at once, where the user leaves that open."""

from __future__ import annotations

from typing import Any, Final

import torch

from pipedec_cli.model.checkpoint import Checkpoint

#: Beyond this many examples a step is bound by arithmetic, and more of them gain little.
MOST_ON_CPU: Final = 8
MOST_ON_GPU: Final = 64
#: The share of the free memory that examples in flight may take.
SHARE: Final = 0.25
#: Tokens of a grid that room is reckoned for.
GRID_TOKENS: Final = 512


def choose_batch_size(checkpoint: Checkpoint, source_tokens: int, examples: int) -> int:
    """As many examples as make a step worth its while and fit a share of the free memory.

    Args:
        checkpoint: the model, on the device to decode with.
        source_tokens: of the longest source.
        examples: how many there are.
    """
    device = checkpoint.device
    most = MOST_ON_CPU if device.type == "cpu" else MOST_ON_GPU
    fitting = int(SHARE * _free_memory(device) / bytes_per_example(checkpoint.model, source_tokens))
    return max(1, min(most, fitting, examples))


def bytes_per_example(model: Any, source_tokens: int) -> int:
    """Memory that one example in flight takes at most: in the encoder, and in the decoder's cache.

    Args:
        model: a T5ForConditionalGeneration.
        source_tokens: of its source.
    """
    config = model.config
    width = torch.finfo(model.dtype).bits // 8
    # scores of every head over all pairs of source tokens, before and after the softmax, which is in float32
    attention = 3 * config.num_heads * source_tokens**2 * 4
    hidden = source_tokens * (4 * config.d_model + 2 * config.d_ff) * 4
    column = 2 * config.num_decoder_layers * config.num_heads * config.d_kv * width
    return int(attention + hidden + column * (source_tokens + GRID_TOKENS))


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    import psutil

    return int(psutil.virtual_memory().available)
