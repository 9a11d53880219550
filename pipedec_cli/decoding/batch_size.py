"""How many examples a batch has where nobody says it."""

from typing import Any

import psutil
import torch

from pipedec_cli.model.families import backbone_of

#: With more examples than this, arithmetic bounds a call, and more examples gain
#: little.
MOST_ON_CPU = 8
MOST_ON_GPU = 64
#: The share of the free memory that a batch may take.
_SHARE = 0.25
#: The tokens of a grid for which it must have room.
_GRID_TOKENS = 512


def choose_batch_size(model: Any, source_tokens: int, examples: int) -> int:
    """The batch size for so many examples, with sources of up to `source_tokens` tokens: as many as fit, at least 1."""
    if model.device.type == "cuda":
        most = MOST_ON_GPU
        free = torch.cuda.mem_get_info(model.device)[0]
    else:
        most = MOST_ON_CPU
        free = psutil.virtual_memory().available
    fitting = int(_SHARE * free / bytes_per_example(model, source_tokens))
    return max(1, min(most, fitting, examples))


def bytes_per_example(model: Any, source_tokens: int) -> int:
    """The most bytes that one example takes in the encoder and in the decoder's cache."""
    sizes = backbone_of(model.config).sizes(model.config)
    bytes_per_number = torch.finfo(model.dtype).bits // 8
    # The scores of every head over all pairs of source tokens, before and after the
    # softmax, which is in float32.
    attention = 3 * sizes.heads * source_tokens**2 * 4
    hidden = source_tokens * (4 * sizes.width + 2 * sizes.feed_width) * 4
    # The keys and values of a token in all layers.
    column = 2 * sizes.layers * sizes.heads * sizes.head_width * bytes_per_number
    return int(attention + hidden + column * (source_tokens + _GRID_TOKENS))
