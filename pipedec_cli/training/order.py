"""The order of the training examples: drawn from the seed alone, batches of similar lengths."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

Example = TypeVar("Example")
#: The examples of so many updates are sorted by length together.
_GROUP: Final = 50


class Turn(NamedTuple):
    """The place of an example in a training: the number of its update, from 0 over all epochs, and its own number."""

    update: int
    example: int


class Turns(Sampler[Turn]):
    """Draws the turns of one epoch: the examples of an update have similar lengths; the updates come in random order.

    Every update has `size` examples over all processes and all accumulated batches, so
    that any number of processes learns from the same examples. The last update is
    filled up with examples that the epoch has had already. `epoch` gives the number of
    the epoch that begins, from 0; the order depends on it and on the `seed` alone.
    """

    def __init__(
        self, lengths: Sequence[int], size: int, seed: int, epoch: Callable[[], int]
    ) -> None:
        self.lengths = torch.tensor(lengths)
        self.size = size
        self.seed = seed
        self.epoch = epoch
        self.updates = -(-len(lengths) // size)

    def __len__(self) -> int:
        return self.updates * self.size

    def __iter__(self) -> Iterator[Turn]:
        """Draw the turns of the epoch that begins."""
        epoch = self.epoch()
        generator = torch.Generator()
        generator.manual_seed((self.seed << 20) + epoch)
        order = self._by_length(generator)
        filled_up = order[torch.arange(len(self)) % len(order)]
        updates = filled_up.view(-1, self.size)
        drawn = torch.randperm(self.updates, generator=generator)
        number = self.updates * epoch  # of the update, over all epochs
        for update in drawn:
            for example in updates[update].tolist():
                yield Turn(number, example)
            number += 1

    def _by_length(self, generator: torch.Generator) -> Tensor:
        """The numbers of all examples, shuffled, and then sorted by length within groups: int64 [examples].

        A group has the examples of at most `_GROUP` updates, and of a quarter of all.
        """
        count = len(self.lengths)
        shuffled = torch.randperm(count, generator=generator)
        updates = max(1, min(_GROUP, count // (4 * self.size)))
        group_size = self.size * updates
        groups = []
        for start in range(0, count, group_size):
            group = shuffled[start : start + group_size]
            lengths = self.lengths[group]
            groups.append(group[lengths.argsort(stable=True)])
        return torch.cat(groups)


class ByTurn(Dataset[tuple[Turn, Example]], Generic[Example]):
    """Examples by their turn."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, turn: Turn) -> tuple[Turn, Example]:
        return turn, self.examples[turn.example]
