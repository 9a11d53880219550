"""The cost of a training, estimated before it begins: disk and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any, Final

import psutil
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.model.training import processes
from pipedec_cli.model.training.collate import Encoded, Turn, collator
from pipedec_cli.model.training.hyperparameters import Hyperparameters
from pipedec_cli.model.training.loss import LOGITS, full_states, recomputes

#: At its peak a pass uses so many times the memory that it keeps: measured 1.4 times on targets of 540 and 2,700 tokens.
_PEAK: Final = 1.4
#: The logits of a chunk, their probabilities and the gradients of both exist together, in float32.
_COPIES: Final = 4


@dataclass(frozen=True)
class Cost:
    """Bytes of disk with the checkpoint-N folders, of one of these, and of memory at its peak."""

    updates: int
    disk: int
    checkpoint: int
    parameters: int
    memory: int


def training_cost(
    checkpoint: Checkpoint,
    examples: Sequence[Encoded],
    hyper: Hyperparameters,
    keep: int = 2,
    *,
    name: Callable[[int], str] = str,
) -> Cost:
    """What it takes but time. A `UserError` if there are no examples, or as in `needed_memory`."""
    require_examples(examples)
    needed = needed_memory(checkpoint, examples, hyper, name=name)
    on_gpu = _Forward(checkpoint, hyper).device == "cuda"
    in_use = torch.cuda.memory_allocated() if on_gpu else psutil.Process().memory_info().rss
    parameters, trained = (checkpoint.model.num_parameters(only_trainable=only) for only in (False, True))
    best = 4 * int(trained) if hyper.keep == "best" else 0  # the folder best-N
    written = _trained_bytes(checkpoint, hyper)
    return Cost(
        hyper.updates(len(examples), processes.count()),
        disk=4 * parameters
        + (max(1, keep) + 1) * written
        + best,  # a checkpoint comes before the oldest goes
        checkpoint=written,
        parameters=parameters,
        memory=in_use + needed,
    )


def needed_memory(
    checkpoint: Checkpoint, examples: Sequence[Encoded], hyper: Hyperparameters, *, name: Callable[[int], str]
) -> int:
    """The bytes that a batch of the longest examples needs beside the weights, reckoned from lengths.

    A `UserError` if they are not free. It says which example is the longest, by its `name`.
    """
    places = range(len(examples))
    longest_source = max(places, key=lambda place: len(examples[place].source))
    longest_target = max(places, key=lambda place: sum(len(text) + 2 for text in examples[place].texts))
    longest = Encoded(examples[longest_source].source, examples[longest_target].texts)
    batch = collator(checkpoint, hyper.seed)([(Turn(0, 0), longest)])
    source, target = (batch[name].shape[1] for name in ("input_ids", "decoder_input_ids"))
    forward = _Forward(checkpoint, hyper)
    of_batch, of_example = _kept_bytes(checkpoint, source, target, forward)
    logits: int = min(LOGITS, hyper.batch_size * target * checkpoint.model.config.vocab_size)
    fixed = _trained_bytes(checkpoint, hyper) + of_batch + _COPIES * 4 * logits
    needed = fixed + of_example * hyper.batch_size
    on_gpu = forward.device == "cuda"
    free = torch.cuda.mem_get_info()[0] if on_gpu else psutil.virtual_memory().available
    if fixed > free:
        what = f"the model with its gradients needs {fixed / 1e9:,.1f} GB of memory, {free / 1e9:,.1f} GB are free"
        raise UserError(what, todo="take a smaller --model, or train adapters with --lora")
    peak = fixed + _PEAK * of_example * hyper.batch_size
    if peak > free:
        what = f"a batch of {hyper.batch_size} with this record needs {peak / 1e9:,.1f} GB of memory"
        fitting = int((free - fixed) / (_PEAK * of_example))
        todo = f"give --batch-size {fitting}, or " if fitting > 0 else ""
        todo += "leave it out of the data, or shorten it (--max-source-tokens cuts sources)"
        where = name(longest_target if target >= source else longest_source)
        raise UserError(f"{what}, {free / 1e9:,.1f} GB are free", where=where, todo=todo)
    return needed


def _trained_bytes(checkpoint: Checkpoint, hyper: Hyperparameters) -> int:
    """The bytes of the gradients and of the optimizer's moments; those of the trained weights and moments on disk."""
    # AdamW keeps two moments in float32. Adafactor keeps a row and a column of each matrix, which is next to nothing.
    moments = 2 if hyper.optimizer == "adamw" else 0
    return 4 * int(checkpoint.model.num_parameters(only_trainable=True)) * (1 + moments)


class _Forward:
    """The full pass of a batch up to its states, on the device and in the precision of the training."""

    def __init__(self, checkpoint: Checkpoint, hyper: Hyperparameters) -> None:
        self.device = "cuda" if torch.cuda.is_available() and not hyper.cpu else "cpu"
        self.model = checkpoint.model.to(torch.device(self.device)).train()
        self.bf16 = hyper.bf16

    def __call__(self, batch: Mapping[str, Tensor]) -> Tensor:
        batch = {name: tensor.to(self.device) for name, tensor in batch.items()}
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.bf16):
            return full_states(self.model, **batch)


def _kept_bytes(checkpoint: Checkpoint, source: int, target: int, forward: _Forward) -> tuple[int, int]:
    """The bytes that a forward pass keeps for the backward pass: of any batch, and of each example with so many tokens.

    They are a polynomial of degree 2 in the two lengths, since attention is over pairs of tokens. Six passes over short
    examples give its coefficients. The loss keeps the gradients of the states and of the head: see `loss.summed_loss`.
    """
    unit = max(1, min(16, (checkpoint.positions or checkpoint.places or 96) // 6))
    weights = {weight.untyped_storage()._cdata for weight in checkpoint.model.parameters()}
    kept: dict[Any, int] = {}
    weak_reference: Callable[..., Any] = StorageWeakRef

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept[weak_reference(storage)] = storage.nbytes()
        return tensor

    short, measured = [(1, 1), (2, 1), (3, 1), (1, 2), (1, 3), (2, 2)], []
    for a, b in short:
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            result = forward(_batch(checkpoint.eos, a * unit, b * unit))
        measured.append(sum(size for storage, size in kept.items() if not storage.expired()))
        del result
    equations = torch.tensor([_terms(a, b) for a, b in short], dtype=torch.double)
    coefficients = torch.linalg.solve(equations, torch.tensor(measured, dtype=torch.double)).tolist()
    terms = _terms(source / unit, target / unit)
    sizes, head = checkpoint.backbone.sizes(checkpoint.model.config), checkpoint.model.get_output_embeddings()
    of_batch = coefficients[0] + 4 * sum(one.numel() for one in head.parameters() if one.requires_grad)
    of_example = sum(map(mul, coefficients[1:], terms[1:])) + 4 * target * sizes.width
    if again := recomputes(checkpoint.model):
        # No hook sees that the inputs of layers and the products are kept.
        of_token = 4 * sizes.width
        if again == "cheap":
            wide = (4 if checkpoint.backbone.prompted else 8) * sizes.width
            products = wide + sizes.heads * sizes.head_width + 2 * sizes.feed_width
            of_token += (2 if forward.bf16 else 4) * products
        of_example += (source + target) * of_token * sizes.layers
    return int(of_batch), int(of_example)


def _terms(source: float, target: float) -> tuple[float, ...]:
    return 1, source, target, source**2, target**2, source * target


def _batch(token: int, source: int, target: int) -> dict[str, Tensor]:
    """A batch of one example, all of one token."""
    sources, targets = (torch.full((1, size), token) for size in (source, target))
    return {
        "input_ids": sources,
        "attention_mask": torch.ones_like(sources),
        "tokens": targets,
        "subsequence": torch.ones_like(targets),
        "time": torch.arange(target)[None],
    }


def require_examples(examples: Sequence[Encoded]) -> None:
    """A `UserError` if there are no training examples."""
    if not examples:
        raise UserError("there are no training examples", todo="segment a data set with at least one record")
