"""The order of the examples: each once an epoch, in batches of like lengths, however many processes there are."""

import itertools

import pytest
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler

from pipedec_cli.training.order import Turns

SOURCE_LENGTHS = [1 + number % 97 for number in range(1003)]


def turns(lengths=SOURCE_LENGTHS, size=8, seed=3, epoch=0):
    return Turns(lengths, size, seed, lambda: epoch)


def examples_of(some):
    return [turn.example for turn in some]


@pytest.mark.parametrize("lengths", [SOURCE_LENGTHS, SOURCE_LENGTHS[:7], [5]])
def test_an_epoch_has_every_example_and_fills_up_its_last_update(lengths):
    order = [*turns(lengths)]
    assert len(order) == len(turns(lengths)) == -(-len(lengths) // 8) * 8
    assert {*examples_of(order)} == {*range(len(lengths))}
    updates = [turn.update for turn in order]
    assert updates == [number // 8 for number in range(len(order))]


def test_batches_are_of_like_lengths_and_come_in_no_order_of_length():
    """Else what was learnt last, how many subsequences there are, would be that of the shortest texts."""
    lengths = [SOURCE_LENGTHS[example] for example in examples_of(turns())]
    batches = [lengths[first : first + 8] for first in range(0, 1008, 8)]
    assert sum(max(batch) - min(batch) < 12 for batch in batches) > 120
    rises = sum(one[0] < other[0] for one, other in itertools.pairwise(batches))
    assert 40 < rises < 84, "half of the batches are longer than the one before"


def test_the_order_depends_on_seed_and_epoch_alone():
    usual = examples_of(turns())
    assert examples_of(turns()) == usual
    assert examples_of(turns(seed=4)) != usual != examples_of(turns(epoch=1))
    assert next(iter(turns(epoch=2))).update == 2 * turns().updates


@pytest.mark.parametrize("processes", [2, 4])
def test_several_processes_share_the_updates_of_one(processes):
    """As accelerate deals batches out, none of which is repeated or missed for that."""
    alone = [{*batch} for batch in BatchSampler(turns(), 8, drop_last=False)]
    own = BatchSampler(turns(), 8 // processes, drop_last=False)
    shards = [BatchSamplerShard(own, processes, rank) for rank in range(processes)]
    together = zip(*shards, strict=True)
    assert [{*itertools.chain(*batches)} for batches in together] == alone
