"""A small model of each family that is driven through transformers' modules, whose texts have several subsequences."""

from functools import cache

import torch

VOCABULARY = 40
EOS, BOS = 1, 2
PROMPTED = ("llama", "qwen2", "qwen3", "smollm3", "gemma3_text")
ENCODED = ("t5gemma", "bart", "pegasus")
#: Of different lengths; one holds ids that are special elsewhere.
SOURCES = ([5, 9, 2, 11, 3, 8], [7, 4], [30, 0, 31, 1, 0, 33], [8, 8, 21, 13, 34, 5, 17, 28, 4, 9], [12, 39])

_HALF = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
_HALF |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
_IDS = {"pad_token_id": 0, "bos_token_id": BOS, "eos_token_id": EOS}
#: Layers that see four places back take turns with such as see all.
_WINDOWS = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
_BART = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "max_position_embeddings": 80,
    "decoder_start_token_id": BOS,
}
_BART |= {f"{half}_{name}": 2 for half in ("encoder", "decoder") for name in ("layers", "attention_heads")}
_BART |= {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "forced_eos_token_id": None}
_SIZES = {
    "llama": _HALF | _IDS,
    "qwen2": _HALF | _IDS,
    "qwen3": _HALF | _IDS,
    "smollm3": _HALF | _IDS | {"no_rope_layers": [1, 0]},
    "gemma3_text": _HALF | _IDS | _WINDOWS,
    "t5gemma": {"encoder": _HALF | _IDS | _WINDOWS, "decoder": _HALF | _IDS | _WINDOWS, **_IDS},
    "bart": _BART | _IDS | {"tie_word_embeddings": False},
    "pegasus": _BART | _IDS,
}
#: Whose models end their rows after a few tokens, at different times, failed explorations among them.
_SEEDS = {
    "llama": 7,
    "qwen2": 7,
    "qwen3": 5,
    "smollm3": 7,
    "gemma3_text": 1,
    "t5gemma": 3,
    "bart": 1,
    "pegasus": 7,
}
#: How far embeddings lie apart that are multiplied before the first layer, or are the output matrix as well.
_SPREADS = {"gemma3_text": 0.1, "t5gemma": 0.1}


@cache
def family_model(kind, seed=None):
    """Of random weights. It is shared: not to be changed."""
    import transformers

    config = transformers.AutoConfig.for_model(kind, **_SIZES[kind])
    made = transformers.AutoModelForCausalLM if kind in PROMPTED else transformers.AutoModelForSeq2SeqLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEEDS[kind] if seed is None else seed)
        model = made.from_config(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() == 1:
                    parameter.add_(torch.empty_like(parameter).uniform_(-0.2, 0.2))
                elif "embed_positions" not in name or kind == "bart":
                    parameter.normal_(
                        0, _SPREADS.get(kind, 1.0) if "embed" in name or "shared" in name else 0.35
                    )
            (model.lm_head.out_proj if kind == "t5gemma" else model.lm_head).weight[EOS] *= (
                4.0 if kind == "bart" else 2.5
            )
    return model


def family_sources(kind):
    """The sources, each of which ends with <eos> where an encoder reads it."""
    return SOURCES if kind in PROMPTED else [[*source, EOS] for source in SOURCES]
