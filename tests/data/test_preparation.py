from itertools import accumulate, combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Record, Segmentation
from pipedec_cli.data.segmentation import (
    PhraseSegmenter,
    Preparer,
    describe_targets,
    group_adjacent,
    token_counter,
)

WORDS = token_counter(None)
LENGTHS = st.lists(st.integers(0, 9), max_size=9)


def record(target, given=None, **fields):
    return Record(
        "1",
        "s",
        target,
        given,
        (),
        "data.jsonl:1",
        {"source": "s", "target": target, **fields},
    )


def preparer(**options):
    segmentation = Segmentation("phrase", (";",), "; ", sub_max=4)
    return Preparer(
        PhraseSegmenter(), segmentation, WORDS, **{"time_max": 50, **options}
    )


@given(st.lists(st.sampled_from(["a", "b b", "c c c"]), max_size=9))
def test_merging_loses_nothing(phrases):
    done = preparer().segment(record("; ".join(phrases)))
    assert "; ".join(done.target_segments) == "; ".join(phrases)
    assert len(done.target_segments) <= 3


def test_what_a_text_says_again_is_left_out_where_that_is_asked_for_before_anything_is_merged():
    prepare = preparer(each_once=True)
    done = prepare.segment(record("a; b; a; c; b; a"))
    assert (done.target_segments, done.target) == (("a", "b", "c"), "a; b; c")
    assert (prepare.counts.repeated, prepare.counts.merged) == (3, 0)
    assert prepare.segment(record("a ;b")).target == "a ;b"
    assert len(preparer().segment(record("a; b; a")).target_segments) == 3


def test_a_list_is_kept_as_it_is_and_becomes_a_string_and_a_string_stays_as_it_was():
    prepare = preparer(time_max=3)
    done = prepare.segment(
        record("one two three four five", ("one two three four", " five ", ""))
    )
    assert done.target_segments == ("one two three four", "five")
    assert prepare.segment(record("a b;c", ("a", "b;c"))).target == "a; b;c"
    assert (prepare.counts.given, prepare.counts.dropped) == (2, 1)
    assert preparer().segment(record("a ;b;; c")).target == "a ;b;; c"
    assert preparer().segment(record("a ;b", ("a", "b"))).target == "a ;b"


@pytest.mark.parametrize(
    ("target", "segments", "counts"),
    [
        ("a b c d e; f; g", ("a b c d e", "f", "g"), (1, 1, 5)),
        # a later subsequence has less time
        ("a; b; c c c", ("a", "b", "c c c"), (1, 1, 3)),
    ],
)
def test_what_does_not_fit_is_counted(target, segments, counts):
    prepare = preparer(time_max=5)
    assert prepare.segment(record(target)).target_segments == segments
    made = prepare.counts
    assert (made.too_long, made.too_long_targets, made.longest) == counts


@given(LENGTHS, st.integers(1, 6))
def test_grouping_loses_nothing_and_the_longest_of_the_fewest_groups_is_as_short_as_can_be(
    lengths, most
):
    sizes, n = group_adjacent(lengths, most), len(lengths)
    assert sum(sizes) == n
    assert len(sizes) == min(most, n)
    assert all(size >= 1 for size in sizes)
    if n > 1:
        cuts = ((0, *ends, n) for ends in combinations(range(1, n), len(sizes) - 1))
        longest = [max(sum(lengths[a:b]) for a, b in pairwise(cut)) for cut in cuts]
        assert max(
            sum(lengths[a:b]) for a, b in pairwise(accumulate(sizes, initial=0))
        ) == min(longest)


def test_words_are_counted_by_white_space_and_in_spaceless_scripts_by_character():
    assert WORDS(["", "a b\nc", "今天 很热。", "GPT模型。 ok", "été – ok"]) == [
        1,
        3,
        4,
        4,
        3,
    ]


def test_tokens_are_counted_without_special_ones_and_no_tokenizer_is_one_line(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = {"<unk>": 0, "</s>": 1, "a": 2, "b": 3, "-": 4}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>"
    )
    made.save_pretrained(tmp_path)
    count = token_counter(str(tmp_path))
    assert count(["a b", "a-b", ""]) == [2, 3, 1]
    assert count([]) == []
    for name in (str(tmp_path.parent), "no-such-owner/no-such-tokenizer"):
        with pytest.raises(
            UserError, match="no tokenizer can be loaded from"
        ) as caught:
            token_counter(name)
        assert "\n" not in str(caught.value)


def test_averages_are_those_of_the_papers_first_table():
    statistics = describe_targets(
        [record("", ("a b c", "d")), record("", ("e f g h",)), record("", ())]
    )
    assert astuple(statistics) == (3, 8 / 3, 1, 8 / 3, {0: 1, 1: 1, 2: 1})
    assert astuple(describe_targets([record("t")])) == (0, 0.0, 0.0, 0.0, {}), (
        "no records are no error"
    )
