"""Models in GGUF files. The first reading leaves a folder in transformers' format in the user's cache."""

import errno
import json
import os
import re
import shutil
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file

from pipedec_cli.data.errors import UserError, first_line, is_out_of_space
from pipedec_cli.data.trained import UNFINISHED, is_gguf
from pipedec_cli.data.writing import cache_folder, is_safe
from pipedec_cli.model.bare import check_sum, parameter
from pipedec_cli.model.engine.native.blocks import Blocks
from pipedec_cli.model.engine.native.library import library
from pipedec_cli.model.families import check_config
from pipedec_cli.model.mapped import Mapping
from pipedec_cli.model.notes import remembered_sha256
from pipedec_cli.model.pretrained import quiet

#: The most bytes of a header, elements of all its arrays together, keys or tensors, and
#: dimensions of a tensor.
_LONGEST, _MOST_ELEMENTS, _MOST_ENTRIES, _MOST_DIMENSIONS = 1 << 26, 1 << 21, 1 << 16, 4
#: The types of numbers, as `struct` names them; beside them are texts and arrays.
_NUMBERS: Final = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))
_TEXT, _ARRAY = 8, 9


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
    def __init__(self, content: bytes) -> None:
        self.content, self.place, self.elements = content, 0, 0

    def header(self) -> Header:
        if self.take(4) != b"GGUF":
            raise ValueError("it is no GGUF file")
        version, tensors, keys = *self.numbers("I"), *self.numbers("QQ")
        if version not in (2, 3) or max(tensors, keys) > _MOST_ENTRIES:
            raise ValueError(
                f"it claims version {version}, {tensors:,} tensors and {keys:,} keys"
            )
        metadata = {self.text(): self.value(*self.numbers("I")) for _ in range(keys)}
        found = list[
            tuple[str, tuple[int, ...], int, int]
        ]()  # name, shape, type and offset of each tensor
        for _ in range(tensors):
            name, dimensions = self.text(), *self.numbers("I")
            if dimensions > _MOST_DIMENSIONS:
                raise ValueError(
                    f"its tensor {name[:60]!r} has {dimensions} dimensions"
                )
            # Not all files have axes of length 1.
            shape = tuple(
                size for size in self.numbers("Q" * dimensions)[::-1] if size != 1
            )
            found.append((name, shape, *self.numbers("IQ")))
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"its alignment is {alignment!r}")
        start = -(-self.place // alignment) * alignment
        return Header(
            metadata,
            {
                name: (shape, kind, start + offset)
                for name, shape, kind, offset in found
            },
        )

    def take(self, count: int) -> bytes:
        """The next bytes."""
        end = self.place + count
        if end > len(self.content):
            raise ValueError(
                "its header is too long"
                if len(self.content) == _LONGEST
                else "it is cut short"
            )
        taken, self.place = self.content[self.place : end], end
        return taken

    def numbers(self, kinds: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{kinds}", self.take(struct.calcsize(f"<{kinds}")))

    def text(self) -> str:
        return self.take(*self.numbers("Q")).decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind in _NUMBERS:
            return self.numbers(_NUMBERS[kind])[0]
        inner, count = self.numbers("IQ") if kind == _ARRAY else (kind, 0)
        self.elements += count
        if self.elements > _MOST_ELEMENTS or inner not in (_TEXT, *_NUMBERS):
            raise ValueError(
                f"it claims a value of type {inner}, or one of {count:,} elements"
            )
        if inner != _TEXT:
            return self.numbers(f"{count}{_NUMBERS[inner]}")
        for _ in range(count):
            self.take(*self.numbers("Q"))
        return count


#: Families by llama.cpp's names, and what transformers calls them. Mistral's files say
#: llama.
_READ = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
}
_READ |= {"phi3": "phi3", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe"}
#: Keys that a file must have if its family knows them, and keys that it may lack, with
#: transformers' names.
KEYS = {
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
}
KEYS |= {
    "embedding_length": "hidden_size",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
KEYS |= {
    "expert_used_count": "num_experts_per_tok",
    "attention.sliding_window": "sliding_window",
}
MAY_LACK = {
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
}
MAY_LACK |= {
    "context_length": "max_position_embeddings",
    "feed_forward_length": "intermediate_size",
}
MAY_LACK |= {
    "expert_count": "num_experts",
    "expert_feed_forward_length": "moe_intermediate_size",
}
MAY_LACK |= {"expert_shared_feed_forward_length": "shared_expert_intermediate_size"}
MAY_LACK |= {"rope.freq_base_swa": "rope_local_base_freq"}
MAY_LACK |= {
    f"{name}_logit_softcapping": f"{name}_logit_softcapping"
    for name in ("attn", "final")
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
#: A bare folder's file that says where the weights are.
WEIGHTS: Final = "weights.json"
#: ggml's types that are numbers, and no blocks of them.
_FLOATS: Final = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16}
#: The sizes and times of all files of a folder in the cache. It is written last.
_FILES: Final = ".files"
#: Seconds after which an unfinished folder belongs to no process that is still alive.
_ABANDONED: Final = 86_400
#: A tensor with a divisor for each frequency of a Llama 3. The config has the largest
#: divisor, and the numbers of `LLAMA3`.
ROPE_FACTORS: Final = "rope_freqs.weight"
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
LLAMA3 |= {"original_max_position_embeddings": 8192}
#: Tensors of a Phi-3 with divisors of its frequencies, by their names in its config.
LONG_ROPE: Final = {
    f"{name}_factor": f"rope_factors_{name}.weight" for name in ("short", "long")
}
LACKING: Final = "reading GGUF files needs the package gguf"


def local_files(name: str) -> list[Path]:
    """The file of that name, or all parts of its model; those of ``owner/name:file.gguf`` on the hub, fetched if need be."""
    split, repository = _PART.fullmatch(name), name.rpartition(":")[0]
    parts = (
        [f"{split[1]}{part:05}{split[2]}" for part in range(1, int(split[3]) + 1)]
        if split
        else [name]
    )
    if Path(name).is_file() or not repository:
        if absent := [part for part in parts if split and not Path(part).is_file()]:
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


def content_sha256(files: Sequence[Path]) -> str:
    """The SHA-256 of a file, or of the sums of several. A file is read for it again if its size or time has changed."""
    sums = [remembered_sha256(file) for file in files]
    return sums[0] if len(sums) == 1 else sha256("".join(sums).encode()).hexdigest()


def loadable(name: str, *, is_bare: bool = False) -> str:
    """The same name of a folder or a hub model; of a GGUF file a folder in the cache, which transformers can load.

    With `is_bare` the folder has no weights, but says where the file has them; see
    `read_weights`.

    The file is read now if it was not read before. The folder is named by its content,
    and is there as a whole or not at all. A UserError if the file cannot be read, or
    the folder cannot be written; an OSError if the disk is full.
    """
    if not is_gguf(name):
        return name
    files = local_files(name)
    try:
        place = (
            cache_folder()
            / "models"
            / f"{content_sha256(files)}-{_VERSION}{'-bare' * is_bare}"
        )
        if not _is_whole(place):
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            for left in place.parent.glob(f"{UNFINISHED}*"):
                if time.time() - left.stat().st_mtime > _ABANDONED:
                    shutil.rmtree(left, ignore_errors=True)
            with TemporaryDirectory(dir=place.parent, prefix=UNFINISHED) as unfinished:
                made = Path(unfinished) / "model"
                made.mkdir(mode=0o700)
                with quiet():
                    _read(files, made, is_bare=is_bare)
                for path in made.iterdir():
                    with path.open("rb") as written:
                        os.fsync(written.fileno())
                # The list of files comes after all of them are on disk.
                states = {path.name: path.stat() for path in made.iterdir()}
                found = {
                    name: [state.st_size, state.st_mtime_ns]
                    for name, state in states.items()
                }
                (made / _FILES).write_text(json.dumps(found), encoding="utf-8")
                with suppress(
                    OSError
                ):  # where another process was faster, and reads it already
                    made.rename(place)
                if not _is_whole(place):
                    shutil.rmtree(place, ignore_errors=True)
                    made.rename(place)
    except Exception as error:
        if is_out_of_space(error):
            what = (
                f"no room for the weights of {name} (XDG_CACHE_HOME names this folder)"
            )
            raise OSError(errno.ENOSPC, what, str(cache_folder())) from error
        if isinstance(error, ImportError):
            raise UserError(LACKING, where=name, todo="`pip install gguf`") from error
        if isinstance(
            error, ValueError | NotImplementedError
        ):  # of a type that gguf cannot unpack
            todo = "get the file again, or take another"
            raise UserError(first_line(error), where=name, todo=todo) from None
        if isinstance(error, OSError | RuntimeError):
            what = f"cannot be read, or kept in the cache: {error}"
            raise UserError(
                what, where=name, todo="let XDG_CACHE_HOME name a folder"
            ) from error
        raise
    return str(place)


def _is_whole(folder: Path) -> bool:
    """Whether a folder is the user's own and has the files that were written, unchanged."""
    with suppress(OSError, ValueError, AttributeError):
        listed = json.loads((folder / _FILES).read_text(encoding="utf-8"))
        states = {name: (folder / name).stat() for name in listed}
        same = all(
            listed[name] == [state.st_size, state.st_mtime_ns]
            for name, state in states.items()
        )
        return same and is_safe(folder)
    return False


def _read(files: Sequence[Path], folder: Path, *, is_bare: bool) -> None:
    """Write the model of a file, or of all its parts, into a folder in transformers' format.

    The weights are in float32; a bare folder says in place of them where they are.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    metadata, tensors = (
        dict[str, Any](),
        dict[str, tuple[Path, tuple[int, ...], int, int]](),
    )
    for number, file in enumerate(files):
        keys, places = read_header(file)
        part, count = keys.get("split.no", 0), keys.get("split.count", 0) or 1
        if (part, count) != (number, len(files)):
            raise ValueError(
                f"{file.name} is part {part + 1} of {count}, and its name does not say so"
            )
        metadata = keys | metadata
        tensors |= {name: (file, *place) for name, place in places.items()}
    if (kind := metadata.get("general.architecture")) not in _READ:
        raise ValueError(
            f"a {kind!r} model, and of GGUF files these are read: {', '.join(_READ)}"
        )
    if not metadata.get("tokenizer.ggml.tokens"):
        raise ValueError("it has no tokenizer")
    name, settings = _settings(kind, metadata, tensors)
    check_config(SimpleNamespace(**settings))
    config = AutoConfig.for_model(name, **settings)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    if not is_bare:
        model = model.to_empty(device="cpu")
    wanted = named_weights(model, kind)
    factors = {"llama": {ROPE_FACTORS}, "phi3": {*LONG_ROPE.values()}}.get(kind, set())
    sizes = {name: tuple(weight.shape) for name, weight in wanted.items()}
    there = {
        name: shape for name, (_, shape, *_) in tensors.items() if name not in factors
    }
    if odd := sorted(
        name for name in {*sizes, *there} if sizes.get(name) != there.get(name)
    ):
        raise ValueError(
            f"no {kind} can be built of it: {odd[0]} is missing, unknown or of another size"
        )
    heads = {
        ".attn_q.": config.num_attention_heads,
        ".attn_k.": config.num_key_value_heads,
    }
    heads = heads if kind == "llama" else {}
    whereabouts = dict[str, _Place]()
    for name, weight in wanted.items():
        turned = next((heads[part] for part in heads if part in name), 0)
        is_norm = kind.startswith("gemma") and name.endswith("norm.weight")
        file, shape, type_, start = tensors[name]
        whereabouts[name] = _Place(
            files.index(file), shape, type_, start, turned, is_norm
        )
        if not is_bare:
            weight.numpy()[...] = _floats(file, whereabouts[name]).reshape(weight.shape)
    if kind == "llama" and ROPE_FACTORS in tensors:  # of a Llama 3
        divisors = torch.tensor(_values(*tensors[ROPE_FACTORS]))
        config.rope_parameters = (
            config.rope_parameters | LLAMA3 | {"factor": float(divisors.max())}
        )
        again = llama3_factors(config)
        if divisors.shape != again.shape or not torch.allclose(
            divisors, again, rtol=1e-3
        ):
            raise ValueError(
                "its rotary embedding is scaled in a way that is not known here"
            )
    if is_bare:
        own = own_names(model, kind)
        found = {own[name]: list(place) for name, place in whereabouts.items()}
        (folder / WEIGHTS).write_text(json.dumps(found), encoding="utf-8")
    else:  # transformers refuses to
        save_file(_untied(model), folder / "model.safetensors", {"format": "pt"})
    config.save_pretrained(folder)
    options = {"gguf_file": files[0].name, "local_files_only": True}
    AutoTokenizer.from_pretrained(files[0].parent, **options).save_pretrained(folder)


def _settings(
    kind: str, metadata: dict[str, Any], tensors: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The model's name in transformers, and its settings. What a file does not say is as in llama.cpp."""
    from transformers import AutoConfig

    name = (
        "mixtral"
        if kind == "llama" and metadata.get("llama.expert_count")
        else _READ[kind]
    )
    known = AutoConfig.for_model(name).to_dict().keys() | {"head_dim", "num_experts"}
    known |= {"rope_local_base_freq"} if kind == "gemma3" else set()
    if not kind.startswith(("gemma", "phi")):
        known -= {"sliding_window"}  # Qwen's configs have it, and do not use it
    names = {key: name for key, name in (KEYS | MAY_LACK).items() if name in known}
    keys = {
        key[len(kind) + 1 :]: value
        for key, value in metadata.items()
        if key.startswith(f"{kind}.")
    }
    odd = [
        key
        for key in keys
        if isinstance(keys[key], tuple) or not (key in names or _OTHER.fullmatch(key))
    ]
    if odd := odd + [key for key in KEYS if key in names and key not in keys]:
        raise ValueError(f"its setting {kind}.{odd[0]} is missing, or not known here")
    settings = {"num_key_value_heads": keys["attention.head_count"]}
    settings |= {name: keys[key] for key, name in names.items() if key in keys}
    settings |= {"sliding_window": None} if settings.get("sliding_window") == 0 else {}
    for word, theirs in (("bos", "bos"), ("pad", "padding")):
        settings[f"{word}_token_id"] = metadata.get(f"tokenizer.ggml.{theirs}_token_id")
    settings["eos_token_id"] = _ends(metadata)
    width = settings["hidden_size"] // settings["num_attention_heads"]
    head_dim = settings.setdefault("head_dim", width)
    rope = {"rope_type": "default", "rope_theta": keys.get("rope.freq_base", 10_000.0)}
    turned, attention = (
        keys.get("rope.dimension_count", head_dim),
        keys.get("rope.scaling.attn_factor", 1),
    )
    factor = keys.get("rope.scaling.factor") or keys.get("rope.scale_linear") or 1
    scaling = keys.get("rope.scaling.type", "linear") if factor != 1 else "none"
    original = keys.get(
        "rope.scaling.original_context_length", settings.get("max_position_embeddings")
    )
    if scaling != "none":
        rope |= {
            "rope_type": scaling,
            "factor": factor,
            "original_max_position_embeddings": original,
        }
    if kind == "phi3":
        rope["partial_rotary_factor"], turned = turned / head_dim, head_dim
        settings["original_max_position_embeddings"] = original
        if LONG_ROPE["long_factor"] in tensors:
            rope |= {
                name: _values(*tensors[tensor]).tolist()
                for name, tensor in LONG_ROPE.items()
            }
            rope, attention = (
                rope | {"rope_type": "longrope", "attention_factor": attention},
                1,
            )
    if (turned, attention) != (head_dim, 1) or scaling not in (
        "none",
        "linear",
        "yarn",
    ):
        raise ValueError(
            "its rotary embedding is scaled in a way that is not known here"
        )
    settings["vocab_size"] = metadata["tokenizer.ggml.tokens"]
    settings["rope_parameters"] = {"full_attention": rope} if kind == "gemma3" else rope
    settings["tie_word_embeddings"] = "output.weight" not in tensors
    if kind == "qwen3moe":
        settings["norm_topk_prob"] = True
    if kind.startswith(
        "gemma"
    ):  # llama.cpp knows the largest of each family by its layers
        is_large = (kind, settings["num_hidden_layers"]) in (
            ("gemma2", 46),
            ("gemma3", 62),
        )
        settings["query_pre_attn_scalar"] = width if is_large else head_dim
    return name, settings


def _ends(metadata: dict[str, Any]) -> list[Any]:
    """The ids that end a text, as llama.cpp has them: of a text, a turn, a message."""
    keys = (f"tokenizer.ggml.{word}_token_id" for word in ("eos", "eot", "eom"))
    named = [metadata[key] for key in keys if key in metadata]
    return list(dict.fromkeys(named))


class _Place(NamedTuple):
    """Where a weight is: the number of its file, its shape, ggml's type and its first byte; and how it differs."""

    file: int
    shape: tuple[int, ...]
    type: int
    start: int
    heads: int = 0  # llama.cpp has another order of the rows of so many heads
    is_larger: bool = False  # by 1, as the norms of Gemma are

    @property
    def order(self) -> Any:
        """Which row of the file each row of the weight is, int64; None if their order is the same."""
        if not self.heads:
            return None
        rows = torch.arange(self.shape[0]).view(self.heads, -1, 2)
        return rows.swapaxes(1, 2).reshape(-1)


def _floats(file: Path, place: _Place) -> Any:
    """A weight: float32 of its shape in the file."""
    values = _values(file, place.shape, place.type, place.start)
    if place.order is not None:
        values = values[place.order.numpy()]
    return values - 1 if place.is_larger else values


def read_weights(
    folder: Path, files: Sequence[Path], dtype: torch.dtype
) -> dict[str, Any]:
    """The weights of a bare folder's file by transformers' names: matrices in blocks as they are, others as parameters.

    Parameters of one dimension have the dtype. A ValueError for blocks of a type that
    the kernels do not have.
    """
    from gguf import GGML_QUANT_SIZES

    found = json.loads((folder / WEIGHTS).read_text(encoding="utf-8"))
    kernels, mappings = library(), [Mapping(file) for file in files]
    weights = dict[str, Any]()
    for name, (number, shape, *rest) in found.items():
        place = _Place(number, tuple(shape), *rest)
        if place.type in _FLOATS:
            values = mappings[number].tensor(
                _FLOATS[place.type], place.shape, place.start
            )
            if place.order is not None:
                values = values[place.order]
            check_sum(name, values)
            values = values - 1 if place.is_larger else values
            own = values.dtype if values.ndim > 1 else dtype
            weights[name] = parameter(values, own)
        elif len(shape) != 2 or kernels.kind_of_blocks(place.type) < 0:
            raise ValueError(f"{name} is of type {place.type}")
        else:
            outputs, inputs = place.shape
            elements, size = GGML_QUANT_SIZES[place.type]
            rows = outputs, inputs // elements * size
            data = mappings[number].tensor(torch.uint8, rows, place.start)
            weights[name] = Blocks(data, place.type, inputs, place.order)
    return weights


def _values(file: Path, shape: tuple[int, ...], kind: int, start: int) -> Any:
    """The numbers of a tensor: float32 of that shape."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

    elements, size = GGML_QUANT_SIZES[kind]
    rows = np.memmap(
        file, np.uint8, "r", start, (prod(shape[:-1]), shape[-1] // elements * size)
    )
    return dequantize(rows, GGMLQuantizationType(kind)).reshape(shape)


def named_weights(model: Any, family: str) -> dict[str, torch.Tensor]:
    """The weights of a model, or views of their parts, by their names in GGUF or else their own; not those that are tied."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    architecture = next(one for one, name in MODEL_ARCH_NAMES.items() if name == family)
    names = get_tensor_name_map(architecture, model.config.num_hidden_layers)
    weights = dict[str, torch.Tensor]()
    for name, weight in _untied(model).items():
        experts, is_both, _ = name.partition("gate_up_proj")
        if is_both and weight.ndim == 3:
            parts = zip(("gate", "up"), weight.chunk(2, dim=1), strict=True)
            weights |= {f"{experts}{part}_proj.weight": view for part, view in parts}
        else:
            weights[f"{name}.weight" if weight.ndim == 3 else name] = weight.squeeze()
    return {
        names.get_name(name, (".weight", ".bias")) or name: weight
        for name, weight in weights.items()
    }


def own_names(model: Any, family: str) -> dict[str, str]:
    """The names of a model's weights in transformers, by their names in GGUF; those of experts' halves are not among them."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    architecture = next(one for one, name in MODEL_ARCH_NAMES.items() if name == family)
    names = get_tensor_name_map(architecture, model.config.num_hidden_layers)
    return {
        names.get_name(name, (".weight", ".bias")) or name: name
        for name in _untied(model)
    }


def _untied(model: Any) -> dict[str, torch.Tensor]:
    """The weights of a model by name, without the output matrix where it is the embedding."""
    weights: dict[str, torch.Tensor] = model.state_dict()
    if model.config.tie_word_embeddings:
        del weights["lm_head.weight"]
    return weights


def llama3_factors(config: Any) -> torch.Tensor:
    """See `ROPE_FACTORS`: float32 [head_dim / 2]."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    frequencies, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    places = torch.arange(len(frequencies), dtype=torch.float32) / len(frequencies)
    factors: torch.Tensor = (
        config.rope_parameters["rope_theta"] ** -places / frequencies
    )
    return factors
