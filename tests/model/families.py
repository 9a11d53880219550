"""A small model of each family, and sources for it."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Literal

import torch
from torch import nn

Kind = Literal["t5", "gated", "mt5", "umt5"]
KINDS: Final[tuple[Kind, ...]] = ("t5", "gated", "mt5", "umt5")
BOS, EOS = 0, 1
VOCABULARY: Final = 40
#: Sources of different lengths; one holds the pad id in its midst, which must count as any other token does.
SOURCES: Final = (
    [5, 9, 2, 11, 3, 1],
    [7, 1],
    [30, 0, 31, 0, 1],
    [8, 8, 21, 13, 34, 5, 17, 28, 4, 1],
    [12, 39, 1],
)


#: Seeds whose models answer with texts of many lengths, failed explorations among them.
_SEEDS: Final[dict[Kind, int]] = {"t5": 1, "gated": 4, "mt5": 4, "umt5": 0}


@cache
def small_model(kind: Kind) -> Any:
    """Two layers of random weights whose texts have several subsequences. It is shared: not to be changed.

    ``t5`` is the first T5 (ReLU, scaled output, tied), ``gated`` is laid out as v1.1 and Flan-T5 are: gated GELU,
    no scaling, an output matrix of its own.
    """
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    special: dict[str, Any] = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    config = AutoConfig.for_model(
        "t5" if kind == "gated" else kind,
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=12,
        dropout_rate=0.0,
        pad_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        **(special if kind == "gated" else {}),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEEDS[kind])
        model = AutoModelForSeq2SeqLM.from_config(config).eval()
        with torch.no_grad():
            if kind == "gated":
                model.lm_head.weight = nn.Parameter(torch.randn(VOCABULARY, 32))
            for stack in (model.encoder, model.decoder):
                for name, parameter in stack.named_parameters():
                    if name.endswith(("o.weight", "relative_attention_bias.weight")):
                        parameter.mul_(3)  # what stands around a token, and where, has a say
                    elif name.endswith("layer_norm.weight"):
                        parameter.uniform_(0.7, 1.3)
            model.lm_head.weight[EOS] *= 3  # texts end
    return model


def odd_model() -> Any:
    """A new T5 whose sizes fill no panel of the compiled kernels."""
    from transformers import T5Config, T5ForConditionalGeneration

    sizes: dict[str, Any] = {"vocab_size": 71, "d_model": 21, "d_kv": 6, "d_ff": 37}
    config = T5Config(num_layers=2, num_heads=3, feed_forward_proj="gated-gelu", **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return T5ForConditionalGeneration(config).eval()
