import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.lengths import WordCounter
from pipedec_cli.data.preparation import Fit, Preparer, joiner_of
from pipedec_cli.data.records import OUTPUT_FIELDS, FieldNames, Record, Segmentation
from pipedec_cli.data.segmentation import PhraseSegmenter, SentenceSegmenter
from pipedec_cli.data.sentences import train_sentences

PHRASES = PhraseSegmenter()
SEGMENTATION = Segmentation("phrase", (";",), "; ", sub_max=4)


def record(target, given=None, **fields):
    return Record("1", "s", target, given, (), "data.jsonl:1", {"source": "s", "target": target, **fields})


def preparer(**options):
    return Preparer(PHRASES, SEGMENTATION, Fit(WordCounter(), **options))


def test_too_many_segments_are_merged_to_leave_a_place_for_the_closing_one():
    prepare = preparer()
    assert prepare.segment(record("a; b; c; d d")).target_segments == ("a; b", "c", "d d")
    assert prepare.segment(record("a; b; c")).target_segments == ("a", "b", "c")
    assert prepare.counts.merged == 1
    assert prepare.counts.targets == 2


@given(st.lists(st.sampled_from(["a", "b b", "c c c"]), max_size=9))
def test_merging_loses_nothing(phrases):
    done = preparer().segment(record("; ".join(phrases)))
    assert "; ".join(done.target_segments) == "; ".join(phrases)
    assert len(done.target_segments) <= 3


def test_a_list_is_kept_as_it_is_and_becomes_a_string():
    prepare = preparer(split_long=True, time_max=3)
    done = prepare.segment(record("one two three four five", ("one two three four", " five ", "")))
    assert done.target_segments == ("one two three four", "five")
    assert prepare.segment(record("a b;c", ("a", "b;c"))).target == "a; b;c"
    assert (prepare.counts.given, prepare.counts.dropped, prepare.counts.split) == (2, 1, 0)


def test_a_target_that_was_a_string_stays_as_it_was():
    assert preparer().segment(record("a ;b;; c")).target == "a ;b;; c"
    assert preparer().segment(record("a ;b", ("a", "b"))).target == "a ;b"


def test_what_does_not_fit_is_counted_or_split():
    prepare = preparer(time_max=5)
    prepare.segment(record("a b c d e; f; g"))
    assert (prepare.counts.too_long, prepare.counts.too_long_targets, prepare.counts.longest) == (1, 1, 5)
    prepare = preparer(time_max=5, split_long=True)
    assert prepare.segment(record("a b c d e; f")).target_segments == ("a b c d", "e", "f")
    assert (prepare.counts.too_long, prepare.counts.split) == (0, 1)


def test_a_later_subsequence_has_less_time():
    prepare = preparer(time_max=5)
    prepare.segment(record("a; b; c c c"))
    assert prepare.counts.too_long == 1


def test_an_empty_target_has_no_segments():
    prepare = preparer()
    assert prepare.segment(record(" ")).target_segments == ()
    assert prepare.counts.empty == 1


@pytest.mark.parametrize("name", OUTPUT_FIELDS)
def test_a_field_that_generating_writes_is_refused_by_name_and_place(name):
    with pytest.raises(
        UserError, match=f"data.jsonl:1: field '{name}' is one that `pipedec generate` writes"
    ):
        FieldNames().check([record("a", **{name: 1})])


def test_a_field_that_a_renamed_one_would_replace_is_refused():
    with pytest.raises(UserError, match="field 'target' would be written over with 'summary'"):
        FieldNames(target="summary").check([record("a", summary="b")])
    FieldNames().check([record("a", target_segments=["a"])])


def test_the_joiner_is_what_stands_between_the_datas_own_segments():
    segmenter = SentenceSegmenter(train_sentences(["It rains. I read.", "今天很热。我很好。"], []))
    assert joiner_of([record("It rains. I read.")] * 3, segmenter) == " "
    assert joiner_of([record("今天很热。我很好。")] * 3, segmenter) == ""
    assert joiner_of([record("今天很热。 我很好。", ("今天很热。", "我很好。"))], segmenter) == ""
    assert joiner_of([record("a;b")], PHRASES) == "; "
