"""Training on transformers' Trainer: checkpoints, resuming, several devices and mixed precision come from it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.optimization import Adafactor
from transformers.trainer_pt_utils import LengthGroupedSampler

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.checkpoint import Checkpoint, save_checkpoint
from pipedec_cli.model.collate import Encoded, collator
from pipedec_cli.model.teacher_forcing import TeacherForcing
from pipedec_cli.model.train_settings import TrainSettings, updates_for


@dataclass(frozen=True, slots=True)
class Progress:
    """What training has come to, as a view may show it.

    Attributes:
        step: updates done.
        total: updates in all.
        epoch: passes over the data.
        loss: training loss since the last report.
        dev_loss: loss on the dev set, when it was just looked at.
        dev_score: score of texts generated from the dev set, when they just were.
        seconds: since training began.
    """

    step: int
    total: int
    epoch: float
    loss: float | None
    dev_loss: float | None
    dev_score: float | None
    seconds: float


class _Examples(Dataset[dict[str, Any]]):
    """Encoded examples as items that the Trainer's own code can carry."""

    def __init__(self, examples: Sequence[Encoded]) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"example": self.examples[index]}


class _LikeLengths(LengthGroupedSampler):
    """Examples by groups of like lengths, in an order that depends on the seed and the epoch alone.

    Trainer's own draws it from the global generator: a run resumed within a later epoch would go through the
    first epoch's order, see some examples again and miss others.
    """

    def __init__(
        self, lengths: Sequence[int], batch_size: int, seed: int, *, epoch: Callable[[], int]
    ) -> None:
        super().__init__(batch_size, lengths=list(lengths), generator=torch.Generator())
        self.seed = seed
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.generator.manual_seed((self.seed << 20) + self.epoch())
        indices: Iterator[int] = super().__iter__()
        return indices


class _Trainer(Trainer):
    """The Trainer, saving the plain T5 inside the loss module, and no pickled arguments."""

    def __init__(self, checkpoint: Checkpoint, **kwargs: Any) -> None:
        self.checkpoint = checkpoint
        super().__init__(model=TeacherForcing(checkpoint.model), **kwargs)

    def _get_train_sampler(self, train_dataset: Any = None) -> _LikeLengths:
        return _LikeLengths(
            [len(example.source) for example in self.train_dataset.examples],
            self.args.train_batch_size * self.args.gradient_accumulation_steps,
            self.args.seed,
            epoch=lambda: int(self.state.epoch or 0),
        )

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        if self.args.should_save:
            save_checkpoint(self.checkpoint, Path(output_dir or self.args.output_dir))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        from safetensors.torch import load_model

        # In place, so that tied weights stay tied and an output matrix of its own stays one.
        load_model(self.checkpoint.model, Path(resume_from_checkpoint) / "model.safetensors")


class _Reporter(TrainerCallback):
    """Passes progress on, and scores the dev set by generating from it."""

    def __init__(
        self, show: Callable[[Progress], None], score: Callable[[], float] | None, total: int
    ) -> None:
        self.show = show
        self.score = score
        self.total = total
        self.began = time.perf_counter()
        self.loss: float | None = None

    def _progress(self, state: Any, **kwargs: float | None) -> Progress:
        known = {"dev_loss": None, "dev_score": None, **kwargs}
        return Progress(
            state.global_step,
            self.total,
            state.epoch or 0.0,
            self.loss,
            seconds=time.perf_counter() - self.began,
            **known,
        )

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if logs and "loss" in logs and state.is_world_process_zero:
            self.loss = float(logs["loss"])
            self.show(self._progress(state))

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        score = self.score() if self.score else None
        if metrics is not None and score is not None:
            metrics["eval_score"] = score
        self.show(self._progress(state, dev_loss=float(metrics["eval_loss"]), dev_score=score))


def require_examples(examples: Sequence[Encoded]) -> None:
    """Refuse a training without examples.

    Raises:
        UserError: there are none.
    """
    if not examples:
        raise UserError("there are no training examples", todo="segment a data set with at least one record")


def train(
    checkpoint: Checkpoint,
    examples: Sequence[Encoded],
    dev: Sequence[Encoded],
    folder: Path,
    settings: TrainSettings,
    *,
    resume: bool = False,
    show: Callable[[Progress], None] | None = None,
    score: Callable[[], float] | None = None,
) -> Mapping[str, float]:
    """Train a checkpoint in place and save it.

    Args:
        checkpoint: the model with its settings; what it holds afterwards is the trained one.
        examples: the training examples.
        dev: examples that are looked at but never trained on; may be empty.
        folder: where the result and the ``checkpoint-N`` folders go.
        settings: how to train.
        resume: go on from the last ``checkpoint-N`` in the folder.
        show: is told of progress.
        score: generates from the dev set and gives a score; called at each look at it.

    Returns:
        ``seconds``, ``updates``, ``loss`` and ``examples_seen``.

    Raises:
        UserError: nothing to train on, or nothing to resume.
    """
    require_examples(examples)
    if resume and not _last_checkpoint(folder):
        raise UserError(f"nothing to resume in {folder}", todo="train without --resume")
    set_seed(settings.seed)
    collate = collator(checkpoint, settings.seed)
    arguments = _arguments(len(examples), bool(dev), folder, settings)
    trainer = _Trainer(
        checkpoint,
        args=arguments,
        optimizer_cls_and_kwargs=_optimizer(settings),
        train_dataset=_Examples(examples),
        eval_dataset=_Examples(dev) if dev else None,
        data_collator=lambda batch: collate([item["example"] for item in batch]),
    )
    reporter = _Reporter(show or (lambda _: None), score, arguments.max_steps)
    trainer.add_callback(reporter)
    for callback in ("PrinterCallback", "ProgressCallback"):
        _drop_callback(trainer, callback)
    began = time.perf_counter()
    checkpoint.model.train()
    outcome = trainer.train(resume_from_checkpoint=_last_checkpoint(folder) if resume else None)
    checkpoint.model.eval()
    trainer.save_model(str(folder))
    return {
        "seconds": time.perf_counter() - began,
        "updates": outcome.global_step,
        "loss": outcome.training_loss,
        "examples_seen": outcome.global_step
        * settings.batch_size
        * settings.accumulation
        * arguments.world_size,
    }


def _arguments(examples: int, dev: bool, folder: Path, settings: TrainSettings) -> TrainingArguments:
    on_cpu = settings.cpu or not torch.cuda.is_available()
    updates = updates_for(examples, settings, _world_size())
    every = max(1, updates // max(1, settings.evaluations))
    return TrainingArguments(
        output_dir=str(folder),
        max_steps=updates,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulation,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear" if settings.schedule == "linear" else "constant_with_warmup",
        warmup_steps=round(updates * settings.warmup),
        weight_decay=settings.weight_decay,
        bf16=settings.bf16,
        seed=settings.seed,
        use_cpu=on_cpu,
        logging_steps=max(1, min(50, updates // 20)),
        eval_strategy="steps" if dev else "no",
        eval_steps=every,
        save_strategy="steps",
        save_steps=every,
        save_total_limit=2,
        remove_unused_columns=False,
        label_names=["labels"],
        prediction_loss_only=True,
        dataloader_pin_memory=not on_cpu,
        disable_tqdm=True,
        report_to=[],
        log_level="error",
        ddp_find_unused_parameters=False,
    )


def _optimizer(settings: TrainSettings) -> tuple[type[torch.optim.Optimizer], dict[str, Any]] | None:
    """The optimizer that `TrainSettings.optimizer` names; None for AdamW, which is the Trainer's own."""
    if settings.optimizer == "adamw":
        return None
    return Adafactor, {
        "lr": settings.learning_rate,
        "scale_parameter": True,
        "relative_step": False,
        "warmup_init": False,
    }


def _world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def _drop_callback(trainer: Trainer, name: str) -> None:
    for callback in list(trainer.callback_handler.callbacks):
        if type(callback).__name__ == name:
            trainer.remove_callback(callback)


def _last_checkpoint(folder: Path) -> str | None:
    """The newest whole ``checkpoint-N``: the Trainer writes its state last, so one without it was cut short."""
    whole = [state.parent for state in folder.glob("checkpoint-*/trainer_state.json")]
    return str(max(whole, key=lambda path: int(path.name.rpartition("-")[2]))) if whole else None
