from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.fitting import group_adjacent, longest_fitting, merge, split_long
from pipedec_cli.data.lengths import WordCounter

WORDS = WordCounter()
LENGTHS = st.lists(st.integers(0, 9), max_size=9)


def groups(lengths, sizes):
    start, result = 0, []
    for size in sizes:
        result.append(sum(lengths[start : start + size]))
        start += size
    return result


@given(LENGTHS, st.integers(1, 6))
def test_grouping_loses_nothing_and_groups_no_more_than_it_must(lengths, most):
    sizes = group_adjacent(lengths, most)
    assert sum(sizes) == len(lengths)
    assert len(sizes) == min(most, len(lengths))
    assert all(size >= 1 for size in sizes)


@given(LENGTHS.filter(lambda lengths: len(lengths) > 1), st.integers(1, 6))
def test_the_longest_group_is_as_short_as_can_be(lengths, most):
    n = len(lengths)
    most = min(most, n)
    best = min(
        max(groups(lengths, [b - a for a, b in zip((0, *ends), (*ends, n), strict=True)]))
        for ends in combinations(range(1, n), most - 1)
    )
    assert max(groups(lengths, group_adjacent(lengths, most))) == best


def test_merging_joins_neighbours_with_the_joiner():
    assert merge(["a", "b b b", "c", "d"], 3, "; ", WORDS) == ("a", "b b b", "c; d")
    assert merge(["a", "b"], 2, "; ", WORDS) == ("a", "b")


def test_a_subsequence_fits_if_its_eos_stands_within_time_max():
    assert longest_fitting(1, 50) == 49
    assert longest_fitting(20, 50) == 30


def test_a_long_segment_is_split_at_the_last_clause_end_that_fits():
    segment = "one two, three four, five six seven"
    assert split_long([segment], 6, 9, WORDS) == ("one two, three four,", "five six seven")


def test_without_a_clause_end_it_is_split_at_a_word():
    assert split_long(["a b c d e f g"], 5, 9, WORDS) == ("a b c d", "e f g")


def test_later_pieces_have_less_time():
    pieces = split_long([" ".join("abcdefghij")], 5, 9, WORDS)
    assert [len(piece.split()) for piece in pieces] == [4, 3, 2, 1]


def test_a_text_without_spaces_is_split_at_a_character():
    assert split_long(["今天我们去公园"], 5, 9, WORDS) == ("今天我们", "去公园")


def test_a_single_word_that_is_too_long_stays_whole_and_what_follows_is_split_off():
    def characters(texts):
        return [len(text) for text in texts]

    assert split_long(["incomprehensibilities"], 10, 9, characters) == ("incomprehensibilities",)
    assert split_long(["incomprehensibilities are so"], 10, 9, characters) == (
        "incomprehensibilities",
        "are so",
    )


@given(
    st.lists(st.text(st.characters(codec="utf-8") | st.sampled_from("ab ,. ")).map(str.strip).filter(bool)),
    st.integers(2, 8),
)
def test_splitting_loses_nothing_but_white_space(segments, time_max):
    pieces = split_long(segments, time_max, 9, WORDS)
    assert "".join("".join(pieces).split()) == "".join("".join(segments).split())
    assert all(pieces)


@pytest.mark.parametrize(
    ("text", "words"), [("", 1), ("a b\nc", 3), ("今天 很热。", 4), ("GPT模型。 ok", 4), ("été – ok", 3)]
)
def test_words_are_counted_by_white_space_and_in_spaceless_scripts_by_character(text, words):
    assert WORDS([text]) == [words]
