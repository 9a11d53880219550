"""Records to training batches: their order, and Eq. 5 laid out token by token, padding told by position."""

import itertools
import random
import tracemalloc

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from torch.utils.data import BatchSampler

from pipedec_cli.data.records import Record, Segmentation
from pipedec_cli.data.stored import Stored
from pipedec_cli.model.checkpoint import MethodSettings
from pipedec_cli.pipeline.attention import PADDING
from pipedec_cli.pipeline.grid import Limits, replay
from pipedec_cli.pipeline.schedule import Fixed, RandomStarts, Waiting, Whole, place
from pipedec_cli.training.collate import (
    IGNORED,
    Encoded,
    Turn,
    Turns,
    collate,
    collator,
    encode,
    fit_limits,
    schedule,
)
from tests.checkpoints import fresh_toy

BOS, EOS = 0, 1
A, B, C, D, E = range(10, 15)
SETTINGS = MethodSettings("pipelined", 1, Segmentation("phrase", (";",), "; "))
#: m_i of several examples.
LENGTHS = st.lists(st.lists(st.integers(1, 6), max_size=5), min_size=1, max_size=4)
SCHEDULES = {
    "1": Fixed(1),
    "3": Fixed(3),
    "wait": Waiting(),
    "drawn": RandomStarts((2, float("inf"), 1)),
}


def laid_out(batch, schedule, *, closing=True):
    made = collate(
        batch, [schedule] * len(batch), bos=BOS, eos=EOS, pad=0, closing=closing
    )
    return {name: tensor.tolist() for name, tensor in made.items()}


def encoded(*texts, source=(5, EOS)):
    return Encoded(list(source), tuple(map(list, texts)))


def test_figure_2_is_laid_out_as_the_paper_draws_it_and_nothing_closes_a_sequential_text():
    batch = laid_out([encoded([A, B, C], [D, E])], Fixed(1))
    assert batch["decoder_input_ids"] == [[BOS, A, B, C, EOS, BOS, D, E, EOS, BOS, EOS]]
    assert batch["subsequence"] == [[1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3]]
    assert batch["time"] == [[0, 1, 2, 3, 4, 1, 2, 3, 4, 2, 3]]
    assert batch["labels"] == [
        [A, B, C, EOS, IGNORED, D, E, EOS, IGNORED, EOS, IGNORED]
    ]
    batch = laid_out([encoded([A, B, C])], Whole(), closing=False)
    assert batch["decoder_input_ids"] == [[BOS, A, B, C, EOS]]
    assert batch["labels"] == [[A, B, C, EOS, IGNORED]]
    assert batch["time"] == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(lengths=LENGTHS)
def test_every_token_stands_where_the_schedule_places_it_and_all_but_ends_predict(
    schedule, lengths
):
    """sum(m_i + 1) + 1 predictions for each example, padding or not: its tokens, its ends and the one that closes it."""
    batch = laid_out(
        [encoded(*([A] * m for m in example)) for example in lengths],
        SCHEDULES[schedule],
    )
    for row, example in enumerate(lengths):
        assert (
            sum(label != IGNORED for label in batch["labels"][row])
            == sum(m + 1 for m in example) + 1
        )
        closed = [*example, 0]
        placed = zip(place(SCHEDULES[schedule], closed), closed, strict=True)
        places = [
            (i, start + j)
            for i, (start, m) in enumerate(placed, 1)
            for j in range(m + 2)
        ]
        found = zip(batch["subsequence"][row], batch["time"][row], strict=True)
        assert [each for each in found if each != (PADDING, PADDING)] == places


def test_padding_is_told_by_position_and_never_by_id():
    """The shorter example holds the pad id in its text and in its source: both count; and any id serves as padding."""
    batch = laid_out(
        [encoded([A, B, C], [D]), encoded([BOS, A], source=[0, 0, 6, EOS])], Fixed(1)
    )
    assert batch["input_ids"] == [[5, EOS, 0, 0], [0, 0, 6, EOS]]
    assert batch["attention_mask"] == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert batch["decoder_input_ids"][1] == [BOS, BOS, A, EOS, BOS, EOS, 0, 0, 0, 0]
    assert batch["labels"][1] == [BOS, A, EOS, IGNORED, EOS, *[IGNORED] * 5]
    assert batch["time"][1][-4:] == batch["subsequence"][1][-4:] == [PADDING] * 4
    names = ("attention_mask", "subsequence", "time", "labels")
    examples = [encoded([A, B, C]), encoded([A])]
    given = {"bos": BOS, "eos": EOS, "closing": True}
    zeros, nines = (
        collate(examples, [Fixed(1)] * 2, pad=pad, **given) for pad in (0, 9)
    )
    assert all(zeros[name].equal(nines[name]) for name in names)
    assert {zeros[name].shape for name in ("decoder_input_ids", *names[1:])} == {(2, 7)}
    assert all(tensor.dtype == torch.int64 for tensor in zeros.values())


@pytest.mark.parametrize(
    ("decoder", "segments", "target", "texts"),
    [
        ("pipelined", ("one", "two"), "one two", ["one", "two"]),
        ("sequential", ("one", "two"), "one two", ["one two"]),
        ("pipelined", ("", "one"), "one", ["one"]),
        ("pipelined", (), "", []),
        ("pipelined", None, "", []),
        ("sequential", (), "", [""]),
    ],
)
def test_a_target_becomes_one_text_a_segment_or_one_in_all(
    decoder, segments, target, texts
):
    checkpoint = fresh_toy(decoder)
    (example,) = encode(
        checkpoint, [Record("1", "source", target, segments, (), "f:1")]
    )
    assert [checkpoint.codec().decode(ids) for ids in example.texts] == texts
    assert all(EOS not in ids for ids in example.texts)
    assert (example.source, example.cut) == checkpoint.codec().source("source")


def test_examples_lie_on_disk_and_come_back_as_they_were(tmp_path):
    examples = [
        encoded([A] * number, [], [B], source=[number, EOS]) for number in range(50)
    ]
    stored = Stored(tmp_path, examples, Encoded)
    assert [*stored] == examples
    assert [stored[7], *stored[::20]] == [examples[7], *examples[::20]]


def test_training_data_take_some_bytes_of_memory_an_example_and_none_a_token(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("pipedec_cli.data.stored._IN_MEMORY", 10_000)

    def peak(count):
        tracemalloc.start()
        stored = Stored(
            tmp_path,
            (encoded([A] * 200, source=range(300, 700)) for _ in range(count)),
            Encoded,
        )
        fit_limits(stored, SETTINGS)
        next(iter(Turns([len(one.source) for one in stored], 8, 0, lambda: 0)))
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(100)
    assert peak(300) - peak(100) < 200 * 500, "600 tokens take more"


@pytest.mark.slow
@given(
    st.lists(st.lists(st.integers(1, 60), max_size=6), min_size=1, max_size=30),
    st.sampled_from([1, 3, "any"]),
)
def test_the_fitted_time_max_holds_the_targets_at_every_delay_that_is_served(
    targets, delay
):
    settings = structs.replace(SETTINGS, delay=delay)
    fitted = fit_limits(
        [encoded(*([A] * m for m in lengths)) for lengths in targets], settings
    ).time_max

    def is_cut(time_max: int) -> bool:
        pairs = itertools.product(targets, (1, 2, 3) if delay == "any" else (delay,))
        ends = {
            replay(lengths, Fixed(each), Limits(time_max, 10**6)).truncated
            for lengths, each in pairs
        }
        return "time_max" in ends

    assert not is_cut(fitted)  # of so few, 99.5 % are all
    assert fitted == 50 or is_cut(fitted - 1)


def test_one_target_in_two_hundred_may_be_longer_than_time_max():
    short, long = encoded([A] * 60), encoded([A] * 500)
    assert fit_limits([short] * 199 + [long], SETTINGS).time_max == 61
    assert fit_limits([short] * 198 + [long] * 2, SETTINGS).time_max == 501
    assert fit_limits([], SETTINGS).time_max == 50


TURNS = [
    Turn(update, 7 * update + example) for update in range(100) for example in range(3)
]


def drawn(seed, turns=TURNS):
    settings = structs.replace(SETTINGS, delay="any")
    return [schedule(settings, seed, turn, 4) for turn in turns]


def test_schedules_depend_on_seed_update_and_example_and_on_nothing_else():
    """So a resumed run, or one of several, draws what an undisturbed one would have drawn, and leaves others' chance alone."""
    assert drawn(3) == drawn(3, TURNS[::-1])[::-1] == drawn(3)
    assert drawn(1) != drawn(2)
    updates = [drawn(1)[first : first + 3] for first in range(0, 300, 3)]
    assert all(len({one.name for one in update}) == 1 for update in updates), (
        "an update is of one kind"
    )
    assert {one.name for one in drawn(1)} == {
        "delay1",
        "delay2",
        "delay3",
        "wait",
        "random",
    }
    among = [one.distances for one in drawn(1) if isinstance(one, RandomStarts)]
    assert len(set(among)) == len(among) > 100
    random.seed(1)
    torch.manual_seed(1)
    before = random.getstate(), torch.get_rng_state()
    drawn(1)
    assert random.getstate() == before[0]
    assert torch.get_rng_state().equal(before[1])


def test_batches_are_laid_out_for_the_decoder_that_is_trained():
    batch = [encoded([A] * (n % 3 + 1), source=[n * 3, 7, EOS]) for n in range(3)]
    for checkpoint, plan, closing in (
        (fresh_toy("pipelined", 2), Fixed(2), True),
        (fresh_toy("sequential"), Whole(), False),
    ):
        turns = zip(TURNS, batch, strict=False)
        made = {
            name: tensor.tolist()
            for name, tensor in collator(checkpoint, 0)([*turns]).items()
        }
        assert made == laid_out(batch, plan, closing=closing)


SOURCE_LENGTHS = [1 + number % 97 for number in range(1003)]


def turns(lengths=SOURCE_LENGTHS, size=8, seed=3, epoch=0):
    return Turns(lengths, size, seed, lambda: epoch)


def examples_of(some):
    return [turn.example for turn in some]


def test_an_epoch_has_every_example_and_fills_up_its_last_update():
    for lengths in (SOURCE_LENGTHS, SOURCE_LENGTHS[:7], [5]):
        order = list(turns(lengths))
        assert len(order) == len(turns(lengths)) == -(-len(lengths) // 8) * 8
        assert set(examples_of(order)) == set(range(len(lengths)))
        assert [turn.update for turn in order] == [
            place // 8 for place in range(len(order))
        ]


def test_batches_are_of_like_lengths_and_come_in_no_order_of_length():
    """Else what was learnt last, how many subsequences there are, would be that of the shortest texts."""
    order = examples_of(turns())
    batches = [
        [SOURCE_LENGTHS[at] for at in order[first : first + 8]]
        for first in range(0, 1008, 8)
    ]
    assert sum(max(batch) - min(batch) < 12 for batch in batches) > 120
    rises = sum(one[0] < other[0] for one, other in itertools.pairwise(batches))
    assert 40 < rises < 84, "half of the batches are longer than the one before"


def test_the_order_depends_on_seed_and_epoch_alone():
    assert list(turns()) == list(turns())
    assert (
        examples_of(turns(seed=4))
        != examples_of(turns())
        != examples_of(turns(epoch=1))
    )
    assert next(iter(turns(epoch=2))).update == 2 * turns().updates


@pytest.mark.parametrize("processes", [2, 4])
def test_several_processes_share_the_updates_of_one(processes):
    """As accelerate deals batches out, none of which is repeated or missed for that."""
    alone = [{*batch} for batch in BatchSampler(turns(), 8, drop_last=False)]
    batches = []
    for rank in range(processes):
        own = BatchSampler(turns(), 8 // processes, drop_last=False)
        batches.append(list(BatchSamplerShard(own, processes, rank)))
    assert [
        {turn for part in parts for turn in part}
        for parts in zip(*batches, strict=True)
    ] == alone
