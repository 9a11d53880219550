"""Typed questions about a text: in which words they are asked, and which answers they may have."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, NamedTuple

from pipedec_cli.data.errors import UserError, many
from pipedec_cli.data.fields import same_word
from pipedec_cli.objects.asked import named_choices

Kind = Literal["predicate", "choice", "score", "text"]
YES: Final = "yes"
NO: Final = "no"
#: The most answers of a choice, and the most levels of a score.
MOST_OPTIONS: Final = 10_000
MOST_LEVELS: Final = 10
#: The most characters of an answer.
_LONGEST: Final = 2_000


class Option(NamedTuple):
    """An answer that a question may have, and what it means."""

    label: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a text. Its name stands for it where there are no `instructions`."""

    name: str
    instructions: str = ""

    kind: ClassVar[Kind]

    def __post_init__(self) -> None:
        """Refuse a name or instructions that are no text, by a UserError."""
        for what in (self.name, self.instructions):
            if not isinstance(what, str):
                raise UserError(f"a question has {what!r}", todo="give it a text there")

    @property
    def options(self) -> tuple[Option, ...]:
        """The answers that are known, in the order in which the question names them; () if the answer is written."""
        return ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The texts of these answers."""
        return tuple(option.label for option in self.options)

    @property
    def words(self) -> str:
        """What the model is asked."""
        return self.instructions or self.name


@dataclass(frozen=True, slots=True)
class Predicate(Question):
    """Whether something holds. The answer is the probability of yes."""

    kind: ClassVar[Kind] = "predicate"

    @property
    def options(self) -> tuple[Option, ...]:
        """Yes and no."""
        return (Option(YES), Option(NO))

    @property
    def words(self) -> str:
        """What the model is asked."""
        return f"{self.instructions or self.name} Answer {YES} or {NO}."


@dataclass(frozen=True, slots=True)
class Choice(Question):
    """Which of some answers is right. A UserError if some are empty, or read alike."""

    choices: Sequence[str | Option] = ()

    kind: ClassVar[Kind] = "choice"

    def __post_init__(self) -> None:
        Question.__post_init__(self)
        check_answers(self.name, self.choices, MOST_OPTIONS)

    @property
    def options(self) -> tuple[Option, ...]:
        """The choices in their order."""
        return _options(self.choices)

    @property
    def words(self) -> str:
        """What the model is asked."""
        asked = self.instructions or f"What is the {self.name}?"
        return f"{asked} {_listed(self.options, 'One of')}"


@dataclass(frozen=True, slots=True)
class Score(Question):
    """Which level something has. The answer is the mean of the levels' numbers, from 1, by their probabilities."""

    levels: Sequence[str | Option] = ()

    kind: ClassVar[Kind] = "score"

    def __post_init__(self) -> None:
        Question.__post_init__(self)
        check_answers(self.name, self.levels, MOST_LEVELS)

    @property
    def options(self) -> tuple[Option, ...]:
        """The levels, the lowest first."""
        return _options(self.levels)

    @property
    def words(self) -> str:
        """What the model is asked."""
        asked = self.instructions or f"How high is the {self.name}?"
        return f"{asked} {_listed(self.options, 'From the lowest to the highest')}"


@dataclass(frozen=True, slots=True)
class Text(Question):
    """A question whose answer is written. If it is `grounded`, its answer is a part of the text, or there is none; else the model words it."""

    grounded: bool = True

    kind: ClassVar[Kind] = "text"

    @property
    def words(self) -> str:
        """What the model is asked."""
        asked = self.instructions or self.name
        if not self.grounded:
            return asked
        return (
            f"{asked} Answer in the words of the text, or none if it does not say it."
        )


def _options(given: Sequence[str | Option]) -> tuple[Option, ...]:
    """Labels as options."""
    options = []
    for option in given:
        options.append(Option(option) if isinstance(option, str) else option)
    return tuple(options)


def _listed(options: Sequence[Option], lead: str) -> str:
    """What a question says of its answers. Of many it names some short ones, evenly spread."""
    named = named_choices([option.label for option in options])
    end = "." if len(named) == len(options) else ", …"
    meanings = {option.label: option.description for option in options}
    if not any(meanings[label] for label in named):
        return f"{lead}: {', '.join(named)}{end}"
    lines = []
    for label in named:
        meaning = meanings[label]
        lines.append(f"{label} ({meaning})" if meaning else label)
    return f"{lead}:\n" + "\n".join(lines) + end.removeprefix(".")


def _check_types(name: str, given: object) -> None:
    """Raise a UserError unless the answers of a question are a list of texts or `Option`s."""
    where = f"the question {name!r}"
    todo = "give a list of texts or of Option"
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise UserError(f"its answers are {given!r}", where=where, todo=todo)
    for answer in given:
        label = answer.label if isinstance(answer, Option) else answer
        if not isinstance(label, str):
            raise UserError(f"an answer is {answer!r}", where=where, todo=todo)


def check_answers(name: str, given: Sequence[str | Option], most: int) -> None:
    """Raise a UserError unless there are two answers or more, not too many, each with a text of its own."""
    _check_types(name, given)
    options = _options(given)
    where = f"the question {name!r}"
    if not 2 <= len(options) <= most:
        what = f"has {many(len(options), 'answer')}"
        raise UserError(what, where=where, todo=f"give 2 to {most:,}")
    read: dict[str, str] = {}
    for number, option in enumerate(options, start=1):
        label = option.label
        form = same_word(label)
        if not form:
            what = f"answer {number} is empty"
            raise UserError(what, where=where, todo="give it a text")
        if form in read:
            what = f"the answers {read[form]!r} and {label!r} read alike"
            raise UserError(what, where=where, todo="leave one of them out")
        if len(label) > _LONGEST:
            what = f"answer {number} has {len(label):,} characters"
            raise UserError(what, where=where, todo=f"give at most {_LONGEST:,}")
        read[form] = label


def check_questions(questions: Iterable[Question]) -> tuple[Question, ...]:
    """The questions; a UserError if there are none, or one has no name, or that of another."""
    checked = tuple(questions)
    if not checked:
        raise UserError("there is no question", todo="ask one at least")
    names = set[str]()
    for number, question in enumerate(checked, start=1):
        where = f"question {number}"
        if not question.name.strip():
            raise UserError("has no name", where=where, todo="give it one")
        if question.name in names:
            what = f"has the name {question.name!r} of another question"
            raise UserError(what, where=where, todo="give it one of its own")
        names.add(question.name)
    return checked
