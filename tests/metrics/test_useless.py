"""What keeps a decoder from being of any use, seen in its texts alone."""

from pathlib import Path

import pytest

from pipedec_cli.metrics.keyphrases import Chan2019
from pipedec_cli.metrics.measure import score_examples
from pipedec_cli.metrics.multispan import MultiSpanQA
from pipedec_cli.metrics.rouge import Rouge
from pipedec_cli.metrics.scoring import Predictions, Scored
from pipedec_cli.metrics.useless import faults
from tests.metrics.documents import example

WORDS = ("red", "green", "blue", "black", "white", "grey", "pink", "brown")
RIGHT = [f"the {word} cat; a {word} dog" for word in WORDS]
HARDLY = "the model ignores its input: {} is {}, and {} with the texts of other inputs"


def told(texts, measure, right=RIGHT, truncated=()):
    """The faults of these texts; a ``;`` stands between two segments."""
    examples = []
    for place, (text, answer) in enumerate(zip(texts, right, strict=True)):
        prediction = example(
            text.split("; "),
            answer.split("; "),
            text=text,
            target=answer,
            references=(answer,),
            source=f"{place}: {answer}",
            name=f"{place}",
            truncated="time_max" if place in truncated else None,
        )
        examples.append(prediction)
    run = Predictions(Path("x.jsonl"), "x", [], "records", {})
    return [
        fault.words for fault in faults(Scored(run, score_examples(examples, measure)))
    ]


@pytest.mark.parametrize(
    ("measure", "label"),
    [
        (Rouge(), "ROUGE-L"),
        (Chan2019(), "present F1@M"),
        (MultiSpanQA(), "exact match F1"),
    ],
)
def test_what_an_untrained_model_writes_is_of_no_use_by_any_metric_and_what_is_half_right_is(
    measure, label
):
    assert told([text.replace("cat", "fish") for text in RIGHT], measure) == []
    assert told([f"<unk> {n}" for n in range(8)], measure) == [
        HARDLY.format(label, "0.0", "0.0")
    ]
    alike = "88% of its texts are the same as another example's, though the right answers differ"
    first, *more = told(["the cat; a dog"] * 8, measure)
    assert (first, more) == (
        alike,
        [HARDLY.format(label, *["80.0" if label == "ROUGE-L" else "0.0"] * 2)],
    )


def test_texts_that_are_right_for_other_examples_are_of_no_use():
    (said,) = told(RIGHT[3:] + RIGHT[:3], Rouge())
    assert said.startswith("the model ignores its input: ROUGE-L is 66.7, and ")


def test_texts_that_are_mostly_cut_are_of_no_use():
    cut = "62% of its texts are cut short by time_max: it does not find the end, or the limit is too low"
    assert told(RIGHT, Rouge(), truncated=range(5)) == [cut]
    assert told(RIGHT, Rouge(), truncated=range(4)) == []


def test_texts_may_be_alike_where_sources_or_right_answers_are():
    assert told(["yes"] * 8, Rouge(), right=["yes"] * 8) == []
    half = [text for text in RIGHT[:4] for _ in "ab"]
    assert told(half, Rouge(), right=half) == []


def test_too_few_examples_to_tell_are_said_to_be():
    few = "3 examples do not tell it from chance: exact match F1 is 33.3, and 0.0 with the texts of other inputs"
    assert told(["yes", "no", "four"], MultiSpanQA(), right=["yes", "five", "six"]) == [
        few
    ]
