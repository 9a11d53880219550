"""The order of training examples: like lengths together, and the same ones in an update however they are dealt out."""

from itertools import pairwise

import pytest
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler

from pipedec_cli.model.training.collate import ByTurn, Turn, Turns

LENGTHS = [1 + number % 97 for number in range(1003)]


def turns(lengths=LENGTHS, size=8, seed=3, epoch=0):
    return Turns(lengths, size, seed, lambda: epoch)


def examples_of(some):
    return [turn.example for turn in some]


def test_an_epoch_has_every_example_and_fills_up_its_last_update():
    for lengths in (LENGTHS, LENGTHS[:7], [5]):
        order = list(turns(lengths))
        assert len(order) == len(turns(lengths)) == -(-len(lengths) // 8) * 8
        assert set(examples_of(order)) == set(range(len(lengths)))
        assert [turn.update for turn in order] == [place // 8 for place in range(len(order))]


def test_batches_are_of_like_lengths_and_come_in_no_order_of_length():
    """Else what was learnt last, how many subsequences there are, would be that of the shortest texts."""
    order = examples_of(turns())
    batches = [[LENGTHS[at] for at in order[first : first + 8]] for first in range(0, 1008, 8)]
    assert sum(max(batch) - min(batch) < 12 for batch in batches) > 120
    rises = sum(one[0] < other[0] for one, other in pairwise(batches))
    assert 40 < rises < 84, "half of the batches are longer than the one before"


def test_the_order_depends_on_seed_and_epoch_alone():
    assert list(turns()) == list(turns())
    assert examples_of(turns(seed=4)) != examples_of(turns()) != examples_of(turns(epoch=1))
    assert next(iter(turns(epoch=2))).update == 2 * turns().updates


@pytest.mark.parametrize("processes", [2, 4])
def test_several_processes_share_the_updates_of_one(processes):
    """As accelerate deals batches out, none of which is repeated or missed for that."""
    alone = [{*batch} for batch in BatchSampler(turns(), 8, drop_last=False)]
    batches = [
        list(BatchSamplerShard(BatchSampler(turns(), 8 // processes, drop_last=False), processes, rank))
        for rank in range(processes)
    ]
    assert [{turn for part in parts for turn in part} for parts in zip(*batches, strict=True)] == alone


def test_examples_are_given_by_their_turn_or_number():
    examples = ByTurn("abc")
    assert examples[Turn(7, 2)] == (Turn(7, 2), "c")
    assert [examples[number] for number in range(len(examples))] == [
        (Turn(0, 0), "a"),
        (Turn(1, 1), "b"),
        (Turn(2, 2), "c"),
    ]
