"""What goes wrong with pipelined decoding, counted."""

import pytest

from pipedec_cli.metrics.failures import count_failures, dropped, duplicates
from tests.metrics.documents import example


def given(*segments, gold=None, **more):
    """A prediction, and a reference of so many segments."""
    right = None if gold is None else ["right"] * gold
    return example(segments, right, **more)


@pytest.mark.parametrize(
    ("segments", "repeats"),
    [
        (("It is cheap.", "it  is cheap", "IT IS CHEAP!", "It is dear."), [1, 2]),
        (("A b.", "c", "a, B", "C!", "d"), [2, 3]),
        (("!", "?", "!"), [2]),
        (("猫", "犬", "猫"), [2]),
        (("दिन", "दान", "दिन।"), [2]),  # a vowel's sign is part of a word
        (("❤\ufe0f", "☀\ufe0f", "❤\ufe0f"), [2]),  # what makes a sign an emoji is none
        ((), []),
    ],
)
def test_a_segment_with_words_repeats_another_whatever_its_case_punctuation_and_spaces(
    segments, repeats
):
    assert duplicates(segments) == repeats
    assert count_failures([given(*segments)]).duplicated == len(repeats)


def test_how_many_are_missing_is_told_of_each_prediction():
    lacking = [dropped(given("a", gold=gold)) for gold in (None, 0, 1, 3)]
    assert lacking == [None, 0, 0, 2]


def test_rates_are_of_subsequences_for_repeats_and_omissions_and_of_predictions_for_cuts():
    failures = count_failures(
        [
            given("a", "a", "b", gold=3),
            given("a", gold=3, truncated="time_max"),
            given("a", "b", gold=1, truncated="sub_max"),
            given(truncated="time_max", stopped_on_repeat=True),
        ]
    )
    counts = {
        "stopped_on_repeat": 1,
        "stopped_on_repeat_rate": pytest.approx(1 / 4),
        "duplicated": 1,
        "with_duplicates": 1,
        "subsequences": 6,
        "duplicated_rate": pytest.approx(1 / 6),
        # 2 of 3 are missing in the second; a surplus in the third makes up for none.
        "dropped": 2,
        "with_dropped": 1,
        "expected": 7,
        "compared": 3,
        "dropped_rate": pytest.approx(2 / 7),
        "truncated": {"sub_max": 1, "time_max": 2},
        "truncated_rate": pytest.approx(3 / 4),
    }
    assert {name: getattr(failures, name) for name in counts} == counts


def alike(texts, sources="pqrs", right="wxyz"):
    """The share of alike texts of these sources and right answers, a letter each."""
    examples = []
    for text, source, answer in zip(texts, sources, right, strict=True):
        given = example([text], references=(answer,), source=source)
        examples.append(given)
    return count_failures(examples).alike_rate


def test_texts_are_alike_as_far_as_neither_equal_sources_nor_equal_right_answers_explain_it():
    assert alike(["a", "A.", "b", "a"]) == 0.5
    assert alike("aabb", sources="ppqq") == alike("aabb", right="xxyy") == 0
    assert alike("abcd") == alike("abcd", sources="pppp") == 0
    unanswered = [example(["yes"], source=f"s{n // 2}") for n in range(8)]
    assert count_failures(unanswered).alike_rate == 0.75


@pytest.mark.parametrize(
    ("examples", "rate"),
    [([], None), ([given("a")], None), ([given("a", gold=0)], 0.0)],
)
def test_what_is_dropped_is_unknown_where_no_reference_is_segmented(examples, rate):
    failures = count_failures(examples)
    assert (failures.duplicated_rate, failures.truncated_rate) == (0.0, 0.0)
    assert failures.dropped_rate == rate
