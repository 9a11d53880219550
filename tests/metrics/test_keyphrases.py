"""chan2019 and meng2017: every value here was computed by hand; the computation stands beside it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.metrics.keyphrases import Chan2019, Meng2017, stems
from pipedec_cli.metrics.measure import score_examples
from tests.metrics.documents import example, scored, told

SOURCE = "Neural networks learn from data. Graphs of data, mining and trees"
CHAN, MENG, HARD = Chan2019(), Meng2017(), Meng2017(hard=True)
Expected = dict[str, float]

SEVEN = "data; mining; trees; neural; learn; from; of | data"
TWO = "data; mining | data; trees"
MACRO = ("data | data; trees", "data; mining; trees; neural | data")
ONE_ABSENT = ("deep learning | deep learning", "data | data")


@pytest.mark.parametrize(
    ("measure", "documents", "expected"),
    [
        # Precision at 5 divides by 5 however few were predicted. 2 predictions, 1
        # right, 2 targets: P@5 = 1/5, R = 1/2, F1@5 = 2 · 1/5 · 1/2 / (7/10) = 2/7; P@M
        # = 1/2, F1@M = 1/2
        (CHAN, [TWO], {"p@5": 20.0, "f1@5": 200 / 7, "p@M": 50.0, "f1@M": 50.0}),
        # Only the first five count at 5, all at M. The sixth of 6 is the one right
        # answer: P@M = 1/6, R = 1, F1 = 2/7
        (
            CHAN,
            ["neural; networks; learn; from; data; mining | mining"],
            {"f1@5": 0.0, "r@5": 0.0, "f1@M": 200 / 7},
        ),
        # Predictions are de-duplicated after stemming: 2 are left, "graph" is right:
        # P@M = 1/2, R = 1, F1 = 2/3
        (
            CHAN,
            ["network; networks; Graph | graphs"],
            {"f1@M": 200 / 3, "duplicate_predictions": 1},
        ),
        # "graph" and "graphs" are one hit of one prediction, not 2 hits of 1 target
        (CHAN, ["graph; graphs | graph"], {"p@M": 100.0, "r@M": 100.0}),
        # Targets are de-duplicated in chan2019: one target, found. In meng2017 two, one
        # hit: R = 1/2, F1@M = 2/3
        (CHAN, ["graph | graph; graphs"], {"f1@M": 100.0}),
        (MENG, ["graph | graph; graphs"], {"f1@M": 200 / 3}),
        # A comma inside a word drops nothing: "3,5" is one word; the prediction stays,
        # and is absent
        (
            CHAN,
            ["3,5 diol | data"],
            {"invalid_predictions": 0, "absent_predictions": 1},
        ),
        # Targets and predictions are split by the same test, each on its own. Present:
        # prediction "data", target "trees": no hit. Absent: "deep learning" on both
        # sides: P@M = R = 1; P@5 = 1/5, R = 1: F1 = 1/3
        (
            CHAN,
            ["data; deep learning | trees; deep learning"],
            {"f1@M": 0.0, "absent_f1@M": 100.0, "absent_f1@5": 100 / 3},
        ),
        # Macro F1. Document 1: 1 prediction, right, of 2 targets: P = 1, R = 1/2, F1 =
        # 2/3. Document 2: 4 predictions, 1 right, 1 target: P = 1/4, R = 1, F1 = 2/5.
        # chan2019: mean P = 5/8, mean R = 3/4, F1 = 2 · 5/8 · 3/4 / (11/8) = 15/22.
        # meng2017: the mean of 2/3 and 2/5, which is 8/15.
        (CHAN, MACRO, {"f1@M": 1500 / 22}),
        (MENG, MACRO, {"f1@M": 800 / 15}),
        # Documents without a target of a kind count: one perfect among the absent, one
        # without: mean P = mean R = 1/2
        (CHAN, ONE_ABSENT, {"absent_f1@M": 50.0}),
        (MENG, ONE_ABSENT, {"absent_f1@M": 50.0}),
        # meng2017 divides by what was predicted unless the hard form is asked for. 2
        # predictions, 1 right, 2 targets. Soft: P = 1/2, R = 1/2, F1 = 1/2. Hard: P =
        # 1/5, F1 = 2/7.
        (MENG, [TWO], {"f1@5": 50.0}),
        (HARD, [TWO], {"f1@5": 200 / 7, "f1@M": 50.0}),
        # 7 predictions, the first right, 1 target: both forms divide by 5, P = 1/5, R =
        # 1, F1 = 1/3
        (MENG, [SEVEN], {"f1@5": 100 / 3}),
        (HARD, [SEVEN], {"f1@5": 100 / 3}),
        # No prediction or no target
        *(
            (measure, [document], dict.fromkeys(CHAN.columns, 0.0))
            for measure in (CHAN, MENG)
            for document in ("| data; deep", "data; deep |", "|")
        ),
    ],
)
def test_values_are_as_computed_by_hand(measure, documents, expected):
    assert told(scored(measure, *documents, source=SOURCE), expected) == pytest.approx(
        expected
    )


COMMA, QUOTED, HYPHEN = (
    "big data, mining",
    "On “neural networks”: a survey",
    "a high-order method",
)


@pytest.mark.parametrize(
    ("measure", "source", "document", "expected"),
    [
        # A comma attached to a word of the source is cut off first; at white space
        # alone the word is "data,"
        (CHAN, COMMA, "data | data", {"present_targets": 1, "p@M": 100.0}),
        (Chan2019(pretokenized=True), COMMA, "data | data", {"present_targets": 0}),
        # Text, targets and predictions are tokenised alike, each with its own
        # punctuation around the same two words: "(" and '"' are words of their own, so
        # the two phrases differ and neither stands in the source
        (CHAN, QUOTED, '"Neural networks" | (neural networks)', {"absent_targets": 1}),
        (CHAN, QUOTED, "Neural networks | neural networks", {"p@M": 100.0}),
        # meng2017 splits punctuation off inside words too
        (MENG, HYPHEN, "high order | high-order", {"f1@M": 100.0}),
        (CHAN, HYPHEN, "high order | high-order", {"f1@M": 0.0}),
    ],
)
def test_source_target_and_prediction_are_cut_into_words_by_one_rule(
    measure, source, document, expected
):
    assert told(scored(measure, document, source=source), expected) == expected


@pytest.mark.parametrize(
    "phrase", ["data , mining", "data . x", "<unk> mining", "mining <UNK>", "data,"]
)
def test_a_prediction_with_a_comma_a_full_stop_or_the_unknown_token_for_a_word_is_dropped(
    phrase,
):
    expected = {"p@M": 100.0, "invalid_predictions": 1, "absent_predictions": 0}
    assert (
        told(scored(CHAN, f"data; {phrase} | data", source=SOURCE), expected)
        == expected
    )


def test_a_phrase_is_present_only_as_one_contiguous_run_of_whole_stems():
    phrases = [
        "neural networks",
        "neural learn",
        "networks neural",
        "net",
        "graph of data",
        "graphs data",
    ]
    split = CHAN.split(phrases, stems(SOURCE, "edges"), predicted=True)
    assert [" ".join(phrase) for phrase in split.present] == [
        "neural network",
        "graph of data",
    ]
    assert [" ".join(phrase) for phrase in split.absent] == [
        "neural learn",
        "network neural",
        "net",
        "graph data",
    ]


@pytest.mark.parametrize("empty", [(), ("",), ("  ",), ("", "\t")])
def test_an_empty_line_is_no_phrase_at_all(empty):
    counts = score_examples([example(empty, empty, source=SOURCE)], CHAN).counts
    assert counts == dict.fromkeys(counts, 0) | {"examples": 1}


@pytest.mark.parametrize(
    ("text", "tokenizer", "words"),
    [
        ("data,", "edges", ["data", ","]),
        ('"big data".', "edges", ['"', "big", "data", '"', "."]),
        ("well-known and/or C++", "edges", ["well-known", "and/or", "c++"]),
        ("in the U.S., e.g. .net", "edges", ["in", "the", "u.s.", ",", "e.g.", ".net"]),
        ("author's", "edges", ["author", "'s"]),
        ("<unk> <digit>;", "edges", ["<unk>", "<digit>", ";"]),
        ("...", "edges", [".", ".", "."]),
        ("", "edges", []),
        ("Erdős' 95% (C++)", "meng2017", ["erdő", "'", "95", "(", "c++", ")"]),
        ("हिन्दी, x²", "meng2017", ["हिन्दी", ",", "x²"]),
        # "skies" is "sky" only with nltk's own extensions, which are its default
        ("Skies dying networks", "whitespace", ["sky", "die", "network"]),
    ],
)
def test_texts_are_cut_into_words_and_stemmed(text, tokenizer, words):
    assert stems(text, tokenizer) == words


def test_signatures_tell_the_protocols_and_their_settings_apart():
    measures = (
        CHAN,
        MENG,
        HARD,
        Chan2019(pretokenized=True),
        Meng2017(pretokenized=True),
    )
    assert len({measure.signature for measure in measures}) == 5
    begun = "chan2019|tok:edges|lower:yes|stem:porter|dedup:predictions+targets|p@5:of-5|macro:f1-of-means|nltk:"
    assert CHAN.signature.startswith(begun)


_phrase = st.lists(
    st.sampled_from(["data", "Data", "mining", "trees", "deep", ",", ""]), max_size=3
)
_phrases = st.lists(_phrase.map(" ".join), max_size=7).map(tuple)


@given(st.lists(st.tuples(_phrases, _phrases), min_size=1, max_size=4))
def test_values_are_per_cents_and_the_order_of_predictions_does_not_matter_at_m(
    documents,
):
    examples, turned = [], []
    for place, (guesses, right) in enumerate(documents):
        more = {"source": SOURCE, "name": str(place)}
        examples.append(example(guesses, right, **more))
        turned.append(example(guesses[::-1], right, **more))
    for measure in (CHAN, MENG):
        values, again = (
            score_examples(examples, measure).values,
            score_examples(turned, measure).values,
        )
        assert all(-1e-9 <= value <= 100.0 + 1e-9 for value in values.values())
        for metric in ("present_f1@M", "absent_f1@M"):
            assert values[metric] == pytest.approx(again[metric])
