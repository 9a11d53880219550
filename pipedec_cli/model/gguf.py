"""Models in GGUF files. The first reading leaves a folder in transformers' format in the user's cache."""

import errno
import re
import struct
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import torch
from safetensors.torch import save_file

from pipedec_cli.data.cache import cache_folder
from pipedec_cli.data.errors import UserError, first_line, is_out_of_space
from pipedec_cli.data.trained import is_gguf
from pipedec_cli.model.families import check_config
from pipedec_cli.model.gguf_weights import (
    Place,
    StoredTensor,
    named_weights,
    own_names,
    untied,
    write_places,
)
from pipedec_cli.model.kept import kept_folder
from pipedec_cli.model.notes import remembered_sha256

#: The most bytes of a header.
_LONGEST: Final = 1 << 26
#: The most elements of all arrays of a header together.
_MOST_ELEMENTS: Final = 1 << 21
#: The most keys, and the most tensors.
_MOST_ENTRIES: Final = 1 << 16
#: The most dimensions of a tensor.
_MOST_DIMENSIONS: Final = 4
#: The types of numbers, as `struct` names them; beside them are texts and arrays.
_NUMBERS: Final = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))
_TEXT: Final = 8
_ARRAY: Final = 9


class Header(NamedTuple):
    """Keys with numbers, texts, tuples of numbers or, of texts, their number; tensors with shape, ggml's type and first byte."""

    metadata: dict[str, Any]
    tensors: dict[str, tuple[tuple[int, ...], int, int]]


def read_header(path: Path) -> Header:
    """Read the header of a file; a ValueError if it is no GGUF file, claims what cannot be, or lacks some of its tensors."""
    from gguf import GGML_QUANT_SIZES

    with path.open("rb") as file:
        header = _Reader(file.read(_LONGEST)).header()
    for name, (shape, kind, start) in header.tensors.items():
        if kind not in GGML_QUANT_SIZES:
            raise ValueError(
                f"its tensor {name} is of type {kind}, which the package gguf does not know"
            )
        elements, size = GGML_QUANT_SIZES[kind]  # of a block
        if start + prod(shape) // elements * size > path.stat().st_size:
            raise ValueError("it is cut short")
    return header


class _Reader:
    """The bytes of a header, read one value after the other. A ValueError for what a header cannot say."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.place = 0
        self.elements = 0  # of all arrays so far

    def header(self) -> Header:
        """The whole header, from the first byte on."""
        if self.take(4) != b"GGUF":
            raise ValueError("it is no GGUF file")
        (version,) = self.numbers("I")
        tensors, keys = self.numbers("QQ")
        if version not in (2, 3) or max(tensors, keys) > _MOST_ENTRIES:
            raise ValueError(
                f"it claims version {version}, {tensors:,} tensors and {keys:,} keys"
            )
        metadata = {self.text(): self.value(*self.numbers("I")) for _ in range(keys)}
        entries = [self.tensor() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"its alignment is {alignment!r}")
        start = -(-self.place // alignment) * alignment
        places = {
            name: (shape, kind, start + offset) for name, shape, kind, offset in entries
        }
        return Header(metadata, places)

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """The next tensor's name, shape, type and offset."""
        name = self.text()
        (dimensions,) = self.numbers("I")
        if dimensions > _MOST_DIMENSIONS:
            raise ValueError(f"its tensor {name[:60]!r} has {dimensions} dimensions")
        sizes = self.numbers("Q" * dimensions)[::-1]
        # Not all files have axes of length 1.
        shape = tuple(size for size in sizes if size != 1)
        kind, offset = self.numbers("IQ")
        return name, shape, kind, offset

    def take(self, count: int) -> bytes:
        """The next bytes."""
        end = self.place + count
        if end > len(self.content):
            is_long = len(self.content) == _LONGEST
            raise ValueError("its header is too long" if is_long else "it is cut short")
        taken = self.content[self.place : end]
        self.place = end
        return taken

    def numbers(self, kinds: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{kinds}", self.take(struct.calcsize(f"<{kinds}")))

    def text(self) -> str:
        return self.take(*self.numbers("Q")).decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        """The next value, of this type: a number, a text, a tuple of numbers, or how many texts an array has."""
        if kind == _TEXT:
            return self.text()
        if kind in _NUMBERS:
            return self.numbers(_NUMBERS[kind])[0]
        if kind != _ARRAY:
            raise ValueError(f"it claims a value of type {kind}, or one of 0 elements")
        inner, count = self.numbers("IQ")
        self.elements += count
        if self.elements > _MOST_ELEMENTS or inner not in (_TEXT, *_NUMBERS):
            raise ValueError(
                f"it claims a value of type {inner}, or one of {count:,} elements"
            )
        if inner != _TEXT:
            return self.numbers(f"{count}{_NUMBERS[inner]}")
        self._pass_texts(count)
        return count

    def _pass_texts(self, count: int) -> None:
        """Go behind so many texts: a vocabulary has hundreds of thousands."""
        place = self.place
        for _ in range(count):
            length = self.content[place : place + 8]
            place += 8 + int.from_bytes(length, "little")
        self.place = min(place, len(self.content))
        self.take(place - self.place)  # refuses what is cut short


#: Families by llama.cpp's names, and what transformers calls them. Mistral's files say
#: llama.
_READ: Final = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "phi3": "phi3",
    "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe",
}
#: Keys that a file must have if its family knows them, with transformers' names.
KEYS: Final = {
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "embedding_length": "hidden_size",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "expert_used_count": "num_experts_per_tok",
    "attention.sliding_window": "sliding_window",
}
#: Keys that it may lack.
MAY_LACK: Final = {
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "context_length": "max_position_embeddings",
    "feed_forward_length": "intermediate_size",
    "expert_count": "num_experts",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "rope.freq_base_swa": "rope_local_base_freq",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
#: Keys that are read beside these, or that change no number. With any other key a file
#: is refused.
_OTHER: Final = re.compile(
    r"vocab_size|attention\.value_length|rope\.(dimension_count|freq_base|scale_linear)"
    r"|rope\.scaling\.(type|factor|attn_factor|original_context_length|finetuned)"
)
#: A folder that an earlier version of this file has written is not used.
_VERSION: Final = 3
#: A part of a model that llama.cpp's gguf-split has written.
_PART: Final = re.compile(r"(.*-)\d{5}(-of-(\d{5})\.gguf)", re.IGNORECASE)
#: A tensor with a divisor for each frequency of a Llama 3. The config has the largest
#: divisor, and the numbers of `LLAMA3`.
ROPE_FACTORS: Final = "rope_freqs.weight"
LLAMA3: Final[dict[str, Any]] = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
#: Tensors of a Phi-3 with divisors of its frequencies, by their names in its config.
LONG_ROPE: Final = {
    "short_factor": "rope_factors_short.weight",
    "long_factor": "rope_factors_long.weight",
}
#: Ways to scale a rotary embedding for longer texts, as both programs call them.
_SCALINGS: Final = ("linear", "yarn")
#: The largest models of Gemma, by llama.cpp's names and their layers.
_LARGEST_GEMMA: Final = {("gemma2", 46), ("gemma3", 62)}
_ODD_ROPE: Final = "its rotary embedding is scaled in a way that is not known here"
LACKING: Final = "reading GGUF files needs the package gguf"


def local_files(name: str) -> list[Path]:
    """The file of that name, or all parts of its model; those of ``owner/name:file.gguf`` on the hub, fetched if need be."""
    parts = _part_names(name)
    repository = name.rpartition(":")[0]
    if Path(name).is_file() or not repository:
        absent = [part for part in parts if not Path(part).is_file()]
        if absent and _PART.fullmatch(name):
            raise UserError(
                f"{absent[0]} is missing",
                where=name,
                todo="put all parts into one folder",
            )
        return [Path(part) for part in parts]
    from huggingface_hub import hf_hub_download

    return [
        Path(hf_hub_download(repository, part.rpartition(":")[2])) for part in parts
    ]


def _part_names(name: str) -> list[str]:
    """The names of all parts of a file's model; the name alone if it has no other parts."""
    split = _PART.fullmatch(name)
    if split is None:
        return [name]
    before, behind, count = split.groups()
    return [f"{before}{part:05}{behind}" for part in range(1, int(count) + 1)]


def content_sha256(files: Sequence[Path]) -> str:
    """The SHA-256 of a file, or of the sums of several. A file is read for it again if its size or time has changed."""
    sums = [remembered_sha256(file) for file in files]
    if len(sums) == 1:
        return sums[0]
    return sha256("".join(sums).encode()).hexdigest()


def loadable(name: str, *, is_bare: bool = False) -> str:
    """What transformers can load for a name: a GGUF file's folder in the cache; a folder's or hub model's own name.

    With `is_bare` the folder has no weights, but says where the file has them; see
    `read_weights`. The file is read now if it was not read before. The folder is named
    by its content, and is there as a whole or not at all. A UserError if the file
    cannot be read, or the folder cannot be written; an OSError if the disk is full.
    """
    if not is_gguf(name):
        return name
    files = local_files(name)
    try:
        version = f"{_VERSION}-bare" if is_bare else str(_VERSION)
        named = f"{content_sha256(files)}-{version}"
        folder = kept_folder(named, partial(_read, files, is_bare=is_bare))
    except Exception as error:
        _raise_plainly(error, name)
        raise
    return str(folder)


def _raise_plainly(error: Exception, name: str) -> None:
    """Raise an error in plain words in place of one of reading a file or writing its folder.

    It returns for any other error, which the caller raises again.
    """
    if is_out_of_space(error):
        what = f"no room for the weights of {name} (XDG_CACHE_HOME names this folder)"
        raise OSError(errno.ENOSPC, what, str(cache_folder())) from error
    if isinstance(error, ImportError):
        raise UserError(LACKING, where=name, todo="`pip install gguf`") from error
    if isinstance(error, ValueError | NotImplementedError):
        # NotImplementedError: a type that gguf cannot unpack.
        todo = "get the file again, or take another"
        raise UserError(first_line(error), where=name, todo=todo) from None
    if isinstance(error, OSError | RuntimeError):
        what = f"cannot be read, or kept in the cache: {error}"
        todo = "let XDG_CACHE_HOME name a folder"
        raise UserError(what, where=name, todo=todo) from error


def _read(files: Sequence[Path], folder: Path, *, is_bare: bool) -> None:
    """Write the model of a GGUF file, or of all its parts (`files`), into a folder in transformers' format.

    The weights are in float32; a folder that `is_bare` says in place of them where they
    are.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    metadata, tensors = _joined_header(files)
    kind = _kind_of(metadata)
    architecture, settings = _settings(kind, metadata, tensors)
    check_config(SimpleNamespace(**settings))
    config = AutoConfig.for_model(architecture, **settings)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    if not is_bare:
        model = model.to_empty(device="cpu")
    weights = named_weights(model, kind)
    _check_tensors(kind, weights, tensors)
    places = {
        name: _place_of(name, tensors[name], files, kind, config) for name in weights
    }
    if not is_bare:
        for name, weight in weights.items():
            weight.numpy()[...] = places[name].floats(files).reshape(weight.shape)
    if kind == "llama" and ROPE_FACTORS in tensors:
        _scale_as_llama3(config, tensors[ROPE_FACTORS])
    if is_bare:
        write_places(folder, places, own_names(model, kind))
    else:  # transformers refuses to
        save_file(untied(model), folder / "model.safetensors", {"format": "pt"})
    config.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(
        files[0].parent, gguf_file=files[0].name, local_files_only=True
    )
    tokenizer.save_pretrained(folder)


def _joined_header(
    files: Sequence[Path],
) -> tuple[dict[str, Any], dict[str, StoredTensor]]:
    """The keys and the tensors of all parts of a model. A ValueError if they are not all of its parts, in order."""
    metadata = dict[str, Any]()
    tensors = dict[str, StoredTensor]()
    for number, file in enumerate(files):
        keys, places = read_header(file)
        part = keys.get("split.no", 0)
        count = keys.get("split.count", 0) or 1
        if part != number or count != len(files):
            raise ValueError(
                f"{file.name} is part {part + 1} of {count}, and its name does not say so"
            )
        metadata = keys | metadata
        for name, place in places.items():
            tensors[name] = StoredTensor(file, *place)
    return metadata, tensors


def _kind_of(metadata: dict[str, Any]) -> str:
    """The family of a model, as llama.cpp calls it. A ValueError if it is not read, or the file has no tokenizer."""
    kind = metadata.get("general.architecture")
    if kind not in _READ:
        raise ValueError(
            f"a {kind!r} model, and of GGUF files these are read: {', '.join(_READ)}"
        )
    if not metadata.get("tokenizer.ggml.tokens"):
        raise ValueError("it has no tokenizer")
    return str(kind)


def _check_tensors(
    kind: str, weights: dict[str, torch.Tensor], tensors: dict[str, StoredTensor]
) -> None:
    """Raise a ValueError if the tensors are not just the model's weights, each of its size."""
    factors: set[str] = set()  # they are read with the settings
    if kind == "llama":
        factors = {ROPE_FACTORS}
    elif kind == "phi3":
        factors = set(LONG_ROPE.values())
    wanted = {name: tuple(weight.shape) for name, weight in weights.items()}
    there = {
        name: tensor.shape for name, tensor in tensors.items() if name not in factors
    }
    names = sorted(wanted.keys() | there.keys())
    odd = [name for name in names if wanted.get(name) != there.get(name)]
    if odd:
        raise ValueError(
            f"no {kind} can be built of it: {odd[0]} is missing, unknown or of another size"
        )


def _place_of(
    name: str, tensor: StoredTensor, files: Sequence[Path], kind: str, config: Any
) -> Place:
    """Where a weight, by its name in GGUF, is in the files, and how it differs from that of transformers.

    `kind` is the family as llama.cpp calls it, `config` that of transformers.
    """
    heads = 0
    if kind == "llama" and ".attn_q." in name:
        heads = config.num_attention_heads
    elif kind == "llama" and ".attn_k." in name:
        heads = config.num_key_value_heads
    is_larger = kind.startswith("gemma") and name.endswith("norm.weight")
    file = files.index(tensor.file)
    return Place(file, tensor.shape, tensor.type, tensor.start, heads, is_larger)


def _scale_as_llama3(config: Any, factors: StoredTensor) -> None:
    """Set in a config that the rotary embedding is scaled as that of a Llama 3, by the largest of its divisors, `factors`.

    A ValueError if these are not the divisors that transformers then has.
    """
    divisors = torch.tensor(factors.values())
    scaled = LLAMA3 | {"factor": float(divisors.max())}
    config.rope_parameters = config.rope_parameters | scaled
    again = llama3_factors(config)
    is_same = divisors.shape == again.shape
    if not is_same or not torch.allclose(divisors, again, rtol=1e-3):
        raise ValueError(_ODD_ROPE)


def _settings(
    kind: str, metadata: dict[str, Any], tensors: dict[str, StoredTensor]
) -> tuple[str, dict[str, Any]]:
    """The model's type in transformers, and its settings by their names there. What a file does not say is as in llama.cpp.

    `kind` is the family as llama.cpp calls it, `metadata` the keys of the header, which
    begin with the family. A ValueError for settings that are not known.
    """
    architecture = _READ[kind]
    if kind == "llama" and metadata.get("llama.expert_count"):
        architecture = "mixtral"
    names = _setting_names(kind, architecture)
    prefix = f"{kind}."
    keys = {
        key.removeprefix(prefix): value
        for key, value in metadata.items()
        if key.startswith(prefix)
    }
    _check_keys(kind, keys, names)
    settings = {"num_key_value_heads": keys["attention.head_count"]}
    settings |= {name: keys[key] for key, name in names.items() if key in keys}
    if settings.get("sliding_window") == 0:
        settings["sliding_window"] = None
    settings["bos_token_id"] = metadata.get("tokenizer.ggml.bos_token_id")
    settings["pad_token_id"] = metadata.get("tokenizer.ggml.padding_token_id")
    settings["eos_token_id"] = _ends(metadata)
    width = settings["hidden_size"] // settings["num_attention_heads"]
    head_dim = settings.setdefault("head_dim", width)
    original = _original_length(keys, settings)
    if kind == "phi3":
        settings["original_max_position_embeddings"] = original
    rope = _rope(kind, keys, tensors, head_dim=head_dim, original=original)
    settings["vocab_size"] = metadata["tokenizer.ggml.tokens"]
    settings["rope_parameters"] = {"full_attention": rope} if kind == "gemma3" else rope
    settings["tie_word_embeddings"] = "output.weight" not in tensors
    if kind == "qwen3moe":
        settings["norm_topk_prob"] = True
    if kind.startswith("gemma"):
        is_largest = (kind, settings["num_hidden_layers"]) in _LARGEST_GEMMA
        settings["query_pre_attn_scalar"] = width if is_largest else head_dim
    return architecture, settings


def _setting_names(kind: str, architecture: str) -> dict[str, str]:
    """The keys of a GGUF header, without the family before them, that a family knows, and transformers' names of them."""
    from transformers import AutoConfig

    known = {*AutoConfig.for_model(architecture).to_dict(), "head_dim", "num_experts"}
    if kind == "gemma3":
        known.add("rope_local_base_freq")
    if not kind.startswith(("gemma", "phi")):
        # Qwen's configs have it, and do not use it.
        known.discard("sliding_window")
    return {key: name for key, name in (KEYS | MAY_LACK).items() if name in known}


def _check_keys(kind: str, keys: dict[str, Any], names: dict[str, str]) -> None:
    """Raise a ValueError if a key of a header is not known, or one is missing.

    `keys` are those of the family without its name (`kind`), `names` what is known of
    them.
    """
    odd = [key for key, value in keys.items() if not _is_known(key, value, names)]
    missing = [key for key in KEYS if key in names and key not in keys]
    if odd or missing:
        key = [*odd, *missing][0]
        raise ValueError(f"its setting {kind}.{key} is missing, or not known here")


def _is_known(key: str, value: Any, names: dict[str, str]) -> bool:
    """Whether a key is one that is read, or that changes no number of the model. An array is no value of any of them."""
    if isinstance(value, tuple):
        return False
    return key in names or _OTHER.fullmatch(key) is not None


def _original_length(keys: dict[str, Any], settings: dict[str, Any]) -> Any:
    """The length of text that a model was made for before its rotary embedding was scaled."""
    usual = settings.get("max_position_embeddings")
    return keys.get("rope.scaling.original_context_length", usual)


def _rope(
    kind: str,
    keys: dict[str, Any],
    tensors: dict[str, StoredTensor],
    *,
    head_dim: Any,
    original: Any,
) -> dict[str, Any]:
    """The settings of the rotary embedding as transformers has them. A ValueError if it is scaled in a way not known here.

    `keys` are those of the header without the family (`kind`), `head_dim` the width of
    a head, and `original` the length of text that the model was made for.
    """
    rope = {"rope_type": "default", "rope_theta": keys.get("rope.freq_base", 10_000.0)}
    factor = keys.get("rope.scaling.factor") or keys.get("rope.scale_linear") or 1
    scaling = "none"
    if factor != 1:
        scaling = keys.get("rope.scaling.type", "linear")
    if scaling != "none":
        rope["rope_type"] = scaling
        rope["factor"] = factor
        rope["original_max_position_embeddings"] = original
    turned = keys.get("rope.dimension_count", head_dim)  # numbers of each head
    attention = keys.get("rope.scaling.attn_factor", 1)
    if kind == "phi3":
        rope["partial_rotary_factor"] = turned / head_dim
        turned = head_dim
        if LONG_ROPE["long_factor"] in tensors:
            for name, tensor in LONG_ROPE.items():
                rope[name] = tensors[tensor].values().tolist()
            rope["rope_type"] = "longrope"
            rope["attention_factor"] = attention
            attention = 1
    is_plain = (turned, attention) == (head_dim, 1)
    if not is_plain or scaling not in ("none", *_SCALINGS):
        raise ValueError(_ODD_ROPE)
    return rope


def _ends(metadata: dict[str, Any]) -> list[Any]:
    """The ids that end a text, as llama.cpp has them: of a text, a turn, a message."""
    keys = [f"tokenizer.ggml.{word}_token_id" for word in ("eos", "eot", "eom")]
    named = [metadata[key] for key in keys if key in metadata]
    return list(dict.fromkeys(named))


def llama3_factors(config: Any) -> torch.Tensor:
    """By how much a Llama 3 divides each frequency of its rotary embedding: float32 [head_dim / 2]."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    frequencies, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    places = torch.arange(len(frequencies), dtype=torch.float32) / len(frequencies)
    factors: torch.Tensor = (
        config.rope_parameters["rope_theta"] ** -places / frequencies
    )
    return factors
