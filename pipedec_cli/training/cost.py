"""What a training takes: its disk, and the memory of its longest batch, which is run before the first update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import psutil
import torch

from pipedec_cli.data.errors import UserError, is_out_of_memory
from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.training.collate import collator
from pipedec_cli.training.encoded import Encoded
from pipedec_cli.training.hyperparameters import Hyperparameters
from pipedec_cli.training.loss import LOGITS, TeacherForcing
from pipedec_cli.training.order import Turn

#: Bytes of a number in float32.
_NUMBER: Final = 4
#: The logits of a chunk, their probabilities and the gradients of both exist together.
_COPIES: Final = 4


class BatchTooLargeError(UserError):
    """The longest batch was run, and did not fit the memory. What is refused by an estimate is a plain `UserError`."""


class Disk(NamedTuple):
    """Bytes on disk: those of a checkpoint-N folder, and of all files of a training."""

    checkpoint: int
    total: int


def training_disk(checkpoint: Checkpoint, hyper: Hyperparameters, keep: int) -> Disk:
    """The disk that a training takes at most, if it keeps the last `keep` checkpoint-N folders.

    The last one is always kept, and the best one if its weights are wanted.
    """
    folder = _trained_bytes(checkpoint, hyper)
    kept = max(keep, 2 if hyper.keep == "best" else 1)
    # The newest is written before the oldest is removed.
    total = _NUMBER * checkpoint.model.num_parameters() + (kept + 1) * folder
    return Disk(folder, total)


def run_longest(
    checkpoint: Checkpoint,
    examples: Sequence[Encoded],
    hyper: Hyperparameters,
    *,
    name: Callable[[int], str],
) -> None:
    """Try whether the memory is large enough: run the forward and the backward pass of a batch of the longest example.

    A `UserError` if the memory is too small, by the estimate of `require_memory`; a
    `BatchTooLargeError` if it is in the run. Both give the example's `name`.
    """
    longest = require_memory(checkpoint, examples, hyper, name=name)
    example = (Turn(0, 0), examples[longest])
    batch = collator(checkpoint, hyper.seed)([example] * hyper.batch_size)
    device = device_of(hyper)
    model = checkpoint.model.to(device)
    loss = TeacherForcing(model, blind=checkpoint.questions).train()
    try:
        inputs = {key: tensor.to(device) for key, tensor in batch.items()}
        with torch.autocast(device, dtype=torch.bfloat16, enabled=hyper.bf16):
            result = loss(**inputs)["loss"]
        result.backward()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        what = f"a batch of {hyper.batch_size} with this record does not fit the memory"
        todo = _remedy(can_shrink=hyper.batch_size > 1)
        raise BatchTooLargeError(what, where=name(longest), todo=todo) from error
    finally:
        checkpoint.model.zero_grad(set_to_none=True)


def require_memory(
    checkpoint: Checkpoint,
    examples: Sequence[Encoded],
    hyper: Hyperparameters,
    *,
    name: Callable[[int], str],
) -> int:
    """Find the example whose batch takes the most memory, and return its number, by sums over lengths alone.

    Raises a `UserError` if there are no examples, or if already a lower bound of the
    memory that such a batch takes is more than there is. `name` says where an example
    stands in the data, by its number.
    """
    require_examples(examples)
    sizes = [_batch_bytes(checkpoint, example, 1) for example in examples]
    longest = max(range(len(sizes)), key=sizes.__getitem__)
    trained = _trained_bytes(checkpoint, hyper)
    free = _free_memory(hyper)
    are_free = f"{free / 1e9:,.1f} GB are free"
    if trained > free:
        what = f"the model with its gradients needs {trained / 1e9:,.1f} GB of memory"
        todo = "take a smaller --model, or train adapters with --lora"
        raise UserError(f"{what}, {are_free}", todo=todo)
    batch = trained + _batch_bytes(checkpoint, examples[longest], hyper.batch_size)
    if batch > free:
        what = f"a batch of {hyper.batch_size} with this record needs {batch / 1e9:,.1f} GB of memory"
        todo = _remedy(can_shrink=trained + sizes[longest] <= free)
        raise UserError(f"{what}, {are_free}", where=name(longest), todo=todo)
    return longest


def require_examples(examples: Sequence[Encoded]) -> None:
    """A `UserError` if there are no examples."""
    if not examples:
        todo = "segment a data set with at least one record"
        raise UserError("there are no training examples", todo=todo)


def device_of(hyper: Hyperparameters) -> str:
    """The kind of device that a training computes on, as torch calls it."""
    return "cuda" if torch.cuda.is_available() and not hyper.cpu else "cpu"


def _free_memory(hyper: Hyperparameters) -> int:
    if device_of(hyper) == "cuda":
        return torch.cuda.mem_get_info()[0]
    return int(psutil.virtual_memory().available)


def _remedy(*, can_shrink: bool) -> str:
    """What to do about a batch that is too large: a smaller one, if that can help, or a shorter record."""
    batch = "give a smaller --batch-size, or " if can_shrink else ""
    return f"{batch}leave it out of the data, or shorten it (--max-source-tokens cuts sources)"


def _batch_bytes(checkpoint: Checkpoint, example: Encoded, size: int) -> int:
    """A lower bound of the bytes that a training pass takes for a batch of `size` such examples.

    It counts the logits, the inputs of all layers, and the attention of one layer.
    """
    config = checkpoint.model.config
    backbone = checkpoint.backbone
    sizes = backbone.sizes(config)
    source = len(example.source)
    target = example.target_length
    attention = source**2 + target**2
    if backbone.prompted:
        attention = (source + target) ** 2
    # With relative positions each head has a matrix of biases, else all heads have one
    # mask.
    if hasattr(config, "relative_attention_num_buckets"):
        attention *= sizes.heads
    inputs = (source + target) * sizes.width * sizes.layers
    logits = min(LOGITS, size * target * config.vocab_size) * _COPIES
    numbers: int = size * (attention + inputs) + logits
    return _NUMBER * numbers


def _trained_bytes(checkpoint: Checkpoint, hyper: Hyperparameters) -> int:
    """The bytes in memory of the gradients and of the optimizer's moments of all weights that are trained.

    On disk as many bytes hold the trained weights and the moments.
    """
    # AdamW keeps two moments in float32. Adafactor keeps a row and a column of each
    # matrix, which is next to nothing.
    moments = 2 if hyper.optimizer == "adamw" else 0
    trained = int(checkpoint.model.num_parameters(only_trainable=True))
    return _NUMBER * trained * (1 + moments)
