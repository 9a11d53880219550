"""Records to training batches: Eq. 5 laid out token by token, padding told by position."""

import itertools
import random
import tracemalloc

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from pipedec_cli.data.records import Record, Segmentation
from pipedec_cli.data.stored import Stored
from pipedec_cli.model.checkpoint import MethodSettings
from pipedec_cli.pipeline.attention import PADDING
from pipedec_cli.pipeline.grid import Limits, replay
from pipedec_cli.pipeline.schedule import Fixed, RandomStarts, Waiting, Whole, place
from pipedec_cli.training.collate import (
    IGNORED,
    Encoded,
    collate,
    collator,
    encode,
    fit_limits,
    schedule,
)
from pipedec_cli.training.order import Turn, Turns
from tests.checkpoints import fresh_toy

BOS = 0
EOS = 1
A, B, C, D, E = range(10, 15)
#: How tokens and labels are shown.
SHOWN = (BOS, EOS, A, B, C, D, E, IGNORED)
LETTERS = dict(zip(SHOWN, "<>ABCDE.", strict=True))
SETTINGS = MethodSettings("pipelined", 1, Segmentation("phrase", (";",), "; "))
#: m_i of several examples.
LENGTHS = st.lists(st.lists(st.integers(1, 6), max_size=5), min_size=1, max_size=4)
SCHEDULES = {
    "1": Fixed(1),
    "3": Fixed(3),
    "wait": Waiting(),
    "drawn": RandomStarts((2, float("inf"), 1)),
}


def tensors(batch, schedule, *, closing=True, pad=0):
    plans = [schedule] * len(batch)
    return collate(batch, plans, bos=BOS, eos=EOS, pad=pad, closing=closing)


def laid_out(batch, schedule, *, closing=True):
    batch = tensors(batch, schedule, closing=closing)
    return {name: tensor.tolist() for name, tensor in batch.items()}


def letters(ids):
    return "".join(LETTERS[token] for token in ids)


def digits(numbers):
    text = "".join(map(str, numbers))
    return text.replace(str(PADDING), "-")


def encoded(*texts, source=(5, EOS)):
    return Encoded([*source], tuple([*text] for text in texts))


def as_long_as(lengths):
    """An example with texts of so many tokens."""
    return encoded(*([A] * length for length in lengths))


def test_figure_2_is_laid_out_as_the_paper_draws_it():
    batch = laid_out([encoded([A, B, C], [D, E])], Fixed(1))
    assert letters(batch["decoder_input_ids"][0]) == "<ABC><DE><>"
    assert letters(batch["labels"][0]) == "ABC>.DE>.>."
    assert digits(batch["subsequence"][0]) == "11111222233"
    assert digits(batch["time"][0]) == "01234123423"


def test_nothing_closes_a_sequential_text():
    batch = laid_out([encoded([A, B, C])], Whole(), closing=False)
    assert letters(batch["decoder_input_ids"][0]) == "<ABC>"
    assert letters(batch["labels"][0]) == "ABC>."
    assert digits(batch["time"][0]) == "01234"


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(lengths=LENGTHS)
def test_every_token_stands_where_the_schedule_places_it_and_all_but_ends_predict(
    schedule, lengths
):
    """Σ(m_i + 1) + 1 predictions for each example, padding or not: its tokens, its ends and the one that closes it."""
    plan = SCHEDULES[schedule]
    batch = laid_out([as_long_as(example) for example in lengths], plan)
    for row, example in enumerate(lengths):
        labels = batch["labels"][row]
        predicted = len(labels) - labels.count(IGNORED)
        assert predicted == sum(example) + len(example) + 1
        expected = []
        closed = [*example, 0]
        starts = place(plan, closed)
        for number, (start, length) in enumerate(zip(starts, closed, strict=True)):
            times = range(start, start + length + 2)
            expected += [(number + 1, time) for time in times]
        places = zip(batch["subsequence"][row], batch["time"][row], strict=True)
        assert [spot for spot in places if spot != (PADDING, PADDING)] == expected


def test_padding_is_told_by_position_when_texts_and_sources_hold_its_id():
    batch = [encoded([A, B, C], [D]), encoded([BOS, A], source=[0, 0, 6, EOS])]
    rows = laid_out(batch, Fixed(1))
    assert rows["input_ids"] == [[5, EOS, 0, 0], [0, 0, 6, EOS]]
    assert rows["attention_mask"] == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert letters(rows["decoder_input_ids"][1]) == "<<A><>" + "<" * 4
    assert letters(rows["labels"][1]) == "<A>.>" + "." * 5
    assert digits(rows["subsequence"][1]) == "111122----"
    assert digits(rows["time"][1]) == "012312----"


def test_any_id_serves_as_padding():
    examples = [encoded([A, B, C]), encoded([A])]
    zeros = tensors(examples, Fixed(1), pad=0)
    nines = tensors(examples, Fixed(1), pad=9)
    dtypes = {tensor.dtype for tensor in zeros.values()}
    assert dtypes == {torch.int64}
    for name in ("attention_mask", "subsequence", "time", "labels"):
        assert zeros[name].equal(nines[name])


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
    record = Record("1", "source", target, segments, (), "f:1")
    (example,) = encode(checkpoint, [record])
    assert [checkpoint.codec().decode(ids) for ids in example.texts] == texts
    for ids in example.texts:
        assert EOS not in ids
    source, cut = checkpoint.codec().source("source")
    assert example.source == source
    assert example.cut == cut


def test_training_data_take_some_bytes_of_memory_an_example_and_none_a_token(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("pipedec_cli.data.stored._IN_MEMORY", 10_000)
    example = encoded([A] * 200, source=range(300, 700))

    def peak(count):
        tracemalloc.start()
        stored = Stored(tmp_path, itertools.repeat(example, count), Encoded)
        fit_limits(stored, SETTINGS)
        lengths = [len(one.source) for one in stored]
        next(iter(Turns(lengths, 8, 0, lambda: 0)))
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
    examples = [as_long_as(lengths) for lengths in targets]
    fitted = fit_limits(examples, settings).time_max
    served = (1, 2, 3) if delay == "any" else (delay,)

    def is_cut(time_max):
        limits = Limits(time_max, 10**6)
        for lengths, each in itertools.product(targets, served):
            if replay(lengths, Fixed(each), limits).truncated == "time_max":
                return True
        return False

    assert not is_cut(fitted)  # of so few, 99.5 % are all
    assert fitted == 50 or is_cut(fitted - 1)


@pytest.mark.parametrize(
    ("short", "long", "time_max"), [(199, 1, 61), (198, 2, 501), (0, 0, 50)]
)
def test_one_target_in_two_hundred_may_be_longer_than_time_max(short, long, time_max):
    examples = [as_long_as([60])] * short + [as_long_as([500])] * long
    assert fit_limits(examples, SETTINGS).time_max == time_max


TURNS = [Turn(example // 3, example) for example in range(300)]


def drawn(seed, turns=TURNS):
    settings = structs.replace(SETTINGS, delay="any")
    return [schedule(settings, seed, turn, 4) for turn in turns]


def test_schedules_depend_on_seed_update_and_example_alone():
    """So a resumed run, or one of several, draws what an undisturbed one would have drawn."""
    assert drawn(3) == drawn(3, TURNS[::-1])[::-1]
    plans = drawn(1)
    assert plans != drawn(2)
    names = [plan.name for plan in plans]
    assert {*names} == {"delay1", "delay2", "delay3", "wait", "random"}
    assert names[::3] == names[1::3] == names[2::3], "an update is of one kind"
    among = [plan.distances for plan in plans if isinstance(plan, RandomStarts)]
    assert len(set(among)) == len(among) > 100


def test_a_schedule_that_is_drawn_leaves_the_chance_of_others_alone():
    random.seed(1)
    torch.manual_seed(1)
    before = random.getstate()
    torchs = torch.get_rng_state()
    drawn(1)
    assert random.getstate() == before
    assert torch.get_rng_state().equal(torchs)


@pytest.mark.parametrize(
    ("decoder", "plan"), [("pipelined", Fixed(2)), ("sequential", Whole())]
)
def test_batches_are_laid_out_for_the_decoder_that_is_trained(decoder, plan):
    batch = [encoded([A] * (n % 3 + 1), source=[n * 3, 7, EOS]) for n in range(3)]
    lay_out = collator(fresh_toy(decoder, 2), 0)
    collated = lay_out([*zip(TURNS, batch, strict=False)])
    expected = tensors(batch, plan, closing=decoder == "pipelined")
    assert collated.keys() == expected.keys()
    for name, tensor in expected.items():
        assert collated[name].equal(tensor)
