"""What users would take instead, on the same plain model: transformers, its prompt lookup, CTranslate2."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

from pipedec_cli.data.errors import first_line
from pipedec_cli.evaluate.timing import Runner

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint

PeerName = Literal["transformers", "prompt-lookup", "ctranslate2", "ctranslate2:int8", "ctranslate2:bfloat16"]
PEERS: Final[tuple[PeerName, ...]] = get_args(PeerName)
#: Tokens that prompt lookup proposes at once, its usual setting.
LOOKED_UP: Final = 10
#: As many as our sequential decoder makes at most.
MAX_TOKENS: Final = 512


class Absent(NamedTuple):
    """A peer that could not be timed, and what is lacking."""

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
    """A peer ready to decode at most, or `exactly`, so many tokens a text, whatever the model says.

    The checkpoint is a plain model, in the dtype and on the device to decode with, unless the name tells another dtype. The
    folder, for peers with a model format of their own, is at first empty and lives as long as the peer; peers of one
    family share it.
    """
    family, _, dtype = name.partition(":")
    if family != "ctranslate2":
        from pipedec_cli.evaluate.peers.transformers import Transformers

        looked_up = LOOKED_UP if name == "prompt-lookup" else None
        return Transformers(checkpoint, max_tokens, looked_up, exactly=exactly)
    if find_spec(family) is None:
        return Absent(name, "not installed; `pip install '.[peers]'` brings it")
    from pipedec_cli.evaluate.peers import ctranslate2

    try:
        if dtype and ctranslate2.compute_type(dtype, str(checkpoint.device)) != dtype:
            return Absent(name, f"CTranslate2 has no {dtype} on this device")
        if unlike := ctranslate2.passed_over(checkpoint.model.config):
            return Absent(name, f"CTranslate2 does not know {unlike}")
        if not (folder / "model.bin").exists():
            ctranslate2.convert(checkpoint.name, folder)
        peer = ctranslate2.CTranslate2Process
        return peer(checkpoint, folder, max_tokens, exactly=exactly, dtype=dtype)
    except (ValueError, RuntimeError, AttributeError, KeyError) as error:
        why = first_line(error).partition(" (supported")[0]  # it goes on with all that it knows
        return Absent(name, f"it cannot take the checkpoint: {why}")
