"""Where training starts: fresh weights in a T5 shape, or a checkpoint that is already there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Record
from pipedec_cli.data.segmentation import Segmenter
from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings, load_checkpoint
from pipedec_cli.model.collate import Encoded, collator
from pipedec_cli.model.scratch import SHAPES, make_model, train_tokenizer
from pipedec_cli.model.teacher_forcing import TeacherForcing
from pipedec_cli.model.train_settings import TrainSettings, updates_for
from pipedec_cli.model.training import require_examples

#: Records that a fresh tokenizer is trained on; more of them change it little.
TOKENIZER_RECORDS = 20_000


def start_checkpoint(
    name: str,
    settings: MethodSettings,
    records: Sequence[Record],
    seed: int,
    segmenter: Segmenter | None = None,
) -> Checkpoint:
    """The model that training begins with.

    Args:
        name: ``scratch-tiny`` and so on, a local folder or a hub name.
        settings: what the checkpoint is to be trained for.
        records: the training records, on which a fresh tokenizer is trained.
        seed: of fresh weights.
        segmenter: what cut the targets, to be kept with the checkpoint.

    Raises:
        UserError: no such shape, or the checkpoint cannot be loaded.
    """
    if name in SHAPES:
        torch.manual_seed(seed)
        texts = (text for record in islice(records, TOKENIZER_RECORDS) for text in _texts(record))
        tokenizer = train_tokenizer(texts, SHAPES[name].vocabulary)
        model = make_model(SHAPES[name], len(tokenizer))
        return Checkpoint(model, tokenizer, settings, name, segmenter=segmenter)
    if name.startswith("scratch"):
        raise UserError(f"there is no shape {name!r}", todo=f"use one of {', '.join(SHAPES)}")
    checkpoint = load_checkpoint(name)
    checkpoint.settings, checkpoint.segmenter = settings, segmenter
    return checkpoint


def _texts(record: Record) -> tuple[str, ...]:
    return (record.source, *(record.target_segments or ()))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What training will take.

    Attributes:
        updates: how many there will be.
        seconds: wall time, from a trial of a few batches; without looks at the dev set.
        bytes: disk for the checkpoint and its two latest ``checkpoint-N`` folders.
        parameters: of the model.
    """

    updates: int
    seconds: float
    bytes: int
    parameters: int


def estimate(checkpoint: Checkpoint, examples: Sequence[Encoded], settings: TrainSettings) -> Estimate:
    """Time a few batches forward and backward, without an update, and reckon up.

    Args:
        checkpoint: the model; its weights are left as they are.
        examples: the training examples.
        settings: how it will be trained.

    Raises:
        UserError: there are no examples.
    """
    require_examples(examples)
    collate = collator(checkpoint, settings.seed)
    device: Any = "cuda" if torch.cuda.is_available() and not settings.cpu else "cpu"
    module = TeacherForcing(checkpoint.model).to(device).train()
    stride = max(1, len(examples) // settings.batch_size)
    typical = [examples[i] for i in range(0, len(examples), stride)][: settings.batch_size]
    batch = {name: tensor.to(device) for name, tensor in collate(typical).items()}
    seconds = []
    for _ in range(3):  # the first one warms up
        began = time.perf_counter()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=settings.bf16):
            module(**batch)["loss"].backward()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
        module.zero_grad(set_to_none=True)
    parameters = sum(parameter.numel() for parameter in checkpoint.model.parameters())
    updates = updates_for(len(examples), settings)
    return Estimate(
        updates=updates,
        seconds=min(seconds[1:]) * settings.accumulation * updates,
        # float32 weights, and in each of two checkpoint-N folders the weights and AdamW's two moments; of Adafactor's
        # one moment a row and a column are kept for each matrix, which is next to nothing
        bytes=4 * parameters * (1 + 2 * (3 if settings.optimizer == "adamw" else 1)),
        parameters=parameters,
    )
