"""How many examples are in flight at once, where nobody says: what makes steps worth their while and fits the memory."""

from __future__ import annotations

from typing import Any

import psutil
import torch

from pipedec_cli.model.families import backbone_of

#: Beyond this many examples a step is bound by arithmetic, and more of them gain little.
MOST_ON_CPU, MOST_ON_GPU = 8, 64
#: The share of the free memory that examples in flight may take, and the tokens of a grid that room is reckoned for.
_SHARE, _GRID_TOKENS = 0.25, 512


def choose_batch_size(model: Any, source_tokens: int, examples: int) -> int:
    """As many examples as make a step worth its while and fit a share of the free memory, with sources so long."""
    if model.device.type == "cuda":
        most, free = MOST_ON_GPU, torch.cuda.mem_get_info(model.device)[0]
    else:
        most, free = MOST_ON_CPU, psutil.virtual_memory().available
    return max(1, min(most, int(_SHARE * free / bytes_per_example(model, source_tokens)), examples))


def bytes_per_example(model: Any, source_tokens: int) -> int:
    """Memory that one example in flight takes at most: in the encoder, and in the decoder's cache."""
    sizes, width = backbone_of(model.config).sizes(model.config), torch.finfo(model.dtype).bits // 8
    # scores of every head over all pairs of source tokens, before and after the softmax, which is in float32
    attention = 3 * sizes.heads * source_tokens**2 * 4
    hidden = source_tokens * (4 * sizes.width + 2 * sizes.feed_width) * 4
    column = 2 * sizes.layers * sizes.heads * sizes.head_width * width
    return int(attention + hidden + column * (source_tokens + _GRID_TOKENS))
