"""The best weights of a training so far, by the evaluations of the dev set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, to_builtins

from pipedec_cli.data.checking import checked
from pipedec_cli.data.reading import as_json, contents
from pipedec_cli.data.trained import BEST, UNFINISHED, best_folders, forget_best
from pipedec_cli.data.writing import write_json
from pipedec_cli.model.checkpoint import Checkpoint, Positive, save_checkpoint


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
        return self.dev_score or 0.0, -math.inf if math.isnan(self.dev_loss) else -self.dev_loss


def evaluations(history: Iterable[Mapping[str, float]]) -> list[Evaluation]:
    """The evaluations in the log of the Trainer."""
    found = (log for log in history if "eval_loss" in log)
    return [Evaluation(int(log["step"]), log["eval_loss"], log.get("eval_score")) for log in found]


class Best:
    """The best evaluation so far and, if `keeps`, the weights that it is of.

    They lie in the folder ``best-N`` of the training's folder, N being the update. The folder gets its name when all is
    written, and only then the one before is removed. So a training that is killed at any time finds them again.
    """

    def __init__(self, target: Path, checkpoint: Checkpoint, *, keeps: bool) -> None:
        self.keeps = keeps
        self.evaluation: Evaluation | None = None
        self._target, self._checkpoint = target, checkpoint

    def recall(self, history: Sequence[Evaluation]) -> None:
        """Go on from these evaluations and from the weights on disk, which may be of a later update."""
        records = [folder / BEST for folder in best_folders(self._target) if self.keeps]
        kept = [checked(as_json(contents(file), str(file)), Evaluation, str(file)) for file in records]
        for evaluation in (*history, *kept):
            if evaluation.better_than(self.evaluation):
                self.evaluation = evaluation

    def offer(self, evaluation: Evaluation, *, writes: bool) -> None:
        """Keep the present weights if this evaluation of them is the best. Only one process `writes`.

        However long that takes, unlike a checkpoint-N: weights that are not written cannot be the best.
        """
        if not evaluation.better_than(self.evaluation):
            return
        self.evaluation = evaluation
        if self.keeps and writes:
            unfinished = self._target / f"{UNFINISHED}best"
            save_checkpoint(self._checkpoint, unfinished)
            write_json(unfinished / BEST, to_builtins(evaluation))
            older = best_folders(self._target)
            unfinished.replace(self.folder)
            forget_best(folder for folder in older if folder != self.folder)

    def idle(self, history: Sequence[Evaluation]) -> int:
        """The number of evaluations since the best."""
        best = self.evaluation
        return 0 if best is None else sum(later.update > best.update for later in history)

    @property
    def folder(self) -> Path:
        """Where the best weights lie."""
        return self._target / f"best-{self.evaluation.update if self.evaluation else 0}"
