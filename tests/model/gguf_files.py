"""GGUF files of random checkpoints, for tests that read them."""

import json
from contextlib import closing
from pathlib import Path

import torch

from pipedec_cli.model.gguf import (
    KEYS,
    LONG_ROPE,
    MAY_LACK,
    ROPE_FACTORS,
    llama3_factors,
)
from pipedec_cli.model.gguf_weights import named_weights
from pipedec_cli.model.text import ids_around

#: The types of matrices by our names of dtypes. All else is float32.
TYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16", "int8": "Q8_0"}
#: llama.cpp's names of families that transformers calls otherwise.
NAMES = {
    "gemma3_text": "gemma3",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "mixtral": "llama",
}
NORMAL, CONTROL, UNUSED = 1, 3, 5


def arch_of(config):
    return NAMES.get(config.model_type, config.model_type)


def write_gguf(checkpoint, path, dtype, tokenizer=None, settings=None, **options):
    """Write a checkpoint with a byte-level BPE tokenizer, or with other values of `tokenizer.ggml`, or other `settings`."""
    from gguf import (
        GGMLQuantizationType,
        GGUFValueType,
        GGUFWriter,
        LlamaFileType,
    )

    config = checkpoint.model.config
    types = {
        bool: GGUFValueType.BOOL,
        int: GGUFValueType.UINT32,
        float: GGUFValueType.FLOAT32,
    }
    types |= {str: GGUFValueType.STRING, list: GGUFValueType.ARRAY}
    words = tokenizer or tokenizer_values(checkpoint.tokenizer, config)
    with closing(GGUFWriter(path, arch_of(config), **options)) as writer:
        if dtype in TYPES:
            writer.add_file_type(
                LlamaFileType[
                    "ALL_F32" if dtype == "float32" else f"MOSTLY_{TYPES[dtype]}"
                ]
            )
        keys = model_values(checkpoint) | words | (settings or {})
        for name, value in keys.items():
            if value is not None:
                writer.add_key_value(name, value, types[type(value)])
        for name, weight in weights_of(checkpoint.model).items():
            values = stored_values(config, name, weight)
            kind = "F32"
            if values.ndim > 1:
                kind = TYPES.get(dtype, dtype)
            kind = GGMLQuantizationType[kind]
            writer.add_tensor(name, quantized(values, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()


def stored_values(config, name, weight):
    """The values of a weight as llama.cpp has them."""
    values = weight.detach().float().contiguous().numpy()
    if config.model_type.startswith("gemma") and name.endswith("norm.weight"):
        values = values + 1
    heads = {
        ".attn_q.": config.num_attention_heads,
        ".attn_k.": config.num_key_value_heads,
    }
    if arch_of(config) == "llama":
        for part in filter(name.count, heads):
            # llama.cpp has another order of these rows
            apart = values.reshape(heads[part], 2, -1, *values.shape[1:])
            values = apart.swapaxes(1, 2).reshape(values.shape)
    return values


def quantized(values, kind):
    """Values in a type. The package gguf does not write all: small bytes are finite scales of the others."""
    from gguf import quant_shape_to_byte_shape
    from gguf.quants import quantize

    if not kind.name.endswith("_K"):
        return quantize(values, kind)
    shape = quant_shape_to_byte_shape(values.shape, kind)
    return torch.randint(0, 40, shape, dtype=torch.uint8).numpy()


def weights_of(model):
    weights, rope = (
        named_weights(model, arch_of(model.config)),
        model.config.rope_parameters,
    )
    if rope.get("rope_type") == "llama3":
        weights[ROPE_FACTORS] = llama3_factors(model.config)
    return weights | {
        LONG_ROPE[name]: torch.tensor(rope[name])
        for name in LONG_ROPE.keys() & rope.keys()
    }


def model_values(checkpoint):
    config, tokenizer = checkpoint.model.config, checkpoint.tokenizer
    sizes = checkpoint.backbone.sizes(config)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    numbers = {
        key: getattr(config, name, None) for key, name in (KEYS | MAY_LACK).items()
    }
    has_windows = config.model_type.startswith(("gemma", "phi3"))
    numbers |= {
        "attention.value_length": sizes.head_width,
        "rope.dimension_count": int(
            sizes.head_width * rope.get("partial_rotary_factor", 1)
        ),
        "rope.freq_base": float(rope["rope_theta"]),
        "rope.freq_base_swa": config.rope_parameters.get("sliding_attention", {}).get(
            "rope_theta"
        ),
        "attention.sliding_window": (config.sliding_window or 0)
        if has_windows
        else None,
    }
    if rope["rope_type"] in ("linear", "yarn"):
        numbers |= {
            "rope.scaling.type": rope["rope_type"],
            "rope.scaling.factor": rope["factor"],
        }
    if rope["rope_type"] == "longrope":
        numbers["rope.scaling.attn_factor"] = float(
            checkpoint.model.base_model.rotary_emb.attention_scaling
        )
        numbers["rope.scaling.original_context_length"] = (
            config.original_max_position_embeddings
        )
    ids = {
        "bos": tokenizer.bos_token_id,
        "eos": checkpoint.eos,
        "padding": tokenizer.pad_token_id,
    }
    ids["unknown"] = tokenizer.unk_token_id
    return {
        "general.name": Path(checkpoint.name).stem,
        **{f"{arch_of(config)}.{name}": value for name, value in numbers.items()},
        **{f"tokenizer.ggml.{name}_token_id": value for name, value in ids.items()},
        "tokenizer.chat_template": tokenizer.chat_template,
    }


def tokenizer_values(tokenizer, config):
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary, special = (
        content["model"]["vocab"],
        {one["id"] for one in content["added_tokens"]},
    )
    tokens = [f"[PAD{number}]" for number in range(config.vocab_size)]
    types = [UNUSED] * config.vocab_size
    for token, number in vocabulary.items():
        tokens[number], types[number] = token, CONTROL if number in special else NORMAL
    values = {
        "model": "gpt2",
        "pre": "qwen2" if config.model_type.startswith("qwen") else "gpt-2",
        "tokens": tokens,
        "token_type": types,
        "add_bos_token": ids_around(tokenizer)[0] == [tokenizer.bos_token_id],
        "merges": [
            merge if isinstance(merge, str) else " ".join(merge)
            for merge in content["model"]["merges"]
        ],
    }
    return {f"tokenizer.ggml.{name}": value for name, value in values.items()}
