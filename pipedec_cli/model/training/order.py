"""The order of the training examples. It depends on the seed and the epoch only, not on the number of processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import torch
from torch.utils.data import Dataset, Sampler

Example = TypeVar("Example")
#: The examples of so many updates are sorted by length together.
_GROUP: Final = 50


@dataclass(frozen=True, slots=True)
class Turn:
    """The place of an example in a training: the number of its update, from 0 over all epochs, and its own number."""

    update: int
    example: int


class Turns(Sampler[Turn]):
    """Draws the turns of one epoch: the examples of an update have similar lengths; the updates come in random order.

    Every update has `size` examples over all processes and all accumulated batches, so that any number of processes
    learns from the same examples. The last update is filled up with examples that the epoch has had already.
    `epoch` is called when an epoch begins.
    """

    def __init__(self, lengths: Sequence[int], size: int, seed: int, epoch: Callable[[], int]) -> None:
        self.lengths, self.size, self.seed, self.epoch = torch.tensor(lengths), size, seed, epoch
        self.updates = -(-len(lengths) // size)

    def __len__(self) -> int:
        return self.updates * self.size

    def __iter__(self) -> Iterator[Turn]:
        count, epoch = len(self.lengths), self.epoch()
        generator = torch.Generator().manual_seed((self.seed << 20) + epoch)
        shuffled = torch.randperm(count, generator=generator)
        group = torch.arange(count) // (self.size * max(1, min(_GROUP, count // (4 * self.size))))
        order = shuffled[(group * (self.lengths.max() + 1) + self.lengths[shuffled]).argsort(stable=True)]
        examples = order[torch.arange(len(self)) % count].view(-1, self.size)  # [updates, size]
        drawn = torch.randperm(self.updates, generator=generator)
        for number, update in enumerate(drawn, self.updates * epoch):
            for example in examples[update].tolist():
                yield Turn(number, example)


class ByTurn(Dataset[tuple[Turn, Example]], Generic[Example]):
    """Examples by their turn. A number alone stands for an update that has only this example."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, turn: Turn | int) -> tuple[Turn, Example]:
        turn = turn if isinstance(turn, Turn) else Turn(turn, turn)
        return turn, self.examples[turn.example]
