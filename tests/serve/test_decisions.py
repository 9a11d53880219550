"""``/v1/decisions`` and ``/v1/systemone``: the probabilities are those of `decide`, in the shapes that clients read."""

import json
from functools import partial

import openai
import pytest

from pipedec_cli.decoding.decisions import deciding
from pipedec_cli.objects.questions import Choice, Option, Predicate, Score, Text
from pipedec_cli.serve.body import RefusalError
from pipedec_cli.serve.decisions import DecisionsExchange, SystemOneExchange
from tests.decoding.decided import decisions_about
from tests.serve.test_body import ask
from tests.serve.test_serve import SOURCES, chat, models, pipelined  # noqa: F401

pytestmark = pytest.mark.extra("uvicorn")

ASKED = [
    {"type": "predicate", "instructions": "Is it cheap?", "name": "cheap"},
    {
        "type": "choice",
        "instructions": "What is it?",
        "choices": [
            {"value": "coffee shop"},
            {"value": True, "description": "it is open"},
            {"value": "river"},
        ],
    },
    {
        "type": "score",
        "name": "stars",
        "instructions": [{"type": "input_text", "text": "How good is it?"}],
        "levels": [{"label": "bad"}, {"label": "good", "description": "liked"}],
    },
    {
        "type": "pipedec_text",
        "name": "place",
        "instructions": "What is its name?",
    },
]
QUESTIONS = [
    Predicate("cheap", "Is it cheap?"),
    Choice(
        "kind",
        "What is it?",
        ("coffee shop", Option("true", "it is open"), "river"),
    ),
    Score("stars", "How good is it?", ("bad", Option("good", "liked"))),
    Text("place", "What is its name?", grounded=True),
]
NAMED = {
    "cheap": {"type": "noul", "instructions": "Is it cheap?"},
    "kind": {
        "type": "choice",
        "instructions": "What is it?",
        "criteria": {"coffee shop": "", "true": "it is open", "river": ""},
    },
    "stars": {
        "type": "score",
        "instructions": "How good is it?",
        "criteria": ["bad", "good"],
    },
    "place": {"type": "pipedec_text", "instructions": "What is its name?"},
}


def decided(made, source, questions=QUESTIONS):
    """What `decide` says of a source, with the server's model."""
    decoder = deciding(made.service.decoder, questions)
    (decisions,) = decisions_about(decoder, [source])
    return decisions


near = partial(pytest.approx, abs=1e-6)


def test_decisions_are_those_of_decide_in_the_order_of_the_questions(chat):  # noqa: F811
    cheap, kind, stars, place = decided(chat, SOURCES[0])
    made = chat.client.decisions.create(model="chat", input=SOURCES[0], questions=ASKED)
    first, second, third, text = made.answers
    assert [answer.type for answer in made.answers] == [
        question["type"] for question in ASKED
    ]
    assert [answer.name for answer in made.answers] == ["cheap", None, "stars", "place"]
    assert first.probability == near(cheap.value)
    shares = {str(share.value): share.probability for share in second.probabilities}
    assert [share.value for share in second.probabilities] == [
        "coffee shop",
        True,
        "river",
    ]
    assert [*shares.values()] == near([*kind.probabilities.values()])
    assert str(second.choice).lower() == kind.value
    assert second.confidence == near(kind.confidence)
    assert [(share.value, share.label) for share in third.probabilities] == [
        (1, "bad"),
        (2, "good"),
    ]
    assert third.score == near(stars.value)
    assert text.text == place.value
    assert [tuple(span) for span in text.spans] == [*place.spans]
    assert made.usage.input_tokens > 0 and made.model == "chat"
    again = chat.client.decisions.create(
        model="chat", input=SOURCES[0], questions=ASKED
    )
    assert again.answers == made.answers, "the same answer twice"
    assert again.usage.input_tokens_details.cached_tokens > 0


def test_messages_and_parts_of_json_are_read(chat):  # noqa: F811
    data = {"name": "The Mill", "price": 3}
    part = {"type": "input_json", "data": data}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "type": "message", "content": [part]},
    ]
    made = chat.client.decisions.create(
        model="chat", input=messages, questions=ASKED[:1]
    )
    assert 0 < made.answers[0].probability < 1
    plain = chat.client.decisions.create(
        model="chat", input=json.dumps(data), questions=ASKED[:1]
    )
    assert made.usage.input_tokens > plain.usage.input_tokens


def test_system_one_has_the_same_probabilities_by_names(chat):  # noqa: F811
    questions = [*QUESTIONS]
    questions[2] = Score("stars", "How good is it?", ("bad", "good"))
    cheap, kind, stars, place = decided(chat, SOURCES[0], questions)
    body = {"model": "chat", "state": SOURCES[0], "questions": NAMED}
    status, answer, _ = ask(chat, body, "systemone")
    answers = answer["answers"]
    assert status == 200 and [*answers] == [*NAMED]
    assert {*answer} == {"model", "answers", "usage"}
    assert answers["cheap"] == {"type": "noul", "noul": near(cheap.value)}
    assert answers["kind"]["probabilities"] == near(dict(kind.probabilities))
    assert answers["kind"]["choice"] == kind.value
    assert answers["stars"]["score"] == near(stars.value - 1)
    assert answers["stars"]["legend"] == {"0": "bad", "1": "good"}
    assert [*answers["stars"]["probabilities"]] == ["0", "1"]
    assert answers["place"]["text"] == place.value
    assert {*answer["usage"]} == {"input_tokens", "output_tokens"}
    meant = NAMED["cheap"] | {"criteria": {"true": "below 9", "false": "9 or more"}}
    asked = body | {"questions": {"cheap": meant}}
    (noul,) = ask(chat, asked, "systemone")[1]["answers"].values()
    words = "Is it cheap?\nyes: below 9\nno: 9 or more"
    (wanted,) = decided(chat, SOURCES[0], [Predicate("cheap", words)])
    assert noul["noul"] == near(wanted.value)
    state = {"text": SOURCES[0]}
    told = ask(chat, body | {"state": state}, "systemone")[1]["answers"]
    written = json.dumps(state, ensure_ascii=False)
    assert told == ask(chat, body | {"state": written}, "systemone")[1]["answers"]


CHOICE = {"type": "choice", "instructions": "a?"}


def values(*names):
    return {"choices": [{"value": name} for name in names]}


@pytest.mark.parametrize(
    ("questions", "param"),
    [
        ([], "questions"),
        ([ASKED[0]] * 401, "questions"),
        ([CHOICE], "questions[0].choices"),
        ([CHOICE | values("a")], "questions[0].choices"),
        ([CHOICE | values(*map(str, range(256)))], "questions[0].choices"),
        ([CHOICE | values("a", "A")], "questions[0].choices"),
        ([CHOICE | values("true", True)], "questions[0].choices"),
        ([CHOICE | values("a", " ")], "questions[0].choices"),
        ([CHOICE | values("a", 3)], "questions[0].choices[1].value"),
        ([ASKED[0] | values("a", "b")], "questions[0].choices"),
        ([CHOICE | {"levels": [{"label": "a"}]}], "questions[0].levels"),
        ([ASKED[2] | {"levels": [{"label": "a"}]}], "questions[0].levels"),
        (
            [ASKED[2] | {"levels": [{"label": str(n)} for n in range(11)]}],
            "questions[0].levels",
        ),
        ([{"type": "essay", "instructions": "a"}], "questions[0].type"),
        ([{"type": "predicate"}], "questions[0].instructions"),
        ([ASKED[0] | {"weight": 3}], "questions[0].weight"),
        (2 * [ASKED[0] | {"name": "a"}], "questions[1].name"),
        (
            [ASKED[0] | {"instructions": [{"type": "input_image", "image_url": "x"}]}],
            "questions[0].instructions[0].type",
        ),
    ],
)
def test_questions_that_cannot_be_asked_are_refused_by_their_place(questions, param):
    body = {"model": "m", "input": "a", "questions": questions}
    with pytest.raises(RefusalError) as refusal:
        DecisionsExchange(json.dumps(body).encode())
    assert (refusal.value.status, refusal.value.param) == (400, param)
    assert str(refusal.value).startswith(param)


def test_a_type_that_is_not_served_is_refused_with_those_that_are():
    body = {"model": "m", "input": "a", "questions": [{"type": "boolean"}]}
    with pytest.raises(RefusalError) as refusal:
        DecisionsExchange(json.dumps(body).encode())
    for served in ("predicate", "choice", "score", "pipedec_text"):
        assert served in str(refusal.value)


def test_a_blank_input_is_called_blank():
    with pytest.raises(RefusalError, match="blank"):
        DecisionsExchange(b'{"model": "m", "input": " ", "questions": []}')


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"input": " "}, "input"),
        ({"input": [{"role": "user", "content": []}]}, "input"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].type",
        ),
        ({"input": [{"role": "assistant", "content": "a"}]}, "input"),
        ({"stream": True}, "stream"),
        ({"model": None}, "model"),
    ],
)
def test_an_input_that_is_no_text_is_refused_by_name(more, param):
    body = {"model": "m", "input": "a", "questions": ASKED} | more
    with pytest.raises(RefusalError) as refusal:
        DecisionsExchange(json.dumps(body).encode())
    assert (refusal.value.status, refusal.value.param) == (400, param)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"state": ""}, "state"),
        ({"state": 3}, "state"),
        ({"questions": {}}, "questions"),
        ({"questions": {"": NAMED["cheap"]}}, "questions."),
        (
            {"questions": {"a": {"type": "choice", "criteria": ["a", "b"]}}},
            "questions.a.criteria",
        ),
        (
            {"questions": {"a": {"type": "score", "criteria": {"a": "b"}}}},
            "questions.a.criteria",
        ),
        ({"questions": {"a": {"type": "choice"}}}, "questions.a.criteria"),
        (
            {"questions": {"a": {"type": "noul", "criteria": ["x"]}}},
            "questions.a.criteria",
        ),
        ({"questions": {"a": {"type": "predicate"}}}, "questions.a.type"),
        ({"questions": {"a": {"type": "noul", "weight": 3}}}, "questions.a.weight"),
        ({"questions": {" ": {"type": "choice"}}}, "questions. "),
        ({"input": "a"}, "input"),
    ],
)
def test_system_one_refuses_by_name(more, param):
    body = {"model": "m", "state": "a", "questions": NAMED} | more
    with pytest.raises(RefusalError) as refusal:
        SystemOneExchange(json.dumps(body).encode())
    assert (refusal.value.status, refusal.value.param) == (400, param)


def test_a_single_choice_is_told_the_limit_of_this_path():
    body = {"model": "m", "input": "a", "questions": [CHOICE | values("a")]}
    with pytest.raises(RefusalError, match="has 1 answer; give 2 to 255"):
        DecisionsExchange(json.dumps(body).encode())


def test_a_model_that_was_trained_for_texts_answers_no_questions(pipelined):  # noqa: F811
    with pytest.raises(openai.BadRequestError) as error:
        pipelined.client.decisions.create(
            model="pipelined", input="a", questions=ASKED[:1]
        )
    assert error.value.param == "questions"
