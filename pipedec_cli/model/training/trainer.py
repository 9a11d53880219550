"""Training on transformers' Trainer: checkpoints, resuming, several devices and mixed precision come from it."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import torch
from msgspec import Struct
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.optimization import Adafactor

from pipedec_cli.data.checking import checked
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import as_json, contents
from pipedec_cli.data.trained import STATE, Start, checkpoints
from pipedec_cli.model.checkpoint import Checkpoint, Positive, save_checkpoint
from pipedec_cli.model.training import lora, processes
from pipedec_cli.model.training.collate import Encoded, collator
from pipedec_cli.model.training.cost import require_examples
from pipedec_cli.model.training.loss import TeacherForcing
from pipedec_cli.model.training.order import ByTurn, Turns


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """How to train. `pipedec train` makes it of its options, where the defaults stand, and saves it in the manifest.

    `accumulation` batches on each device make an update; max_steps are updates, None for whole epochs. The learning
    rate is the peak, after a rise over `warmup`, a share of the updates; for ``adafactor`` it counts in units of each
    matrix's own size (the root of the mean of its squares). `cpu` is: even where there is a GPU.
    """

    epochs: float
    batch_size: int
    accumulation: int
    optimizer: Literal["adamw", "adafactor"]
    learning_rate: float
    warmup: float
    schedule: Literal["linear", "constant"]
    weight_decay: float = 0.0
    bf16: bool
    seed: int
    evaluations: int
    max_steps: int | None
    cpu: bool

    def size(self, devices: int = 1) -> int:
        """The examples of an update."""
        return self.batch_size * self.accumulation * devices

    def updates(self, examples: int, devices: int = 1) -> int:
        """How many updates there will be."""
        if self.max_steps is not None:
            return self.max_steps
        per_epoch = max(1, -(-examples // self.size(devices)))
        return max(1, round(per_epoch * self.epochs))


#: The usual optimizer and batch size: weights that were fresh once learn most from many small updates; the paper's.
_USUAL: Final[Mapping[Start, tuple[str, int]]] = {
    "fresh": ("adafactor", 8),
    "from-scratch": ("adafactor", 8),
    "published": ("adamw", 24),
    "adapters": ("adamw", 24),
}
#: The usual peak rates; the last is the paper's. The matrices of a fresh T5 differ in size by two orders of
#: magnitude (embeddings 1, queries 0.008): one rate for all is too small for some and too large for others, and
#: Adafactor's relative one, with which T5 itself was trained, suits them all.
_RATES: Final[Mapping[str, Mapping[Start, float]]] = {
    "adafactor": {"fresh": 3e-2, "from-scratch": 1e-2, "published": 1e-3, "adapters": 1e-2},
    "adamw": {"fresh": 1e-3, "from-scratch": 3e-4, "published": 1e-4, "adapters": 2e-4},
}
#: Adafactor's for fresh weights where objects are learnt, sooner and better at this rate by either decoder (docs/fields.md).
_RATE_OF_FIELDS: Final = 1e-2


def hyperparameters(*, start: Start, fields: bool, **asked: Any) -> Hyperparameters:
    """What was asked for; where size of a batch, optimizer or rate are None, what is usual for such weights to start from.

    `fields` is whether objects are learnt instead of texts.
    """
    usual_optimizer, batch_size = _USUAL[start]
    optimizer = asked["optimizer"] or usual_optimizer
    lower = fields and (optimizer, start) == ("adafactor", "fresh")
    rate = _RATE_OF_FIELDS if lower else _RATES[optimizer][start]
    usual = {"optimizer": optimizer, "batch_size": batch_size, "learning_rate": rate}
    return Hyperparameters(**asked | {name: value for name, value in usual.items() if asked[name] is None})


class Progress(NamedTuple):
    """What training has come to: updates done, training loss since the last report, dev figures after a look."""

    step: int
    total: int
    epoch: float
    loss: float | None
    dev_loss: float | None = None
    dev_score: float | None = None


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
    show: Callable[[Progress], None] = lambda _: None,
    score: Callable[[], float] | None = None,
) -> Mapping[str, Any]:
    """Train a checkpoint in place and save it; gives ``seconds``, ``updates``, ``loss`` and ``examples_seen``.

    Of the last look at the dev set it gives ``dev_update``, ``dev_loss`` and ``dev_score``, of all that was logged the ``curve``. Dev examples are looked at
    but never trained on, and `score` is called at each look. The folder gets the result and the ``checkpoint-N``
    folders, from the last of which `resume` goes on; the last `keep` stay, and at least one. Adapters are merged at the end
    unless `keep_adapter` says otherwise. A UserError if there is none or it cannot be read, or if there is no example.
    """
    require_examples(examples)
    last = next(reversed(checkpoints(folder)), None) if resume else None
    if resume and not last:
        raise UserError(f"nothing to resume in {folder}", todo="train without --resume")
    set_seed(hyper.seed)
    on_cpu = hyper.cpu or not torch.cuda.is_available()
    updates = hyper.updates(len(examples), processes.count())
    every = max(1, updates // max(1, hyper.evaluations))
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=updates,
        per_device_train_batch_size=hyper.batch_size,
        per_device_eval_batch_size=1,
        gradient_accumulation_steps=hyper.accumulation,
        learning_rate=hyper.learning_rate,
        lr_scheduler_type="linear" if hyper.schedule == "linear" else "constant_with_warmup",
        warmup_steps=round(updates * hyper.warmup),
        weight_decay=hyper.weight_decay,
        bf16=hyper.bf16,
        seed=hyper.seed,
        use_cpu=on_cpu,
        logging_steps=max(1, min(50, updates // 20)),
        eval_strategy="steps" if dev else "no",
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
    relative = {"scale_parameter": True, "relative_step": False, "warmup_init": False}
    adafactor = (Adafactor, {"lr": hyper.learning_rate, **relative})
    reporter = _Reporter(show, score)
    trainer = _Trainer(
        checkpoint,
        args=arguments,
        optimizer_cls_and_kwargs=adafactor if hyper.optimizer == "adafactor" else None,
        train_dataset=ByTurn(examples),
        eval_dataset=ByTurn(dev) if dev else None,
        data_collator=collator(checkpoint, hyper.seed),
        callbacks=[reporter],
    )
    trainer.remove_callback(PrinterCallback)
    if trainer.is_fsdp_enabled:
        processes.check_sharding(trainer.accelerator.state.fsdp_plugin, hyper.optimizer)
        reporter.score = None  # one process has not all the weights to generate with
        if lora.has_adapters(checkpoint.model):
            raise UserError("adapters are not sharded", todo="leave --lora out, or FSDP")
    else:
        processes.refuse_unsharded()
    began = time.perf_counter()
    checkpoint.model.train()
    with _blamed(last, reporter):
        if last and (done := _read_state(last)).global_step >= updates:
            # It was killed between its last checkpoint and its end; the Trainer would make another update.
            trainer._load_from_checkpoint(str(last))
            trainer.state.global_step, trainer.state.log_history = done.global_step, done.log_history
        else:
            trainer.train(resume_from_checkpoint=str(last) if last else None)
    checkpoint.model.eval()
    if lora.has_adapters(checkpoint.model) and not keep_adapter:
        lora.merge(checkpoint.model)
    trainer.save_model(str(folder))
    updates = trainer.state.global_step
    return {
        "seconds": time.perf_counter() - began,
        "updates": updates,
        "examples_seen": updates * hyper.size(arguments.world_size),
        **_told(trainer.state.log_history),
    }


def _told(history: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The losses of all of a training, whether it was resumed or not, the last look at the dev set, and how all of it went."""
    names = {"loss": "loss", "eval_loss": "dev_loss", "eval_score": "dev_score"}
    curve = [
        {"update": int(log["step"]), **{name: log[key] for key, name in names.items() if key in log}}
        for log in history
        if "loss" in log or "eval_loss" in log
    ]
    losses = [log["loss"] for log in history if "loss" in log]
    told: dict[str, Any] = {"loss": sum(losses) / len(losses), "curve": curve}
    for log in history:
        if "eval_loss" in log:
            told |= {"dev_update": int(log["step"]), "dev_loss": log["eval_loss"]}
            told |= {"dev_score": log["eval_score"]} if "eval_score" in log else {}
    return told


class _Callbacks(Struct):
    TrainerControl: dict[str, Any]


class _State(Struct):
    """What the Trainer needs of a trainer_state.json; it takes the numbers that it finds there as they are."""

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
def _blamed(checkpoint: Path | None, reporter: _Reporter) -> Iterator[None]:
    """Whatever goes wrong before the first update after resuming is the fault of what was read; nothing in it is run."""
    try:
        yield
    except (UserError, OSError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if checkpoint is None or reporter.updated:
            raise
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        todo = "remove that folder to go on from the one before, or start over with --overwrite"
        raise UserError(f"cannot go on from it: {reason}", where=str(checkpoint), todo=todo) from error


class _Trainer(Trainer):
    """The Trainer, saving the plain model inside the loss module, and no pickled arguments."""

    def __init__(self, checkpoint: Checkpoint, **kwargs: Any) -> None:
        self.checkpoint = checkpoint
        super().__init__(model=TeacherForcing(checkpoint.model), **kwargs)

    def _get_train_sampler(self, train_dataset: Any = None) -> Turns:
        # The Trainer's own draws from the global generator: a resumed run would see some examples again and miss others.
        lengths = array("I", (len(example.source) for example in self.train_dataset.examples))
        size = self.args.train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
        return Turns(lengths, size, self.args.seed, lambda: int(self.state.epoch or 0))

    def prediction_step(self, model: Any, inputs: Any, *_: Any, **__: Any) -> tuple[Any, None, None]:
        # An example's own mean; the Trainer's weighs those that happen to be looked at together.
        with torch.no_grad(), self.compute_loss_context_manager():
            return model(**self._prepare_inputs(inputs))["loss"], None, None

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        if not self.args.should_save:
            return
        if state_dict is not None:  # FSDP's, put together again
            plain = self.checkpoint.backbone.fresh(self.checkpoint.model.config)
            plain.load_state_dict(
                {name.removeprefix("plain."): weight for name, weight in state_dict.items()}
            )
        whole = self.checkpoint if state_dict is None else replace(self.checkpoint, model=plain.eval())
        save_checkpoint(whole, Path(output_dir or self.args.output_dir))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        from safetensors.torch import load_model

        if model is not None:  # FSDP's, in pieces
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            return
        if lora.has_adapters(self.checkpoint.model):
            lora.load_adapter(self.checkpoint.model, Path(resume_from_checkpoint))
            return
        # In place, so that tied weights stay tied and an output matrix of its own stays one.
        load_model(self.checkpoint.model, Path(resume_from_checkpoint) / "model.safetensors")


class _Reporter(TrainerCallback):
    """Passes progress on, and scores the dev set by generating from it."""

    def __init__(self, show: Callable[[Progress], None], score: Callable[[], float] | None) -> None:
        self.show, self.score = show, score
        self.loss: float | None = None
        self.updated = False

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.updated = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if logs and "loss" in logs and state.is_world_process_zero:
            self.loss = float(logs["loss"])
            self.show(Progress(state.global_step, state.max_steps, state.epoch or 0.0, self.loss))

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            loss, score = float(metrics["eval_loss"]), self.score() if self.score else None
            state.log_history[-1] |= {} if score is None else {"eval_score": score}
            so_far = (state.global_step, state.max_steps, state.epoch or 0.0, self.loss)
            self.show(Progress(*so_far, loss, score))
