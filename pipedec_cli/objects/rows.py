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
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import takewhile
from typing import Any, Final, NamedTuple

from msgspec import to_builtins

from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.fields import (
    Field,
    Keys,
    any_item,
    leaves,
    path_name,
    text_of,
    value_texts,
)
from pipedec_cli.data.records import Record, Segmentation
from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings
from pipedec_cli.model.choice import Choice
from pipedec_cli.model.text import (
    QUESTION,
    SOURCE,
    Prompt,
    TextCodec,
    prompt_around,
    special_names,
)
from pipedec_cli.objects.asked import (
    NONE,
    Asked,
    asked_of,
    names_in,
    numbered,
    sample_of,
    shown,
)
from pipedec_cli.objects.candidates import (
    Known,
    Reading,
    as_it_stands,
    as_number,
    learnt_reading,
)
from pipedec_cli.objects.checking import Check
from pipedec_cli.objects.codec import Answered, FieldCodec, RowRule
from pipedec_cli.objects.grammar import is_free
from pipedec_cli.objects.tree import Part, tree_of
from pipedec_cli.pipeline.answers import Answer
from pipedec_cli.pipeline.attention import APART
from pipedec_cli.pipeline.grid import Grid, Limits, Method, Opening
from pipedec_cli.pipeline.schedule import Subsequence, Together

#: The most rows of an object.
MOST_ROWS: Final = 5_000
#: The most texts of rows whose tokens are kept: as many as a schema may have choices.
_MOST_KEPT: Final = 20_000
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
    questions: tuple[str, ...] = ()
    shots: tuple[Record, ...] = ()
    schema: Any = (
        None  # the JSON Schema that has these keys, if there is one, and its place
    )
    where: str = "the schema"
    warn: Callable[[str], None] = log.warning  # takes what cannot be checked
    of_class: Check | None = None  # what objects violate in a user's class

    @property
    def whole(self) -> Part:
        """The tree with the questions behind its keys."""
        if not self.questions:
            return self.tree
        if self.tree.shape != "object":
            todo = "ask in a second run"
            raise UserError(
                "a question stands beside keys, and the schema has none that it always asks for",
                todo=todo,
            )
        asked = {
            question: Part(Field(question, path=(question,)))
            for question in self.questions
        }
        return dataclasses.replace(self.tree, parts={**self.tree.parts, **asked})


Rules = Mapping[Part, RowRule]


class Placed(NamedTuple):
    """What a row asks for, and how it is answered."""

    asked: Asked
    rule: RowRule


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
        """See `blind_decoder`."""
        self.grounded = grounded
        self.rows = rows
        tree = rows.whole
        #: What the rows that start at once ask for, in the order of the schema.
        self.asked = [*asked_of(Asked(tree))]
        #: For each of these the least confidence of a value, from `calibrate`.
        self.thresholds: tuple[float, ...] = ()
        self._has_names = any(
            part.shape in ("list", "map") for part in rows.tree.inner()
        )
        tokenizer = checkpoint.tokenizer
        self.chat = (
            not rows.shots and bool(tokenizer.chat_template) if chat is None else chat
        )
        if rows.questions and not self.chat:
            todo = (
                "leave --shots and --no-chat out, and take a model with a chat template"
            )
            raise UserError("a free question is a turn of a chat", todo=todo)
        checkpoint.end_as_usual(chat=self.chat)
        fields = tuple(tree.values())
        segmentation = Segmentation("field", (), " ", fields=fields)
        settings = MethodSettings(
            "sequential", "together", segmentation, time_max=self._longest
        )
        self.checkpoint = dataclasses.replace(
            checkpoint, settings=settings, segmenter=None
        )
        self.text = copy.copy(text)
        self.text.eos = self.checkpoint.eos
        self.fields = FieldCodec(self.text, fields, tree)
        self._parts = [part for part in tree.inner() if part.shape != "object"]
        self._learnt = self._learn_readings()
        #: The values of keys that have few in many right answers, from `calibrate`.
        self.choices: dict[Part, tuple[str, ...]] = {}
        usual = (
            (KEYS_PROMPT if rows.tree.parts else ASK_PROMPT)
            if self.chat
            else SHOTS_PROMPT
        )
        self._read(template or usual)

    @property
    def _longest(self) -> int:
        """The most tokens of a row, by default."""
        return LIST_MAX if self._has_names else VALUE_MAX

    def _learn_readings(self) -> dict[Part, Reading]:
        """What the strings are read as whose values in the examples are all dates, prices or whole lines, say."""
        examples = dict[Keys, list[tuple[str, str]]]()
        for shot in self.rows.shots:
            for place, value in leaves(shot.target_fields or {}):
                for item in value if isinstance(value, list) else [value]:
                    if text := text_of(item):
                        examples.setdefault(any_item(place), []).append(
                            (text, shot.source)
                        )
        readings = dict[Part, Reading]()
        for part in self._parts:
            if part.shape != "value" or part.field.scalars or not is_free(part.field):
                continue
            reading = learnt_reading(examples.get(part.field.keys, ()))
            if reading:
                readings[part] = reading
        return readings

    def _read(self, template: str) -> None:
        """Make the prompt, and the known tokens of each row, which go on behind it.

        Prompt and known tokens together are the tokens of the whole text: the prompt
        ends where those of all rows do not differ yet.
        """
        prompt = prompt_around(self.checkpoint.tokenizer, template, chat=self.chat)
        before, _, rest = prompt.text.partition(SOURCE)
        if rest.count(QUESTION) != 1 or QUESTION in before or rest.startswith(QUESTION):
            what = f"the prompt {template[:60]!r} does not say {QUESTION} once, behind {SOURCE} and apart from it"
            raise UserError(
                what,
                todo="questions differ behind the text, so that the text is read once",
            )
        if not self.chat:
            prompt = dataclasses.replace(prompt, parts=(*prompt.parts[:-1], ""))
        questions = [self._words(asked) for asked in self.asked]
        later = [self._words(row) for asked in self.asked for row in sample_of(asked)]
        is_special = any(
            map(special_names(self.text.tokenizer).search, (*questions, *later))
        )
        #: The prompt without examples. The tokens of all rows are made in one way.
        self._prompt = prompt = dataclasses.replace(prompt, apart=is_special)
        #: The same for each source, choices of a schema and "no value" among them.
        self._whole = lru_cache(maxsize=_MOST_KEPT)(self._tokenized)
        rows = [self._whole(words) for words in (*questions, *later)]
        # In a chat what the questions of all rows begin with is read once, with the
        # text.
        is_apart = len(rows) == 1 or later or not self.chat
        common = _common(*rows, self._whole("a")) if is_apart else _common(*rows)
        self._shared = min(len(common), *(len(row) - 1 for row in rows))
        self.known = [row[self._shared :] for row in rows[: len(questions)]]
        if self.rows.shots:
            behind = template.partition(QUESTION)[2]
            prompt = dataclasses.replace(
                prompt, parts=self._with_shots(prompt.parts, behind)
            )
        first = prompt.filled({QUESTION: questions[0]})
        self.text.prompt = dataclasses.replace(first, known=self.known[0])

    def _tokenized(self, question: str, answer: str = "") -> tuple[int, ...]:
        """The ids of the prompt, a row's question behind it and the answer behind this, for a short source."""
        prompt: Prompt = self._prompt.filled({QUESTION: question})
        if answer:
            prompt = dataclasses.replace(prompt, parts=(*prompt.parts, answer, ""))
        return tuple(self.text.prompted(prompt, "a"))

    def _with_shots(self, parts: Sequence[Any], behind: str) -> tuple[Any, ...]:
        """The parts of a prompt behind the examples; `behind` stands after the answers of an example."""
        before, source, between, question, _ = parts
        printed = [before]
        for shot in self.rows.shots:
            printed += [shot.source, between, self._answer(shot), behind + before]
        return (*printed, source, between, question, "")

    def _is_question(self, part: Part) -> bool:
        return part.field.path[:1] in [(question,) for question in self.rows.questions]

    def _words(self, asked: Asked) -> str:
        """What a row begins with."""
        if self._is_question(asked.part):
            return asked.part.field.name
        return asked.question() if self.chat else asked.opening()

    def _answer(self, shot: Record) -> str:
        """The lines of an example's keys. Values stand there as the example's source has them."""
        target = shot.target_fields or {}
        fields = {field.keys: field for field in self.rows.tree.values()}
        value_texts(target, [*fields.values()], shot.where)
        values = dict[Keys, str]()
        for place, value in leaves(target):
            field = fields.get(any_item(place), Field(""))
            values[place] = _one_line(as_it_stands(field, value, shot.source))
        lines = list[str]()
        for asked in self.asked:
            for opening, text in shown(asked, values):
                lines.append(f"{opening} {text or NONE}")
        return "\n".join(lines)

    @property
    def described(self) -> dict[str, Any]:
        """The rows for a manifest: their number, and a hash of what the model reads but for the sources."""
        read = [
            self.text.prompt and self.text.prompt.parts,
            self.known,
            [*self.choices.values()],
        ]
        fields = to_builtins([part.field for part in self._parts])
        digest = hashlib.sha256(json.dumps([read, fields]).encode()).hexdigest()
        made = {
            "count": len(self.known),
            "shots": len(self.rows.shots),
            "sha256": digest,
        }
        return made | ({"thresholds": self.thresholds} if self.thresholds else {})

    @cached_property
    def ends(self) -> frozenset[int]:
        """The tokens that end a row as <eos> does: outside a chat those with a line break."""
        pieces = {} if self.chat else self.checkpoint.tokenizer.get_vocab()
        breaks = (
            id_ for piece, id_ in pieces.items() if re.search("\n|Ċ|^<0x0A>$", piece)
        )
        return frozenset(id_ for id_ in breaks if "\n" in self.text.written([id_]))

    @cached_property
    def end(self) -> int:
        """The token that ends an answer: outside a chat that of a line break."""
        return self.text.eos if self.chat else self.text.ids(["a\n"])[0][-1]

    def method(self, choice: Choice) -> Method:
        """All rows together, at most time_max tokens each. Raises a UserError for a choice that does not apply."""
        choice.refuse(self.checkpoint)
        time_max = choice.time_max or self._longest
        if time_max + max(map(len, self.known)) >= APART // 2:
            raise UserError(
                f"a row has at most {APART // 2} tokens", todo="give a smaller time_max"
            )
        eos = self.checkpoint.eos
        made = Method(
            Together(),
            eos,
            eos,
            limits=Limits(time_max, MOST_ROWS, choice.max_tokens),
            ends=self.ends.union(self.checkpoint.ends),
            confident=bool(self.thresholds) or self.grounded,
            of_source=self._of_source,
            blind=True,
        )
        openings = list[Opening]()
        for asked, known in zip(self.asked, self.known, strict=True):
            openings.append(
                Opening(known, place=Placed(asked, RowRule()), label=asked.label)
            )
        return dataclasses.replace(made, openings=tuple(openings))

    def _of_source(self, method: Method, source: str) -> Method:
        """The method for a source: with the answers that are known, and free values that are parts of it."""
        rules = self._rules(source)
        thresholds = self.thresholds or [None] * len(self.asked)
        openings = list[Opening]()
        for asked, known, least in zip(self.asked, self.known, thresholds, strict=True):
            openings.append(self._opening(asked, known, source, rules, least))
        return dataclasses.replace(method, openings=tuple(openings), source=source)

    def _opening(
        self,
        asked: Asked,
        known: tuple[int, ...],
        source: str,
        rules: Rules,
        least: float | None = None,
    ) -> Opening:
        """How a row begins, which answers are known, and which rows it opens."""
        rule = rules[asked.part]
        opens = (
            None
            if asked.part.shape == "value"
            else partial(self._opened, source, rules)
        )
        opening = Opening(
            known, rule.allowed, Placed(asked, rule), asked.label, rule.end, opens
        )
        if self._is_question(asked.part):
            return opening
        answers = [*(rule.known or ()), Known(NONE, "")]
        opening = self._with_answers(
            opening, self._words(asked), answers, written=rule.known is None
        )
        return dataclasses.replace(opening, least=least, must=asked.part.field.must)

    def _with_answers(
        self, opening: Opening, words: str, answers: Sequence[Known], *, written: bool
    ) -> Opening:
        """The opening with the tokens of known answers: those of the whole row, cut where its answers begin to differ."""
        space = "" if self.chat else " "
        rows = [
            self._whole(words, space + answer.text)[self._shared :]
            for answer in answers
        ]
        known = opening.known
        begin = len(_common(known, *rows))
        if written and begin < len(
            known
        ):  # a token reaches over the end of the question
            rows = [
                (*known, *self.text.ids([space + answer.text])[0]) for answer in answers
            ]
            begin = len(known)
        scored = list[Answer]()
        for answer, row in zip(answers, rows, strict=True):
            scored.append(Answer((*row[begin:], self.end), answer.means))
        return dataclasses.replace(
            opening, known=known[:begin], answers=tuple(scored), written=written
        )

    def _rules(self, source: str) -> Rules:
        """How the rows of each part are answered for a source."""
        return {part: self._rule(part, source) for part in self._parts}

    def _rule(self, part: Part, source: str) -> RowRule:
        """How the rows of a part are answered for a source."""
        if self._is_question(part):
            return RowRule()
        if part in self.choices:
            return RowRule(
                tuple(Known(choice, choice) for choice in self.choices[part])
            )
        learnt = self._learnt.get(part)
        return self.fields.rule(
            part.field, self.end, source, learnt, grounded=self.grounded
        )

    def _opened(
        self, source: str, rules: Rules, opening: Opening, row: Subsequence
    ) -> Sequence[Opening]:
        """The rows of the items, entries or alternative that a row has named."""
        openings = list[Opening]()
        for asked in self._named(opening, row, source):
            known = self._whole(self._words(asked))[self._shared :]
            openings.append(self._opening(asked, known, source, rules))
        return openings

    def _named(
        self, opening: Opening, row: Subsequence, source: str
    ) -> Iterable[Asked]:
        """What the rows ask for that a row opens."""
        asked: Asked = opening.place.asked
        text = self._answer_text(opening, row, source) or ""
        if asked.part.shape == "choice":
            return asked.chosen(text)
        names = names_in(text)
        if asked.part.shape == "map":
            return asked.items(
                numbered([(name, name) for name in dict.fromkeys(names)])
            )
        return asked.items(numbered(enumerate(names, start=1)))

    def answers(self, grid: Grid) -> Answered:
        """See `Answers`; "" for no value. An answer to a question is kept as far as it was written.

        The names of all items of a list have one row.
        """
        answered = Answered()
        source = grid.method.source
        for opening, row in zip(grid.openings, grid.subsequences, strict=True):
            asked = opening.place.asked
            text = self._answer_text(opening, row, source)
            answered.rows[asked.at] = row
            answered.texts[asked.at] = text
            if opening.must and (opening.lacks(row) or not text):
                answered.missing[path_name(asked.place)] = float(
                    f"{opening.absence(row):.4g}"
                )
            if asked.part.shape == "list" and asked.part.name_key:
                for number, name in enumerate(names_in(text or ""), start=1):
                    answered.rows[asked.named(number)] = row
                    answered.texts[asked.named(number)] = name
        return answered

    def _answer_text(
        self, opening: Opening, row: Subsequence, source: str
    ) -> str | None:
        """The text of a row's value; "" for no value, and None if it was cut."""
        placed: Placed = opening.place
        asked, rule = placed
        field = asked.part.field
        if opening.chooses:
            return opening.text(row) if row.ended else None
        if opening.lacks(row) and not opening.must:
            return ""
        text = self._written(row)
        is_whole = row.ended or row.best[1] >= 0
        if self._is_question(asked.part):
            return (
                text if is_whole else text.rstrip("\ufffd").rstrip()
            )  # it may stop within a character
        if field.kind == "list":
            items = (
                text if is_whole else text.rpartition("|")[0]
            )  # the last item was cut
            return rule.list_text(names_in(items), source)
        if not is_whole:
            return None
        return as_number(field, text)

    def _written(self, row: Subsequence) -> str:
        """The text that a row has written, up to its best end."""
        if row.best[1] >= 0 and row.value_tokens:
            return self.text.decode(row.value_tokens)
        end = [
            token for token in row.tokens[-1:] if token in self.ends
        ]  # it may begin with a full stop
        return self.text.decode([*row.text_tokens, *end])


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _common(*rows: Sequence[int]) -> list[int]:
    """What all rows begin with."""
    return [
        tokens[0]
        for tokens in takewhile(
            lambda tokens: len({*tokens}) == 1, zip(*rows, strict=False)
        )
    ]
