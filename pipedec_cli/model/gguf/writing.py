"""Writes a sequential model as a GGUF file, for llama.cpp."""

from __future__ import annotations

import json
import os
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, Split
from torch import Tensor

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.locking import new_file
from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.model.gguf.reading import LACKING, LLAMA3, ROPE_FACTORS, llama3_factors, named_weights
from pipedec_cli.model.text import ids_around

#: Families that are written: whether llama.cpp has an order of its own of the rows that make queries and keys.
_FAMILIES: Final = {"llama": True, "qwen2": False, "qwen3": False}
#: The types of matrices in the file, by our names of dtypes. All else is float32.
_TYPES: Final = {"float32": "F32", "bfloat16": "BF16", "float16": "F16", "int8": "Q8_0"}
_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
#: How texts are split into words, by llama.cpp's names.
_SPLITS: Final[dict[str, list[Any]]] = {
    "gpt-2": [ByteLevel(add_prefix_space=False)],
    "smollm": [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)],
    "llama-bpe": [Split(Regex(_WORDS), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)],
    "qwen2": [
        Split(Regex(_WORDS.replace("{1,3}", "")), "isolated"),
        ByteLevel(add_prefix_space=False, use_regex=False),
    ],
}
#: Types of tokens.
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5


def write_gguf(checkpoint: Checkpoint, path: Path, dtype: str, *, texts: bool = True) -> None:
    """Write the file, whole or not at all.

    Matrices are rounded to `dtype`; of ``int8`` every 32 numbers of a row have a scale (llama.cpp's Q8_0). Without `texts`
    it is for a caller who gives ids and gets ids: the tokenizer may split words in another way. A UserError if llama.cpp
    has no such model, or cannot run it because it is a pipelined decoder.
    """
    try:
        from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, LlamaFileType, QuantError
        from gguf.quants import quantize
    except ImportError:
        raise UserError(LACKING, todo="`pip install gguf`") from None
    model, config = checkpoint.model, checkpoint.model.config
    _check(checkpoint)
    metadata = {**_metadata(checkpoint), **_tokenizer(checkpoint.tokenizer, config.vocab_size, texts=texts)}
    types = {bool: GGUFValueType.BOOL, int: GGUFValueType.UINT32, float: GGUFValueType.FLOAT32}
    types |= {str: GGUFValueType.STRING, list: GGUFValueType.ARRAY}
    heads = {".attn_q.": config.num_attention_heads, ".attn_k.": config.num_key_value_heads}
    temporary, descriptor = new_file(path)
    try:
        with closing(GGUFWriter(temporary, config.model_type)) as writer:
            writer.add_file_type(
                LlamaFileType["ALL_F32" if dtype == "float32" else f"MOSTLY_{_TYPES[dtype]}"]
            )
            for key, value in metadata.items():
                if value is not None:
                    writer.add_key_value(key, value, types[type(value)])
            for name, weight in _weights(model).items():
                values = weight.detach().float().contiguous().numpy()
                for part in filter(name.count, heads if _FAMILIES[config.model_type] else ()):
                    apart = values.reshape(heads[part], 2, -1, *values.shape[1:])
                    values = apart.swapaxes(1, 2).reshape(values.shape)
                kind = GGMLQuantizationType[_TYPES[dtype] if values.ndim > 1 else "F32"]
                writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        os.fsync(descriptor)
        temporary.replace(path)
    except QuantError as error:
        what = f"its matrices do not fit {_TYPES[dtype]}: {error}"
        raise UserError(what, where=checkpoint.name, todo="give another --dtype") from None
    finally:
        os.close(descriptor)
        with suppress(OSError):
            temporary.unlink()


def _check(checkpoint: Checkpoint) -> None:
    """Raise a UserError if llama.cpp would compute something else than this model."""
    config, problem = checkpoint.model.config, None
    rope = {key: value for key, value in getattr(config, "rope_parameters", {}).items() if value is not None}
    usual = {"rope_type": "default", "rope_theta": rope.get("rope_theta")}
    scaled = {**LLAMA3, "rope_theta": rope.get("rope_theta"), "factor": rope.get("factor")}
    if checkpoint.settings is not None and checkpoint.settings.decoder != "sequential":
        problem = "it is a pipelined decoder, which llama.cpp cannot run"
    elif config.model_type not in _FAMILIES:
        problem = f"it is a {checkpoint.backbone.name}, and what is written is {', '.join(_FAMILIES)}"
    elif "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        problem = "it has windows, which llama.cpp does not know in this family"
    elif rope != usual and (config.model_type != "llama" or rope != scaled):
        problem = "its rotary embedding is scaled in a way that a GGUF file cannot say"
    elif config.hidden_act != "silu":
        problem = f"its activation is {config.hidden_act}"
    if problem:
        raise UserError(problem, where=checkpoint.name, todo="export another model")


def _weights(model: Any) -> dict[str, Tensor]:
    """All tensors by their names in GGUF, in transformers' order of rows."""
    config, found = model.config, named_weights(model, model.config.model_type)
    if odd := next((name for name in found if name.startswith(("model.", "lm_head."))), None):
        raise UserError(f"llama.cpp has no {odd} in a {config.model_type}", todo="export another model")
    if config.rope_parameters["rope_type"] == "llama3":
        found[ROPE_FACTORS] = llama3_factors(config)
    return found


def _metadata(checkpoint: Checkpoint) -> dict[str, Any]:
    """What llama.cpp needs to know of the model."""
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
        **{f"{config.model_type}.{key}": value for key, value in numbers.items()},
        **{f"tokenizer.ggml.{key}_token_id": value for key, value in ids.items()},
        "tokenizer.chat_template": tokenizer.chat_template,
    }


def _tokenizer(tokenizer: Any, vocabulary: int, *, texts: bool) -> dict[str, Any]:
    """What llama.cpp needs to know of a byte-level BPE tokenizer, for so many embeddings; a UserError for others."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    model = content["model"]
    splitter = content["pre_tokenizer"] or {}
    has = [_part(one) for one in splitter.get("pretokenizers", [splitter])]
    known = {name: [json.loads(one.__getstate__()) for one in parts] for name, parts in _SPLITS.items()}
    split = next(
        (name for name, parts in known.items() if [*map(_part, parts)] == has), None if texts else "gpt-2"
    )
    if model["type"] != "BPE" or split is None:
        todo = "export a model with a byte-level BPE tokenizer like those of Llama 3, SmolLM and Qwen"
        raise UserError("llama.cpp has no tokenizer like the model's", todo=todo)
    tokens, types = [f"[PAD{number}]" for number in range(vocabulary)], [_UNUSED] * vocabulary
    for token, number in model["vocab"].items():
        tokens[number], types[number] = token, _NORMAL
    for added in content["added_tokens"]:
        if (number := added["id"]) < vocabulary:
            tokens[number] = added["content"]
            types[number] = _CONTROL if added["special"] else _USER_DEFINED
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    begins = ids_around(tokenizer)[0] == [tokenizer.bos_token_id]
    found = {"model": "gpt2", "pre": split, "tokens": tokens, "token_type": types, "add_bos_token": begins}
    return {f"tokenizer.ggml.{name}": value for name, value in (found | {"merges": merges}).items()}


def _part(content: dict[str, Any]) -> dict[str, Any]:
    """A part of a pre-tokenizer, without what changes no token."""
    return {key: value for key, value in content.items() if key != "trim_offsets"}
