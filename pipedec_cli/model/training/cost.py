"""What training will take, said before it begins: time, disk and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
import torch
from torch import Tensor

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.model.training import processes
from pipedec_cli.model.training.collate import Encoded, collator
from pipedec_cli.model.training.loss import TeacherForcing, recomputes
from pipedec_cli.model.training.order import Turn

if TYPE_CHECKING:
    from pipedec_cli.model.training.trainer import Hyperparameters


class Cost(NamedTuple):
    """Wall time without looks at the dev set, disk with the ``checkpoint-N`` folders, memory of the device at its peak."""

    updates: int
    seconds: float
    bytes: int
    parameters: int
    memory: int


def training_cost(
    checkpoint: Checkpoint, examples: Sequence[Encoded], hyper: Hyperparameters, keep: int = 2
) -> Cost:
    """Time a few batches forward and backward, without an update, and reckon up; an empty data set is refused."""
    require_examples(examples)
    device = "cuda" if torch.cuda.is_available() and not hyper.cpu else "cpu"
    module = TeacherForcing(checkpoint.model).to(torch.device(device)).train()
    lay_out = collator(checkpoint, hyper.seed)

    def loss(some: Sequence[Encoded]) -> Any:
        batch = {
            name: tensor.to(device) for name, tensor in lay_out([(Turn(0, 0), one) for one in some]).items()
        }
        with torch.autocast(device, dtype=torch.bfloat16, enabled=hyper.bf16):
            return module(**batch)["loss"]

    # What is kept for the way back grows by as much with each example of a batch, all being padded to the longest.
    longest = Encoded(
        max((example.source for example in examples), key=len),
        max((example.texts for example in examples), key=lambda texts: sum(map(len, texts))),
    )
    weights = {weight.untyped_storage()._cdata for weight in module.parameters()}
    kept = [_kept_bytes(loss, [longest] * count, weights) for count in (1, 2)]
    activations = kept[0] + (kept[1] - kept[0]) * (hyper.batch_size - 1)
    if recomputes(checkpoint.model):  # what goes into each layer is kept, which no tensor's hook tells
        sizes = checkpoint.backbone.sizes(checkpoint.model.config)
        tokens = len(longest.source) + sum(len(text) + 2 for text in longest.texts)
        activations += 4 * hyper.batch_size * tokens * sizes.width * sizes.layers
    in_use = torch.cuda.memory_allocated() if device == "cuda" else psutil.Process().memory_info().rss

    typical, seconds = examples[:: max(1, len(examples) // hyper.batch_size)][: hyper.batch_size], []
    for _ in range(3):  # the first one warms up
        began = time.perf_counter()
        loss(typical).backward()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
        module.zero_grad(set_to_none=True)
    parameters = checkpoint.model.num_parameters()
    trained = checkpoint.model.num_parameters(only_trainable=True)
    updates = hyper.updates(len(examples), processes.count())
    # AdamW keeps two moments in float32; of Adafactor's one a row and a column are kept for each matrix, which is next
    # to nothing.
    moments = 2 if hyper.optimizer == "adamw" else 0
    return Cost(
        updates,
        min(seconds[1:]) * hyper.accumulation * updates,
        4 * (parameters + max(1, keep) * trained * (1 + moments)),
        parameters,
        in_use + 4 * trained * (1 + moments) + activations,
    )


def _kept_bytes(
    loss: Callable[[Sequence[Encoded]], Any], batch: Sequence[Encoded], weights: Container[int]
) -> int:
    """What a forward pass keeps for the backward one, the weights apart."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss(batch)  # which goes at once, so that storages are told apart by their place while they are kept
    return sum(kept.values())


def require_examples(examples: Sequence[Encoded]) -> None:
    """Refuse to train on nothing."""
    if not examples:
        raise UserError("there are no training examples", todo="segment a data set with at least one record")
