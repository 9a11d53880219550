"""What happens beside the updates of a training: progress, the best weights, an early end, and checkpoints left out."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from transformers import TrainerCallback

from pipedec_cli.training.best import best_of, evaluations, is_over
from pipedec_cli.training.hyperparameters import TrainingProgress, process_count

#: A checkpoint that takes 1 + n seconds to write is written after n times so many
#: seconds of training.
_SAVE_EVERY: Final = 20


@dataclass(eq=False)
class Reporter(TrainerCallback):
    """Shows progress, saves the best weights if it `keeps` them, ends a training early, and leaves out costly checkpoints."""

    show: Callable[[TrainingProgress], None]
    patience: int | None  # the evaluations without a better one that end the training
    keeps: bool  # whether the best weights are saved
    loss: float | None = None  # the last mean loss
    first_update: int | None = None  # the first one that this process made
    first_time: float = 0.0  # when the first update was made
    saving: float = 0.0  # seconds that the last checkpoint took

    def __post_init__(self) -> None:
        self.saved = time.perf_counter()  # when the last checkpoint was written
        self.worked = self.saved  # when an update or an evaluation ended

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """After an update: tell the progress, leave out a costly checkpoint, and evaluate the last update.

        The Trainer does what `control` says after this. The other arguments are the
        training's own arguments and its `state`.
        """
        self.worked = time.perf_counter()
        if self.first_update is None:
            self.first_update = state.global_step
            self.first_time = self.worked
        if control.should_training_stop:
            # Otherwise the last updates could not be the best.
            control.should_evaluate = args.eval_strategy != "no"
        elif self._costs_too_much():
            control.should_save = False
        if not (control.should_log or control.should_evaluate):
            self._tell(state)

    def _costs_too_much(self) -> bool:
        """Whether a checkpoint now would take too much of the time; never with several processes, which would not agree."""
        trained = self.worked - self.saved
        return process_count() == 1 and trained < _SAVE_EVERY * (self.saving - 1)

    def on_save(self, *args: Any, **kwargs: Any) -> None:
        """After a checkpoint: note how long it took."""
        self.saved = time.perf_counter()
        self.saving = self.saved - self.worked

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any
    ) -> None:
        """After some updates: show their mean loss, unless an evaluation will show it."""
        if not logs or "loss" not in logs:
            return
        self.loss = float(logs["loss"])
        if not control.should_evaluate:
            self._tell(state)

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any
    ) -> None:
        """After an evaluation: keep the best weights, and end the training when its patience has ended."""
        history = state.log_history
        evaluation = evaluations(history)[-1]
        if self.keeps and evaluation == best_of(history):
            # A checkpoint is written, however long it takes, and the Trainer keeps that
            # of the best update.
            state.best_global_step = state.global_step
            control.should_save = True
        self.worked = time.perf_counter()
        if is_over(history, self.patience):
            control.should_training_stop = True
            control.should_save = True
        self._tell(state, evaluation.dev_loss, evaluation.dev_score)

    def _tell(
        self, state: Any, dev_loss: float | None = None, dev_score: float | None = None
    ) -> None:
        """Show the progress of a training, with the figures of an evaluation if one has just ended."""
        if not state.is_world_process_zero:
            return
        progress = TrainingProgress(
            update=state.global_step,
            updates=state.max_steps,
            epoch=state.epoch or 0.0,
            loss=self.loss,
            dev_loss=dev_loss,
            dev_score=dev_score,
            left=self._seconds_left(state),
        )
        self.show(progress)

    def _seconds_left(self, state: Any) -> float | None:
        """The seconds that the updates to come will take, as long as those so far; None up to the first, which warms up."""
        if self.first_update is None or state.global_step == self.first_update:
            return None
        passed = time.perf_counter() - self.first_time
        measured: int = state.global_step - self.first_update
        to_come: int = state.max_steps - state.global_step
        return passed / measured * to_come
