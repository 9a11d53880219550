"""What a model takes in memory, by the headers of its files: nothing is loaded for it."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.trained import is_gguf
from pipedec_cli.model.arguments import DTYPES
from pipedec_cli.model.engine.native.kinds import INTEGERS, Kind
from pipedec_cli.model.engine.native.library import BuildError, library
from pipedec_cli.model.mapped import read_safetensors_header

#: A model of fewer bytes fits anywhere, and nothing is said of it.
SMALL: Final = 10**9
#: How many times as large weights are at most that become float32: those of 4 bits.
_MOST_GROWTH: Final = 8
#: Bytes of a process without weights: libraries, the tokenizer, buffers of a call.
_BASE: Final = 300_000_000
#: Matrices that make keys and values in a decoder, as transformers and llama.cpp name them.
_CACHED: Final = re.compile(
    r"(?!.*\bencoder\.).*(\b[kv]_proj|Attention\.[kv]|\.attn_[kv])\.weight"
)
#: Embeddings, and output matrices that are not the embeddings.
_LOOKED_UP: Final = ("model.embed_tokens.weight", "shared.weight", "token_embd.weight")
_HEADS: Final = ("lm_head.weight", "output.weight")
#: The share of a model's numbers that int4 keeps in 6 bits.
_FINER: Final = 0.25
#: Dtypes from the widest to the narrowest, to name one that fits.
_NARROWER: Final = ("bfloat16", "int8", "int4")


class Size(NamedTuple):
    """Numbers of a model, and the bytes of its files."""

    weights: int  # all of them
    encoder: int  # those of an encoder
    rows: int  # of embeddings that are not the output matrix as well
    token: int  # of a token's keys and values
    stored: int

    def weight_bytes(self, dtype: str) -> int:
        """The bytes of the weights in a dtype. Files of blocks are computed as they are stored."""
        if dtype == "stored":
            return self.stored
        own = self.weights - self.encoder - self.rows
        # Beside int4 an encoder is in int8; rows that are looked up are not rounded.
        beside = "int8" if dtype == "int4" else dtype
        narrow = "float32" if dtype == "float32" else "bfloat16"
        parts = [(own, dtype), (self.encoder, beside), (self.rows, narrow)]
        return int(sum(numbers * _bytes_of(kind) for numbers, kind in parts))

    def token_bytes(self, dtype: str) -> int:
        """The bytes of the keys and values of a token."""
        return self.token * (4 if dtype == "float32" else 2)


def _bytes_of(dtype: str) -> float:
    """The bytes of a weight."""
    kind = DTYPES[dtype]
    if kind not in INTEGERS:
        return kind.itemsize
    if dtype == "int8":
        return _packed(Kind.EIGHT)
    return (1 - _FINER) * _packed(Kind.SUPER_FOUR) + _FINER * _packed(Kind.SUPER_SIX)


def _packed(kind: Kind) -> float:
    """The bytes of a number of a kind in panels; those of a float32 where there are no kernels."""
    try:
        kernels = library()
    except BuildError:
        return 4
    inputs = 256
    return 4 * kernels.panel_words(kind, inputs) / (kernels.panel * inputs)


def size_of(name: str) -> Size | None:
    """The size of a model in a folder or a GGUF file; None of any other, of a small one, and where the loading will say what is wrong."""
    try:
        return _read_size(_files_of(name))
    except Exception:  # whatever a damaged file raises
        return None


def _read_size(files: Sequence[Path]) -> Size | None:
    stored = sum(file.stat().st_size for file in files)
    if stored * _MOST_GROWTH < SMALL:
        return None
    shapes = dict[str, Sequence[int]]()
    for file in files:
        shapes.update(_shapes(file))
    encoder = 0
    rows = 0
    token = 0
    for name, shape in shapes.items():
        if name.startswith(("encoder.", "model.encoder.")):
            encoder += prod(shape)
        if name in _LOOKED_UP and not shapes.keys().isdisjoint(_HEADS):
            rows += prod(shape)
        if _CACHED.fullmatch(name):
            token += shape[0]
    total = sum(map(prod, shapes.values()))
    return Size(total, encoder, rows, token, stored)


def _files_of(name: str) -> list[Path]:
    """The files of a model's weights."""
    from pipedec_cli.model.gguf import local_files

    if is_gguf(name):
        return local_files(name)
    return sorted(Path(name).glob("model*.safetensors"))


def _shapes(file: Path) -> Iterator[tuple[str, Sequence[int]]]:
    """The names and shapes of a file's tensors."""
    from pipedec_cli.model.gguf import read_header

    if is_gguf(file):
        for name, (shape, _, _) in read_header(file).tensors.items():
            yield name, shape
        return
    for name, entry in read_safetensors_header(file).tensors.items():
        yield name, entry["shape"]


def is_bfloat16(folder: Path) -> bool:
    """Whether a folder's safetensors hold nothing but bfloat16."""
    dtypes = set[str]()
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        for file in folder.glob("model*.safetensors"):
            header = read_safetensors_header(file)
            dtypes |= {entry["dtype"] for entry in header.tensors.values()}
    return dtypes == {"BF16"}


def free_memory(root: Path = Path("/")) -> int:
    """The bytes that a process can still have: of the machine, and of its control group if that has a limit."""
    free = int(psutil.virtual_memory().available)
    for folder, limit, used in _GROUPS:
        try:
            most = int((root / folder / limit).read_text(encoding="ascii"))
            now = int((root / folder / used).read_text(encoding="ascii"))
            held = _file_pages(root / folder)
        except (OSError, ValueError):  # there is none, or "max"
            continue
        free = min(free, max(0, most - now + held))
    return free


#: The folders of control groups, of both versions, with the files of limit and use.
_GROUPS: Final = (
    ("sys/fs/cgroup", "memory.max", "memory.current"),
    ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def _file_pages(folder: Path) -> int:
    """The bytes of a group's memory that are pages of files, which go where memory is needed."""
    stat = (folder / "memory.stat").read_text(encoding="ascii")
    for line in stat.splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def require_room(name: str, dtype: str, tokens: int) -> None:
    """Say what a large model takes on a CPU; a UserError if its weights cannot fit into the free memory.

    `dtype` is as `decoder.load` takes it, `tokens` the most that are kept of all texts
    at once.
    """
    size = size_of(name)
    if size is None:
        return
    weights = size.weight_bytes(dtype)
    if weights < SMALL:
        return
    free = free_memory()
    if weights + _BASE > free:
        what = (
            f"needs {_gb(weights + _BASE)} of memory in {dtype}, {_gb(free)} are free"
        )
        raise UserError(what, where=name, todo=_remedy(size, weights, free))
    cache = size.token_bytes(dtype) * tokens
    kind = "float32" if dtype == "float32" else "bfloat16"
    log.info(
        f"the weights take {_gb(weights)} in {dtype}, the keys and values of {tokens:,} tokens "
        f"up to {_gb(cache)} ({size.token_bytes(dtype) / 1e3:,.0f} KB a token in {kind}); {_gb(free)} are free"
    )
    if weights + _BASE + cache > free:
        log.warning("long texts may not fit: a smaller --batch-size takes less")


def _remedy(size: Size, weights: int, free: int) -> str:
    """What to do where a model does not fit: the widest of the narrower dtypes that does."""
    for name in _NARROWER:
        narrow = size.weight_bytes(name)
        if narrow < weights and narrow + _BASE <= free:
            return f"give --dtype {name}, which takes {_gb(narrow + _BASE)}"
    return "take a smaller model"


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
