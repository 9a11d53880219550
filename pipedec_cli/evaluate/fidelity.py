"""What a dtype costs a model: its distributions of the next token beside those in float32, on given texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot

if TYPE_CHECKING:
    import torch

    from pipedec_cli.model.checkpoint import Checkpoint
    from pipedec_cli.model.engine.engine import Engine
    from pipedec_cli.model.training.collate import Encoded

#: Rows of one call: their logits are in memory in every dtype.
_TOGETHER: Final = 128


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Of one dtype, over all places of the texts.

    `kl` is the mean Kullback-Leibler divergence Σ p · ln(p / q) of its distribution q from p in float32, in nats; `equal`
    the share of places with the same most probable token; `perplexity` e to the mean −ln q of the texts' own tokens.
    """

    dtype: str
    kl: float
    equal: float
    perplexity: float


@dataclass(frozen=True, slots=True)
class FidelityTable:
    """The dtypes of a model, float32 first, on so many places of so many texts."""

    model: str
    texts: int
    places: int
    dtypes: tuple[Fidelity, ...]


class _Sums:
    """Sums of one dtype over the places so far."""

    def __init__(self) -> None:
        self.kl = self.surprise = 0.0
        self.equal = 0

    def add(self, exact: torch.Tensor, found: torch.Tensor, labels: torch.Tensor) -> None:
        """Add places: logarithms of probabilities, float32 [places, vocabulary], and the texts' own tokens."""
        self.kl += float((exact.exp() * (exact - found)).sum(dim=-1).double().sum())
        self.equal += int((exact.argmax(dim=-1) == found.argmax(dim=-1)).sum())
        self.surprise -= float(found.gather(1, labels[:, None]).double().sum())


def compare_dtypes(
    engines: Mapping[str, Engine], checkpoint: Checkpoint, examples: Iterable[Encoded], most: int
) -> FidelityTable:
    """Read texts with the engines of one model, teacher-forced, until `most` places are read.

    Args:
        engines: by the dtype of their weights, float32 first.
        checkpoint: says how the texts of a pipelined decoder lie on the grid: as in training.
        examples: sources and texts, as `collate.encode` gives them.
        most: places, each the prediction of one token.
    """
    import torch

    sums, texts, places = {dtype: _Sums() for dtype in engines}, 0, 0
    for source, rows, labels in _placed(checkpoint, examples):
        texts += 1
        for engine in engines.values():
            engine.admit([(0, source)])
            engine.stepper.prompts.settle(rows)
        for first in range(0, len(rows), _TOGETHER):
            wanted = torch.tensor(labels[first : first + _TOGETHER])
            learnt = (wanted >= 0) & ((wanted >= 0).cumsum(0) <= most - places)
            exact, own = None, wanted[learnt]
            for dtype, engine in engines.items():
                logits = engine.logits(rows[first : first + len(wanted)])[learnt]
                found = logits.float().log_softmax(dim=-1).cpu()
                exact = found if exact is None else exact
                sums[dtype].add(exact, found, own)
            places += len(own)
        if places >= most:
            break
    if not places:
        raise ValueError("there is no place to compare")
    measured = (
        Fidelity(dtype, one.kl / places, one.equal / places, math.exp(one.surprise / places))
        for dtype, one in sums.items()
    )
    return FidelityTable(checkpoint.name, texts, places, tuple(measured))


def _placed(
    checkpoint: Checkpoint, examples: Iterable[Encoded]
) -> Iterator[tuple[Sequence[int], list[Row], list[int]]]:
    """Each source, the rows of its text in the order of a grid, and the token after each row; below 0: it is not learnt."""
    from pipedec_cli.model.training.collate import Turn, collator

    lay_out = collator(checkpoint, seed=0)
    for number, example in enumerate(examples):
        batch = {name: values[0].tolist() for name, values in lay_out([(Turn(0, number), example)]).items()}
        cells = zip(batch["subsequence"], batch["time"], batch["decoder_input_ids"], strict=True)
        yield batch["input_ids"], [Row(0, Slot(*cell)) for cell in cells], batch["labels"]
