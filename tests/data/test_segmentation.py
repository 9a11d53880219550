"""Where sentences, clauses and phrases end, in marked texts (a bar stands where one ends) and for any text."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.records import Record
from pipedec_cli.data.segmentation import PhraseSegmenter, SentenceSegmenter, joiner_of
from pipedec_cli.data.sentences import train_sentences

#: Arbitrary text, with more of what segmenters look for than chance would give.
ANY = st.text(
    st.characters(codec="utf-8")
    | st.sampled_from(" \n.,;:!?'\"()[]0123—…。，；！？、；：।؟A")
)
MARKED = [
    "The pump was checked by Dr. Miller.| It runs at 3.5 bar.| The valve is open.",
    "He lives in St. Louis.| The plant is in the U.S. and in Peru.| The U.S. Navy came.",
    "The firm Acme Inc. makes pumps.| It sells valves, e.g. Model 7.| The price is low.",
]
TARGETS = [text.replace("|", "") for text in MARKED]
SPECIES = ["alba", "nigra"] * 40
PUMPS = [*product(("on", "off"), ("Rome", "Ulm"))]
SEPARATORS = st.sampled_from([(";", "|"), ("|", ";"), (";", "\n"), (";;", ";")])


@pytest.fixture(scope="module")
def model():
    return train_sentences(TARGETS, ["The pump is the heart of the plant."])


def sentences(model, text):
    ends = model.ends(text)
    return [
        text[start:end].strip() for start, end in zip([0, *ends], ends, strict=False)
    ]


@pytest.mark.parametrize(
    "marked",
    [
        *MARKED[:2],
        "Is it on?| Yes!| It is.",
        'He said "stop."| Then he left.',
        "(It stopped.)| It was late.",
        # What closes a sentence stays with it.
        "Er rief: „Komm!“| Er ging.",
        "»Komm!«| Er ging.| „Wirklich?“, fragte sie.| Er nickte.",
        'She said "Go!"| He went.| "No."| They left.',
        '"这是对的。"| 他说。| 她走了。',
        "「はい。」、と言った。| 彼は行った。",
        "It was a surprise.[7][8]| They went home.| He left.²| She stayed.[a]",
        # A small letter behind what somebody said goes on, in a text with capitals.
        "He said: “She told me ‘Go.’ and left.”| Then he slept.",
        "He said: \"She told me 'Go.' and left.\"| Then he slept.",
        "“‘Why?’” he asked.| (She said “Go.”) and left.",
        "« ‹ Va. › » dit-il.| Puis il dort.| « Va. »| « Oui. »| Fin.",
        "he told me “go.”| and left.",
        "彼は「行け。」と言った。|『行け！』って？|「行け。」|ところが寝た。",
        # Characters that nobody sees, and emoji, belong to the mark before them.
        "It is on.\u200f| It is off!\u200e| יפה.\u200f| יצאנו.\u2060| It was “on.\u200f”| Yes.",
        "It is on.\u200b|It is off.\ufeff|It is 3.\u200f5 bar.\u200b| Yes。\u200b|是。\ufeff| 好。",
        "It is on. 😀| It is off!😀👍🏽| It is on? 👨‍👩‍👧 ❤️| Yes.🎉|No “Go!”🎉| Yes.",
        "今日は晴れ。😀|出かけた！🎉| 帰った。",
        "It is on.| 🎉It is off.| ©2020 it was.",
        # Nothing is cut within a word, or within a spaced ellipsis.
        "It was the Ph.D.'s duty to check.| She agreed.",
        "Yahoo!'s plan failed.| It was off.",
        "Well . . .| It is on.| Yes.",
        # Items of a list in a line are treated alike.
        "You need three things:| 1. A pump.| 2. A valve.| 3. A desk.",
        "There are two parts: (1) a pump (2) a valve.| It is on.",
        # Marks as people type them.
        "Πού είναι;| Είναι εκεί.| Θέλεις νερό;| Ναι.",
        "Նա գնաց:| Ես մնացի:",
        "Il dit.| « Je pars. »| Elle rit.| “ Enfin. ”",
        "Fin. «",
        "no full stop|\nnext line|\r\n\r\nlast",
        "1. Open it.| 2. Close it.",
        "It stopped. ...",
        "今天很热。|你好吗？|我很好！",
        "他说：「好。」|然后走了。",
        "好吗?|很好!|再见",
        "كيف حالك؟| أنا بخير.",
        "यह घर है।| वह पेड़ है।",
        "😀 😀",
        "",
    ],
)
def test_sentences_end_where_a_reader_would_end_them(model, marked):
    assert sentences(model, marked.replace("|", "")) == [
        part.strip() for part in marked.split("|")
    ]


def test_signs_behind_the_mark_of_a_clause_belong_to_it(model):
    text = "It is on, 😀 and it is off!🎉 Yes;\u200f no.\n😀 Well, here."
    clauses = SentenceSegmenter(model, clauses=True).cut(text)
    assert clauses == (
        "It is on, 😀",
        "and it is off!🎉",
        "Yes;\u200f",
        "no.",
        "😀 Well,",
        "here.",
    )


LEARNT = {
    "of the domain": (
        [
            f"The strain subsp. {name} was found in tank {i}. It grew."
            for i, name in enumerate(SPECIES)
        ],
        "We saw subsp. rubra there.| It died.",
    ),
    "chains": (
        [f"It is short for Abh. Sem. Univ. in {i}. We read it." for i in range(40)],
        "It is short for Abh. Sem. Univ. in Ulm.| We read it.",
    ),
    "in lower case": (
        [f"the strain subsp. {name} grew. the tank was full." for name in SPECIES],
        "the strain subsp. alba grew.| the tank was full.",
    ),
    "last words of templates are none": (
        [f"The pump is {a}. She lives in {b}. It runs at 3 bar." for a, b in PUMPS]
        * 30,
        "The pump is on.| She lives in Rome.| It runs at 3 bar.",
    ),
    "years": (
        [
            *(
                f"She was born in {1900 + i}. He studied in Rome. It is late."
                for i in range(60)
            ),
            "He wrote.",
        ],
        "She was born in 1950.| He studied in Ulm.",
    ),
    "words that always follow a number": (
        [
            "It went from 1 to 3. There was a 2. There were 5. It fell from 4 to 3. There was 1. There is 2."
        ]
        * 3,
        "It went from 1 to 3.| There was a change.",
    ),
    "dates": (
        [
            f"Es war am {i}. Oktober kalt. Der Regen kam am {i}. Mai. Im Mai war es warm."
            for i in range(30)
        ],
        "Am 3. Oktober kam sie.| Am 4. Mai kam er.",
    ),
    "spaced quotation marks": (
        ["Il dit. « Je pars. » Elle rit."] * 40,
        "Il dit.| « Je pars. »| Elle rit.",
    ),
    "nothing learnt": ([], "One.| Two."),
}


@pytest.mark.parametrize(("targets", "marked"), LEARNT.values(), ids=LEARNT)
def test_abbreviations_are_learnt_from_the_data(targets, marked):
    learnt = train_sentences(targets, [])
    assert sentences(learnt, marked.replace("|", "")) == marked.split("| ")


@given(st.text())
def test_ends_ascend_to_the_end_of_the_text(model, text):
    ends = model.ends(text)
    assert ends == sorted(set(ends))
    assert ends[-1] == len(text)


def test_a_long_line_is_cut_as_its_parts_are(model):
    text = " ".join(TARGETS * 400)
    assert len(text) > 80_000
    assert (
        sentences(model, text)
        == [part for target in TARGETS for part in sentences(model, target)] * 400
    )
    assert len(model.ends("x" * 100_000)) == 1, "one endless word"


def solid(text):
    """The text without white space."""
    return "".join(text.split())


@pytest.mark.parametrize("clauses", [False, True])
@given(text=ANY, joiner=st.sampled_from([" ", "", "\n"]))
def test_joining_sentences_or_clauses_gives_the_text_back_white_space_aside(
    model, clauses, text, joiner
):
    segments = SentenceSegmenter(model, clauses).cut(text)
    assert solid(joiner.join(segments)) == solid(text)
    assert all(segment == segment.strip() != "" for segment in segments)


@given(ANY | st.text(st.characters(codec="utf-8") | st.sampled_from("; ;a")))
def test_joining_phrases_gives_the_text_back_white_space_and_empty_phrases_aside(text):
    segmenter = PhraseSegmenter((";",))
    phrases = segmenter.cut(text)
    given = solid(text).split(";")
    assert solid("; ".join(phrases)) == ";".join(filter(None, given))
    assert all(phrase == phrase.strip() != "" for phrase in phrases)
    closed = len(given) > 1 and not given[-1]
    assert segmenter.dropped(text) == (given[:-1] if closed else given).count(
        ""
    ) * bool(solid(text))


@given(st.text(st.sampled_from("a ;|\n")), SEPARATORS)
def test_the_first_separator_stands_for_all_of_them(text, separators):
    phrases = PhraseSegmenter(separators).cut(text)
    joined = separators[0].join(phrases)
    assert PhraseSegmenter(separators).cut(joined) == phrases


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
    clauses = [part.strip() for part in marked.split("|") if part.strip()]
    assert (
        list(SentenceSegmenter(model, clauses=True).cut(marked.replace("|", "")))
        == clauses
    )


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
def test_the_joiner_is_what_stands_between_the_datas_own_segments(
    model, separators, targets, joiner
):
    segmenter = PhraseSegmenter(separators) if separators else SentenceSegmenter(model)
    cuts = [None if isinstance(target, str) else target for target in targets]
    records = [
        Record("1", "s", "".join(t), cut, (), "")
        for t, cut in zip(targets, cuts, strict=True)
    ]
    assert joiner_of(records, segmenter) == joiner
