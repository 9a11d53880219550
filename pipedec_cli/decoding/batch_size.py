"""How many examples a batch has where nobody says it."""

from typing import Any

import psutil
import torch

from pipedec_cli.model.families import backbone_of

#: With more examples than this, arithmetic bounds a call, and more examples gain
#: little.
MOST_ON_CPU, MOST_ON_GPU = 8, 64
#: The share of the free memory that a batch may take, and the tokens of a grid for
#: which it must have room.
_SHARE, _GRID_TOKENS = 0.25, 512


def choose_batch_size(model: Any, source_tokens: int, examples: int) -> int:
    """The batch size for so many examples, with sources of up to `source_tokens` tokens."""
    if model.device.type == "cuda":
        most, free = MOST_ON_GPU, torch.cuda.mem_get_info(model.device)[0]
    else:
        most, free = MOST_ON_CPU, psutil.virtual_memory().available
    return max(
        1,
        min(
            most, int(_SHARE * free / bytes_per_example(model, source_tokens)), examples
        ),
    )


def bytes_per_example(model: Any, source_tokens: int) -> int:
    """The most bytes that one example takes in the encoder and in the decoder's cache."""
    sizes, width = (
        backbone_of(model.config).sizes(model.config),
        torch.finfo(model.dtype).bits // 8,
    )
    # The scores of every head over all pairs of source tokens, before and after the
    # softmax, which is in float32.
    attention = 3 * sizes.heads * source_tokens**2 * 4
    hidden = source_tokens * (4 * sizes.width + 2 * sizes.feed_width) * 4
    column = 2 * sizes.layers * sizes.heads * sizes.head_width * width
    return int(attention + hidden + column * (source_tokens + _GRID_TOKENS))
