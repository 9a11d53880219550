"""What tests of training share."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.model.collate import Encoded, encode
from tests.checkpoints import TOY_SHAPE, toy_records

#: A shape with dropout, so that a resumed run has to find the chance of the undisturbed one.
SMALL = replace(TOY_SHAPE, d_model=32, d_ff=32, heads=2, dropout=0.1)


def examples_of(checkpoint: Checkpoint) -> list[Encoded]:
    return encode(checkpoint, toy_records())


def weights_of(checkpoint: Checkpoint) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in checkpoint.model.state_dict().items()}
