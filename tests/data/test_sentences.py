import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.sentences import SentenceModel, train_sentences

#: Texts, with a bar where a sentence ends.
MARKED = [
    "The pump was checked by Dr. Miller.| It runs at 3.5 bar.| The valve is open.",
    "He lives in St. Louis.| The plant is in the U.S. and in Peru.| The U.S. Navy came.",
    "The firm Acme Inc. makes pumps.| It sells valves, e.g. Model 7.| The price is low.",
]
TARGETS = [text.replace("|", "") for text in MARKED]
SPECIES = ["alba", "nigra"] * 40
PUMPS = [*product(("on", "off"), ("Rome", "Ulm"))]


@pytest.fixture(scope="module")
def model():
    return train_sentences(TARGETS, ["The pump is the heart of the plant."])


def sentences(model, text):
    ends = model.ends(text)
    return [text[start:end].strip() for start, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize(
    "marked",
    [
        *MARKED[:2],
        "Is it on?| Yes!| It is.",
        'He said "stop."| Then he left.',
        "(It stopped.)| It was late.",
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
    assert sentences(model, marked.replace("|", "")) == [part.strip() for part in marked.split("|")]


@pytest.mark.parametrize(
    ("targets", "marked"),
    [
        (
            [f"The strain subsp. {name} was found in tank {i}. It grew." for i, name in enumerate(SPECIES)],
            "We saw subsp. rubra there.| It died.",
        ),
        (
            [f"It is short for Abh. Sem. Univ. in {i}. We read it." for i in range(40)],
            "It is short for Abh. Sem. Univ. in Ulm.| We read it.",
        ),
        (
            [f"the strain subsp. {name} grew. the tank was full." for name in SPECIES],
            "the strain subsp. alba grew.| the tank was full.",
        ),
        (
            [f"The pump is {a}. She lives in {b}. It runs at 3 bar." for a, b in PUMPS] * 30,
            "The pump is on.| She lives in Rome.| It runs at 3 bar.",
        ),
        ([], "One.| Two."),
    ],
    ids=["of the domain", "chains", "in lower case", "last words of templates are none", "nothing learnt"],
)
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
    assert sentences(model, text) == [part for target in TARGETS for part in sentences(model, target)] * 400
    assert len(model.ends("x" * 100_000)) == 1, "one endless word"


def test_the_model_reads_back_equal_from_json(model):
    text = json.dumps(model.to_json())
    again = SentenceModel.from_json(json.loads(text), "sentences.json")
    assert json.dumps(again.to_json()) == text
    for target in TARGETS:
        assert again.ends(target) == model.ends(target)


@pytest.mark.parametrize("value", [{}, {"abbreviations": 3}, []])
def test_what_is_no_model_is_refused(value):
    with pytest.raises(UserError, match=r"sentences\.json: not what `pipedec segment` writes"):
        SentenceModel.from_json(value, "sentences.json")
