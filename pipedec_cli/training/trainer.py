"""The training loop: transformers' Trainer, with the order of examples, the loss and the files of this tool."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate.utils import broadcast_object_list
from msgspec import Struct
from transformers import PrinterCallback, Trainer, TrainingArguments, set_seed
from transformers.optimization import Adafactor

from pipedec_cli.data.errors import UserError, first_line, is_out_of_memory
from pipedec_cli.data.reading import as_json, checked, contents
from pipedec_cli.data.trained import STATE, checkpoints
from pipedec_cli.model import lora
from pipedec_cli.model.checkpoint import Checkpoint, Positive, save_checkpoint
from pipedec_cli.training.best import Evaluation, best_of, evaluations, is_over
from pipedec_cli.training.collate import collator
from pipedec_cli.training.cost import device_of, require_examples
from pipedec_cli.training.encoded import Encoded
from pipedec_cli.training.hyperparameters import (
    MOST,
    Hyperparameters,
    TrainingProgress,
    TrainResult,
)
from pipedec_cli.training.loss import TeacherForcing
from pipedec_cli.training.order import ByTurn, Turn, Turns
from pipedec_cli.training.reporter import Reporter


def train(
    checkpoint: Checkpoint,
    examples: Sequence[Encoded],
    dev: Sequence[Encoded],
    folder: Path,
    hyper: Hyperparameters,
    *,
    resume: bool = False,
    keep: int = 2,
    log_to: Sequence[str] = (),
    show: Callable[[TrainingProgress], None] = lambda _: None,
    score: Callable[[], float] | None = None,
) -> TrainResult:
    """Train a checkpoint in place, and save it to `folder`. Adapters are merged into its weights at the end.

    Args:
        checkpoint: The model, whose weights are changed.
        examples: What it learns from.
        dev: What is evaluated and never learnt; may be empty.
        folder: Where the model goes. It also gets checkpoint-N folders, which hold what
            a training needs to go on.
        hyper: How to train.
        resume: Goes on from the last checkpoint-N, from the start if there is none.
        keep: So many of the last checkpoint-N stay, at least the last one and, if
            `hyper` keeps them, that of the best weights.
        log_to: Names of integrations of transformers.
        show: Takes the progress.
        score: Is called at each evaluation, and gives the score of texts that the model
            writes now.

    A `UserError` if there are no examples, or if a checkpoint-N folder cannot be read.
    """
    require_examples(examples)
    saved = checkpoints(folder) if resume else []
    last = saved[-1] if saved else None
    set_seed(hyper.seed)
    keeps = hyper.keep == "best" and bool(dev)
    reporter = Reporter(show, hyper.patience, keeps)
    updates = hyper.updates(len(examples))
    arguments = _arguments(
        folder,
        hyper,
        updates,
        evaluates=bool(dev),
        kept=max(keep, 2 if keeps else 1),
        log_to=log_to,
    )
    trainer = GridTrainer(
        checkpoint,
        reporter,
        score,
        args=arguments,
        optimizer_cls_and_kwargs=_optimizer(hyper),
        train_dataset=ByTurn(examples),
        eval_dataset=[(Turn(n, n), example) for n, example in enumerate(dev)] or None,
        data_collator=collator(checkpoint, hyper.seed),
    )
    trainer.check_sharding(hyper.optimizer)

    began = time.perf_counter()
    checkpoint.model.train()
    with _blame(last, reporter):
        trainer.learn(last)
    kept = trainer.load_best()
    checkpoint.model.eval()
    if lora.adapted(checkpoint.model):
        lora.merge(checkpoint.model)
        checkpoint.is_partly_trained = True
    trainer.save_model(str(folder))
    return _result(trainer, kept, hyper.update_size, time.perf_counter() - began)


def _arguments(
    folder: Path,
    hyper: Hyperparameters,
    updates: int,
    *,
    evaluates: bool,
    kept: int,
    log_to: Sequence[str],
) -> TrainingArguments:
    """The Trainer's arguments for a training of so many updates into a folder.

    `evaluates` is whether there is a dev set, `kept` the number of checkpoint-N folders
    that stay, `log_to` are names of integrations of transformers.
    """
    on_cpu = device_of(hyper) == "cpu"
    linear = hyper.schedule == "linear"
    return TrainingArguments(
        output_dir=str(folder),
        max_steps=updates,
        per_device_train_batch_size=hyper.batch_size,
        per_device_eval_batch_size=1,
        gradient_accumulation_steps=hyper.accumulation,
        learning_rate=hyper.learning_rate,
        lr_scheduler_type="linear" if linear else "constant_with_warmup",
        warmup_steps=round(updates * hyper.warmup),
        bf16=hyper.bf16,
        seed=hyper.seed,
        use_cpu=on_cpu,
        logging_steps=max(1, min(50, updates // 20)),
        eval_strategy="steps" if evaluates else "no",
        eval_steps=max(1, updates // hyper.evaluated(updates)),
        save_strategy="steps",
        save_steps=max(1, updates // (hyper.evaluations or MOST)),
        save_total_limit=kept,
        remove_unused_columns=False,
        label_names=["labels"],
        prediction_loss_only=True,
        dataloader_pin_memory=not on_cpu,
        disable_tqdm=True,
        report_to=[*log_to],
        log_level="error",
        ddp_find_unused_parameters=False,
    )


def _optimizer(hyper: Hyperparameters) -> tuple[type, dict[str, Any]] | None:
    """The optimizer and its arguments; None for the Trainer's own, AdamW."""
    if hyper.optimizer == "adamw":
        return None
    rate = hyper.learning_rate
    return Adafactor, {"lr": rate, "scale_parameter": True, "relative_step": False}


def _result(
    trainer: GridTrainer,
    kept: Evaluation | None,
    update_size: int,
    seconds: float,
) -> TrainResult:
    """The result of a training that took so many seconds, with `update_size` examples in an update.

    `kept` is the evaluation whose weights the model has now; None if it has the last
    ones.
    """
    state = trainer.state
    curve = _curve(state.log_history)
    losses = [point["loss"] for point in curve if "loss" in point]
    shown = kept
    best_by: Literal["dev_loss", "dev_score"] | None = None
    if kept is not None:
        best_by = "dev_loss" if kept.dev_score is None else "dev_score"
    elif evaluated := evaluations(state.log_history):
        shown = evaluated[-1]
    return TrainResult(
        checkpoint=str(trainer.folder),
        seconds=seconds,
        updates=state.global_step,
        examples_seen=state.global_step * update_size,
        loss=sum(losses) / len(losses),
        curve=curve,
        weights_update=kept.update if kept else state.global_step,
        best_by=best_by,
        dev_update=shown.update if shown else None,
        dev_loss=shown.dev_loss if shown else None,
        dev_score=shown.dev_score if shown else None,
    )


def _curve(history: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """The losses and dev figures in the log of the Trainer, under the names of training.json, each with its update.

    Those before a training was resumed are there as well.
    """
    names = {"loss": "loss", "eval_loss": "dev_loss", "eval_score": "dev_score"}
    curve = []
    for entry in history:
        figures = {names[key]: entry[key] for key in names if key in entry}
        if figures:
            curve.append({"update": int(entry["step"]), **figures})
    return curve


def check_sharding(plugin: Any, optimizer: str) -> None:
    """Raise a UserError for settings of accelerate's FSDP `plugin`, or an optimizer, that do not work with these models.

    FSDP shards the weights over several GPUs. The decoder's blocks are not called as
    modules, so they cannot be wrapped. On the meta device tied weights come apart, and
    one of them would not be learnt. Sharded state dicts are read by pickle and hold no
    model.
    """
    given = (plugin.fsdp_version, plugin.auto_wrap_policy, plugin.state_dict_type.name)
    if given != (2, None, "FULL_STATE_DICT") or plugin.cpu_ram_efficient_loading:
        todo = (
            "launch with --fsdp_version 2 --fsdp_auto_wrap_policy NO_WRAP --fsdp_state_dict_type FULL_STATE_DICT "
            "--fsdp_cpu_ram_efficient_loading false"
        )
        raise UserError("FSDP can shard these models as a whole only", todo=todo)
    if optimizer == "adafactor":
        todo = "give --set optimizer=adamw"
        raise UserError("transformers' Adafactor cannot be sharded", todo=todo)


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
    best_global_step: Positive | None
    best_model_checkpoint: str | None
    stateful_callbacks: _Callbacks


def _read_state(checkpoint: Path) -> _State:
    """The state of a training in a checkpoint-N folder. A ValueError if it is damaged, or of another folder."""
    try:
        state = checked(as_json(contents(checkpoint / STATE), STATE), _State, STATE)
    except UserError as error:
        raise ValueError(error) from None
    if checkpoint.name != f"checkpoint-{state.global_step}":
        raise ValueError(f"{STATE} is of update {state.global_step:,}")
    return state


@contextmanager
def _blame(checkpoint: Path | None, reporter: Reporter) -> Iterator[None]:
    """Make a UserError of errors in this context: the checkpoint-N folder that is resumed from, if any, is to blame.

    Errors after the first update, of memory, of files and of users go on as they are.
    """
    try:
        yield
    except (UserError, OSError):
        raise
    except Exception as error:
        has_begun = reporter.first_update is not None
        if checkpoint is None or has_begun or is_out_of_memory(error):
            raise
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        what = f"cannot go on from it: {reason}"
        todo = "remove that folder to go on from the one before, or start over with --overwrite"
        raise UserError(what, where=str(checkpoint), todo=todo) from error


class GridTrainer(Trainer):
    """The Trainer, but it saves the ordinary model that is inside the loss, and no pickled arguments."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        reporter: Reporter,
        score: Callable[[], float] | None,
        **options: Any,
    ) -> None:
        """Take a checkpoint, what reports the progress, what scores texts if they are, and the Trainer's own options."""
        self.checkpoint = checkpoint
        self.reporter = reporter
        self.score = score
        model = TeacherForcing(checkpoint.model, blind=checkpoint.questions)
        super().__init__(model=model, callbacks=[reporter], **options)
        self.folder = Path(self.args.output_dir)
        self.remove_callback(PrinterCallback)

    def check_sharding(self, optimizer: str) -> None:
        """Prepare for weights that are sharded over several GPUs (FSDP), if they are.

        Then nothing is scored, and no best weights are kept. Raises a UserError for
        what cannot be sharded.
        """
        if self.is_fsdp_enabled:
            check_sharding(self.accelerator.state.fsdp_plugin, optimizer)
            if lora.adapted(self.checkpoint.model):
                todo = "leave --lora out, or FSDP"
                raise UserError("adapters are not sharded", todo=todo)
            # No process has all weights, to generate with or to keep.
            self.score = None
            self.reporter.keeps = False
        elif os.environ.get("ACCELERATE_USE_FSDP", "").lower() in {"1", "true"}:
            # accelerate would ignore it.
            todo = "leave out --use_fsdp; torchrun starts several processes on CPUs"
            raise UserError("FSDP takes several GPUs, one for each process", todo=todo)

    def learn(self, last: Path | None) -> None:
        """Make all updates, or those that follow the `last` checkpoint-N folder.

        Where nothing follows, its weights and its log are loaded only.
        """
        if last is None:
            self.train()
            return
        done = _read_state(last)
        history = done.log_history
        ended = done.global_step >= self.args.max_steps
        if ended or is_over(history, self.reporter.patience):
            # It was killed after its last checkpoint. The Trainer would make another
            # update.
            self._load_from_checkpoint(str(last))
            self.state.global_step = done.global_step
            self.state.log_history = history
        else:
            self.train(resume_from_checkpoint=str(last))

    def load_best(self) -> Evaluation | None:
        """Load the best weights and return their evaluation, if they were kept."""
        best = best_of(self.state.log_history)
        if best is None or not self.reporter.keeps:
            return None
        folder = self.folder / f"checkpoint-{best.update}"
        if not folder.exists():
            return None
        try:
            self._load_from_checkpoint(str(folder))
        except Exception as error:
            what = f"cannot read the best weights: {first_line(error)}"
            todo = "start over with --overwrite"
            raise UserError(what, where=str(folder), todo=todo) from error
        return best

    def _get_train_sampler(self, train_dataset: Any = None) -> Turns:
        """What draws the order of the examples; the Trainer asks for it.

        The Trainer's own sampler draws from the global generator: a resumed run would
        repeat some examples and miss others.
        """
        args = self.args
        sources = (len(example.source) for example in self.train_dataset.examples)
        batches = args.gradient_accumulation_steps * args.world_size
        return Turns(
            array("I", sources),
            args.train_batch_size * batches,
            args.seed,
            epoch=lambda: int(self.state.epoch or 0),
        )

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """The Trainer's figures, with the score."""
        output = super().evaluation_loop(*args, **kwargs)
        if self.score:  # one process scores, all must know
            score = [self.score() if self.is_world_process_zero() else None]
            (output.metrics["eval_score"],) = broadcast_object_list(score)
        return output

    def prediction_step(
        self, model: Any, inputs: Any, *_: Any, **__: Any
    ) -> tuple[Any, None, None]:
        """The mean loss of each example. The Trainer would divide by the predictions of all examples of a batch."""
        with torch.no_grad(), self.compute_loss_context_manager():
            return model(**self._prepare_inputs(inputs))["loss"], None, None

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Save the ordinary model and its tokenizer to a folder, by default the training's; the Trainer calls it.

        `state_dict` has all weights where FSDP shards them over several GPUs, else it
        is None.
        """
        if not self.args.should_save:
            return
        saved = self.checkpoint
        if state_dict is not None:
            weights = {
                name.removeprefix("plain."): weight
                for name, weight in state_dict.items()
            }
            plain = saved.backbone.fresh(saved.model.config)
            plain.load_state_dict(weights)
            saved = replace(saved, model=plain.eval())
        save_checkpoint(saved, Path(output_dir or self.args.output_dir))

    def _load_from_checkpoint(
        self, resume_from_checkpoint: str, model: Any = None
    ) -> None:
        """Load the weights, or the adapters, of a checkpoint-N folder into the model; the Trainer calls it.

        `model` is given where FSDP shards the weights over several GPUs.
        """
        folder = Path(resume_from_checkpoint)
        if model is not None:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        elif lora.adapted(self.checkpoint.model):
            lora.load_adapters(self.checkpoint.model, folder)
        else:
            load_weights(self.checkpoint, folder)


def load_weights(checkpoint: Checkpoint, folder: Path) -> None:
    """Load a folder's weights into a checkpoint's model, in place.

    Tied weights (those that two layers share) stay tied, and others untied. A
    ValueError if they are not those of the model.
    """
    import transformers
    from safetensors.torch import load_model

    model = checkpoint.model
    file = folder / "model.safetensors"
    missing, unknown = load_model(model, file, strict=False)
    if missing and unknown:
        # Experts have other names in files than in the model.
        auto_class = getattr(transformers, checkpoint.backbone.auto_class)
        loaded = auto_class.from_pretrained(folder, dtype=model.dtype)
        model.load_state_dict(loaded.state_dict())
        return
    # A Marian computes its positions, and does not save them.
    computed = getattr(model, "_keys_to_ignore_on_save", None) or ()
    strange = {*missing, *unknown}.difference(computed)
    if strange:
        what = f"{min(strange)} is missing or unknown"
        raise ValueError(f"its weights are not those of the model: {what}")
