"""How to train, with defaults for each kind of start; the processes of a training; its progress and its result."""

import os
from dataclasses import dataclass
from typing import Any, Final, Literal

from msgspec import Struct

from pipedec_cli.data.trained import Start


def process_count() -> int:
    """The number of processes that train together. `torchrun` and `accelerate launch` set it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main() -> bool:
    """Whether this process is the one that writes files and messages."""
    return os.environ.get("RANK", "0") == "0"


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """How to train. training.json keeps it.

    batch_size: examples of one device in one batch. accumulation: batches of one
    update.
    learning_rate: the highest rate. For ``adafactor`` it is relative to the root mean
    square of each matrix.
    warmup: the share of the updates in which the rate rises.
    evaluations: how often the dev set is evaluated; None for as often as the length of
    the training allows.
    max_steps: the number of updates; None trains for `epochs`. cpu: use the CPU even
    where there is a GPU.
    keep: the weights that the training leaves. patience: it ends after so many
    evaluations without a better one.
    """

    epochs: float
    batch_size: int
    accumulation: int
    optimizer: Literal["adamw", "adafactor"]
    learning_rate: float
    warmup: float = 0.05
    schedule: Literal["linear", "constant"]
    bf16: bool
    seed: int
    evaluations: int | None
    max_steps: int | None
    cpu: bool
    keep: Literal["best", "last"] = "best"
    patience: int | None = None

    @property
    def update_size(self) -> int:
        """The number of examples in one update, over all processes."""
        return self.batch_size * self.accumulation * process_count()

    def updates(self, examples: int) -> int:
        """The number of updates of a training on so many examples."""
        if self.max_steps is not None:
            return self.max_steps
        per_epoch = max(1, -(-examples // self.update_size))
        return max(1, round(per_epoch * self.epochs))

    def evaluated(self, updates: int) -> int:
        """How often the dev set is evaluated in a training of so many updates."""
        usual = min(MOST, updates * self.update_size // _PER_EVALUATION)
        return self.evaluations or max(1, usual)


#: The evaluations of a long training.
MOST: Final = 10
#: An evaluation takes about as long as learning 125 examples: 200 losses, and 32 texts
#: that are generated. With so many examples learnt between two evaluations they take a
#: fifth of the time.
_PER_EVALUATION: Final = 500

#: The default optimizer, batch size and learning rates. Weights made from scratch learn
#: most from many small updates. For published weights, adamw and its rate are the
#: paper's. The matrices of a fresh T5 differ in size by a factor of 100 (embeddings 1,
#: queries 0.008), so no absolute rate suits them all. Adafactor's rate is relative.
_DEFAULTS: Final[dict[Start, tuple[str, int, dict[str, float]]]] = {
    "fresh": ("adafactor", 8, {"adafactor": 3e-2, "adamw": 1e-3}),
    "from-scratch": ("adafactor", 8, {"adafactor": 1e-2, "adamw": 3e-4}),
    "published": ("adamw", 24, {"adafactor": 1e-3, "adamw": 1e-4}),
    "adapters": ("adamw", 24, {"adafactor": 1e-2, "adamw": 2e-4}),
}
#: Adafactor's rate for fresh weights that learn fields. Both decoders learn them sooner
#: and better at this rate.
_RATE_OF_FIELDS: Final = 1e-2


def usual_tuning(
    start: Start, *, fields: bool, optimizer: str | None = None
) -> dict[str, Any]:
    """The defaults of optimizer, batch_size and learning_rate for a training that starts from such weights.

    `fields` is whether objects are learnt. If an `optimizer` is given, it is kept, and
    the rate is the one that suits it.
    """
    usual, batch_size, rates = _DEFAULTS[start]
    optimizer = optimizer or usual
    rate = rates[optimizer]
    if fields and (optimizer, start) == ("adafactor", "fresh"):
        rate = _RATE_OF_FIELDS
    return {"optimizer": optimizer, "batch_size": batch_size, "learning_rate": rate}


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """The state of a training: updates done and in all, the last loss, dev figures after an evaluation, seconds left."""

    update: int
    updates: int
    epoch: float
    loss: float | None
    dev_loss: float | None = None
    dev_score: float | None = None
    left: float | None = None


class TrainResult(Struct, frozen=True, omit_defaults=True):
    """The result of a training, as training.json keeps it.

    `loss` is the mean of all reported losses. The weights are those after
    `weights_update` updates, the `best_by` a dev figure, or the last if that is None;
    the `dev_` figures are of their evaluation, or of the last before them. Each point
    of the `curve` has ``update`` and ``loss``, or ``update``, ``dev_loss`` and, if
    texts were scored, ``dev_score``.
    """

    checkpoint: str
    seconds: float
    updates: int
    examples_seen: int
    loss: float
    curve: list[dict[str, float]]
    weights_update: int
    best_by: Literal["dev_score", "dev_loss"] | None = None
    dev_update: int | None = None
    dev_loss: float | None = None
    dev_score: float | None = None
