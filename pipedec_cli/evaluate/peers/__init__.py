"""What users would run instead, on the same sequential model: transformers, its prompt lookup, and other programs."""

from __future__ import annotations

import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from pipedec_cli.data.errors import UserError, first_line
from pipedec_cli.evaluate.timing import Runner, RunnerError

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint

PeerName = Literal[
    "transformers",
    "transformers:bfloat16",
    "transformers:keys",
    "prompt-lookup",
    "ctranslate2",
    "ctranslate2:int8",
    "ctranslate2:bfloat16",
    "llama.cpp",
    "llama.cpp:q4_0",
    "llama.cpp:bf16",
    "llama.cpp:json",
    "openvino",
]
PEERS: Final[tuple[PeerName, ...]] = get_args(PeerName)
#: Those that run the loaded model itself: our engine must leave its matrices there.
OF_LOADED: Final = frozenset({"transformers", "transformers:keys", "prompt-lookup"})
#: The end of the name of a peer whose texts a grammar holds to a schema.
JSON: Final = ":json"
#: Tokens that prompt lookup proposes at once, its usual setting.
LOOKED_UP: Final = 10
#: The most tokens of a text, as for our sequential model.
MAX_TOKENS: Final = 512


@dataclass(frozen=True, slots=True)
class Absent:
    """A peer that could not be timed, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Program:
    """A program that runs in a process of its own: the package that it imports, what pip installs, and its worker.

    One that reads a GGUF file (`gguf`) may live in another Python.
    """

    package: str
    install: str
    worker: str
    gguf: bool = True
    largest_batch: int | None = None


_PROGRAMS: Final = {
    "ctranslate2": Program("ctranslate2", "'.[peers]'", "ctranslate2:CTranslate2", gguf=False),
    "llama.cpp": Program("llama_cpp", "llama-cpp-python msgspec", "llama_cpp:LlamaCpp", largest_batch=1),
    "openvino": Program("openvino_genai", "openvino-genai msgspec", "openvino:OpenVino"),
}
#: The dtype of the exported file, and that in which the peer computes, of those that read one.
_DTYPES: Final = {
    "llama.cpp": ("int8", "Q8_0"),
    "llama.cpp:q4_0": ("float32", "Q4_0"),
    "llama.cpp:bf16": ("bfloat16", "BF16"),
    "llama.cpp:json": ("int8", "Q8_0"),
    "openvino": ("int8", "int8"),
}
_PROBE: Final = (
    "import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))"
)


@cache
def find_python(name: str, pythons: tuple[str, ...]) -> str | None:
    """The first of these Pythons, or None for this one, that has the package of a peer; a UserError if there is none."""
    program = _PROGRAMS.get(name.partition(":")[0])
    if program is None:
        return None
    for python in pythons if program.gguf else ():
        try:
            probe = [python, "-c", _PROBE, program.package, "msgspec"]
            if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
                return python
        except OSError as error:
            what = f"peer_python: {python}: {error.strerror}"
            raise UserError(what, todo="give a Python program") from None
    if find_spec(program.package):
        return None
    pip = f"{pythons[0]} -m pip" if pythons and program.gguf else "pip"
    todo = f"`{pip} install {program.install}` brings it, or leave {name} out"
    raise UserError(f"--compare: {name} is not installed", todo=todo)


def require_peer(name: str, pythons: tuple[str, ...]) -> None:
    """Raise a UserError with the command that helps if a package is missing that a peer needs."""
    find_python(name, pythons)
    if name in _DTYPES and not find_spec("gguf"):
        raise UserError(f"--compare: {name} reads a GGUF file, and gguf writes it", todo="`pip install gguf`")


def make_peer(
    name: PeerName,
    checkpoint: Checkpoint,
    folder: Path,
    max_tokens: int = MAX_TOKENS,
    *,
    exactly: bool = False,
    places: int = 2 * MAX_TOKENS,
    pythons: tuple[str, ...] = (),
    ends: Collection[int] = (),
    schema: str | None = None,
) -> Runner | Absent:
    """An installed peer, ready to generate texts of at most, or `exactly`, `max_tokens` tokens.

    The checkpoint is a sequential model in the dtype and on the device to decode with; a name may give another dtype. A
    peer with its own model format writes to the folder, which lives as long as the peers; they share it. A prompt has at
    most `places` tokens together with its text. `ends` are ids that end a text as <eos> does. A name with ``:json`` holds
    texts to the JSON `schema`.
    """
    family, _, dtype = name.partition(":")
    if family not in _PROGRAMS:
        return _transformers(name, checkpoint, max_tokens, exactly=exactly, ends=ends)
    if name.endswith(JSON) and schema is None:
        return Absent(name, "it writes objects by a schema, as a report without training has one")

    import torch

    from pipedec_cli.evaluate.peers.process import PeerProcess

    program = _PROGRAMS[family]
    options = {"device": str(checkpoint.device), "threads": torch.get_num_threads()}
    options["ends"] = [checkpoint.eos, *(() if name.endswith(JSON) else ends)]
    options |= {"max_tokens": max_tokens, "exactly": exactly}
    if python := find_python(name, pythons):
        options["python"] = python
    try:
        if name.endswith(JSON):
            options["schema"] = schema
        if name in _DTYPES:
            file, dtype = _DTYPES[name]
            options |= {"file": _exported(checkpoint, folder, file), "dtype": dtype, "places": places}
        else:
            from pipedec_cli.evaluate.peers import ctranslate2

            options |= ctranslate2.prepare(checkpoint, folder / "ctranslate2", dtype)
        return PeerProcess(f"{__name__}.{program.worker}", options, program.largest_batch)
    except UserError as error:
        return Absent(name, error.what)
    except RunnerError as error:
        return Absent(name, str(error))
    except (ValueError, RuntimeError, AttributeError, KeyError) as error:
        # The message goes on with everything that is supported.
        return Absent(name, f"it cannot take the checkpoint: {first_line(error).partition(' (supported')[0]}")


def _transformers(
    name: str, checkpoint: Checkpoint, max_tokens: int, *, exactly: bool, ends: Collection[int]
) -> Runner | Absent:
    from pipedec_cli.evaluate.peers.transformers import Transformers, load_again
    from pipedec_cli.model.arguments import computes_bfloat16

    device = str(checkpoint.device)
    if name == "transformers:bfloat16":
        if device == "cpu" and not computes_bfloat16():
            return Absent(name, "this CPU has no instructions for bfloat16")
        checkpoint = load_again(checkpoint.name, checkpoint.eos, "bfloat16", device)
    looked_up = LOOKED_UP if name == "prompt-lookup" else None
    return Transformers(checkpoint, max_tokens, looked_up, exactly=exactly, ends=ends)


def _exported(checkpoint: Checkpoint, folder: Path, dtype: str) -> str:
    """The checkpoint as `pipedec export` writes it from float32, in a file in the folder; a UserError if it cannot be."""
    if checkpoint.device.type != "cpu":
        raise UserError("it is compared on a CPU only")

    from pipedec_cli.evaluate.peers.transformers import load_again
    from pipedec_cli.model.gguf.writing import write_gguf

    path = folder / f"{dtype}.gguf"
    if not path.exists():
        write_gguf(load_again(checkpoint.name, checkpoint.eos, "float32", "cpu"), path, dtype, texts=False)
    return str(path)
