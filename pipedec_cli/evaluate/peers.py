"""What users would take instead, on the same plain T5: transformers, its prompt lookup, CTranslate2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from pipedec_cli.evaluate.timing import Output, TimedDecoder

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint

PeerName = Literal["transformers", "prompt-lookup", "ctranslate2"]
PEERS: Final[tuple[PeerName, ...]] = get_args(PeerName)
#: Tokens that prompt lookup proposes at once, its usual setting.
LOOKED_UP: Final = 10
#: As many as our sequential decoder makes at most.
MAX_TOKENS: Final = 512


@dataclass(frozen=True, slots=True)
class Absent:
    """A peer that could not be timed.

    Attributes:
        name: which.
        why: what is lacking, and how to get it.
    """

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many examples have the very tokens of our sequential decoder."""

    equal: int
    of: int

    @property
    def rate(self) -> float:
        """As a share, 0 to 1."""
        return self.equal / self.of if self.of else 0.0


def agreement(outputs: Sequence[Output], ours: Sequence[Output]) -> Agreement:
    """Compare the tokens of two decoders, example by example."""
    pairs = list(zip(outputs, ours, strict=True))
    return Agreement(sum(one.tokens == other.tokens for one, other in pairs), len(pairs))


def make_peer(
    name: PeerName,
    checkpoint: Checkpoint,
    folder: Path,
    max_tokens: int = MAX_TOKENS,
    *,
    exactly: bool = False,
) -> TimedDecoder | Absent:
    """A peer ready to decode.

    Args:
        name: which.
        checkpoint: a plain T5, in the dtype and on the device to decode with.
        folder: an empty folder that lives as long as the peer, for those with a model format of their own.
        max_tokens: the most tokens a text may have.
        exactly: make that many tokens, whatever the model says.
    """
    if name == "ctranslate2":
        return _make_ctranslate2(checkpoint, folder, max_tokens, exactly)
    from pipedec_cli.evaluate.transformers_peer import TransformersDecoder

    looked_up = LOOKED_UP if name == "prompt-lookup" else None
    return TransformersDecoder(checkpoint, max_tokens, looked_up, exactly=exactly)


def _make_ctranslate2(
    checkpoint: Checkpoint, folder: Path, max_tokens: int, exactly: bool
) -> TimedDecoder | Absent:
    if find_spec("ctranslate2") is None:
        return Absent("ctranslate2", "not installed; `pip install pipedec[peers]` brings it")
    import torch

    from pipedec_cli.evaluate.ctranslate2_peer import compute_type, convert
    from pipedec_cli.evaluate.ctranslate2_process import CTranslate2Process

    device = str(checkpoint.device)
    try:
        convert(checkpoint.name, folder)
        return CTranslate2Process(
            folder,
            device=device,
            compute_type=compute_type(str(checkpoint.model.dtype).removeprefix("torch."), device),
            most_threads=torch.get_num_threads(),
            max_tokens=max_tokens,
            exactly=exactly,
        )
    except (ValueError, RuntimeError, AttributeError, KeyError) as error:
        return Absent("ctranslate2", f"it cannot take the checkpoint: {error}")
