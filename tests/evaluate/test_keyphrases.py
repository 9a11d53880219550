"""chan2019 and meng2017: every value here was computed by hand; the computation stands beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.evaluate.metrics.keyphrases import Chan2019, Meng2017, stems
from pipedec_cli.evaluate.metrics.measure import Scores, ScoringItem, score

SOURCE = "Neural networks learn from data. Graphs of data, mining and trees"


def document(
    predicted: list[str], right: list[str], source: str = SOURCE, identifier: str = "1"
) -> ScoringItem:
    return ScoringItem(identifier, "; ".join(predicted), tuple(predicted), gold=tuple(right), source=source)


def chan(*items: ScoringItem, pretokenized: bool = False) -> Scores:
    return score(items, Chan2019(pretokenized=pretokenized))


def meng(*items: ScoringItem, hard: bool = False) -> Scores:
    return score(items, Meng2017(hard=hard))


def test_precision_at_5_divides_by_5_however_few_were_predicted() -> None:
    # 2 predictions, 1 right, 2 targets: P@5 = 1/5, R = 1/2, F1@5 = 2 · 1/5 · 1/2 / (7/10) = 2/7
    # P@M = 1/2, F1@M = 1/2
    values = chan(document(["data", "mining"], ["data", "trees"])).values
    assert values["present_p@5"] == pytest.approx(20.0)
    assert values["present_f1@5"] == pytest.approx(200 / 7)
    assert values["present_p@M"] == pytest.approx(50.0)
    assert values["present_f1@M"] == pytest.approx(50.0)


def test_only_the_first_five_count_at_5_and_all_count_at_m() -> None:
    # 6 present predictions, the sixth is the one right answer: at 5 no hit at all, at M P = 1/6, R = 1, F1 = 2/7
    predicted = ["neural", "networks", "learn", "from", "data", "mining"]
    values = chan(document(predicted, ["mining"])).values
    assert values["present_f1@5"] == 0.0
    assert values["present_r@5"] == 0.0
    assert values["present_f1@M"] == pytest.approx(200 / 7)


def test_predictions_are_deduplicated_after_stemming_and_the_first_is_kept() -> None:
    # "networks" is "network" again: 2 predictions are left, "graph" is right: P@M = 1/2, R = 1, F1 = 2/3
    scores = chan(document(["network", "networks", "Graph"], ["graphs"]))
    assert scores.values["present_f1@M"] == pytest.approx(200 / 3)
    assert scores.counts["duplicate_predictions"] == 1


def test_without_deduplication_the_same_hit_would_count_twice() -> None:
    # "graph" and "graphs" are one hit of one prediction: P@M = 1, not 2 hits of 1 target
    values = chan(document(["graph", "graphs"], ["graph"])).values
    assert values["present_p@M"] == 100.0
    assert values["present_r@M"] == 100.0


def test_targets_are_deduplicated_in_chan2019_and_not_in_meng2017() -> None:
    # chan2019: one target, found: R = 1, F1@M = 1. meng2017: two targets, one hit: R = 1/2, F1@M = 2/3.
    same = document(["graph"], ["graph", "graphs"])
    assert chan(same).values["present_f1@M"] == 100.0
    assert meng(same).values["present_f1@M"] == pytest.approx(200 / 3)


@pytest.mark.parametrize(
    "phrase", ["data , mining", "data . mining", "<unk> mining", "mining <UNK>", "data,"]
)
def test_a_prediction_with_a_comma_a_full_stop_or_the_unknown_token_for_a_word_is_dropped(
    phrase: str,
) -> None:
    scores = chan(document(["data", phrase], ["data"]))
    assert scores.values["present_p@M"] == 100.0
    assert scores.counts["invalid_predictions"] == 1
    assert scores.counts["absent_predictions"] == 0


def test_a_comma_inside_a_word_drops_nothing() -> None:
    # "3,5" is one word; the prediction stays, and is absent
    scores = chan(document(["3,5 diol"], ["data"]))
    assert scores.counts["invalid_predictions"] == 0
    assert scores.counts["absent_predictions"] == 1


def test_a_phrase_is_present_only_as_one_contiguous_run_of_whole_stems() -> None:
    (present, absent), *_ = Chan2019().split(
        ["neural networks", "neural learn", "networks neural", "net", "graph of data", "graphs data"],
        stems(SOURCE, "edges"),
        predicted=True,
    )
    assert [" ".join(phrase) for phrase in present] == ["neural network", "graph of data"]
    assert [" ".join(phrase) for phrase in absent] == ["neural learn", "network neural", "net", "graph data"]


def test_targets_and_predictions_are_split_by_the_same_test_each_on_its_own() -> None:
    # Present: prediction "data", target "trees": no hit. Absent: "deep learning" on both sides: P@M = R = 1.
    values = chan(document(["data", "deep learning"], ["trees", "deep learning"])).values
    assert values["present_f1@M"] == 0.0
    assert values["absent_f1@M"] == 100.0
    # P@5 = 1/5, R = 1: F1 = 1/3
    assert values["absent_f1@5"] == pytest.approx(100 / 3)


def test_a_comma_attached_to_a_word_of_the_source_is_cut_off_first() -> None:
    # Cut at white space alone, the source has the word "data," and the phrase "data mining" has no match either way;
    # "data" itself is present twice: as "data." and as "data,".
    scores = chan(document(["data"], ["data"], source="big data, mining"))
    assert scores.counts["present_targets"] == 1
    assert scores.values["present_p@M"] == 100.0
    plain = chan(document(["data"], ["data"], source="big data, mining"), pretokenized=True)
    assert plain.counts["present_targets"] == 0


def test_text_targets_and_predictions_are_tokenised_alike() -> None:
    # Each of the three has its own punctuation around the same two words.
    scores = chan(
        document(['"Neural networks"'], ["(neural networks)"], source="On “neural networks”: a survey")
    )
    # "(" and '"' are words of their own, so the two phrases differ and neither stands in the source
    assert scores.counts["absent_targets"] == 1
    same = chan(document(["Neural networks"], ["neural networks"], source="On “neural networks”: a survey"))
    assert same.values["present_p@M"] == 100.0


@pytest.mark.parametrize("empty", [[], [""], ["  "], ["", "\t"]])
def test_an_empty_line_is_no_phrase_at_all(empty: list[str]) -> None:
    nothing_predicted = chan(document(empty, ["data"]))
    assert nothing_predicted.counts["present_predictions"] == 0
    assert nothing_predicted.counts["absent_predictions"] == 0
    assert nothing_predicted.counts["duplicate_predictions"] == 0
    nothing_right = chan(document(["data"], empty))
    assert nothing_right.counts["present_targets"] == 0
    assert nothing_right.counts["absent_targets"] == 0
    both_empty = chan(document(empty, empty))
    assert set(both_empty.values.values()) == {0.0}


def test_macro_f1_is_the_harmonic_mean_of_the_averages_in_chan2019() -> None:
    # Document 1: 1 prediction, right, of 2 targets: P = 1, R = 1/2, F1 = 2/3.
    # Document 2: 4 predictions, 1 right, 1 target: P = 1/4, R = 1, F1 = 2/5.
    # chan2019: mean P = 5/8, mean R = 3/4, F1 = 2 · 5/8 · 3/4 / (11/8) = 15/22.
    # meng2017: the mean of 2/3 and 2/5, which is 8/15.
    documents = (
        document(["data"], ["data", "trees"], identifier="1"),
        document(["data", "mining", "trees", "neural"], ["data"], identifier="2"),
    )
    assert chan(*documents).values["present_f1@M"] == pytest.approx(100 * 15 / 22)
    assert meng(*documents).values["present_f1@M"] == pytest.approx(100 * 8 / 15)


def test_documents_without_a_target_of_a_kind_count_in_the_average() -> None:
    # Document 1 is perfect among the absent ones, document 2 has no absent target: mean P = mean R = 1/2.
    documents = (
        document(["deep learning"], ["deep learning"], identifier="1"),
        document(["data"], ["data"], identifier="2"),
    )
    assert chan(*documents).values["absent_f1@M"] == pytest.approx(50.0)
    assert meng(*documents).values["absent_f1@M"] == pytest.approx(50.0)


def test_no_prediction_or_no_target_gives_zero() -> None:
    assert set(chan(document([], ["data", "deep learning"])).values.values()) == {0.0}
    assert set(chan(document(["data", "deep learning"], [])).values.values()) == {0.0}
    assert set(meng(document([], ["data"])).values.values()) == {0.0}


def test_meng2017_divides_by_what_was_predicted_unless_the_hard_form_is_asked_for() -> None:
    # 2 predictions, 1 right, 2 targets. Soft: P = 1/2, R = 1/2, F1 = 1/2. Hard: P = 1/5, F1 = 2/7.
    same = document(["data", "mining"], ["data", "trees"])
    assert meng(same).values["present_f1@5"] == pytest.approx(50.0)
    assert meng(same, hard=True).values["present_f1@5"] == pytest.approx(200 / 7)
    assert meng(same, hard=True).values["present_f1@M"] == pytest.approx(50.0)
    # 7 predictions, the first right, 1 target: both forms divide by 5, P = 1/5, R = 1, F1 = 1/3
    many = document(["data", "mining", "trees", "neural", "learn", "from", "of"], ["data"])
    assert meng(many).values["present_f1@5"] == pytest.approx(100 / 3)
    assert meng(many, hard=True).values["present_f1@5"] == pytest.approx(100 / 3)


def test_meng2017_splits_punctuation_off_inside_words_too() -> None:
    hyphenated = document(["high order"], ["high-order"], source="a high-order method")
    assert meng(hyphenated).values["present_f1@M"] == 100.0
    assert chan(hyphenated).values["present_f1@M"] == 0.0
    assert stems("Erdős' 95% (C++)", "meng2017") == ["erdő", "'", "95", "(", "c++", ")"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("data,", ["data", ","]),
        ('"big data".', ['"', "big", "data", '"', "."]),
        ("well-known and/or C++", ["well-known", "and/or", "c++"]),
        ("in the U.S., e.g. .net", ["in", "the", "u.s.", ",", "e.g.", ".net"]),
        ("author's", ["author", "'s"]),
        ("<unk> <digit>;", ["<unk>", "<digit>", ";"]),
        ("...", [".", ".", "."]),
        ("", []),
    ],
)
def test_words_are_cut_at_white_space_with_punctuation_off_their_ends(text: str, words: list[str]) -> None:
    assert stems(text, "edges") == words


def test_words_are_stemmed_by_nltks_porter_stemmer_in_its_default_mode() -> None:
    # "skies" is "sky" only with nltk's own extensions, which are its default
    assert stems("Skies dying networks", "whitespace") == ["sky", "die", "network"]


def test_a_string_for_a_list_is_an_error_and_not_a_list_of_letters() -> None:
    with pytest.raises(TypeError, match="gold must be a list of strings, not the string 'data'"):
        ScoringItem("1", "data", ("data",), gold="data")  # type: ignore[arg-type]


def test_signatures_tell_the_protocols_and_their_settings_apart() -> None:
    signatures = {
        measure.signature
        for measure in (
            Chan2019(),
            Chan2019(pretokenized=True),
            Meng2017(),
            Meng2017(hard=True),
            Meng2017(pretokenized=True),
        )
    }
    assert len(signatures) == 5
    assert Chan2019().signature.startswith(
        "chan2019|tok:edges|lower:yes|stem:porter|dedup:predictions+targets|p@5:of-5|macro:f1-of-means|nltk:"
    )


_phrase = st.lists(st.sampled_from(["data", "Data", "mining", "trees", "deep", ",", ""]), max_size=3).map(
    " ".join
)


@given(
    st.lists(st.tuples(st.lists(_phrase, max_size=7), st.lists(_phrase, max_size=7)), min_size=1, max_size=4)
)
def test_values_are_per_cents_and_the_order_of_predictions_does_not_matter_at_m(
    documents: list[tuple[list[str], list[str]]],
) -> None:
    items = [document(*pair, identifier=str(place)) for place, pair in enumerate(documents)]
    turned = [
        document(guesses[::-1], right, identifier=str(place))
        for place, (guesses, right) in enumerate(documents)
    ]
    for measure in (Chan2019(), Meng2017()):
        values = score(items, measure).values
        assert all(value is not None and 0.0 <= value <= 100.0 + 1e-9 for value in values.values())
        again = score(turned, measure).values
        for metric in ("present_f1@M", "absent_f1@M"):
            assert values[metric] == pytest.approx(again[metric])
