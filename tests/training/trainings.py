"""Trainings on the toy data, as the tests run them."""

from pathlib import Path
from typing import Any

from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.training.hyperparameters import Hyperparameters
from pipedec_cli.training.trainer import TrainResult, train
from tests.checkpoints import QUICK, examples_of

#: What a checkpoint within a training keeps beside the weights.
PICKLED = ("optimizer.pt", "scheduler.pt", "rng_state.pth")


def run(
    checkpoint: Checkpoint, folder: Path, hyper: Hyperparameters = QUICK, **options: Any
) -> TrainResult:
    """What came of a training on the toy data (or on `examples`, beside `dev`)."""
    examples = options.pop("examples", None) or examples_of(checkpoint)
    return train(checkpoint, examples, options.pop("dev", []), folder, hyper, **options)
