"""The cost of a training, estimated before it begins: time, disk and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import torch
from torch import Tensor

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.model.training import processes
from pipedec_cli.model.training.collate import Encoded, collator
from pipedec_cli.model.training.hyperparameters import Hyperparameters
from pipedec_cli.model.training.loss import TeacherForcing, recomputes
from pipedec_cli.model.training.order import Turn


@dataclass(frozen=True)
class Cost:
    """Wall time in seconds without evaluations, bytes of disk with the checkpoint-N folders, peak bytes of memory."""

    updates: int
    seconds: float
    disk: int
    parameters: int
    memory: int


def training_cost(
    checkpoint: Checkpoint, examples: Sequence[Encoded], hyper: Hyperparameters, keep: int = 2
) -> Cost:
    """Measure a few batches, forward and backward, without an update. A `UserError` if there are no examples."""
    require_examples(examples)
    device = "cuda" if torch.cuda.is_available() and not hyper.cpu else "cpu"
    module = TeacherForcing(checkpoint.model).to(torch.device(device)).train()
    lay_out = collator(checkpoint, hyper.seed)

    def loss(some: Sequence[Encoded]) -> Any:
        batch = lay_out([(Turn(0, 0), example) for example in some])
        batch = {name: tensor.to(device) for name, tensor in batch.items()}
        with torch.autocast(device, dtype=torch.bfloat16, enabled=hyper.bf16):
            return module(**batch)["loss"]

    parameters = checkpoint.model.num_parameters()
    trained = checkpoint.model.num_parameters(only_trainable=True)
    # AdamW keeps two moments in float32. Adafactor keeps a row and a column of each matrix, which is next to nothing.
    moments = 2 if hyper.optimizer == "adamw" else 0
    activations = _activations(checkpoint, examples, hyper.batch_size, loss)
    in_use = torch.cuda.memory_allocated() if device == "cuda" else psutil.Process().memory_info().rss
    updates = hyper.updates(len(examples), processes.count())
    typical = examples[:: max(1, len(examples) // hyper.batch_size)][: hyper.batch_size]
    return Cost(
        updates,
        seconds=_seconds(module, lambda: loss(typical)) * hyper.accumulation * updates,
        disk=4 * (parameters + max(1, keep) * trained * (1 + moments)),
        parameters=parameters,
        memory=in_use + 4 * trained * (1 + moments) + activations,
    )


def _activations(
    checkpoint: Checkpoint, examples: Sequence[Encoded], batch_size: int, loss: Callable[..., Any]
) -> int:
    """The bytes that the forward pass of the largest batch keeps for the backward pass.

    They grow by the same amount with each example, since all examples are padded to the longest.
    """
    longest = Encoded(
        max((example.source for example in examples), key=len),
        max((example.texts for example in examples), key=lambda texts: sum(map(len, texts))),
    )
    weights = {weight.untyped_storage()._cdata for weight in checkpoint.model.parameters()}
    one, two = (_kept_bytes(loss, [longest] * size, weights) for size in (1, 2))
    kept = one + (two - one) * (batch_size - 1)
    if recomputes(checkpoint.model):  # the inputs of the layers are kept, which no hook sees
        sizes = checkpoint.backbone.sizes(checkpoint.model.config)
        tokens = len(longest.source) + sum(len(text) + 2 for text in longest.texts)
        kept += 4 * batch_size * tokens * sizes.width * sizes.layers
    return kept


def _kept_bytes(loss: Callable[..., Any], batch: Sequence[Encoded], weights: Container[int]) -> int:
    """The bytes that a forward pass keeps for the backward pass, without the weights."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss(batch)  # its result is dropped only afterwards, so no two storages have one address
    return sum(kept.values())


def _seconds(module: TeacherForcing, forward: Callable[[], Any]) -> float:
    """The time of a batch, forward and backward: the best of two after one that warms up."""
    measured = []
    for _ in range(3):
        began = time.perf_counter()
        forward().backward()
        if next(module.parameters()).is_cuda:
            torch.cuda.synchronize()
        measured.append(time.perf_counter() - began)
        module.zero_grad(set_to_none=True)
    return min(measured[1:])


def require_examples(examples: Sequence[Encoded]) -> None:
    """A `UserError` if there are no training examples."""
    if not examples:
        raise UserError("there are no training examples", todo="segment a data set with at least one record")
