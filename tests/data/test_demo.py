"""The demo's data: what the generator promises, and that right and wrong are told apart."""

import re
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.demo import FEWEST_FACTS, MOST_FACTS, check_facts, make_demo

SEEDS = st.integers(0, 10_000)


def sentences(text):
    return [part.strip() for part in re.findall(r"[^.]+\.", text)]


def facts(source):
    """The values of a source, in order: the name stands for the kind."""
    name, _, *fields = source.split("; ")
    return [name, *(field.split(": ")[1] for field in fields)]


def count(prediction, record):
    """Facts that are right, wrong and missing."""
    return itemgetter("right", "wrong", "missing")(
        check_facts(prediction, record["source"])
    )


@given(n=st.integers(0, 60), seed=SEEDS)
def test_the_same_seed_gives_the_same_records_and_more_of_them_begin_alike(n, seed):
    assert make_demo(n, seed) == make_demo(n + 7, seed)[:n]


def test_no_source_stands_twice_and_another_seed_gives_others():
    records = make_demo(5_000, 0)
    assert all(
        len({record[field] for record in records}) == 5_000
        for field in ("source", "id")
    )
    assert make_demo(20, 0) != make_demo(20, 1)


@given(seed=SEEDS)
def test_a_target_states_each_fact_of_its_source_in_order_in_its_own_short_sentence(
    seed,
):
    for record in make_demo(20, seed):
        assert set(record) == {"id", "source", "target"}
        told, values = sentences(record["target"]), facts(record["source"])
        assert " ".join(told) == record["target"]
        assert FEWEST_FACTS <= len(told) <= MOST_FACTS
        assert all(6 <= len(sentence.split()) <= 10 for sentence in told)
        for value, sentence in zip(values, told, strict=True):
            assert re.search(rf"\b{value}\b", sentence)
        assert len({sentence.split()[0] for sentence in told}) == len(told), (
            "no two begin with the same word"
        )
        assert len(set(values)) == len(values), "no two facts have the same value"
        assert count(record["target"], record) == (len(told), 0, 0)


@given(
    seed=SEEDS,
    kept=st.integers(0, MOST_FACTS),
    shuffled=st.randoms(use_true_random=False),
)
def test_what_is_left_out_cut_or_wrong_is_missing_and_order_does_not_matter(
    seed, kept, shuffled
):
    (record,) = make_demo(1, seed)
    target, name = record["target"], facts(record["source"])[0]
    told = sentences(target)
    number, kept = len(told), min(kept, len(told))
    other = next(candidate for candidate in ("Talora", "Mirova") if candidate != name)
    assert count(target.replace(name, other), record) == (number - 1, 1, 1)
    assert count(target[:-1], record) == (number - 1, 1, 1)
    assert count(f"{target} {target}", record) == (number, 0, 0)
    shuffled.shuffle(told)
    assert count("\n ".join(told[:kept]), record) == (kept, 0, number - kept)


@given(prediction=st.text(), seed=SEEDS)
def test_right_and_missing_add_up_to_the_facts_whatever_was_said(prediction, seed):
    (record,) = make_demo(1, seed)
    right, _, missing = count(prediction, record)
    assert (right, missing) == (0, len(facts(record["source"])))


@pytest.mark.parametrize(
    "source", ["", "other", "Talora; kind: castle", "Talora; kind: ship; moons: two"]
)
def test_a_source_of_other_data_is_refused(source):
    with pytest.raises(ValueError, match="not a source of the demo data"):
        check_facts("Talora is a ship.", source)
