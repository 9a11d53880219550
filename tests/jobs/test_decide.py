"""Typed questions from Python: an answer to each with a probability for every answer, a result a text."""

from itertools import count, islice

import pytest

import pipedec_cli as pipedec
from pipedec_cli.decoding.decisions import deciding
from tests.decoding.decided import decisions_about
from tests.model.chats import foreign

QUESTIONS = (
    pipedec.Predicate("open", "Is it open?"),
    pipedec.Choice("kind", choices=["pub", pipedec.Option("bar", "<b>drinks</b>")]),
    pipedec.Score("price", levels=["cheap", "fair", "high"]),
    pipedec.Text("name", "What is it called?", grounded=True),
)
TEXTS = ["The Mill has 3 stars.", "Aromi is by the river."]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A chat model that knows nothing."""
    return foreign(tmp_path_factory.mktemp("decide") / "model")


def test_each_text_has_the_answers_of_its_questions_by_their_names(model):
    results = list(pipedec.decide(iter(TEXTS), QUESTIONS, model=model, device="cpu"))
    decoder = deciding(pipedec.load(model, device="cpu"), QUESTIONS)
    decisions = decisions_about(decoder, TEXTS)
    for result, text, right in zip(results, TEXTS, decisions, strict=True):
        assert result.text == text
        assert tuple(result.answers.values()) == right
        assert [*result.answers] == ["open", "kind", "price", "name"]
        shares = result.answers["kind"].probabilities
        assert sum(shares.values()) == pytest.approx(1.0) and "bar" in shares


def test_texts_are_read_as_answers_are_taken(model):
    decoder = pipedec.load(model, device="cpu")
    endless = (f"text {number}" for number in count())
    results = pipedec.decide(endless, QUESTIONS[:1], model=decoder)
    assert [made.text for made in islice(results, 2)] == ["text 0", "text 1"]
    assert next(endless) in ("text 2", "text 3")


def test_a_notebook_shows_each_answer_as_text(model):
    asked = pipedec.Choice("a<", choices=["<i>", "b"])
    [made] = pipedec.decide(TEXTS[:1], [asked, QUESTIONS[0]], model=model)
    shown = made._repr_html_()
    assert shown.count("<tr>") == 3 and ">a&lt;</td>" in shown and "<i>" not in shown


@pytest.mark.parametrize(
    "given",
    [
        {"questions": []},
        {"questions": ["Is it open?"]},
        {"questions": [QUESTIONS[0], QUESTIONS[0]]},
        {"texts": "one text"},
        {"model": "no-such-model"},
        {"dtype": "float8"},
        {"temperature": 0.0},
        {"temperature": "hot"},
        {"questions": QUESTIONS[0]},
        {"questions": "Is it open?"},
    ],
)
def test_what_cannot_be_used_is_refused_before_an_answer_is_asked_for(model, given):
    usual = {"texts": TEXTS, "questions": QUESTIONS, "model": model}
    with pytest.raises(pipedec.UserError) as raised:
        pipedec.decide(**(usual | given))
    assert "\n" not in str(raised.value)
