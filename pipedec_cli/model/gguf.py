"""Models in GGUF files. The first reading leaves a folder in transformers' format in the user's cache."""

import errno
import json
import os
import shutil
import struct
import time
from contextlib import redirect_stderr, suppress
from functools import cache
from io import StringIO
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file

from pipedec_cli.data.errors import UserError, first_line, is_out_of_space
from pipedec_cli.data.trained import UNFINISHED, is_gguf
from pipedec_cli.data.writing import cache_folder, file_sha256, is_safe
from pipedec_cli.model.families import check_config
from pipedec_cli.model.pretrained import quiet

#: The most bytes of a header, elements of all its arrays together, keys or tensors, and dimensions of a tensor.
_LONGEST, _MOST_ELEMENTS, _MOST_ENTRIES, _MOST_DIMENSIONS = 1 << 26, 1 << 21, 1 << 16, 4
#: The types of numbers, as `struct` names them; beside them are texts and arrays.
_NUMBERS: Final = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))
_TEXT, _ARRAY = 8, 9


class Header(NamedTuple):
    """Keys with numbers, texts or, of an array, its length; tensors with shape, type (in ggml's numbers) and first byte."""

    metadata: dict[str, Any]
    tensors: dict[str, tuple[tuple[int, ...], int, int]]


def read_header(path: Path) -> Header:
    """Read the header of a file; a ValueError if it is no GGUF file, claims what cannot be, or lacks some of its tensors."""
    from gguf import GGML_QUANT_SIZES

    with path.open("rb") as file:
        header = _Reader(file.read(_LONGEST)).header()
    for name, (shape, kind, start) in header.tensors.items():
        if kind not in GGML_QUANT_SIZES:
            raise ValueError(f"its tensor {name} is of type {kind}, which the package gguf does not know")
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
            raise ValueError(f"it claims version {version}, {tensors:,} tensors and {keys:,} keys")
        metadata = {self.text(): self.value(*self.numbers("I")) for _ in range(keys)}
        found = list[tuple[str, tuple[int, ...], int, int]]()  # name, shape, type and offset of each tensor
        for _ in range(tensors):
            name, dimensions = self.text(), *self.numbers("I")
            if dimensions > _MOST_DIMENSIONS:
                raise ValueError(f"its tensor {name[:60]!r} has {dimensions} dimensions")
            found.append((name, self.numbers("Q" * dimensions)[::-1], *self.numbers("IQ")))
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"its alignment is {alignment!r}")
        start = -(-self.place // alignment) * alignment
        return Header(metadata, {name: (shape, kind, start + offset) for name, shape, kind, offset in found})

    def take(self, count: int) -> bytes:
        """The next bytes."""
        end = self.place + count
        if end > len(self.content):
            raise ValueError("its header is too long" if len(self.content) == _LONGEST else "it is cut short")
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
            raise ValueError(f"it claims a value of type {inner}, or one of {count:,} elements")
        if inner == _TEXT:
            for _ in range(count):
                self.take(*self.numbers("Q"))
        else:
            self.take(count * struct.calcsize(f"<{_NUMBERS[inner]}"))
        return count


#: Families that are read. Of SmolLM3 transformers reads no GGUF file, and of Gemma 3 not all settings.
_READ: Final = ("llama", "qwen2", "qwen3")
#: A folder that an earlier version of this file has written is not used.
_VERSION: Final = 1
#: The sizes and times of all files of a folder in the cache. It is written last.
_FILES: Final = ".files"
#: Seconds after which an unfinished folder belongs to no process that is still alive.
_ABANDONED: Final = 86_400
#: A tensor with a divisor for each frequency of a Llama 3. The config has the largest divisor, and the numbers of `LLAMA3`.
ROPE_FACTORS: Final = "rope_freqs.weight"
LLAMA3: Final[dict[str, Any]] = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LACKING: Final = "reading GGUF files needs the package gguf"


def local_file(name: str) -> Path:
    """The file of that name; of ``owner/name:file.gguf`` the file that the hub has, which is fetched if need be."""
    repository, _, file = name.rpartition(":")
    if Path(name).is_file() or not repository:
        return Path(name)
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(repository, file))


def content_sha256(file: Path) -> str:
    """The SHA-256 of a file, which a process reads for it once, as long as size and time of the file stay the same."""
    state = file.stat()
    return _sha256(file, state.st_size, state.st_mtime_ns)


@cache
def _sha256(file: Path, *_: int) -> str:
    return file_sha256(file)


def loadable(name: str) -> str:
    """The same name of a folder or a hub model; of a GGUF file a folder in the cache, which transformers can load.

    The file is read now if it was not read before. The folder is named by its content, and is there as a whole or not at
    all. A UserError if the file cannot be read, or the folder cannot be written; an OSError if the disk is full.
    """
    if not is_gguf(name):
        return name
    file = local_file(name)
    try:
        place = cache_folder() / "models" / f"{content_sha256(file)}-{_VERSION}"
        if not _is_whole(place):
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            for left in place.parent.glob(f"{UNFINISHED}*"):
                if time.time() - left.stat().st_mtime > _ABANDONED:
                    shutil.rmtree(left, ignore_errors=True)
            with TemporaryDirectory(dir=place.parent, prefix=UNFINISHED) as unfinished:
                made = Path(unfinished) / "model"
                made.mkdir(mode=0o700)
                with quiet(), redirect_stderr(StringIO()):  # transformers always shows this progress
                    _read(file, made)
                for path in made.iterdir():
                    with path.open("rb") as written:
                        os.fsync(written.fileno())
                # The list of files comes after all of them are on disk.
                states = {path.name: path.stat() for path in made.iterdir()}
                found = {name: [state.st_size, state.st_mtime_ns] for name, state in states.items()}
                (made / _FILES).write_text(json.dumps(found), encoding="utf-8")
                try:
                    made.rename(place)
                except OSError:
                    if not _is_whole(place):  # else another process was faster, and reads it already
                        shutil.rmtree(place, ignore_errors=True)
                        made.rename(place)
    except Exception as error:
        if is_out_of_space(error):
            what = f"no room for the weights of {name} (XDG_CACHE_HOME names this folder)"
            raise OSError(errno.ENOSPC, what, str(cache_folder())) from error
        if isinstance(error, ImportError):
            raise UserError(LACKING, where=name, todo="`pip install gguf`") from error
        if isinstance(error, ValueError):
            raise UserError(
                first_line(error), where=name, todo="get the file again, or take another"
            ) from None
        if isinstance(error, OSError | RuntimeError):
            what = f"cannot be read, or kept in the cache: {error}"
            raise UserError(what, where=name, todo="let XDG_CACHE_HOME name a folder") from error
        raise
    return str(place)


def _is_whole(folder: Path) -> bool:
    """Whether a folder is the user's own and has the files that were written, unchanged."""
    with suppress(OSError, ValueError, AttributeError):
        listed = json.loads((folder / _FILES).read_text(encoding="utf-8"))
        states = {name: (folder / name).stat() for name in listed}
        same = all(listed[name] == [state.st_size, state.st_mtime_ns] for name, state in states.items())
        return same and is_safe(folder)
    return False


def _read(file: Path, folder: Path) -> None:
    """Write the model of a file into a folder in transformers' format, with the weights in float32."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    header = read_header(file)
    kind = header.metadata.get("general.architecture")
    if kind not in _READ:
        raise ValueError(f"a {kind!r} model, and of GGUF files these are read: {', '.join(_READ)}")
    if not header.metadata.get("tokenizer.ggml.tokens"):
        raise ValueError("it has no tokenizer")
    if header.metadata.get(f"{kind}.rope.scaling.type", "none") != "none":
        raise ValueError("its rotary embedding is scaled, which transformers does not read")
    given = {"gguf_file": file.name, "local_files_only": True}
    config = AutoConfig.from_pretrained(file.parent, **given)
    config.head_dim = header.metadata.get(f"{kind}.attention.key_length", getattr(config, "head_dim", None))
    check_config(config)
    with torch.device("meta"):
        wanted = named_weights(AutoModelForCausalLM.from_config(config), kind)
    sizes = {name: tuple(weight.shape) for name, weight in wanted.items()}
    there = {name: shape for name, (shape, *_) in header.tensors.items() if name != ROPE_FACTORS}
    if odd := sorted(name for name in {*sizes, *there} if sizes.get(name) != there.get(name)):
        raise ValueError(f"no {kind} can be built of it: {odd[0]} is missing, unknown or of another size")
    model = AutoModelForCausalLM.from_pretrained(file.parent, **given, config=config, dtype=torch.float32)
    if ROPE_FACTORS in header.tensors:  # of a Llama 3
        (count,), _, start = header.tensors[ROPE_FACTORS]
        factors = torch.from_numpy(np.fromfile(file, np.float32, count, offset=start))
        config.rope_parameters = config.rope_parameters | LLAMA3 | {"factor": float(factors.max())}
        again = llama3_factors(config)
        if factors.shape != again.shape or not torch.allclose(factors, again, rtol=1e-3):
            raise ValueError("its rotary embedding is scaled in a way that is not known here")
    save_file(_untied(model), folder / "model.safetensors", {"format": "pt"})  # transformers refuses to
    config.save_pretrained(folder)
    AutoTokenizer.from_pretrained(file.parent, **given).save_pretrained(folder)


def named_weights(model: Any, family: str) -> dict[str, torch.Tensor]:
    """The weights of a model by their names in GGUF, or by their own where GGUF has none; not those that are tied."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    architecture = next(one for one, name in MODEL_ARCH_NAMES.items() if name == family)
    names = get_tensor_name_map(architecture, model.config.num_hidden_layers)
    own = _untied(model).items()
    return {names.get_name(name, (".weight", ".bias")) or name: weight for name, weight in own}


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
    factors: torch.Tensor = config.rope_parameters["rope_theta"] ** -places / frequencies
    return factors
