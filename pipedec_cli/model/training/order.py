"""In which order training examples come: by the seed and the epoch alone, whether one process learns from them or several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import torch
from torch.utils.data import Dataset, Sampler

Example = TypeVar("Example")
#: The updates out of whose examples those of like lengths are put together.
_GROUP: Final = 50


class Turn(NamedTuple):
    """An example's place in a training: the update that it is for, counted from 0 over all epochs, and its number."""

    update: int
    example: int


class Turns(Sampler[Turn]):
    """The turns of an epoch: an update's examples are of like lengths, and the updates come in no order of length.

    Each update has `size` examples over all processes and accumulated batches, so that however they are dealt out, it is
    the same ones. For that the last is filled up with some that the epoch has had. The epoch is asked for when it begins.
    """

    def __init__(self, lengths: Sequence[int], size: int, seed: int, epoch: Callable[[], int]) -> None:
        self.lengths, self.size, self.seed, self.epoch = torch.tensor(lengths), size, seed, epoch
        self.updates = -(-len(lengths) // size)

    def __len__(self) -> int:
        return self.updates * self.size

    def __iter__(self) -> Iterator[Turn]:
        count, epoch = len(self.lengths), self.epoch()
        chance = torch.Generator().manual_seed((self.seed << 20) + epoch)
        drawn = torch.randperm(count, generator=chance)
        group = torch.arange(count) // (self.size * max(1, min(_GROUP, count // (4 * self.size))))
        like = drawn[(group * (self.lengths.max() + 1) + self.lengths[drawn]).argsort(stable=True)]
        whole = like[torch.arange(len(self)) % count].view(-1, self.size)
        for place, update in enumerate(torch.randperm(self.updates, generator=chance), self.updates * epoch):
            for example in whole[update].tolist():
                yield Turn(place, example)


class ByTurn(Dataset[tuple[Turn, Example]], Generic[Example]):
    """Examples that are asked for by their turn, or by their number alone: then each is an update of its own."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, turn: Turn | int) -> tuple[Turn, Example]:
        turn = turn if isinstance(turn, Turn) else Turn(turn, turn)
        return turn, self.examples[turn.example]
