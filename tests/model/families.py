"""A small model of each family, and what transformers' own decoder blocks make of a grid.

`reference_logits` is `tests.oracle.oracle_t5_logits` made quicker and wide enough for UMT5: mask and distances are
still filled in pair by pair, the buckets still come from transformers' own function.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from tests.oracle import NextLogits, Placed, manhattan, sees

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


def reference_logits(model: Any, source: Sequence[int], grid: Sequence[Placed]) -> Tensor:
    """Logits [tokens, vocabulary] of all tokens of a grid, by transformers' blocks in the model's dtype."""
    decoder = model.decoder
    apart = torch.tensor([[-manhattan(looking, other) for other in grid] for looking in grid])
    hidden = torch.tensor([[not sees(looking, other) for other in grid] for looking in grid])
    with torch.no_grad():
        encoded = model.encoder(input_ids=torch.tensor([list(source)])).last_hidden_state
        lowest = torch.finfo(encoded.dtype).min
        mask = torch.zeros(hidden.shape, dtype=encoded.dtype).masked_fill(hidden, lowest)[None, None]
        states = decoder.embed_tokens(torch.tensor([[placed.token for placed in grid]]))
        first = decoder.block[0].layer[0].SelfAttention
        for block in decoder.block:
            if model.config.model_type == "umt5":
                states = _umt5_block(block, states, mask, apart, encoded)
            else:
                buckets = first._relative_position_bucket(
                    apart,
                    bidirectional=False,
                    num_buckets=first.relative_attention_num_buckets,
                    max_distance=first.relative_attention_max_distance,
                )
                bias = first.relative_attention_bias(buckets).permute(2, 0, 1)[None]
                states = block(
                    states, attention_mask=mask, position_bias=bias, encoder_hidden_states=encoded
                )[0]
        states = decoder.final_layer_norm(states)
        scaled = model.config.model_type == "umt5" or getattr(model.config, "scale_decoder_outputs", False)
        logits: Tensor = model.lm_head(states * model.config.d_model**-0.5 if scaled else states)[0]
        return logits


def _umt5_block(block: Any, states: Tensor, mask: Tensor, apart: Tensor, encoded: Tensor) -> Tensor:
    """A block of UMT5, which has a bias of its own and takes none from outside: for this call it counts distances."""
    attention = block.layer[0].SelfAttention

    def bias(*_: Any, **__: Any) -> Tensor:
        values: Tensor = attention.relative_attention_bias(attention._relative_position_bucket(apart))
        return values.permute(2, 0, 1)[None]

    attention.compute_bias = bias
    try:
        output: Any = block(states, attention_mask=mask, encoder_hidden_states=encoded)
    finally:
        del attention.compute_bias
    return output if isinstance(output, Tensor) else output[0]


def next_logits_of(model: Any, source: Sequence[int]) -> NextLogits:
    """A model and a source as `tests.oracle.oracle_decode` wants them: a full pass for every answer, no cache."""

    def next_logits(grid: list[Placed], wanted: list[int]) -> Sequence[Sequence[float]]:
        rows: list[list[float]] = reference_logits(model, source, grid)[wanted].float().tolist()
        return rows

    return next_logits


def columns(grid: Sequence[Placed]) -> tuple[list[int], list[int], list[int]]:
    """Tokens, subsequences and times of a grid, apart."""
    return [p.token for p in grid], [p.subsequence for p in grid], [p.time for p in grid]
