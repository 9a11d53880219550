"""The frequencies of rotary embeddings that their parameters alone determine."""

import math
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

from pipedec_cli.model.engine.native.library import BuildError

#: The kinds that are computed here, without transformers.
OWN: Final = ("default", "linear", "llama3")


def frequencies_of(rope: Mapping[str, Any], head_width: int) -> Tensor:
    """By how many radians a rotary embedding turns each pair of a head's numbers at each position: float32 [head_width / 2].

    `rope` are its parameters in a config. A BuildError for kinds that are not computed
    here, and if a part of each head alone is turned.
    """
    kind = rope.get("rope_type", "default")
    if kind not in OWN or rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise BuildError(f"the rotary embedding is {kind}")
    places = torch.arange(0, head_width, 2, dtype=torch.int64).float()
    usual: Tensor = 1.0 / (rope["rope_theta"] ** (places / head_width))
    if kind == "linear":
        return usual / float(rope["factor"])
    if kind == "llama3":
        return _stretched(usual, rope)
    return usual


def _stretched(usual: Tensor, rope: Mapping[str, Any]) -> Tensor:
    """The frequencies that Llama 3.1 makes of the `usual` ones, for texts longer than those it was first trained on.

    Long waves are slower by a factor, short ones stay, and those between are mixed.
    What is long and short is in the parameters `rope`: how often a wave turns in the
    original length of a text.
    """
    length = float(rope["original_max_position_embeddings"])
    low = float(rope["low_freq_factor"])
    high = float(rope["high_freq_factor"])
    slow = usual / float(rope["factor"])
    turns = length * usual / (2 * math.pi)  # of each wave in the original length
    share: Tensor = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - share) * slow + share * usual
