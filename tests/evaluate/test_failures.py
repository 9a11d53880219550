"""Repeats, omissions and cuts."""

from __future__ import annotations

import pytest

from pipedec_cli.evaluate.metrics.measure import ScoringItem
from pipedec_cli.evaluate.scoring import count_failures


def item(
    identifier: str, segments: tuple[str, ...], gold: int | None = None, truncated: str | None = None
) -> ScoringItem:
    right = None if gold is None else tuple(f"g{place}" for place in range(gold))
    return ScoringItem(identifier, " ".join(segments), segments, gold=right, truncated=truncated)


@pytest.mark.parametrize(
    ("segments", "repeats"),
    [
        (("It is cheap.", "it  is cheap", "IT IS CHEAP!", "It is dear."), 2),
        (("!", "?", "!"), 1),
        (("猫", "犬", "猫"), 1),
        ((), 0),
    ],
)
def test_a_segment_repeats_another_whatever_its_case_punctuation_and_spaces_where_it_has_words(
    segments: tuple[str, ...], repeats: int
) -> None:
    assert count_failures([item("1", segments)]).duplicated == repeats


def test_rates_are_of_subsequences_for_repeats_and_omissions_and_of_predictions_for_cuts() -> None:
    failures = count_failures(
        [
            item("1", ("a", "a", "b"), gold=3),
            item("2", ("a",), gold=3, truncated="time_max"),
            item("3", ("a", "b"), gold=1, truncated="sub_max"),
            item("4", (), truncated="time_max"),
        ]
    )
    assert (failures.duplicated, failures.with_duplicates, failures.subsequences) == (1, 1, 6)
    assert failures.duplicated_rate == pytest.approx(1 / 6)
    # 2 of 3 are missing in the second; a surplus in the third makes up for none
    assert (failures.dropped, failures.with_dropped, failures.expected, failures.compared) == (2, 1, 7, 3)
    assert failures.dropped_rate == pytest.approx(2 / 7)
    assert failures.truncated == {"sub_max": 1, "time_max": 2}
    assert failures.truncated_rate == pytest.approx(3 / 4)


def test_what_is_dropped_is_unknown_where_no_reference_is_segmented() -> None:
    assert count_failures([item("1", ("a",))]).dropped_rate is None
    assert count_failures([item("1", ("a",), gold=0)]).dropped_rate == 0.0


def test_no_predictions_have_no_failures() -> None:
    failures = count_failures([])
    assert (failures.duplicated_rate, failures.dropped_rate, failures.truncated_rate) == (0.0, None, 0.0)
