"""What users would run instead, on the same sequential model: transformers, its prompt lookup, CTranslate2."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from pipedec_cli.data.errors import first_line
from pipedec_cli.evaluate.timing import Runner

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint

PeerName = Literal[
    "transformers",
    "transformers:bfloat16",
    "prompt-lookup",
    "ctranslate2",
    "ctranslate2:int8",
    "ctranslate2:bfloat16",
]
PEERS: Final[tuple[PeerName, ...]] = get_args(PeerName)
#: Tokens that prompt lookup proposes at once, its usual setting.
LOOKED_UP: Final = 10
#: The most tokens of a text, as for our sequential model.
MAX_TOKENS: Final = 512


@dataclass(frozen=True, slots=True)
class Absent:
    """A peer that could not be timed, and why."""

    name: str
    why: str


def make_peer(
    name: PeerName,
    checkpoint: Checkpoint,
    folder: Path,
    max_tokens: int = MAX_TOKENS,
    *,
    exactly: bool = False,
) -> Runner | Absent:
    """An installed peer, ready to generate texts of at most, or `exactly`, `max_tokens` tokens.

    The checkpoint is a sequential model in the dtype and on the device to decode with; a name may give another dtype. A
    peer with its own model format writes to the folder, which lives as long as the peer; peers of one family share it.
    """
    family, _, dtype = name.partition(":")
    if family != "ctranslate2":
        from pipedec_cli.evaluate.peers.transformers import Transformers, from_spec
        from pipedec_cli.model.arguments import computes_bfloat16

        looked_up = LOOKED_UP if name == "prompt-lookup" else None
        if dtype and checkpoint.device.type == "cpu" and not computes_bfloat16():
            return Absent(name, f"this CPU has no instructions for {dtype}")
        made = Transformers(checkpoint, max_tokens, looked_up, exactly=exactly)
        return from_spec(**made.spec()[1] | {"dtype": dtype}) if dtype else made
    from pipedec_cli.evaluate.peers import ctranslate2
    from pipedec_cli.model.gguf.reading import loadable

    try:
        if dtype and ctranslate2.compute_type(dtype, str(checkpoint.device)) != dtype:
            return Absent(name, f"CTranslate2 has no {dtype} on this device")
        if unknown := ctranslate2.unsupported(checkpoint.model.config):
            return Absent(name, f"CTranslate2 does not know {unknown}")
        if not (folder / "model.bin").exists():
            ctranslate2.convert(loadable(checkpoint.name), folder)
        return ctranslate2.CTranslate2Process(checkpoint, folder, max_tokens, exactly=exactly, dtype=dtype)
    except (ValueError, RuntimeError, AttributeError, KeyError) as error:
        why = first_line(error).partition(" (supported")[
            0
        ]  # the message goes on with everything that it supports
        return Absent(name, f"it cannot take the checkpoint: {why}")
