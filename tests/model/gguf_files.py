"""GGUF files of random checkpoints, for tests that read them."""

import json
from contextlib import closing
from pathlib import Path

from pipedec_cli.model.gguf import ROPE_FACTORS, llama3_factors, named_weights
from pipedec_cli.model.text import ids_around

#: The types of matrices by our names of dtypes. All else is float32.
TYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16", "int8": "Q8_0"}
NORMAL, CONTROL, UNUSED = 1, 3, 5


def write_gguf(checkpoint, path, dtype, tokenizer=None):
    """Write a checkpoint with a byte-level BPE tokenizer, or with other values of `tokenizer.ggml`."""
    from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, LlamaFileType
    from gguf.quants import quantize

    config = checkpoint.model.config
    types = {bool: GGUFValueType.BOOL, int: GGUFValueType.UINT32, float: GGUFValueType.FLOAT32}
    types |= {str: GGUFValueType.STRING, list: GGUFValueType.ARRAY}
    words = tokenizer or tokenizer_values(checkpoint.tokenizer, config)
    heads = {".attn_q.": config.num_attention_heads, ".attn_k.": config.num_key_value_heads}
    with closing(GGUFWriter(path, config.model_type)) as writer:
        writer.add_file_type(LlamaFileType["ALL_F32" if dtype == "float32" else f"MOSTLY_{TYPES[dtype]}"])
        for name, value in (model_values(checkpoint) | words).items():
            if value is not None:
                writer.add_key_value(name, value, types[type(value)])
        for name, weight in weights_of(checkpoint.model).items():
            values = weight.detach().float().contiguous().numpy()
            for part in filter(name.count, heads if config.model_type == "llama" else ()):
                # llama.cpp has another order of these rows
                apart = values.reshape(heads[part], 2, -1, *values.shape[1:])
                values = apart.swapaxes(1, 2).reshape(values.shape)
            kind = GGMLQuantizationType[TYPES[dtype] if values.ndim > 1 else "F32"]
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()


def weights_of(model):
    weights = named_weights(model, model.config.model_type)
    scaled = model.config.rope_parameters["rope_type"] == "llama3"
    return weights | ({ROPE_FACTORS: llama3_factors(model.config)} if scaled else {})


def model_values(checkpoint):
    config, tokenizer = checkpoint.model.config, checkpoint.tokenizer
    sizes = checkpoint.backbone.sizes(config)
    numbers = {
        "context_length": config.max_position_embeddings,
        "embedding_length": sizes.width,
        "block_count": sizes.layers,
        "feed_forward_length": sizes.feed_width,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": sizes.heads,
        "attention.key_length": sizes.head_width,
        "attention.value_length": sizes.head_width,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.dimension_count": sizes.head_width,
        "rope.freq_base": float(config.rope_parameters["rope_theta"]),
    }
    ids = {"bos": tokenizer.bos_token_id, "eos": checkpoint.eos, "padding": tokenizer.pad_token_id}
    ids["unknown"] = tokenizer.unk_token_id
    return {
        "general.name": Path(checkpoint.name).stem,
        **{f"{config.model_type}.{name}": value for name, value in numbers.items()},
        **{f"tokenizer.ggml.{name}_token_id": value for name, value in ids.items()},
        "tokenizer.chat_template": tokenizer.chat_template,
    }


def tokenizer_values(tokenizer, config):
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary, special = content["model"]["vocab"], {one["id"] for one in content["added_tokens"]}
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
            merge if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]
        ],
    }
    return {f"tokenizer.ggml.{name}": value for name, value in values.items()}
