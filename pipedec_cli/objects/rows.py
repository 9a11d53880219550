"""Blind rows: a decoder-only model that was not trained for fields answers a question in each row, all at once.

Each row sees the prompt and itself alone, so it is what the model writes if only this
row follows the prompt. In a chat a row asks for one key, or is a question of the user.
Else it is the line of a key behind examples, and a line break ends it. For a list of
objects a row asks for the names of all items. When it has ended, rows for their other
keys start.

Where the answers of a row are known, they are scored as a whole and the best one is
taken: choices of the schema, and numbers and dates of the source. All other rows write
their answer. In every row "no value" is an answer that is scored.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

from msgspec import to_builtins

from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.fields import (
    Field,
    RowAddress,
    any_item,
    leaves,
    text_of,
)
from pipedec_cli.data.records import Record, Segmentation
from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings
from pipedec_cli.model.choice import Choice
from pipedec_cli.model.text import TextCodec
from pipedec_cli.objects.asked import (
    NONE,
    Asked,
    asked_of,
    names_in,
    numbered,
    sample_of,
)
from pipedec_cli.objects.candidates import (
    Known,
    Reading,
    as_number,
    is_choice,
    learnt_reading,
)
from pipedec_cli.objects.checking import Check
from pipedec_cli.objects.codec import Answered, FieldCodec, RowRule
from pipedec_cli.objects.examples import example_text
from pipedec_cli.objects.grammar import is_free
from pipedec_cli.objects.questions import Question, Text
from pipedec_cli.objects.row_prompt import RowPrompt, common_beginning
from pipedec_cli.objects.tree import Part, tree_of
from pipedec_cli.pipeline.answers import Answer
from pipedec_cli.pipeline.attention import APART
from pipedec_cli.pipeline.grid import Grid, Limits, Method, Opening
from pipedec_cli.pipeline.schedule import Subsequence, Together

#: The most rows of an object.
MOST_ROWS: Final = 5_000
#: The default prompts: questions for keys, questions of the user, and lines of keys
#: behind examples.
KEYS_PROMPT: Final = (
    "Text: {source}\n\nAnswer with the value alone, in the words of the text. Answer none if the text does not say it.\n\n"
    "{question}"
)
ASK_PROMPT: Final = "{source}\n\n{question}"
SHOTS_PROMPT: Final = "Text: {source}\n{question}\n\n"
#: The most tokens of a row, its end counted, by default: of a value, or of an answer to
#: a question.
VALUE_MAX: Final = 64
#: The same with lists of objects: of the names of all items and, behind them, of the
#: longest value.
LIST_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Rows:
    """What the rows ask for: the keys of a schema, then questions of the user, whose answers are given as they are.

    With `shots`, records with targets, a row is the line of a key behind these
    examples. Objects are checked against the `schema`.
    """

    tree: Part = field(default_factory=lambda: tree_of(()))
    questions: tuple[Question, ...] = ()
    shots: tuple[Record, ...] = ()
    #: The JSON Schema that has these keys, if there is one, and its place.
    schema: Any = None
    where: str = "the schema"
    warn: Callable[[str], None] = log.warning  # takes what cannot be checked
    of_class: Check | None = None  # what objects violate in a user's class

    @property
    def whole(self) -> Part:
        """The tree with the questions behind its keys."""
        if not self.questions:
            return self.tree
        if self.tree.shape != "object":
            what = "a question stands beside keys, and the schema has none that it always asks for"
            raise UserError(what, todo="ask in a second run")
        parts = dict(self.tree.parts)
        for question in self.questions:
            field = Field(question.name, path=(question.name,), enum=question.labels)
            parts[question.name] = Part(field)
        return replace(self.tree, parts=parts)


class Placed(NamedTuple):
    """What a row asks for, and how it is answered."""

    asked: Asked
    rule: RowRule


@dataclass(frozen=True, slots=True)
class _Given:
    """A source, and how the rows of each part are answered for it."""

    source: str
    rules: Mapping[Part, RowRule]


class BlindPlan:
    """Rows of an ordinary model that see the prompt and themselves alone."""

    pipelined = False

    def __init__(
        self,
        checkpoint: Checkpoint,
        text: TextCodec,
        rows: Rows,
        template: str | None,
        chat: bool | None,
        *,
        grounded: bool = True,
    ) -> None:
        """Prepare a checkpoint to answer rows without training.

        Args:
            checkpoint: The model; its settings become those of these rows.
            text: Its tokenizer's codec, which is copied and gets the prompt.
            rows: What is asked.
            template: The prompt; None for the usual one.
            chat: Whether rows are turns of a chat; None: if the model has a chat
                template and there are no examples.
            grounded: Whether numbers, dates and free values are parts of the source.
        """
        self.grounded = grounded
        self.rows = rows
        tree = rows.whole
        #: What the rows that start at once ask for, in the order of the schema.
        self.asked = [*asked_of(Asked(tree))]
        self._parts = [part for part in tree.inner() if part.shape != "object"]
        #: For each of the rows that start at once the least confidence of a value, from
        #: `calibrate`.
        self.thresholds: tuple[float, ...] = ()
        #: The values of keys that have few in many right answers, from `calibrate`.
        self.choices: dict[Part, tuple[str, ...]] = {}
        #: What the scores of a part's answers are divided by, if it is not 1.
        self.temperatures: dict[Part, float] = {}
        #: The scores of answers behind an empty text, which are subtracted, by the
        #: rows that have these answers.
        self.priors: dict[Asked, Mapping[str, float]] = {}
        self._questions = {question.name: question for question in rows.questions}
        if chat is None:
            chat = _is_asked_in_chat(checkpoint) and not rows.shots
        if not chat:
            _refuse_free(rows)
        self.chat = chat
        checkpoint.end_as_usual(chat=chat)
        names = [part for part in self._parts if part.shape in ("list", "map")]
        #: The most tokens of a row, by default.
        self._longest = LIST_MAX if names else VALUE_MAX
        fields = tuple(tree.values())
        segmentation = Segmentation("field", (), " ", fields=fields)
        settings = MethodSettings(
            "sequential", "together", segmentation, time_max=self._longest
        )
        self.checkpoint = replace(checkpoint, settings=settings, segmenter=None)
        self.text = copy.copy(text)
        self.text.eos = self.checkpoint.eos
        self.fields = FieldCodec(self.text, fields, tree)
        self._learnt = _learnt_readings(self._parts, rows.shots)
        self._make_prompt(template or self._usual_template)

    @property
    def _usual_template(self) -> str:
        if not self.chat:
            return SHOTS_PROMPT
        return KEYS_PROMPT if self.rows.tree.parts else ASK_PROMPT

    def _make_prompt(self, template: str) -> None:
        """Make the prompt, and set it and the known tokens of each row, which go on behind it."""
        first = [self.words(asked) for asked in self.asked]
        later = []
        for asked in self.asked:
            later += [self.words(row) for row in sample_of(asked)]
        choices = [choice for part in self._parts for choice in part.field.enum]
        prompt = RowPrompt(self.text, template, first, later, choices, chat=self.chat)
        self._prompt = prompt
        self.known = [prompt.known(words) for words in first]
        shots = []
        for shot in self.rows.shots:
            shots.append((shot.source, example_text(self.asked, self.rows.tree, shot)))
        self.text.prompt = prompt.with_shots(first[0], shots)

    def _question(self, part: Part) -> Question | None:
        """The user's question that a part stands for."""
        path = part.field.path
        return self._questions.get(str(path[0])) if path else None

    def words(self, asked: Asked) -> str:
        """The words with which a row begins: a question, or outside a chat the line of its key."""
        question = self._question(asked.part)
        if question is not None:
            return question.words if self.chat else f"{question.words}\nAnswer:"
        return asked.question() if self.chat else asked.opening()

    @property
    def described(self) -> dict[str, Any]:
        """The rows for a manifest: their number, and a hash of what the model reads but for the sources."""
        parts = self.text.prompt and self.text.prompt.parts
        read = [parts, self.known, [*self.choices.values()]]
        fields = to_builtins([part.field for part in self._parts])
        digest = hashlib.sha256(json.dumps([read, fields]).encode()).hexdigest()
        count = len(self.known)
        described = {"count": count, "shots": len(self.rows.shots), "sha256": digest}
        if self.thresholds:
            described["thresholds"] = self.thresholds
        if self.temperatures:
            described["temperatures"] = [*self.temperatures.values()]
        return described

    @cached_property
    def ends(self) -> frozenset[int]:
        """The tokens that end a row as <eos> does: outside a chat those with a line break."""
        if self.chat:
            return frozenset()
        pieces = self.checkpoint.tokenizer.get_vocab()
        # A line break is written as itself, as a letter of GPT-2's, or as a byte.
        breaks = re.compile("\n|Ċ|^<0x0A>$")
        likely = [token for piece, token in pieces.items() if breaks.search(piece)]
        return frozenset(
            token for token in likely if "\n" in self.text.written([token])
        )

    @property
    def end(self) -> int:
        """The token that ends an answer: outside a chat that of a line break."""
        return self._prompt.end

    def method(self, choice: Choice) -> Method:
        """How to decode: all rows start at time 0, are blind (see the prompt and themselves alone), and have a length limit.

        `choice` is what the user has asked for: a UserError where it does not apply.
        """
        choice.refuse(self.checkpoint)
        time_max = choice.time_max or self._longest
        longest_known = max(len(known) for known in self.known)
        if time_max + longest_known >= APART // 2:
            what = f"a row has at most {APART // 2} tokens"
            raise UserError(what, todo="give a smaller time_max")
        openings = []
        for asked, known in zip(self.asked, self.known, strict=True):
            placed = Placed(asked, RowRule())
            openings.append(Opening(known, place=placed, label=asked.label))
        eos = self.checkpoint.eos
        return Method(
            Together(),
            eos,
            eos,
            limits=Limits(time_max, MOST_ROWS, choice.max_tokens),
            ends=self.ends.union(self.checkpoint.ends),
            openings=tuple(openings),
            confident=bool(self.thresholds) or self.grounded,
            of_source=self._of_source,
            blind=True,
        )

    def _of_source(self, method: Method, source: str) -> Method:
        """The method for one source: each of its openings says how a row begins, and which answers are known for it.

        What can be answered is looked for in the source, by the rule of each part of the
        schema.
        """
        rules = {part: self._rule(part, source) for part in self._parts}
        in_source = _Given(source, rules)
        openings = []
        for number, asked in enumerate(self.asked):
            least_confidence = self.thresholds[number] if self.thresholds else None
            openings.append(self._opening(asked, in_source, least_confidence))
        return replace(method, openings=tuple(openings), source=source)

    def _rule(self, part: Part, source: str) -> RowRule:
        """How the rows of a part of the schema are answered for a source: with a known answer, or token by token."""
        question = self._question(part)
        if question is not None and _is_free(question):
            return RowRule()
        if part in self.choices:
            known = [Known(choice, choice) for choice in self.choices[part]]
            return RowRule(tuple(known))
        learnt = self._learnt.get(part)
        return self.fields.rule(
            part.field,
            self.end,
            source,
            learnt,
            grounded=self.grounded or question is not None,
        )

    def _opening(
        self, asked: Asked, given: _Given, least: float | None = None
    ) -> Opening:
        """How a row begins for the source that is `given`, which answers are known, and which rows its answer opens.

        `least` is the least confidence of its value, None where it was not calibrated.
        """
        rule = given.rules[asked.part]
        words = self.words(asked)
        known = self._prompt.known(words)
        placed = Placed(asked, rule)
        opening = Opening(known, rule.allowed, placed, asked.label, rule.end)
        if asked.part.shape != "value":
            opening = replace(opening, opens=partial(self._opened, given))
        question = self._question(asked.part)
        if question is not None and _is_free(question):
            return opening
        answers = [*(rule.known or ())]
        if question is None or rule.known is None:
            answers.append(Known(NONE, ""))
        opening = self._with_answers(opening, words, rule, answers)
        temperature = self.temperatures.get(asked.part, 1.0)
        opening = replace(
            opening, least=least, must=asked.must, temperature=temperature
        )
        return self._with_priors(opening, self.priors.get(asked, {}))

    def _with_answers(
        self, opening: Opening, words: str, rule: RowRule, answers: Sequence[Known]
    ) -> Opening:
        """The opening with the tokens of known answers: those of the whole row, cut where its answers begin to differ."""
        rows = [self._prompt.answered(words, answer.text) for answer in answers]
        known = opening.known
        begin = len(common_beginning(known, *rows))
        written = rule.known is None
        if written and begin < len(known):
            # A token reaches over the end of the question.
            rows = [(*known, *self._prompt.alone(NONE))]
            begin = len(known)
        scored = []
        for answer, row in zip(answers, rows, strict=True):
            scored.append(Answer((*row[begin:], self.end), answer.means))
        return replace(
            opening, known=known[:begin], answers=tuple(scored), written=written
        )

    def names_values(self, part: Part) -> bool:
        """Whether a value is one of few that the schema names, or that were learnt."""
        return part in self.choices or is_choice(part.field)

    def _with_priors(self, opening: Opening, priors: Mapping[str, float]) -> Opening:
        """The opening with the scores of answers behind an empty text."""
        if not priors:
            return opening
        answers = [
            answer._replace(prior=priors[answer.text]) for answer in opening.answers
        ]
        return replace(opening, answers=tuple(answers))

    def _opened(
        self, given: _Given, opening: Opening, row: Subsequence
    ) -> list[Opening]:
        """How the rows begin that a finished row opens: those of the items, entries or alternative that it has named."""
        asked: Asked = opening.place.asked
        text = self._answer_text(opening, row, given.source) or ""
        return [self._opening(inner, given) for inner in _named(asked, text)]

    def answers(self, grid: Grid) -> Answered:
        """What the rows of a finished grid say, as texts; "" for no value, None for one that was cut.

        An answer to a question is kept as far as it was written. The row that names all
        items of a list also gives the name of each.
        """
        answered = Answered()
        for opening, row in zip(grid.openings, grid.subsequences, strict=True):
            asked: Asked = opening.place.asked
            text = self._answer_text(opening, row, grid.method.source)
            is_named = self.names_values(asked.part)
            answered.add(asked.at, opening, row, text, is_named=is_named)
            if asked.part.shape == "list" and asked.part.name_key:
                for number, name in enumerate(names_in(text or ""), start=1):
                    at = RowAddress(asked.named(number))
                    answered.rows[at] = row
                    answered.texts[at] = name
        return answered

    def _answer_text(
        self, opening: Opening, row: Subsequence, source: str
    ) -> str | None:
        """The text of a row's value; "" for no value, and None if it was cut."""
        if opening.chooses:
            return opening.text(row) if row.ended else None
        if opening.lacks(row) and not opening.must:
            return ""
        placed: Placed = opening.place
        asked, rule = placed
        text = self._written(row)
        is_whole = row.ended or row.best[1] >= 0  # its most probable end was noted
        if self._question(asked.part) is not None:
            # One that was cut may stop within a character.
            return text if is_whole else text.rstrip("\ufffd").rstrip()
        if asked.part.field.kind == "list":
            if not is_whole:
                text, _, _ = text.rpartition("|")
            return rule.list_text(names_in(text), source)
        return as_number(asked.part.field, text) if is_whole else None

    def _written(self, row: Subsequence) -> str:
        """The text that a row has written, up to its most probable end where ends are noted, else whole."""
        if row.best[1] >= 0 and row.value_tokens:
            return self.text.decode(row.value_tokens)
        # The token of the end may begin with a full stop.
        end = [token for token in row.tokens[-1:] if token in self.ends]
        return self.text.decode([*row.text_tokens, *end])


def _is_asked_in_chat(checkpoint: Checkpoint) -> bool:
    """Whether a model answers in its chat: as it was taught, else if it has a chat."""
    if checkpoint.questions and checkpoint.settings:
        return checkpoint.settings.chat
    return bool(checkpoint.tokenizer.chat_template)


def _refuse_free(rows: Rows) -> None:
    """Raise a UserError if lines of a text would have to answer questions that only a chat answers."""
    for question in rows.questions:
        if rows.shots or _is_free(question):
            todo = (
                "leave --shots and --no-chat out, and take a model with a chat template"
            )
            raise UserError("a free question is a turn of a chat", todo=todo)


def _is_free(question: Question) -> bool:
    """Whether the answer to a question is any text."""
    is_grounded = isinstance(question, Text) and question.grounded
    return not (question.labels or is_grounded)


def _learnt_readings(
    parts: Sequence[Part], shots: Sequence[Record]
) -> dict[Part, Reading]:
    """What the free strings of the schema turn out to be in the examples `shots`: all dates, prices or whole lines, say.

    Parts whose values have nothing in common are left out.
    """
    examples = defaultdict(list)
    for shot in shots:
        for place, value in leaves(shot.target_fields or {}):
            for item in value if isinstance(value, list) else [value]:
                text = text_of(item)
                if text:
                    examples[any_item(place)].append((text, shot.source))
    readings = {}
    for part in parts:
        if part.shape != "value" or part.field.scalars or not is_free(part.field):
            continue
        reading = learnt_reading(examples[part.field.keys])
        if reading:
            readings[part] = reading
    return readings


def _named(asked: Asked, text: str) -> Iterator[Asked]:
    """The rows that a row opens by its answer `text`: of the chosen alternative, or of all items or entries it names."""
    if asked.part.shape == "choice":
        return asked.chosen(text)
    names = names_in(text)
    if asked.part.shape == "map":
        return asked.items(numbered((name, name) for name in dict.fromkeys(names)))
    return asked.items(numbered(enumerate(names, start=1)))
