"""Programs that users would run instead, on the same sequential model: transformers, CTranslate2 and llama.cpp."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final

from pipedec_cli.compare.timing import Runner, RunnerError
from pipedec_cli.data.errors import UserError, first_line
from pipedec_cli.data.trained import is_gguf

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint

#: The most tokens of a text, as for our sequential model.
MAX_TOKENS: Final = 512


@dataclass(frozen=True, slots=True)
class Absent:
    """A peer that could not be timed, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Program:
    """A program that runs in a process of its own."""

    names: tuple[str, ...]  # the peers that it is, one for each dtype
    package: str
    install: str  # what pip installs
    #: Its class in a module of this folder, whose `prepare` gives its options.
    worker: str
    largest_batch: int | None = None


_PROGRAMS: Final = {
    "ctranslate2": Program(
        ("ctranslate2", "ctranslate2:int8", "ctranslate2:bfloat16"),
        "ctranslate2",
        "'.[peers]'",
        "ctranslate2:CTranslate2",
    ),
    "llama.cpp": Program(
        ("llama.cpp",),
        "llama_cpp",
        "llama-cpp-python",
        "llama_cpp:LlamaCpp",
        largest_batch=1,
    ),
}
#: The names of all peers.
PEERS: Final = (
    "transformers",
    "transformers:bfloat16",
    *chain.from_iterable(program.names for program in _PROGRAMS.values()),
)


def require_peer(name: str) -> None:
    """Raise a UserError, with the command that helps, if a package is missing that the peer of this name needs."""
    program = _PROGRAMS.get(name.partition(":")[0])
    if program and not find_spec(program.package):
        todo = f"`pip install {program.install}` brings it, or leave {name} out"
        raise UserError(f"--compare: {name} is not installed", todo=todo)
    if name == "llama.cpp" and not find_spec("gguf"):
        what = "--compare: llama.cpp takes a GGUF file, and gguf reads its header"
        raise UserError(what, todo="`pip install gguf`")


def require_gguf(
    peers: Collection[str], model: str, option: str, file: Path | None
) -> None:
    """Raise a UserError if llama.cpp is among the peers, and neither the sequential model nor `file` is a GGUF file.

    The `option` of the command names the model.
    """
    if "llama.cpp" not in peers:
        return
    if file is None and not is_gguf(model):
        raise UserError(
            f"--compare: llama.cpp runs a GGUF file, and {model} is none",
            todo=f"give {option} FILE.gguf, or the same model in such a file: --set peer_gguf=FILE.gguf",
        )
    if file is not None and not file.is_file():
        raise UserError(f"peer_gguf: no such file: {file}", todo="name a GGUF file")


def make_peer(
    name: str,
    checkpoint: Checkpoint,
    folder: Path,
    max_tokens: int = MAX_TOKENS,
    *,
    exactly: bool = False,
    places: int = 2 * MAX_TOKENS,
    gguf: Path | None = None,
) -> Runner | Absent:
    """An installed peer, ready to generate texts; `Absent`, with the reason, if it cannot take the checkpoint.

    Args:
        name: the peer; it may give another dtype than the checkpoint's.
        checkpoint: a sequential model in the dtype and on the device to decode with.
        folder: to which a peer with its own model format writes. It lives as long as
            the peers; they share it.
        max_tokens: the most tokens of a text.
        exactly: whether every text has as many.
        places: the most tokens of a prompt together with its text.
        gguf: the file that llama.cpp runs, if it is not the checkpoint's own.
    """
    family, _, dtype = name.partition(":")
    if family not in _PROGRAMS:
        return _transformers(name, checkpoint, max_tokens, exactly=exactly)
    import torch

    from pipedec_cli.compare.child import PeerProcess

    program = _PROGRAMS[family]
    options = {
        "device": str(checkpoint.device),
        "threads": torch.get_num_threads(),
        "ends": checkpoint.ends,
        "max_tokens": max_tokens,
        "exactly": exactly,
    }
    try:
        worker = f"{__name__}.{program.worker}"
        module = worker.partition(":")[0]
        options |= resolve_name(f"{module}:prepare")(
            checkpoint, folder=folder / family, dtype=dtype, places=places, file=gguf
        )
        return PeerProcess(worker, options, program.largest_batch)
    except UserError as error:
        return Absent(name, error.what)
    except RunnerError as error:
        return Absent(name, str(error))
    except (OSError, ValueError, RuntimeError, AttributeError, KeyError) as error:
        # The message goes on with everything that is supported.
        why = first_line(error).partition(" (supported")[0]
        return Absent(name, f"it cannot take the checkpoint: {why}")


def _transformers(
    name: str, checkpoint: Checkpoint, max_tokens: int, *, exactly: bool
) -> Runner | Absent:
    """The peer transformers, in the checkpoint's dtype or in bfloat16."""
    from pipedec_cli.compare.peers.transformers import Transformers, load_again
    from pipedec_cli.model.arguments import computes_bfloat16
    from pipedec_cli.model.bare import BareModel

    if name == "transformers:bfloat16":
        device = str(checkpoint.device)
        if device == "cpu" and not computes_bfloat16():
            return Absent(name, "this CPU has no instructions for bfloat16")
        checkpoint = load_again(checkpoint.name, checkpoint.eos, "bfloat16", device)
    if isinstance(checkpoint.model, BareModel):
        return Absent(name, "it computes no blocks: name another dtype before stored")
    return Transformers(checkpoint, max_tokens, exactly=exactly)
