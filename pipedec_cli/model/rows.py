"""Blind rows: a decoder-only model that was not trained for fields answers a question in each row, all at once.

Each row sees the prompt and itself alone, so it is what the model writes if only this row follows the prompt. In a chat a
row asks for one key, or is a question of the user. Else it is the line of a key behind examples, and a line break ends it.
For a list of objects a row asks for the names of all items. When it has ended, rows for their other keys start.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import takewhile
from typing import Any, Final

from msgspec import to_builtins
from msgspec.structs import replace

from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.fields import Field, Keys, leaves, path_name, text_of, value_texts
from pipedec_cli.data.json_schema import checker
from pipedec_cli.data.records import Record, Segmentation
from pipedec_cli.data.tree import CHOOSING, NAMING, Part, tree_of
from pipedec_cli.model.checkpoint import MethodSettings
from pipedec_cli.model.decoder import Choice, Decoder, ObjectReader
from pipedec_cli.model.fields import FieldCodec
from pipedec_cli.model.grammar import is_free
from pipedec_cli.model.text import QUESTION, SOURCE, prompt_around, special_names
from pipedec_cli.pipeline.attention import APART
from pipedec_cli.pipeline.decode import Finished
from pipedec_cli.pipeline.grid import Allowed, Grid, Limits, Method, Opening, any_token, mask_of
from pipedec_cli.pipeline.schedule import Subsequence, Together

#: The answer that means "no value".
NONE: Final = "none"
_HINTS: Final = {
    "boolean": " Answer true or false.",
    "number": " Answer with a number.",
    "integer": " Answer with a whole number.",
    "list": " Write all of them, with | between them.",
}
#: A question names so many choices at most, in some so many characters. The row is held to all choices.
_NAMED, _NAMED_CHARACTERS = 40, 1_000


def question_of(field: Field) -> str:
    """The question for a key, with its description and choices; of many choices it names some short ones, evenly spread."""
    meaning = f" ({field.description})" if field.description else ""
    short = [choice for choice in field.enum if len(choice) <= _NAMED_CHARACTERS]
    length = sum(map(len, short))
    named = tuple(short[:: 1 + max((len(short) - 1) // _NAMED, length // _NAMED_CHARACTERS)])
    end = "." if named == field.enum else ", …"
    choices = f" One of: {', '.join(named)}{end}" if named else _HINTS.get(field.kind, "")
    return f"What is the {field.name}{meaning}?{choices}"


def is_none(text: str) -> bool:
    """Whether an answer means that there is no value."""
    return text.strip(" .\"'").lower() == NONE


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A row: what it asks for, where its answer belongs, and the item or entry that it is a part of."""

    part: Part
    place: Keys = ()  # of its value
    item: Keys = ()  # the beginning of the place that leads to the item
    of: str = ""  # what the item is called, and those that it stands in
    lines: str = ""  # outside a chat, what stands before the line of the row

    @property
    def name(self) -> str:
        """The path of its value within the item."""
        inner = path_name(self.place[len(self.item) :]) or path_name(self.place[:-1])
        return inner or ("value" if self.place else "object")

    @property
    def at(self) -> Keys:
        """The place of its answer."""
        if self.part.shape == "value":
            return self.place
        return (*self.place, CHOOSING if self.part.shape == "choice" else NAMING)

    @property
    def label(self) -> str:
        """Its name in the live view."""
        return path_name(self.place) or self.name

    def question(self) -> str:
        """The question for the value, for the names of all items, or for the kind of what there is."""
        name = self.name
        if self.part.shape in ("list", "map"):
            within = path_name(self.named(1)[len(self.place) + 1 :]) or "name"
            name = f"{within} of each of the {name}"
        elif self.part.shape == "choice":
            name = f"kind of the {name}"
        return question_of(replace(self.part.field, name=f"{name} of {self.of}" if self.of else name))

    def opening(self) -> str:
        """The line that the answer goes on, and those before."""
        kind = "kind of " if self.part.shape == "choice" else ""
        return f"{self.lines}{kind}{self.label}:"

    def chosen(self, label: str) -> Iterator[Asked]:
        """The rows of the alternative with a label."""
        if part := self.part.parts.get(label):
            yield from asked_of(dataclasses.replace(self, part=part))

    def items(self, names: Iterable[tuple[int | str, str]]) -> Iterator[Asked]:
        """The rows of items and entries: the last key of each and its name, which is known."""
        part = self.part
        for key, name in names:
            at, named = (*self.place, key), self.named(key)
            line = f"{path_name(named)}: {name}\n" if part.shape == "list" else ""
            of = f"{name} of {self.of}" if self.of else name
            rows = asked_of(Asked(part.item, at, at, of, self.lines + line))
            yield from (row for row in rows if row.place != named or not part.name_key)

    def named(self, key: int | str) -> Keys:
        """The place of the name of an item; of the item itself if no key of it is the name."""
        name = self.part.name_key
        return (*self.place, key, *(name.path[len(self.part.field.path) + 1 :] if name else ()))


def asked_of(asked: Asked) -> Iterator[Asked]:
    """The rows that a part starts with: for an object those of all properties."""
    if asked.part.shape != "object":
        yield asked
    else:
        for key, part in asked.part.parts.items():
            yield from asked_of(dataclasses.replace(asked, part=part, place=(*asked.place, key)))


def _sample(asked: Asked) -> Iterator[Asked]:
    """Rows that a row may open: of one item, or of all alternatives."""
    if asked.part.shape == "choice":
        for label in asked.part.parts:
            yield from asked.chosen(label)
    elif asked.part.shape != "value":
        yield from asked.items([(1 if asked.part.shape == "list" else "a", "a")])


def _shown(asked: Asked, values: Mapping[Keys, str]) -> Iterator[tuple[str, str]]:
    """The lines of a row in an example whose object has these texts: each an opening and its answer."""
    part, place, depth = asked.part, asked.place, len(asked.place)
    asked = dataclasses.replace(asked, lines="")
    below = dict.fromkeys(
        at[depth] for at, text in values.items() if text and len(at) > depth and at[:depth] == place
    )
    if part.shape == "value":
        yield asked.opening(), values.get(place, "")
    elif part.shape == "choice":
        label = max(part.parts, key=lambda label: sum(_fit(one, values) for one in asked.chosen(label)))
        there = below or values.get(place)
        yield asked.opening(), label if there else ""
        for one in asked.chosen(label) if there else ():
            yield from _shown(one, values)
    else:
        names = [(key, values.get(asked.named(key), str(key))) for key in below]
        yield asked.opening(), text_of([name for _, name in names if name])
        for key, name in names:
            if part.shape == "list" and name:
                yield f"{path_name(asked.named(key))}:", name
            for one in asked.items([(key, name)]) if name else ():
                yield from _shown(one, values)


def _fit(asked: Asked, values: Mapping[Keys, str]) -> int:
    """1 if the text of a row is a value of it, −1 if it is none, 0 without a text."""
    text = values.get(asked.place, "")
    return (-1 if asked.part.field.parsed(text) is None else 1) if text and asked.part.shape == "value" else 0


def names_in(answer: str) -> list[str]:
    """The names of items in an answer, without doubles."""
    names = Field("", "list").parsed("" if is_none(answer) else answer)
    return [*dict.fromkeys(names)] if isinstance(names, list) else []


def names_once(names: Allowed, decode: Callable[[Sequence[int]], str], end: int) -> Allowed:
    """Allows the names of items, and the end alone where a name has come for the third time.

    A small model that repeats itself would not end; two items may have the same name.
    """

    def allowed(made: Sequence[int]) -> bytes:
        if "|" in decode(made[-1:]):  # a name has come to its end
            *before, last, _ = (name.strip() for name in decode(made).split("|"))
            if last and [*before, last].count(last) > 2:
                return mask_of([end])
        return names(made)

    return allowed


#: The tokens that may follow in the row of each part, and the row's end; see `Opening`.
Held = dict[Part, tuple[Allowed, int]]
#: The most rows of an object.
MOST_ROWS: Final = 5_000
#: The default prompts: questions for keys, questions of the user, and lines of keys behind examples.
KEYS_PROMPT: Final = (
    "Text: {source}\n\nAnswer with the value alone, in the words of the text. Answer none if the text does not say it.\n\n"
    "{question}"
)
ASK_PROMPT: Final = "{source}\n\n{question}"
SHOTS_PROMPT: Final = "Text: {source}\n{question}\n\n"
#: The most tokens of a row, its end counted, by default: of a value, or of an answer to a question.
VALUE_MAX: Final = 64
#: The same with lists of objects: of the names of all items and, behind them, of the longest value.
LIST_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Rows:
    """What the rows ask for: the keys of a schema, then questions of the user, whose answers are given as they are.

    With `shots`, records with targets, a row is the line of a key behind these examples. Objects are checked against the
    `schema`.
    """

    tree: Part = field(default_factory=lambda: tree_of(()))
    questions: tuple[str, ...] = ()
    shots: tuple[Record, ...] = ()
    schema: Any = None  # the JSON Schema that has these keys, if there is one, and its place
    where: str = "the schema"
    warn: Callable[[str], None] = log.warning  # takes what cannot be checked

    @property
    def whole(self) -> Part:
        """The tree with the questions behind its keys."""
        if not self.questions:
            return self.tree
        if self.tree.shape != "object":
            todo = "ask in a second run"
            raise UserError(
                "a question stands beside keys, and the schema has none that it always asks for", todo=todo
            )
        asked = {question: Part(Field(question, path=(question,))) for question in self.questions}
        return dataclasses.replace(self.tree, parts={**self.tree.parts, **asked})


class BlindPlan:
    """Rows of an ordinary model that see the prompt and themselves alone."""

    pipelined = False

    def __init__(
        self, plain: Decoder, rows: Rows, template: str | None, chat: bool | None, *, grounded: bool = True
    ) -> None:
        """See `blind_decoder`."""
        self.grounded = grounded
        name, prompted = plain.checkpoint.name, plain.checkpoint.backbone.prompted
        if not prompted or plain.settings.decoder != "sequential":
            kind = "pipelined decoder" if prompted else plain.checkpoint.backbone.name
            what = f"{name} is a {kind}: only an ordinary decoder-only model answers without training"
            raise UserError(what, todo="leave --schema, --shots and --ask out, or take another --model")
        self.rows = rows
        #: What the rows that start at once ask for, in the order of the schema.
        self.asked = [*asked_of(Asked(tree := rows.whole))]
        self._has_names = any(part.shape in ("list", "map") for part in rows.tree.inner())
        #: For each of these the least confidence of a value, from `calibrate`.
        self.thresholds: tuple[float, ...] = ()
        tokenizer = plain.checkpoint.tokenizer
        self.chat = not rows.shots and bool(tokenizer.chat_template) if chat is None else chat
        if rows.questions and not self.chat:
            todo = "leave --shots and --no-chat out, and take a model with a chat template"
            raise UserError("a free question is a turn of a chat", todo=todo)
        plain.checkpoint.end_as_usual(chat=self.chat)
        fields = tuple(tree.values())
        longest = LIST_MAX if self._has_names else VALUE_MAX
        segmentation = Segmentation("field", (), " ", fields=fields)
        settings = MethodSettings("sequential", "together", segmentation, time_max=longest)
        self.checkpoint = dataclasses.replace(plain.checkpoint, settings=settings, segmenter=None)
        self.text = copy.copy(plain.text)
        self.text.eos = self.checkpoint.eos
        self.fields = FieldCodec(self.text, fields, tree)
        self._parts = [part for part in tree.inner() if part.shape != "object"]
        self._rows = FieldCodec(self.text, [part.field for part in self._parts], tree)
        usual = (KEYS_PROMPT if rows.tree.parts else ASK_PROMPT) if self.chat else SHOTS_PROMPT
        self._read(template or usual)

    def _read(self, template: str) -> None:
        """Make the prompt, and the known tokens of each row, which go on behind it.

        Prompt and known tokens together are the tokens of the whole text: the prompt ends where those of all rows do not
        differ yet.
        """
        prompt = prompt_around(self.checkpoint.tokenizer, template, chat=self.chat)
        before, _, rest = prompt.text.partition(SOURCE)
        if rest.count(QUESTION) != 1 or QUESTION in before or rest.startswith(QUESTION):
            what = f"the prompt {template[:60]!r} does not say {QUESTION} once, behind {SOURCE} and apart from it"
            raise UserError(what, todo="questions differ behind the text, so that the text is read once")
        if not self.chat:
            prompt = dataclasses.replace(prompt, parts=(*prompt.parts[:-1], ""))
        questions = [self._words(one) for one in self.asked]
        later = [self._words(one) for asked in self.asked for one in _sample(asked)]
        is_special = any(map(special_names(self.text.tokenizer).search, (*questions, *later)))
        #: The prompt without examples. The tokens of all rows are made in one way.
        self._prompt = prompt = dataclasses.replace(prompt, apart=is_special)
        rows = [self._whole(words) for words in (*questions, *later)]
        # In a chat what the questions of all rows begin with is read once, with the text.
        is_apart = len(rows) == 1 or later or not self.chat
        common = _common(*rows, self._whole("a")) if is_apart else _common(*rows)
        self._shared = min(len(common), *(len(row) - 1 for row in rows))
        self.known = [tuple(row[self._shared :]) for row in rows[: len(questions)]]
        if self.rows.shots:
            behind = template.partition(QUESTION)[2]
            prompt = dataclasses.replace(prompt, parts=self._with_shots(prompt.parts, behind))
        first = prompt.filled({QUESTION: questions[0]})
        self.text.prompt = dataclasses.replace(first, known=self.known[0])

    def _whole(self, question: str) -> list[int]:
        """The ids of the prompt and a row's question behind it, for a short source."""
        return self.text.prompted(self._prompt.filled({QUESTION: question}), "a")

    def _with_shots(self, parts: Sequence[Any], behind: str) -> tuple[Any, ...]:
        """The parts of a prompt behind the examples; `behind` stands after the answers of an example."""
        before, source, between, question, _ = parts
        shown = [before]
        for shot in self.rows.shots:
            shown += [_one_line(shot.source), between, self._answer(shot), behind + before]
        return (*shown, source, between, question, "")

    def _is_question(self, part: Part) -> bool:
        return part.field.path[:1] in [(question,) for question in self.rows.questions]

    def _words(self, asked: Asked) -> str:
        """What a row begins with."""
        if self._is_question(asked.part):
            return asked.part.field.name
        return asked.question() if self.chat else asked.opening()

    def _answer(self, shot: Record) -> str:
        """The lines of an example's keys."""
        target = shot.target_fields or {}
        value_texts(target, [*self.rows.tree.values()], shot.where)
        values = {place: _one_line(text_of(value)) for place, value in leaves(target)}
        lines = (line for one in self.asked for line in _shown(one, values))
        return "\n".join(f"{opening} {text or NONE}" for opening, text in lines)

    @property
    def described(self) -> dict[str, Any]:
        """The rows for a manifest: their number, and a hash of what the model reads but for the sources."""
        read = [self.text.prompt and self.text.prompt.parts, self.known]
        digest = hashlib.sha256(
            json.dumps([read, to_builtins([part.field for part in self._parts])]).encode()
        ).hexdigest()
        made = {"count": len(self.known), "shots": len(self.rows.shots), "sha256": digest}
        return made | ({"thresholds": self.thresholds} if self.thresholds else {})

    @cached_property
    def ends(self) -> frozenset[int]:
        """The tokens that end a row as <eos> does: outside a chat those with a line break."""
        pieces = {} if self.chat else self.checkpoint.tokenizer.get_vocab()
        breaks = (id_ for piece, id_ in pieces.items() if re.search("\n|Ċ|^<0x0A>$", piece))
        return frozenset(id_ for id_ in breaks if "\n" in self.text.written([id_]))

    def method(self, choice: Choice) -> Method:
        """All rows together, at most time_max tokens each. Raises a UserError for a choice that does not apply."""
        choice.refuse(self.checkpoint)
        time_max = choice.time_max or (LIST_MAX if self._has_names else VALUE_MAX)
        if time_max + max(map(len, self.known)) >= APART:
            raise UserError(f"a row has at most {APART} tokens", todo="give a smaller time_max")
        eos = self.checkpoint.eos
        made = Method(
            Together(),
            eos,
            eos,
            limits=Limits(time_max, MOST_ROWS, choice.max_tokens),
            ends=self.ends,
            confident=bool(self.thresholds) or self.grounded,
            of_source=self._with_rows if self.grounded else None,
        )
        return self._with_rows(made)

    def _with_rows(self, method: Method, source: str | None = None) -> Method:
        """The method with rows whose free values are parts of a source, or any text without a source."""
        held = self._held(source)
        rows = zip(self.asked, self.known, strict=True)
        openings = tuple(self._opening(asked, known, held) for asked, known in rows)
        return dataclasses.replace(method, openings=openings, blind=True)

    def _opening(self, asked: Asked, known: tuple[int, ...], held: Held) -> Opening:
        opens = None if asked.part.shape == "value" else partial(self._opened, asked, held)
        return Opening(known, held[asked.part][0], asked, asked.label, held[asked.part][1], opens)

    def _held(self, source: str | None) -> Held:
        """Which tokens may follow in the row of each part, and its `end`; see `Opening`."""
        # Outside a chat a line break ends the line of a key.
        end = self.text.eos if self.chat else self.text.ids(["a\n"])[0][-1]
        held: Held = {}
        choices = self._rows.held_to(source).allowed_with(NONE, end)
        for part, allowed in zip(self._parts, choices, strict=True):
            ends = end if source is not None and is_free(part.field) else -1
            if self._is_question(part):
                held[part] = any_token, -1
            elif part.shape in ("list", "map"):
                held[part] = names_once(allowed, self.text.decode, end), ends
            else:
                held[part] = allowed, ends
        return held

    def _opened(self, asked: Asked, held: Held, row: Subsequence) -> Sequence[Opening]:
        """The rows of the items, entries or alternative that a row has named."""
        text = self.text.decode(row.value_tokens or row.text_tokens)
        rows = self._named(asked, text)
        return [
            self._opening(one, tuple(self._whole(self._words(one))[self._shared :]), held) for one in rows
        ]

    def _named(self, asked: Asked, text: str) -> Iterable[Asked]:
        if asked.part.shape == "choice":
            return asked.chosen(self.fields.label(asked.part.field, text))
        names = enumerate(names_in(text), start=1)
        return asked.items((number if asked.part.shape == "list" else name, name) for number, name in names)

    def answers(self, grid: Grid) -> tuple[Mapping[Keys, Subsequence], Mapping[Keys, str | None]]:
        """See `Answers`; "" for no value. An answer to a question is kept as far as it was written.

        The names of all items of a list have one row.
        """
        rows, texts = dict[Keys, Subsequence](), dict[Keys, str | None]()
        least = dict(zip((one.at for one in self.asked), self.thresholds, strict=False))
        for asked, row in grid.placed.items():
            text = self._text(row, least.get(asked.at, 0.0), is_key=not self._is_question(asked.part))
            rows[asked.at], texts[asked.at] = row, text
            if asked.part.shape == "list" and asked.part.name_key:
                for number, name in enumerate(names_in(text or ""), start=1):
                    rows[asked.named(number)], texts[asked.named(number)] = row, name
        return rows, texts

    def _text(self, row: Subsequence, least: float, *, is_key: bool) -> str | None:
        """The text of a row; of a key "" for no value, or for one less sure than the `least`, and None if it was cut."""
        end = [token for token in row.tokens[-1:] if token in self.ends]  # it may begin with a full stop
        chosen = row.best[1] >= 0
        text = self.text.decode((chosen and row.value_tokens) or [*row.text_tokens, *end])
        ended = row.ended or chosen
        text = text if ended else text.rstrip("\ufffd").rstrip()  # it may stop within a character
        is_empty = row.value_confidence < least or (is_key and ended and is_none(text))
        return "" if is_empty else text if ended or not is_key else None


def blind_decoder(
    plain: Decoder,
    rows: Rows,
    *,
    template: str | None = None,
    chat: bool | None = None,
    grounded: bool = True,
) -> Decoder:
    """A decoder of objects whose rows are blind, with the weights of `plain`. Raises a UserError if they do not fit.

    `template` is the prompt, with {source} and, behind it, {question}. `chat` puts it into the model's chat template;
    by default it does so if there is a chat template and there are no examples. With `grounded` values that the schema
    leaves free are parts of the source.
    """
    plan = BlindPlan(plain, rows, template, chat, grounded=grounded)
    return plain.sharing(
        checkpoint=plan.checkpoint,
        settings=plan.checkpoint.settings,
        text=plan.text,
        fields=plan.fields,
        plan=plan,
        reader=ObjectReader(plan.fields, plan.answers, check=checker(rows.schema, rows.where, rows.warn)),
        blind=plan,
    )


def calibrate(
    decoder: Decoder, records: Iterable[Record], batch_size: int, advance: Callable[[], None]
) -> None:
    """Fit to records with targets, for each key, the confidence below which a blind row's answer means no value.

    Keys of lists of objects keep all their values. `advance` is called after each record that is answered.
    """
    plan = decoder.blind
    assert plan is not None, "thresholds are for blind rows"
    asked = [one for one in plan.asked if one.part.shape == "value"]
    plan.thresholds = ()
    method = dataclasses.replace(decoder.method(), confident=True)
    found: list[list[tuple[float, bool]]] = [[] for _ in asked]
    wanted = list[Sequence[str]]()

    def sources() -> Iterator[str]:
        for record in records:
            value_texts(target := record.target_fields or {}, [*plan.rows.tree.values()], record.where)
            values = dict(leaves(target))
            wanted.append([text_of(values.get(one.place)) for one in asked])
            yield record.source

    for event in decoder.run(sources(), method, batch_size):
        if isinstance(event, Finished):
            advance()
            rows, texts = plan.answers(event.grid)
            for answers, one, right in zip(found, asked, wanted[event.example], strict=True):
                if texts[one.at] != "":
                    answers.append((rows[one.at].value_confidence, texts[one.at] == right))
    filled = [sum(map(bool, texts)) for texts in zip(*wanted, strict=True)]
    fitted = [best_threshold(*answers) for answers in zip(found, filled, strict=True)]
    least = {one: 0.0 if one.part.field.forced else fit for one, fit in zip(asked, fitted, strict=True)}
    plan.thresholds = tuple(least.get(one, 0.0) for one in plan.asked)


def best_threshold(answers: Sequence[tuple[float, bool]], filled: int) -> float:
    """The least confidence of answers that are kept so that their F1 is the best; 2 keeps none, 0 keeps all.

    Each answer is a confidence and whether the answer is right; `filled` is the number of records with a value.
    """
    ranked = sorted(answers, reverse=True)
    best, threshold, right = 0.0, 2.0, 0
    for kept, (confidence, is_right) in enumerate(ranked, start=1):
        right += is_right
        following = ranked[kept][0] if kept < len(ranked) else 0.0
        score = 2 * right / (kept + filled)
        if score > best and following < confidence:
            best, threshold = score, float(f"{(confidence * following) ** 0.5:.4g}")
    return threshold


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _common(*rows: Sequence[int]) -> list[int]:
    """What all rows begin with."""
    return [tokens[0] for tokens in takewhile(lambda tokens: len({*tokens}) == 1, zip(*rows, strict=False))]
