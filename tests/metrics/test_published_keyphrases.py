"""chan2019 beside the rules of the two scripts that papers publish keyphrase scores by."""

import random

import pytest

from tests.trials.keyphrases import Document, chan, chen, cleaned, made_up, ours

WORDS = [
    "data",
    "mining",
    "trees",
    "graphs",
    "deep",
    "and/or",
    ",",
    ".",
    "learn",
    "high-order",
]
SOURCE = "graphs of data , mining and trees"


def documents() -> list[Document]:
    chance = random.Random(0)
    rows = []
    for _ in range(60):
        words = chance.choices(WORDS, k=30)
        starts = [chance.randrange(28) for _ in range(4)]
        phrases = [" ".join(words[start : start + 2]) for start in starts]
        rows.append(
            {
                "source": " ".join(words),
                "keyphrases": [*phrases, "big graphs", "deep data"],
            }
        )
    return made_up(rows)


def test_on_cleaned_data_both_published_scripts_give_what_chan2019_gives():
    clean = cleaned(documents())
    assert len(clean) > 30
    assert ours(clean) == pytest.approx(chan(clean))
    assert ours(clean) == pytest.approx(chen(clean))
    assert all(value > 10 for value in ours(clean).values())


@pytest.mark.parametrize(
    ("targets", "predictions", "metric", "expected"),
    [
        # 2 absent predictions of which 1 is empty and 1 right: P@M = 1/2 with Chan et
        # al., else 1; R = 1
        ("deep trees", "deep trees;", "absent_f1@M", (200 / 3, 100.0, 100.0)),
        # Nothing predicted where nothing is right: one empty phrase found with Chan et
        # al.
        ("", "", "absent_f1@M", (100.0, 0.0, 0.0)),
        # Chen et al. cut both sides: "data" and "trees", both present and found; else 1
        # absent phrase, found
        ("data/trees", "data/trees", "present_f1@M", (0.0, 100.0, 0.0)),
        # A comma that is a word of a prediction: it stays, and is right, with Chen et
        # al. alone
        ("data , mining", "data , mining", "present_f1@M", (0.0, 100.0, 0.0)),
        ("data", "data;mining .", "absent_f1@M", (0.0, 0.0, 0.0)),
        # What holds <unk> goes everywhere
        ("data", "data;<unk> trees", "present_f1@M", (100.0, 100.0, 100.0)),
    ],
)
def test_the_scripts_differ_in_empty_phrases_slashes_and_punctuation(
    targets, predictions, metric, expected
):
    document = [Document(SOURCE, targets, predictions)]
    assert [run(document)[metric] for run in (chan, chen, ours)] == pytest.approx(
        expected
    )
