"""The training loop: transformers' Trainer, which gives checkpoints, resuming, several devices and mixed precision."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.optimization import Adafactor

from pipedec_cli.data.checking import checked
from pipedec_cli.data.errors import UserError, is_out_of_memory
from pipedec_cli.data.reading import as_json, contents
from pipedec_cli.data.trained import STATE, checkpoints
from pipedec_cli.model.checkpoint import Checkpoint, Positive, save_checkpoint
from pipedec_cli.model.training import lora, processes
from pipedec_cli.model.training.collate import Encoded, collator
from pipedec_cli.model.training.cost import require_examples
from pipedec_cli.model.training.hyperparameters import Hyperparameters
from pipedec_cli.model.training.loss import TeacherForcing
from pipedec_cli.model.training.order import ByTurn, Turns
from pipedec_cli.model.training.result import TrainingProgress, TrainResult


def train(
    checkpoint: Checkpoint,
    examples: Sequence[Encoded],
    dev: Sequence[Encoded],
    folder: Path,
    hyper: Hyperparameters,
    *,
    resume: bool = False,
    keep: int = 2,
    keep_adapter: bool = False,
    show: Callable[[TrainingProgress], None] = lambda _: None,
    score: Callable[[], float] | None = None,
) -> TrainResult:
    """Train a checkpoint in place, and save it to `folder`.

    Dev examples are evaluated, never trained on; `score` is called at each evaluation. The folder also gets
    checkpoint-N folders, and the last `keep` of them stay, at least one. `resume` goes on from the last, and from the
    start if there is none. Adapters are merged at the end, unless `keep_adapter`. A `UserError` if there are no
    examples, or if a checkpoint-N folder cannot be read.
    """
    require_examples(examples)
    last = next(reversed(checkpoints(folder)), None) if resume else None
    set_seed(hyper.seed)
    updates = hyper.updates(len(examples), processes.count())
    reporter = _Reporter(show, score)
    relative = {"lr": hyper.learning_rate, "scale_parameter": True, "relative_step": False}
    trainer = _Trainer(
        checkpoint,
        args=_arguments(hyper, updates, folder, has_dev=bool(dev), keep=keep),
        optimizer_cls_and_kwargs=(Adafactor, relative) if hyper.optimizer == "adafactor" else None,
        train_dataset=ByTurn(examples),
        eval_dataset=ByTurn(dev) if dev else None,
        data_collator=collator(checkpoint, hyper.seed),
        callbacks=[reporter],
    )
    trainer.remove_callback(PrinterCallback)
    if trainer.is_fsdp_enabled:
        processes.check_sharding(trainer.accelerator.state.fsdp_plugin, hyper.optimizer)
        reporter.score = None  # no process has all weights to generate with
        if lora.has_adapters(checkpoint.model):
            raise UserError("adapters are not sharded", todo="leave --lora out, or FSDP")
    else:
        processes.refuse_unsharded()
    began = time.perf_counter()
    checkpoint.model.train()
    with _blame(last, reporter):
        if last and (done := _read_state(last)).global_step >= updates:
            # It was killed after its last checkpoint. The Trainer would make another update.
            trainer._load_from_checkpoint(str(last))
            trainer.state.global_step, trainer.state.log_history = done.global_step, done.log_history
        else:
            trainer.train(resume_from_checkpoint=str(last) if last else None)
    checkpoint.model.eval()
    if lora.has_adapters(checkpoint.model) and not keep_adapter:
        lora.merge(checkpoint.model)
    trainer.save_model(str(folder))
    return TrainResult(
        checkpoint=str(folder),
        seconds=time.perf_counter() - began,
        updates=trainer.state.global_step,
        examples_seen=trainer.state.global_step * hyper.update_size(trainer.args.world_size),
        **_losses(trainer.state.log_history),
    )


def _arguments(
    hyper: Hyperparameters, updates: int, folder: Path, *, has_dev: bool, keep: int
) -> TrainingArguments:
    on_cpu = hyper.cpu or not torch.cuda.is_available()
    every = max(1, updates // max(1, hyper.evaluations))
    return TrainingArguments(
        output_dir=str(folder),
        max_steps=updates,
        per_device_train_batch_size=hyper.batch_size,
        per_device_eval_batch_size=1,
        gradient_accumulation_steps=hyper.accumulation,
        learning_rate=hyper.learning_rate,
        lr_scheduler_type="linear" if hyper.schedule == "linear" else "constant_with_warmup",
        warmup_steps=round(updates * hyper.warmup),
        bf16=hyper.bf16,
        seed=hyper.seed,
        use_cpu=on_cpu,
        logging_steps=max(1, min(50, updates // 20)),
        eval_strategy="steps" if has_dev else "no",
        eval_steps=every,
        save_strategy="steps",
        save_steps=every,
        save_total_limit=max(1, keep),
        remove_unused_columns=False,
        label_names=["labels"],
        prediction_loss_only=True,
        dataloader_pin_memory=not on_cpu,
        disable_tqdm=True,
        report_to=[],
        log_level="error",
        ddp_find_unused_parameters=False,
    )


def _losses(history: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The losses and dev figures of a `TrainResult`, from all that the Trainer logged, also before it was resumed."""
    names = {"loss": "loss", "eval_loss": "dev_loss", "eval_score": "dev_score"}
    curve = [
        {"update": int(log["step"]), **{name: log[key] for key, name in names.items() if key in log}}
        for log in history
        if "loss" in log or "eval_loss" in log
    ]
    losses = [point["loss"] for point in curve if "loss" in point]
    last = [{}, *(point for point in curve if "dev_loss" in point)][-1]
    dev = {"dev_update" if name == "update" else name: value for name, value in last.items()}
    return {"loss": sum(losses) / len(losses), "curve": curve, **dev}


class _Callbacks(Struct):
    TrainerControl: dict[str, Any]


class _State(Struct):
    """The fields of trainer_state.json that the Trainer uses. It does not check them itself."""

    global_step: Positive
    max_steps: Positive
    epoch: float
    logging_steps: Positive
    save_steps: Positive
    eval_steps: Positive
    total_flos: float
    num_input_tokens_seen: int
    log_history: list[dict[str, float]]
    stateful_callbacks: _Callbacks


def _read_state(checkpoint: Path) -> _State:
    try:
        state = checked(as_json(contents(checkpoint / STATE), STATE), _State, STATE)
    except UserError as error:
        raise ValueError(error) from None
    if checkpoint.name != f"checkpoint-{state.global_step}":
        raise ValueError(f"{STATE} is of update {state.global_step:,}")
    return state


@contextmanager
def _blame(checkpoint: Path | None, reporter: _Reporter) -> Iterator[None]:
    """Report any error before the first update as an error of the checkpoint-N folder that was read."""
    try:
        yield
    except (UserError, OSError):
        raise
    except Exception as error:
        if checkpoint is None or reporter.updated or is_out_of_memory(error):
            raise
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        todo = "remove that folder to go on from the one before, or start over with --overwrite"
        raise UserError(f"cannot go on from it: {reason}", where=str(checkpoint), todo=todo) from error


class _Trainer(Trainer):
    """The Trainer, but it saves the ordinary model that is inside the loss, and no pickled arguments."""

    def __init__(self, checkpoint: Checkpoint, **kwargs: Any) -> None:
        self.checkpoint = checkpoint
        super().__init__(model=TeacherForcing(checkpoint.model), **kwargs)

    def _get_train_sampler(self, train_dataset: Any = None) -> Turns:
        # The Trainer's own sampler draws from the global generator: a resumed run would repeat some examples and miss others.
        lengths = array("I", (len(example.source) for example in self.train_dataset.examples))
        size = self.args.train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
        return Turns(lengths, size, self.args.seed, lambda: int(self.state.epoch or 0))

    def prediction_step(self, model: Any, inputs: Any, *_: Any, **__: Any) -> tuple[Any, None, None]:
        # The mean of each example. The Trainer would divide by the predictions of all examples of a batch.
        with torch.no_grad(), self.compute_loss_context_manager():
            return model(**self._prepare_inputs(inputs))["loss"], None, None

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        if not self.args.should_save:
            return
        saved = self.checkpoint
        if state_dict is not None:  # all weights, which FSDP has put together
            plain = saved.backbone.fresh(saved.model.config)
            plain.load_state_dict({name.removeprefix("plain."): one for name, one in state_dict.items()})
            saved = replace(saved, model=plain.eval())
        save_checkpoint(saved, Path(output_dir or self.args.output_dir))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        from safetensors.torch import load_model

        folder = Path(resume_from_checkpoint)
        if model is not None:  # FSDP's, sharded
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        elif lora.has_adapters(self.checkpoint.model):
            lora.load_adapter(self.checkpoint.model, folder)
        else:  # in place, so that tied weights stay tied and an untied output matrix stays untied
            load_model(self.checkpoint.model, folder / "model.safetensors")


class _Reporter(TrainerCallback):
    """Reports progress, and scores texts generated from the dev set."""

    def __init__(self, show: Callable[[TrainingProgress], None], score: Callable[[], float] | None) -> None:
        self.show, self.score = show, score
        self.loss: float | None = None
        self.updated = False

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.updated = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if logs and "loss" in logs and state.is_world_process_zero:
            self.loss = float(logs["loss"])
            if control.should_evaluate:  # the evaluation of this update shows the loss as well
                return
            self.show(TrainingProgress(state.global_step, state.max_steps, state.epoch or 0.0, self.loss))

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            loss, score = float(metrics["eval_loss"]), self.score() if self.score else None
            if score is not None:
                state.log_history[-1]["eval_score"] = score
            so_far = (state.global_step, state.max_steps, state.epoch or 0.0, self.loss)
            self.show(TrainingProgress(*so_far, loss, score))
