import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Record
from pipedec_cli.data.segmentation import PhraseSegmenter, SentenceSegmenter, joiner_of, make_segmenter
from pipedec_cli.data.sentences import train_sentences

#: Arbitrary text, with more of what segmenters look for than chance would give.
MARKED = st.text(st.characters(codec="utf-8") | st.sampled_from(" \n.,;:!?'\"()[]0123—…。，；！？、；：।؟A"))


def solid(text):
    """The text without white space."""
    return "".join(text.split())


@pytest.fixture(scope="module")
def model():
    return train_sentences(["Dr. Miller came. He was late, as ever. It rained."], [])


@pytest.mark.parametrize("clauses", [False, True])
@given(text=MARKED, joiner=st.sampled_from([" ", "", "\n"]))
def test_joining_sentences_or_clauses_gives_the_text_back_white_space_aside(model, clauses, text, joiner):
    assert solid(joiner.join(SentenceSegmenter(model, clauses).cut(text))) == solid(text)


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("; ;a")))
def test_joining_phrases_gives_the_text_back_white_space_and_empty_phrases_aside(text):
    segmenter = PhraseSegmenter((";",))
    phrases = segmenter.cut(text)
    given = solid(text).split(";")
    assert solid("; ".join(phrases)) == ";".join(filter(None, given))
    closed = len(given) > 1 and not given[-1]
    assert segmenter.dropped(text) == (given[:-1] if closed else given).count("") * bool(solid(text))


@given(
    st.text(st.sampled_from("a ;|\n")), st.sampled_from([(";", "|"), ("|", ";"), (";", "\n"), (";;", ";")])
)
def test_the_first_separator_stands_for_all_of_them(text, separators):
    phrases = PhraseSegmenter(separators).cut(text)
    joined = separators[0].join(phrases)
    assert PhraseSegmenter(separators).cut(joined) == phrases


@given(MARKED)
def test_segments_are_never_empty_and_have_no_white_space_around_them(model, text):
    for segmenter in (SentenceSegmenter(model), SentenceSegmenter(model, clauses=True), PhraseSegmenter()):
        assert all(segment == segment.strip() != "" for segment in segmenter.cut(text))


@pytest.mark.parametrize(
    "marked",
    [
        "It rained,| so we left:| early;| he stayed.",
        "3.5 of 1,000 at 10:30 is well-known,| or",
        "Dr. Miller,| who came",
        '"Yes,"| he said.',
        "Wait...| what?!| No",
        "She came —| late",
        "see http://a.b/c,d;e now",
        "今天，|我们去公园；|然后回家。",
        "共１，０００人，|谢谢",
        "مرحبا،| كيف حالك؟",
        "a, ,| b",
        "",
        "   ",
    ],
)
def test_a_clause_ends_at_punctuation_but_not_inside_words_and_numbers(model, marked):
    """It ends where the bars stand."""
    clauses = [part.strip() for part in marked.split("|") if part.strip()]
    assert list(SentenceSegmenter(model, clauses=True).cut(marked.replace("|", ""))) == clauses


@pytest.mark.parametrize(
    ("text", "phrases", "dropped"),
    [
        ("a; b;c", ["a", "b", "c"], 0),
        ("a; b;", ["a", "b"], 0),
        ("a;; b; ;", ["a", "b"], 2),
        (";a", ["a"], 1),
        (";", [], 1),
        ("", [], 0),
        ("one phrase", ["one phrase"], 0),
    ],
)
def test_phrases_stand_between_separators_and_empty_ones_are_counted(text, phrases, dropped):
    segmenter = PhraseSegmenter()
    assert list(segmenter.cut(text)) == phrases
    assert segmenter.dropped(text) == dropped


@pytest.mark.parametrize(
    ("separators", "targets", "joiner"),
    [
        ((), ["It rains. I read. 好。好"], " "),
        ((), ["今天很热。我很好。你好。 好"], ""),
        ((), ["今天很热。\n我很好。"], ""),
        ((), ["It rains.\nI am fine."], " "),
        ((), ["การเดินทาง"], ""),
        ((), ["여행은 즐겁다"], " "),
        ((), [("今天很热。", "我很好。")], ""),
        ((), [], " "),
        ((";",), ["a;b"], "; "),
        (("；",), [], "；"),
        (("\n",), [], "\n"),
    ],
)
def test_the_joiner_is_what_stands_between_the_datas_own_segments(model, separators, targets, joiner):
    segmenter = PhraseSegmenter(separators) if separators else SentenceSegmenter(model)
    cuts = [None if isinstance(target, str) else target for target in targets]
    records = [Record("1", "s", "".join(t), cut, (), "") for t, cut in zip(targets, cuts, strict=True)]
    assert joiner_of(records, segmenter) == joiner


def test_separators_belong_to_phrases_alone():
    with pytest.raises(UserError, match="level sentence has no separators"):
        make_segmenter("sentence", separators=[","])
    with pytest.raises(UserError, match="must not be empty"):
        make_segmenter("phrase", separators=[""])
    assert make_segmenter("phrase").separators == (";",)
