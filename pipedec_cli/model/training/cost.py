"""The cost of a training: its disk, a lower bound of its memory, and a run of the longest batch before the first update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import psutil
import torch

from pipedec_cli.data.errors import UserError, is_out_of_memory
from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.model.training.collate import Encoded, Turn, collator
from pipedec_cli.model.training.hyperparameters import Hyperparameters
from pipedec_cli.model.training.loss import LOGITS, TeacherForcing

#: Bytes of a number in float32.
_NUMBER: Final = 4
#: The logits of a chunk, their probabilities and the gradients of both exist together.
_COPIES: Final = 4


def training_disk(checkpoint: Checkpoint, hyper: Hyperparameters, keep: int) -> tuple[int, int]:
    """Returns the bytes of a checkpoint-N folder, and of all files of a training that keeps `keep` of these folders."""
    model = checkpoint.model
    folder = _trained_bytes(checkpoint, hyper)
    best = _NUMBER * model.num_parameters(only_trainable=True) if hyper.keep == "best" else 0
    folders = max(1, keep) + 1  # the newest is written before the oldest is removed
    return folder, _NUMBER * model.num_parameters() + folders * folder + best


def run_longest(
    checkpoint: Checkpoint, examples: Sequence[Encoded], hyper: Hyperparameters, *, name: Callable[[int], str]
) -> None:
    """Run the forward and the backward pass of a batch of the longest example. Weights stay as they are.

    A `UserError` gives the example's `name` if the memory is too small.
    """
    longest = require_memory(checkpoint, examples, hyper, name=name)
    batch = collator(checkpoint, hyper.seed)([(Turn(0, 0), examples[longest])] * hyper.batch_size)
    device = _device(hyper)
    loss = TeacherForcing(checkpoint.model.to(torch.device(device))).train()
    try:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=hyper.bf16):
            result = loss(**{name: tensor.to(device) for name, tensor in batch.items()})["loss"]
        result.backward()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        what = f"a batch of {hyper.batch_size} with this record does not fit the memory"
        raise UserError(what, where=name(longest), todo=_remedy(hyper.batch_size > 1)) from error
    finally:
        checkpoint.model.zero_grad(set_to_none=True)


def require_memory(
    checkpoint: Checkpoint, examples: Sequence[Encoded], hyper: Hyperparameters, *, name: Callable[[int], str]
) -> int:
    """Returns the number of the longest example. Nothing is computed but sums over lengths.

    A `UserError` if there are no examples, or if a lower bound of the memory that a batch of the longest takes exceeds the
    free memory. It gives the example's `name`.
    """
    require_examples(examples)
    longest = max(range(len(examples)), key=lambda number: _batch_bytes(checkpoint, examples[number], 1))
    trained = _trained_bytes(checkpoint, hyper)
    single = trained + _batch_bytes(checkpoint, examples[longest], 1)
    batch = trained + _batch_bytes(checkpoint, examples[longest], hyper.batch_size)
    on_gpu = _device(hyper) == "cuda"
    free = torch.cuda.mem_get_info()[0] if on_gpu else psutil.virtual_memory().available
    if trained > free:
        what = f"the model with its gradients needs {trained / 1e9:,.1f} GB of memory, {free / 1e9:,.1f} GB are free"
        raise UserError(what, todo="take a smaller --model, or train adapters with --lora")
    if batch > free:
        needed = f"needs {batch / 1e9:,.1f} GB of memory, {free / 1e9:,.1f} GB are free"
        what = f"a batch of {hyper.batch_size} with this record {needed}"
        raise UserError(what, where=name(longest), todo=_remedy(single <= free))
    return longest


def _remedy(smaller: bool) -> str:
    batch = "give a smaller --batch-size, or " if smaller else ""
    return f"{batch}leave it out of the data, or shorten it (--max-source-tokens cuts sources)"


def _batch_bytes(checkpoint: Checkpoint, example: Encoded, size: int) -> int:
    """A lower bound of the bytes that a pass takes for `size` such examples: logits, inputs of layers, a layer's attention."""
    config, backbone = checkpoint.model.config, checkpoint.backbone
    source, target = len(example.source), sum(len(text) + 2 for text in example.texts)
    sizes = backbone.sizes(config)
    pairs = (source + target) ** 2 if backbone.prompted else source**2 + target**2
    # With relative positions each head has a matrix of biases, else all heads have one mask.
    attention = pairs * (sizes.heads if hasattr(config, "relative_attention_num_buckets") else 1)
    logits = min(LOGITS, size * target * config.vocab_size) * _COPIES
    numbers: int = size * (attention + (source + target) * sizes.width * sizes.layers) + logits
    return _NUMBER * numbers


def _trained_bytes(checkpoint: Checkpoint, hyper: Hyperparameters) -> int:
    """The bytes of the gradients and of the optimizer's moments; those of the trained weights and moments on disk."""
    # AdamW keeps two moments in float32. Adafactor keeps a row and a column of each matrix, which is next to nothing.
    moments = 2 if hyper.optimizer == "adamw" else 0
    return _NUMBER * int(checkpoint.model.num_parameters(only_trainable=True)) * (1 + moments)


def _device(hyper: Hyperparameters) -> str:
    return "cuda" if torch.cuda.is_available() and not hyper.cpu else "cpu"


def require_examples(examples: Sequence[Encoded]) -> None:
    """A `UserError` if there are no training examples."""
    if not examples:
        raise UserError("there are no training examples", todo="segment a data set with at least one record")
