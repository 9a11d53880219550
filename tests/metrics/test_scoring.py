"""Scores: corpus and example values, subsets, counts, protocols, what a metric is given; failures; texts side by side."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Generated, record_of
from pipedec_cli.metrics import PROTOCOLS, measure_of
from pipedec_cli.metrics.failures import (
    aligned,
    aligned_by_key,
    count_failures,
    dropped,
    duplicates,
)
from pipedec_cli.metrics.keyphrases import Chan2019, Meng2017
from pipedec_cli.metrics.measure import Measure, ScoringItem, score
from pipedec_cli.metrics.multispan import MultiSpanQA
from pipedec_cli.metrics.rouge import Rouge
from pipedec_cli.metrics.scoring import make_protocol, scoring_item


def spans(
    identifier: str, predicted: tuple[str, ...], right: tuple[str, ...]
) -> ScoringItem:
    return ScoringItem(identifier, "", predicted, gold=right)


QUESTIONS = [
    spans("a", ("cat",), ("cat",)),
    spans("b", ("cat", "dog", "cow"), ("hen",)),
]
QUESTIONS.append(spans("c", ("cat",), ("cat", "ox")))


def test_values_are_of_the_corpus_of_each_example_or_of_some_and_all_are_counted():
    calls: list[None] = []
    scores = score(QUESTIONS, MultiSpanQA(), on_example=lambda: calls.append(None))
    assert len(calls) == 3
    assert scores.counts == {
        "examples": 3,
        "not_scorable": 0,
        "predicted_spans": 5,
        "gold_spans": 4,
    }
    assert [scores.examples[name]["em_p"] for name in "abc"] == [100.0, 0.0, 100.0]
    assert scores.values["em_p"] == pytest.approx(100 * 2 / 5)  # not their mean
    for names in ("a", "bc", "abc"):
        alone = score([item for item in QUESTIONS if item.id in names], MultiSpanQA())
        assert scores.values_of(list(names)) == pytest.approx(alone.values)
    assert set(scores.values_of([]).values()) == {None}


class Right(Measure):
    """The share of predictions that are equal to the right answer, and nothing that is counted."""

    name = "right"
    headline: ClassVar = {"right": "right"}
    primary = "right"
    columns = ("right",)

    @property
    def _settings(self) -> str:
        return ""

    def statistics(self, item: ScoringItem) -> tuple[float, ...]:
        return (float(item.segments == item.gold),)


def test_a_measure_that_counts_nothing_counts_the_examples():
    scores = score(QUESTIONS, Right())
    assert scores.counts == {"examples": 3, "not_scorable": 0}
    assert scores.values == {"right": pytest.approx(100 / 3)}
    assert scores.examples["a"] == {"right": 100.0}


def test_each_protocol_is_the_measure_of_its_name():
    assert [measure_of(name).name for name in PROTOCOLS] == [*PROTOCOLS]


@pytest.mark.parametrize(
    ("items", "wrong"),
    [(QUESTIONS[:1] * 2, "two items have the id 'a'"), ([], "nothing to score")],
)
def test_what_cannot_be_scored_is_an_error(items, wrong):
    with pytest.raises(ValueError, match=wrong):
        score(items, MultiSpanQA())


@pytest.mark.parametrize("field", ["segments", "gold", "references"])
def test_a_string_for_a_list_is_an_error_and_not_a_list_of_letters(field):
    with pytest.raises(
        TypeError, match=f"{field} must be a list of strings, not the string 'cat'"
    ):
        ScoringItem(
            **{"id": "1", "prediction": "cat", "segments": ("cat",), field: "cat"}
        )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("task", "name", "settings", "measure"),
    [
        ("summarization", None, {}, Rouge()),
        ("keyphrases", None, {}, Chan2019()),
        ("multispan", None, {}, MultiSpanQA()),
        ("summarization", None, {"stemmer": False}, Rouge(stemmer=False)),
        (
            "keyphrases",
            "meng2017",
            {"hard": True, "stemmer": None},
            Meng2017(hard=True),
        ),
    ],
)
def test_a_task_has_its_usual_protocol_and_a_protocol_its_settings(
    task, name, settings, measure
):
    assert make_protocol(task, name, **settings) == measure
    assert (
        measure.primary in measure.headline
    )  # what curves and advice are about stands in the tables


def test_a_protocol_or_setting_that_does_not_fit_is_refused_with_those_there_are():
    with pytest.raises(
        UserError,
        match="keyphrases has no protocol 'rouge'; choose from chan2019, meng2017",
    ):
        make_protocol("keyphrases", "rouge")
    wrong = "`hard` does not belong to the protocol chan2019; it has pretokenized"
    with pytest.raises(UserError, match=wrong):
        make_protocol("keyphrases", hard=True)


def item_of(task: Any, *segments: str, **fields: Any) -> ScoringItem:
    """What a task's metrics are given of a prediction and of the record with these fields."""
    record = record_of({"source": "a b c", **fields}, "file:1", 1)
    return scoring_item(
        Generated(text="", segments=segments, truncated="time_max", record=record), task
    )


TARGET = {"target": "a b", "target_segments": ["a", "b"]}
MERGED = {"target": "a; b; c", "target_segments": ["a", "b; c"]}


def test_summaries_are_held_against_the_references_and_else_the_target():
    item = item_of("summarization", "a", **TARGET)
    assert (item.references, item.gold) == (("a b",), ("a", "b"))
    assert (item.target, item.truncated) == ("a b", "time_max")
    assert item_of(
        "summarization", "a", **TARGET, references=["x", "a b"]
    ).references == ("a b", "x")


@pytest.mark.parametrize(
    ("task", "fields", "gold"),
    [
        # keyphrases: the record's own list, before any merging; else the target's,
        # split again where they were merged
        ("keyphrases", {"keyphrases": ["a", "b", "c"], **MERGED}, ("a", "b", "c")),
        ("keyphrases", MERGED, ("a", "b", "c")),
        ("keyphrases", {"target": ["a", "b;c"]}, ("a", "b", "c")),
        ("keyphrases", {"target": "a;b ; "}, ("a", "b")),
        ("keyphrases", {"target": ""}, ()),
        ("keyphrases", {"target": []}, ()),
        ("keyphrases", {"target_segments": []}, ()),
        # spans: answers, a listed target or its segments; never split
        ("multispan", {"answers": ["x; y", "z"], "target": ["q"]}, ("x; y", "z")),
        ("multispan", {"target": ["x; y"], "target_segments": ["q"]}, ("x; y",)),
        ("multispan", TARGET, ("a", "b")),
    ],
)
def test_the_right_answers_of_a_task_and_its_merged_predictions(task, fields, gold):
    item = item_of(task, "a", "b; c ;", **fields)
    assert item.gold == gold
    assert item.segments == (
        ("a", "b", "c") if task == "keyphrases" else ("a", "b; c ;")
    )


NOTHING = "nothing to score against: .* --gold FILE"


@pytest.mark.parametrize(
    ("task", "fields", "wrong"),
    [
        ("keyphrases", {"keyphrases": "big data"}, "list"),
        ("keyphrases", {"keyphrases": ["a", 1]}, "must hold strings, not int"),
        ("keyphrases", {"keyphrases": 5}, "list of strings, not 5"),
        ("multispan", {"answers": "big data"}, "list"),
        ("multispan", {"target": "big data"}, "list"),
        ("summarization", {}, NOTHING),
        ("keyphrases", {}, NOTHING),
        ("multispan", {}, NOTHING),
        (
            "keyphrases",
            {"source": "", "keyphrases": ["a"]},
            "the record has no `source`",
        ),
    ],
)
def test_a_record_that_nothing_can_be_scored_against_is_an_error_with_its_place(
    task, fields, wrong
):
    with pytest.raises(UserError, match=f"^file:1: .*{wrong}"):
        item_of(task, "a", **fields)


def item(
    *segments: str, gold: int | None = None, truncated: str | None = None
) -> ScoringItem:
    right = None if gold is None else ("right",) * gold
    return ScoringItem(
        "1", " ".join(segments), segments, gold=right, truncated=truncated
    )


@pytest.mark.parametrize(
    ("segments", "repeats"),
    [
        (("It is cheap.", "it  is cheap", "IT IS CHEAP!", "It is dear."), 2),
        (("!", "?", "!"), 1),
        (("猫", "犬", "猫"), 1),
        (("दिन", "दान", "दिन।"), 1),  # a vowel's sign is part of a word
        (("❤\ufe0f", "☀\ufe0f", "❤\ufe0f"), 1),  # what makes a sign an emoji is none
        ((), 0),
    ],
)
def test_a_segment_with_words_repeats_another_whatever_its_case_punctuation_and_spaces(
    segments, repeats
):
    assert count_failures([item(*segments)]).duplicated == repeats


def test_which_segments_say_it_again_and_how_many_are_missing_is_told_of_each_prediction():
    assert duplicates(("A b.", "c", "a, B", "C!", "d")) == [2, 3]
    assert [dropped(item("a", gold=gold)) for gold in (None, 0, 1, 3)] == [
        None,
        0,
        0,
        2,
    ]


def test_rates_are_of_subsequences_for_repeats_and_omissions_and_of_predictions_for_cuts():
    failures = count_failures(
        [
            item("a", "a", "b", gold=3),
            item("a", gold=3, truncated="time_max"),
            item("a", "b", gold=1, truncated="sub_max"),
            replace(item(truncated="time_max"), stopped_on_repeat=True),
        ]
    )
    assert (failures.stopped_on_repeat, failures.stopped_on_repeat_rate) == (
        1,
        pytest.approx(1 / 4),
    )
    assert (failures.duplicated, failures.with_duplicates, failures.subsequences) == (
        1,
        1,
        6,
    )
    assert failures.duplicated_rate == pytest.approx(1 / 6)
    # 2 of 3 are missing in the second; a surplus in the third makes up for none
    assert (
        failures.dropped,
        failures.with_dropped,
        failures.expected,
        failures.compared,
    ) == (2, 1, 7, 3)
    assert failures.dropped_rate == pytest.approx(2 / 7)
    assert failures.truncated == {"sub_max": 1, "time_max": 2}
    assert failures.truncated_rate == pytest.approx(3 / 4)


def test_texts_are_alike_as_far_as_neither_equal_sources_nor_equal_right_answers_explain_it():
    def of(*texts: str, sources: str = "pqrs", right: str = "wxyz") -> float:
        rows = zip(texts, sources, right, strict=True)
        made = [
            (source + text, text, (text,), None, None, (answer,), source)
            for text, source, answer in rows
        ]
        return count_failures([ScoringItem(*one) for one in made]).alike_rate

    assert of("a", "A.", "b", "a") == 0.5
    assert (
        of("a", "a", "b", "b", sources="ppqq")
        == of("a", "a", "b", "b", right="xxyy")
        == 0
    )
    assert of("a", "b", "c", "d") == of(*"abcd", sources="pppp") == 0
    unanswered = [
        ScoringItem(str(n), "yes", ("yes",), source=f"s{n // 2}") for n in range(8)
    ]
    assert count_failures(unanswered).alike_rate == 0.75


@pytest.mark.parametrize(
    ("items", "dropped_rate"),
    [([], None), ([item("a")], None), ([item("a", gold=0)], 0.0)],
)
def test_what_is_dropped_is_unknown_where_no_reference_is_segmented(
    items, dropped_rate
):
    failures = count_failures(items)
    assert (failures.duplicated_rate, failures.truncated_rate) == (0.0, 0.0)
    assert failures.dropped_rate == dropped_rate


@pytest.mark.parametrize(
    ("segments", "beside", "places"),
    [
        ("a b, c d, e f", "A b., c D, e f!", [0, 1, 2]),
        ("a b, e f", "a b, c d, e f", [0, 2]),
        (
            "a b, a b, e f",
            "a b, c d, e f",
            [0, 1, 2],
        ),  # what repeats stands where something is missing
        ("a b, x, y, e f", "a b, c d, e f", [0, 1, 1, 2]),
        ("a b, a b, c d", "a b, c d", [0, 0, 1]),
        ("x, a b", "a b, c d", [0, 0]),
        ("a b, x, y", "a b", [0, 0, 0]),
        ("x, y", "a, b, c", [0, 1]),
        ("x, y", "", [0, 0]),
        ("", "a, b", []),
    ],
)
def test_what_says_the_same_stands_side_by_side_in_order_and_the_rest_as_it_comes(
    segments, beside, places
):
    one, other = (tuple(filter(None, text.split(", "))) for text in (segments, beside))
    assert aligned(one, other) == places


def test_pairs_of_objects_stand_beside_their_keys_in_whatever_order():
    right = ("name: Fitzbillies", "rating: 3", "area: riverside", "tag: a", "tag: b")
    plain = (
        "name: Fitzbillies",
        "area: city",
        "tag: b",
        "tag: c",
        "near: Crowne",
        "rating: 3",
    )
    other = ("rating: 5", "near: Bakers", "kind: pub")
    assert aligned_by_key([plain, other], right) == [[0, 2, 4, 3, 5, 1], [1, 5, 6]]
