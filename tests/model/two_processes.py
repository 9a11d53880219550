"""A training as `torchrun` starts it: run in each of its processes by test_resuming, with the folder as argument."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.model.training import Progress, train
from tests.checkpoints import QUICK, examples_of, fresh_toy

HYPER = replace(QUICK, batch_size=2)


def trained(folder: Path, shown: list[Progress], **options: Any) -> Checkpoint:
    """A toy model after the training, and what its process was shown."""
    checkpoint = fresh_toy()
    examples = examples_of(checkpoint)
    train(checkpoint, examples[:7], examples[7:], folder, HYPER, show=shown.append, **options)
    return checkpoint


def main(folder: Path) -> None:
    """Train, forget the last checkpoint, resume from the one before, and write down what came of both."""
    shown: list[Progress] = []
    whole = trained(folder, shown)
    torch.distributed.barrier()
    rank = os.environ["RANK"]
    if rank == "0":
        shutil.rmtree(folder / "checkpoint-6")
    torch.distributed.barrier()
    resumed = trained(folder, [], resume=True)
    result = {
        "shown": [progress.step for progress in shown],
        "weights": [float(each.model.shared.weight.detach().double().norm()) for each in (whole, resumed)],
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
