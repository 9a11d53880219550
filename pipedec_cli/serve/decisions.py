"""The shapes of ``/v1/decisions`` and ``/v1/systemone``: typed questions about a text, with a probability for every answer.

A question of the type ``pipedec_text`` asks for a text beside them.
"""

import json
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Generated
from pipedec_cli.decoding.decisions import Decision, decisions_of
from pipedec_cli.objects.questions import (
    NO,
    YES,
    Choice,
    Option,
    Predicate,
    Question,
    Score,
    Text,
    check_answers,
    check_questions,
)
from pipedec_cli.serve import body as bodies
from pipedec_cli.serve.answers import Exchange
from pipedec_cli.serve.body import RefusalError, Roles, text_in
from pipedec_cli.serve.service import Request
from pipedec_cli.serve.settings import MAX_QUESTIONS

_MOST_CHOICES: Final = 255
#: Under which names the types have their answers.
_ANSWERS: Final = {"choice": "choices", "score": "levels"}
#: What the criteria of a noul call its answers, and what the model reads.
_SAID: Final = {"true": YES, "false": NO}
_COUNT: Final = Meta(min_length=1, max_length=MAX_QUESTIONS)


class _TextPart(Struct, tag_field="type", tag="input_text"):
    text: str


class _AnswerPart(Struct, tag_field="type", tag="output_text"):
    text: str


class _JsonPart(Struct, tag_field="type", tag="input_json"):
    data: dict[str, Any] | list[dict[str, Any]]

    @property
    def text(self) -> str:
        """The data as JSON."""
        return _written(self.data)


_Parts = str | list[_TextPart | _AnswerPart | _JsonPart]


class _Message(Struct):
    role: Roles
    content: _Parts
    type: Literal["message"] = "message"


class _Choice(Struct, forbid_unknown_fields=True):
    value: str | bool
    description: str = ""


class _Level(Struct, forbid_unknown_fields=True):
    label: str
    description: str = ""


class _Asked(Struct, forbid_unknown_fields=True):
    """A question of ``/v1/decisions``."""

    type: Literal["predicate", "choice", "score", "pipedec_text"]
    instructions: _Parts
    name: str | None = None
    choices: list[_Choice] = []
    levels: list[_Level] = []
    grounded: bool = True


class _Named(Struct, forbid_unknown_fields=True):
    """A question of ``/v1/systemone``: of its answers by their names, or of levels."""

    type: Literal["noul", "choice", "score", "pipedec_text"]
    instructions: Any = ""
    criteria: dict[str, Any] | list[Any] | None = None
    grounded: bool = True


class _Decisions(Struct):
    model: str
    input: bodies.Text | Annotated[list[_Message], Meta(min_length=1, max_length=64)]
    questions: Annotated[list[_Asked], _COUNT]


class _SystemOne(Struct):
    model: str
    state: str | dict[str, Any] | list[Any]
    questions: Annotated[dict[str, Any], _COUNT]  # `_Named`, each read by itself


class DecisionsExchange(Exchange):
    """A request of ``/v1/decisions``, and its answer."""

    def __init__(self, data: bytes) -> None:
        """Read a body. A `RefusalError` names the parameter that is at fault."""
        body, warnings = bodies.read(bodies.parameters(data), _Decisions)
        earlier, source = bodies.dialogue(body.input, "input")
        self.model = body.model
        self.asked = body.questions
        _refuse_equal_names(self.asked)
        questions = []
        for number, asked in enumerate(self.asked):
            place = f"questions[{number}]"
            questions.append(_question(asked, place, place))
        self.request = Request(
            source, earlier, questions=tuple(questions), warnings=warnings
        )

    def whole(self, end: Generated) -> dict[str, Any]:
        """The answers in the order of the questions."""
        answers = self.answers(end)
        return {
            "model": self.model,
            "answers": answers,
            "usage": self.usage(end),
            **self.own,
        }

    def answers(self, end: Generated) -> list[dict[str, Any]]:
        """The answers in the shapes of ``/v1/decisions``."""
        self.warn(end)
        decisions = decisions_of(self.request.decoder, end, self.request.source)
        return [*map(_answer, self.asked, decisions)]


class SystemOneExchange(DecisionsExchange):
    """A request of ``/v1/systemone``, whose questions and answers have names."""

    def __init__(self, data: bytes) -> None:
        """Read a body. A `RefusalError` names the parameter that is at fault."""
        body, warnings = bodies.read(bodies.parameters(data), _SystemOne)
        _, source = bodies.turn_of("user", _written(body.state), "state")
        self.model = body.model
        self.asked = []
        questions = []
        for name, sent in body.questions.items():
            place = f"questions.{name}"
            named = bodies.fitted(sent, _Named, place)
            asked = _asked(named, name, f"{place}.criteria")
            self.asked.append(asked)
            questions.append(_question(asked, name, place, "criteria"))
        self.request = Request(source, questions=tuple(questions), warnings=warnings)

    def whole(self, end: Generated) -> dict[str, Any]:
        """The answers by the names of the questions."""
        answers = {answer.pop("name"): _renamed(answer) for answer in self.answers(end)}
        counts = self.usage(end)
        usage = {name: counts[name] for name in ("input_tokens", "output_tokens")}
        return {"model": self.model, "answers": answers, "usage": usage, **self.own}


def _refuse_equal_names(questions: list[_Asked]) -> None:
    """Raise a `RefusalError` if two questions have one name: their answers could not be told apart."""
    names = set[str]()
    for number, question in enumerate(questions):
        if question.name in names:
            place = f"questions[{number}].name"
            what = f"{place}: another question has the name {question.name[:80]!r}"
            raise RefusalError(400, f"{what}; give it one of its own", place)
        if question.name:
            names.add(question.name)


def _asked(named: _Named, name: str, place: str) -> _Asked:
    """A question of ``/v1/systemone`` in the shape of the other API. A `RefusalError` if its criteria are not of its type."""
    words = [_written(named.instructions)]
    asked = _Asked("predicate", words[0], name)
    if named.type != "noul":
        asked.type = named.type
    asked.grounded = named.grounded
    criteria = named.criteria
    if named.type == "choice" and isinstance(criteria, dict):
        for label, meaning in criteria.items():
            asked.choices.append(_Choice(label, _written(meaning)))
    elif named.type == "score" and isinstance(criteria, list):
        asked.levels = [_Level(_written(level)) for level in criteria]
    elif named.type == "noul" and isinstance(criteria, dict):
        for label, meaning in criteria.items():
            words.append(f"{_SAID.get(label, label)}: {_written(meaning)}")
        asked.instructions = "\n".join(words)
    elif criteria:
        what = f"{place}: these criteria are not for the type {named.type}"
        todo = "send an object for a choice or a noul, and a list for a score"
        raise RefusalError(400, f"{what}; {todo}", place)
    return asked


def _question(asked: _Asked, name: str, place: str, where: str = "") -> Question:
    """A question under a name of its own. A `RefusalError` if it cannot be asked.

    Its answers stand in the parameter `where`, by default in that of its type.
    """
    usual = _ANSWERS.get(asked.type, "")
    for of_type, answers in _ANSWERS.items():
        if answers != usual and getattr(asked, answers):
            there = f"{place}.{answers}"
            what = f"{there}: only the type {of_type} has these; leave them out"
            raise RefusalError(400, what, there)
    words = text_in(asked.instructions)
    options = []
    for choice in asked.choices:
        options.append(Option(_written(choice.value), choice.description))
    for level in asked.levels:
        options.append(Option(level.label, level.description))
    question: Question
    try:
        if asked.type == "choice":
            check_answers(name, options, _MOST_CHOICES)
            question = Choice(name, words, tuple(options))
        elif asked.type == "score":
            question = Score(name, words, tuple(options))
        elif asked.type == "predicate":
            question = Predicate(name, words)
        else:
            question = Text(name, words, grounded=asked.grounded)
        check_questions([question])
    except UserError as error:
        if usual and name.strip():
            place = f"{place}.{where or usual}"
        raise RefusalError(400, f"{place}: {error.what}; {error.todo}", place) from None
    return question


def _answer(asked: _Asked, decision: Decision) -> dict[str, Any]:
    """An answer in the shape of ``/v1/decisions``."""
    answer: dict[str, Any] = {"type": asked.type, "name": asked.name}
    if asked.type == "predicate":
        return answer | {"probability": decision.value}
    answer["confidence"] = decision.confidence
    if asked.type == "pipedec_text":
        return answer | {"text": decision.value, "spans": decision.spans}
    answer[asked.type] = decision.value
    answer["probabilities"] = told = []
    for number, (label, share) in enumerate(decision.probabilities.items(), start=1):
        if asked.type == "score":
            told.append({"value": number, "label": label, "probability": share})
            continue
        value = asked.choices[number - 1].value
        told.append({"value": value, "probability": share})
        if label == decision.value:
            answer["choice"] = value
    return answer


def _renamed(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer in the shape of ``/v1/systemone``, where levels are counted from 0."""
    told = answer.get("probabilities", ())
    if answer["type"] == "predicate":
        return {"type": "noul", "noul": answer["probability"]}
    if answer["type"] == "choice":
        by_name = {each["value"]: each["probability"] for each in told}
        return answer | {"probabilities": by_name}
    if answer["type"] == "score":
        numbers = [str(number) for number in range(len(told))]
        labels = [each["label"] for each in told]
        shares = [each["probability"] for each in told]
        answer["score"] -= 1
        answer["legend"] = dict(zip(numbers, labels, strict=True))
        answer["probabilities"] = dict(zip(numbers, shares, strict=True))
    return answer


def _written(value: Any) -> str:
    """A text as it is, and anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
