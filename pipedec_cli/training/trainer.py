"""The training loop: transformers' Trainer, the best weights so far, and what a training costs."""

from __future__ import annotations

import math
import os
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import psutil
import torch
from accelerate.utils import broadcast_object_list
from msgspec import Struct, to_builtins
from transformers import (
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.optimization import Adafactor

from pipedec_cli.data.errors import UserError, first_line, is_out_of_memory
from pipedec_cli.data.reading import as_json, checked, contents
from pipedec_cli.data.trained import (
    BEST,
    STATE,
    UNFINISHED,
    best_folders,
    checkpoints,
    forget,
)
from pipedec_cli.data.writing import write_json
from pipedec_cli.model import lora
from pipedec_cli.model.checkpoint import Checkpoint, Positive, save_checkpoint
from pipedec_cli.training.collate import ByTurn, Encoded, Turn, Turns, collator
from pipedec_cli.training.hyperparameters import (
    MOST,
    Hyperparameters,
    TrainingProgress,
    TrainResult,
    count,
)
from pipedec_cli.training.loss import LOGITS, TeacherForcing

#: Bytes of a number in float32.
_NUMBER: Final = 4
#: The logits of a chunk, their probabilities and the gradients of both exist together.
_COPIES: Final = 4


def training_disk(
    checkpoint: Checkpoint, hyper: Hyperparameters, keep: int
) -> tuple[int, int]:
    """Returns the bytes of a checkpoint-N folder, and of all files of a training that keeps `keep` of these folders."""
    model = checkpoint.model
    folder = _trained_bytes(checkpoint, hyper)
    best = (
        _NUMBER * model.num_parameters(only_trainable=True)
        if hyper.keep == "best"
        else 0
    )
    folders = max(1, keep) + 1  # the newest is written before the oldest is removed
    return folder, _NUMBER * model.num_parameters() + folders * folder + best


def run_longest(
    checkpoint: Checkpoint,
    examples: Sequence[Encoded],
    hyper: Hyperparameters,
    *,
    name: Callable[[int], str],
) -> None:
    """Run the forward and the backward pass of a batch of the longest example. Weights stay as they are.

    A `UserError` gives the example's `name` if the memory is too small.
    """
    longest = require_memory(checkpoint, examples, hyper, name=name)
    batch = collator(checkpoint, hyper.seed)(
        [(Turn(0, 0), examples[longest])] * hyper.batch_size
    )
    device = _device(hyper)
    loss = TeacherForcing(checkpoint.model.to(torch.device(device))).train()
    try:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=hyper.bf16):
            result = loss(
                **{name: tensor.to(device) for name, tensor in batch.items()}
            )["loss"]
        result.backward()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        what = f"a batch of {hyper.batch_size} with this record does not fit the memory"
        raise UserError(
            what, where=name(longest), todo=_remedy(hyper.batch_size > 1)
        ) from error
    finally:
        checkpoint.model.zero_grad(set_to_none=True)


def require_memory(
    checkpoint: Checkpoint,
    examples: Sequence[Encoded],
    hyper: Hyperparameters,
    *,
    name: Callable[[int], str],
) -> int:
    """Returns the number of the longest example. Nothing is computed but sums over lengths.

    A `UserError` if there are no examples, or if a lower bound of the memory that a
    batch of the longest takes exceeds the free memory. It gives the example's `name`.
    """
    _require_examples(examples)
    longest = max(
        range(len(examples)),
        key=lambda number: _batch_bytes(checkpoint, examples[number], 1),
    )
    trained = _trained_bytes(checkpoint, hyper)
    single = trained + _batch_bytes(checkpoint, examples[longest], 1)
    batch = trained + _batch_bytes(checkpoint, examples[longest], hyper.batch_size)
    free = (
        torch.cuda.mem_get_info()[0]
        if _device(hyper) == "cuda"
        else psutil.virtual_memory().available
    )
    if trained > free:
        what = f"the model with its gradients needs {trained / 1e9:,.1f} GB of memory, {free / 1e9:,.1f} GB are free"
        raise UserError(
            what, todo="take a smaller --model, or train adapters with --lora"
        )
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
    # With relative positions each head has a matrix of biases, else all heads have one
    # mask.
    attention = pairs * (
        sizes.heads if hasattr(config, "relative_attention_num_buckets") else 1
    )
    logits = min(LOGITS, size * target * config.vocab_size) * _COPIES
    numbers: int = (
        size * (attention + (source + target) * sizes.width * sizes.layers) + logits
    )
    return _NUMBER * numbers


def _trained_bytes(checkpoint: Checkpoint, hyper: Hyperparameters) -> int:
    """The bytes of the gradients and of the optimizer's moments; those of the trained weights and moments on disk."""
    # AdamW keeps two moments in float32. Adafactor keeps a row and a column of each
    # matrix, which is next to nothing.
    moments = 2 if hyper.optimizer == "adamw" else 0
    return (
        _NUMBER
        * int(checkpoint.model.num_parameters(only_trainable=True))
        * (1 + moments)
    )


def _device(hyper: Hyperparameters) -> str:
    return "cuda" if torch.cuda.is_available() and not hyper.cpu else "cpu"


def _require_examples(examples: Sequence[Encoded]) -> None:
    if not examples:
        raise UserError(
            "there are no training examples",
            todo="segment a data set with at least one record",
        )


class Evaluation(Struct, frozen=True):
    """The figures of the dev set after so many updates."""

    update: Positive
    dev_loss: float
    dev_score: float | None = None

    def better_than(self, other: Evaluation | None) -> bool:
        """Whether the score is higher; of equal scores, and where there is none, whether the loss is lower."""
        return other is None or self._rank > other._rank

    @property
    def _rank(self) -> tuple[float, float]:
        return self.dev_score or 0.0, -math.inf if math.isnan(
            self.dev_loss
        ) else -self.dev_loss


def evaluations(history: Sequence[Mapping[str, float]]) -> list[Evaluation]:
    """The evaluations in the log of the Trainer."""
    evaluated = (log for log in history if "eval_loss" in log)
    return [
        Evaluation(int(log["step"]), log["eval_loss"], log.get("eval_score"))
        for log in evaluated
    ]


#: A checkpoint that takes 1 + n seconds to write is written after n times so many
#: seconds of training.
_SAVE_EVERY: Final = 20


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
    """Train a checkpoint in place, and save it to `folder`.

    Dev examples are evaluated, never trained on; `score` is called at each evaluation.
    The folder also gets checkpoint-N folders, and the last `keep` of them stay, at
    least one, and best-N if `hyper` keeps the best weights. `resume` goes on from the
    last checkpoint-N, and from the start if there is none. Adapters are merged at the
    end. `log_to` names integrations of transformers. A `UserError` if there are no
    examples, or if a checkpoint-N or best-N folder cannot be read.
    """
    _require_examples(examples)
    last = next(reversed(checkpoints(folder)), None) if resume else None
    set_seed(hyper.seed)
    updates, on_cpu = hyper.updates(len(examples)), _device(hyper) == "cpu"
    reporter = _Reporter(
        show,
        folder,
        checkpoint,
        hyper.patience,
        keeps=hyper.keep == "best" and bool(dev),
    )
    relative = {
        "lr": hyper.learning_rate,
        "scale_parameter": True,
        "relative_step": False,
    }
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=updates,
        per_device_train_batch_size=hyper.batch_size,
        per_device_eval_batch_size=1,
        gradient_accumulation_steps=hyper.accumulation,
        learning_rate=hyper.learning_rate,
        lr_scheduler_type="linear"
        if hyper.schedule == "linear"
        else "constant_with_warmup",
        warmup_steps=round(updates * hyper.warmup),
        bf16=hyper.bf16,
        seed=hyper.seed,
        use_cpu=on_cpu,
        logging_steps=max(1, min(50, updates // 20)),
        eval_strategy="steps" if dev else "no",
        eval_steps=max(1, updates // hyper.evaluated(updates)),
        save_strategy="steps",
        save_steps=max(1, updates // (hyper.evaluations or MOST)),
        save_total_limit=max(1, keep),
        remove_unused_columns=False,
        label_names=["labels"],
        prediction_loss_only=True,
        dataloader_pin_memory=not on_cpu,
        disable_tqdm=True,
        report_to=[*log_to],
        log_level="error",
        ddp_find_unused_parameters=False,
    )
    trainer = _Trainer(
        checkpoint,
        score if dev else None,
        args=arguments,
        optimizer_cls_and_kwargs=(Adafactor, relative)
        if hyper.optimizer == "adafactor"
        else None,
        train_dataset=ByTurn(examples),
        eval_dataset=ByTurn(dev) if dev else None,
        data_collator=collator(checkpoint, hyper.seed),
        callbacks=[reporter],
    )
    trainer.remove_callback(PrinterCallback)
    if trainer.is_fsdp_enabled:
        check_sharding(trainer.accelerator.state.fsdp_plugin, hyper.optimizer)
        trainer.score, reporter.keeps = (
            None,
            False,
        )  # no process has all weights, to generate with or to keep
        if lora.adapted(checkpoint.model):
            raise UserError(
                "adapters are not sharded", todo="leave --lora out, or FSDP"
            )
    elif os.environ.get("ACCELERATE_USE_FSDP", "").lower() in {
        "1",
        "true",
    }:  # accelerate would ignore it
        todo = "leave out --use_fsdp; torchrun starts several processes on CPUs"
        raise UserError("FSDP takes several GPUs, one for each process", todo=todo)
    began = time.perf_counter()
    checkpoint.model.train()
    with _blame(last, reporter):
        done = _read_state(last) if last else None
        if resume:
            reporter.recall(evaluations(done.log_history if done else ()))
        if done and (done.global_step >= updates or reporter.is_over(done.log_history)):
            # It was killed after its last checkpoint. The Trainer would make another
            # update.
            trainer._load_from_checkpoint(str(last))
            trainer.state.global_step, trainer.state.log_history = (
                done.global_step,
                done.log_history,
            )
        else:
            trainer.train(resume_from_checkpoint=str(last) if last else None)
    best, made = None, trainer.state.global_step
    if reporter.keeps and reporter.best_folder.exists():
        best = reporter.best
        try:
            trainer._load_from_checkpoint(str(reporter.best_folder))
        except Exception as error:
            what, todo = (
                f"cannot read the best weights: {first_line(error)}",
                "start over with --overwrite",
            )
            raise UserError(what, where=str(reporter.best_folder), todo=todo) from error
    checkpoint.model.eval()
    if lora.adapted(checkpoint.model):
        lora.merge(checkpoint.model)
    trainer.save_model(str(folder))
    names = {"loss": "loss", "eval_loss": "dev_loss", "eval_score": "dev_score"}
    history = trainer.state.log_history  # also before it was resumed
    curve = [
        {
            "update": int(log["step"]),
            **{name: log[key] for key, name in names.items() if key in log},
        }
        for log in history
        if "loss" in log or "eval_loss" in log
    ]
    losses = [point["loss"] for point in curve if "loss" in point]
    shown = best or next(reversed(evaluations(history)), None)
    return TrainResult(
        checkpoint=str(folder),
        seconds=time.perf_counter() - began,
        updates=made,
        examples_seen=made * hyper.update_size,
        loss=sum(losses) / len(losses),
        curve=curve,
        weights_update=best.update if best else made,
        best_by=("dev_loss" if best.dev_score is None else "dev_score")
        if best
        else None,
        dev_update=shown.update if shown else None,
        dev_loss=shown.dev_loss if shown else None,
        dev_score=shown.dev_score if shown else None,
    )


def check_sharding(plugin: Any, optimizer: str) -> None:
    """Refuse the settings of accelerate's FSDP `plugin` that do not work with these models.

    The decoder's blocks are not called as modules, so they cannot be wrapped. On the
    meta device tied weights come apart, and one of them would not be learnt. Sharded
    state dicts are read by pickle and hold no model.
    """
    asked = (plugin.fsdp_version, plugin.auto_wrap_policy, plugin.state_dict_type.name)
    if asked != (2, None, "FULL_STATE_DICT") or plugin.cpu_ram_efficient_loading:
        todo = (
            "launch with --fsdp_version 2 --fsdp_auto_wrap_policy NO_WRAP --fsdp_state_dict_type FULL_STATE_DICT "
            "--fsdp_cpu_ram_efficient_loading false"
        )
        raise UserError("FSDP can shard these models as a whole only", todo=todo)
    if optimizer == "adafactor":
        raise UserError(
            "transformers' Adafactor cannot be sharded",
            todo="give --set optimizer=adamw",
        )


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
        raise UserError(
            f"cannot go on from it: {reason}", where=str(checkpoint), todo=todo
        ) from error


class _Trainer(Trainer):
    """The Trainer, but it saves the ordinary model that is inside the loss, and no pickled arguments."""

    def __init__(
        self, checkpoint: Checkpoint, score: Callable[[], float] | None, **kwargs: Any
    ) -> None:
        self.checkpoint, self.score = checkpoint, score
        super().__init__(model=TeacherForcing(checkpoint.model), **kwargs)

    def _get_train_sampler(self, train_dataset: Any = None) -> Turns:
        # The Trainer's own sampler draws from the global generator: a resumed run would
        # repeat some examples and miss others.
        lengths = array(
            "I", (len(example.source) for example in self.train_dataset.examples)
        )
        size = (
            self.args.train_batch_size
            * self.args.gradient_accumulation_steps
            * self.args.world_size
        )
        return Turns(lengths, size, self.args.seed, lambda: int(self.state.epoch or 0))

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        made = super().evaluation_loop(*args, **kwargs)
        if self.score:  # one process scores, all must know
            score = [self.score() if self.is_world_process_zero() else None]
            (made.metrics["eval_score"],) = broadcast_object_list(score)
        return made

    def prediction_step(
        self, model: Any, inputs: Any, *_: Any, **__: Any
    ) -> tuple[Any, None, None]:
        # The mean of each example. The Trainer would divide by the predictions of all
        # examples of a batch.
        with torch.no_grad(), self.compute_loss_context_manager():
            return model(**self._prepare_inputs(inputs))["loss"], None, None

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        if not self.args.should_save:
            return
        saved = self.checkpoint
        if state_dict is not None:  # all weights, which FSDP has put together
            plain = saved.backbone.fresh(saved.model.config)
            plain.load_state_dict(
                {name.removeprefix("plain."): one for name, one in state_dict.items()}
            )
            saved = replace(saved, model=plain.eval())
        save_checkpoint(saved, Path(output_dir or self.args.output_dir))

    def _load_from_checkpoint(
        self, resume_from_checkpoint: str, model: Any = None
    ) -> None:
        from safetensors.torch import load_model

        folder = Path(resume_from_checkpoint)
        if model is not None:  # FSDP's, sharded
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        elif lora.adapted(saved := self.checkpoint.model):
            lora.load_adapters(saved, folder)
        else:  # in place, so that tied weights stay tied and an untied output matrix stays untied
            missing, unknown = load_model(
                saved, folder / "model.safetensors", strict=False
            )
            if (
                missing and unknown
            ):  # experts have other names in files than in the model
                import transformers

                make = getattr(
                    transformers, self.checkpoint.backbone.auto_class
                ).from_pretrained
                saved.load_state_dict(make(folder, dtype=saved.dtype).state_dict())
            # A Marian computes its positions, and does not save them.
            elif odd := {*missing, *unknown} - {
                *(getattr(saved, "_keys_to_ignore_on_save", None) or ())
            }:
                raise ValueError(
                    f"its weights are not those of the model: {min(odd)} is missing or unknown"
                )


@dataclass(eq=False)
class _Reporter(TrainerCallback):
    """Reports progress, keeps the best weights, ends a training that does not get better, and skips costly checkpoints.

    If the reporter `keeps` the best weights, they lie in ``best-N`` in the training's
    `folder`, N being the update. ``best-N`` gets its name when all is written, and only
    then the one before is removed. So a training that is killed at any time finds them
    again.
    """

    show: Callable[[TrainingProgress], None]
    folder: Path
    checkpoint: Checkpoint
    patience: int | None
    keeps: bool
    best: Evaluation | None = None
    loss: float | None = None
    updated: tuple[int, float] | None = None  # the first update, and when it was made
    saving: float = 0.0  # seconds that the last checkpoint took

    def __post_init__(self) -> None:
        self.worked = self.saved = (
            time.perf_counter()
        )  # before a checkpoint was written, and after

    @property
    def best_folder(self) -> Path:
        """The folder of the best weights."""
        return self.folder / f"best-{self.best.update if self.best else 0}"

    def recall(self, history: Sequence[Evaluation]) -> None:
        """Go on from these evaluations and from the best weights on disk, which may be of a later update."""
        records = [folder / BEST for folder in best_folders(self.folder) if self.keeps]
        kept = [
            checked(as_json(contents(file), str(file)), Evaluation, str(file))
            for file in records
        ]
        for evaluation in (*history, *kept):
            if evaluation.better_than(self.best):
                self.best = evaluation

    def is_over(self, history: Sequence[Mapping[str, float]]) -> bool:
        """Whether there were as many evaluations since the best as patience allows."""
        later = [
            one
            for one in evaluations(history)
            if self.best and one.update > self.best.update
        ]
        return self.patience is not None and len(later) >= self.patience

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.worked = time.perf_counter()
        self.updated = self.updated or (state.global_step, self.worked)
        if control.should_training_stop:  # else the last updates could not be the best
            control.should_evaluate = args.eval_strategy != "no"
        elif count() == 1 and self.worked - self.saved < _SAVE_EVERY * (
            self.saving - 1
        ):
            control.should_save = False  # several processes would not agree
        if not (control.should_log or control.should_evaluate):
            self._tell(state)

    def on_save(self, *args: Any, **kwargs: Any) -> None:
        self.saved = time.perf_counter()
        self.saving = self.saved - self.worked

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any
    ) -> None:
        if logs and "loss" in logs:
            self.loss = float(logs["loss"])
            if (
                not control.should_evaluate
            ):  # else the evaluation of this update shows the loss as well
                self._tell(state)

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any
    ) -> None:
        made = evaluations(state.log_history)[-1]
        if made.better_than(self.best):
            self.best = made
            if self.keeps and state.is_world_process_zero:
                # The present weights, even if it takes long. Only checkpoint-N folders
                # may be left out.
                unfinished = self.folder / f"{UNFINISHED}best"
                save_checkpoint(self.checkpoint, unfinished)
                write_json(unfinished / BEST, to_builtins(made))
                older = best_folders(self.folder)
                unfinished.replace(self.best_folder)
                forget(folder for folder in older if folder != self.best_folder)
        self.worked = time.perf_counter()
        if self.is_over(state.log_history):
            control.should_training_stop = control.should_save = True
        self._tell(state, made.dev_loss, made.dev_score)

    def _tell(
        self, state: Any, dev_loss: float | None = None, dev_score: float | None = None
    ) -> None:
        if state.is_world_process_zero:
            done, every, left = state.global_step, state.max_steps, None
            if self.updated and (
                more := done - self.updated[0]
            ):  # the first update warms up
                left = (time.perf_counter() - self.updated[1]) / more * (every - done)
            self.show(
                TrainingProgress(
                    done,
                    every,
                    state.epoch or 0.0,
                    self.loss,
                    dev_loss,
                    dev_score,
                    left,
                )
            )
