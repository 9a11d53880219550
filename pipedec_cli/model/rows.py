"""Blind rows: a decoder-only model that was not trained for fields answers a question in each row, all at once.

Each row sees the prompt and itself alone, so it is what the model writes if only this row follows the prompt. In a chat a
row asks for one key, or is a question of the user. Else it is the line of a key behind examples, and a line break ends it.
For a list of objects a row asks for the names of all items. When it has ended, rows for their other keys start.
"""

import copy
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import takewhile
from typing import Any, Final

from msgspec import to_builtins
from msgspec.structs import replace

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Field, list_places, path_name, rows_of, rows_with, text_of, value_texts
from pipedec_cli.data.records import Record, Segmentation
from pipedec_cli.data.schema import checker
from pipedec_cli.model.checkpoint import MethodSettings
from pipedec_cli.model.decoder import Choice, Decoder, ObjectReader
from pipedec_cli.model.fields import FieldCodec
from pipedec_cli.model.grammar import is_free
from pipedec_cli.model.text import QUESTION, SOURCE, prompt_around
from pipedec_cli.pipeline.attention import APART
from pipedec_cli.pipeline.decode import Finished
from pipedec_cli.pipeline.grid import Allowed, Grid, ItemRows, Limits, Method, Opening, any_token, mask_of
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


class Asked:
    """What a row asks for that starts at once: the value of a key, or the names of all items of a list of objects.

    `row` is the field that the row answers, and `key` the one that holds the value, or the name of each item. The
    `others` are the keys of an item whose rows start once the names are known.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        """Take a key, or all keys of a list."""
        self.key = self.row = min(fields, key=lambda field: (field.kind != "string", field.kind == "list"))
        self.others = [field for field in fields if field is not self.key]
        self.listed = self.key.listed
        if self.listed:
            path, described = self.key.path[: self.key.path.index(0)], self.key.description
            self.row = Field(path_name(path), "list", self.key.enum, path=path, description=described)

    def question(self) -> str:
        """The question for the value, or for the names of all items."""
        name = f"{_inner(self.key)} of each of the {self.row.name}" if self.listed else self.row.name
        return question_of(replace(self.row, name=name))

    def of_item(self, item: int, name: str, *, chat: bool) -> list[str]:
        """What the rows of an item begin with: a question for each key, or the line of its name and a key."""
        if chat:
            return [question_of(replace(field, name=f"{_inner(field)} of {name}")) for field in self.others]
        line = f"{self.key.opening(item)} {name}\n"
        return [line + field.opening(item) for field in self.others]


def _inner(field: Field) -> str:
    """The name of a key within an item."""
    return path_name(field.path[field.path.index(0) + 1 :])


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

    fields: tuple[Field, ...] = ()
    questions: tuple[str, ...] = ()
    shots: tuple[Record, ...] = ()
    schema: Any = None  # the JSON Schema that has these keys, if there is one


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
        lists = [Asked([rows.fields[at] for at in places]) for places in list_places(rows.fields)]
        named = {asked.key.name: asked for asked in lists}
        self._asked = [
            named.get(f.name) or Asked([f]) for f in rows.fields if not f.listed or f.name in named
        ]
        self._lists = [asked for asked in self._asked if asked.listed]
        #: For each key the least confidence of a value, from `calibrate`.
        self.thresholds: tuple[float, ...] = ()
        tokenizer = plain.checkpoint.tokenizer
        self.chat = not rows.shots and bool(tokenizer.chat_template) if chat is None else chat
        if rows.questions and not self.chat:
            todo = "leave --shots and --no-chat out, and take a model with a chat template"
            raise UserError("a free question is a turn of a chat", todo=todo)
        plain.checkpoint.end_as_usual(chat=self.chat)
        fields = (*rows.fields, *map(Field, rows.questions))
        longest = LIST_MAX if self._lists else VALUE_MAX
        segmentation = Segmentation("field", (), " ", fields=fields)
        settings = MethodSettings("sequential", "together", segmentation, time_max=longest)
        self.checkpoint = dataclasses.replace(plain.checkpoint, settings=settings, segmenter=None)
        self.text = copy.copy(plain.text)
        self.text.eos = self.checkpoint.eos
        self.fields = FieldCodec(self.text, fields)
        usual = (KEYS_PROMPT if rows.fields else ASK_PROMPT) if self.chat else SHOTS_PROMPT
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
        if self.chat:
            questions = [*(one.question() for one in self._asked), *self.rows.questions]
        else:
            prompt = dataclasses.replace(prompt, parts=(*prompt.parts[:-1], ""))
            questions = [one.row.opening() for one in self._asked]
        #: The prompt without examples.
        self._prompt = prompt
        later = [words for one in self._lists for words in one.of_item(1, "a", chat=self.chat)]
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
        *parts, last = prompt.parts[: prompt.at]
        # A source can change the tokens of the word before it.
        start = dataclasses.replace(prompt, parts=(*parts, re.sub(r"(^|\s+)\S*\s*$", "", str(last))))
        wholes = (self.text.prompted(self.text.prompt, source) for source in ("a", "1", " ", "\n"))
        #: What all prompts begin with.
        self.begun = _common(self.text.prompted(start, ""), *wholes)

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

    def _answer(self, shot: Record) -> str:
        """The lines of an example's keys."""
        texts = value_texts(shot.target_fields or {}, self.rows.fields, shot.where)
        rows = rows_of(self.rows.fields, len(texts))
        of = {(field.name, item): _one_line(text) for (field, item), text in zip(rows, texts, strict=True)}
        lines = list[tuple[str, str]]()
        for one in self._asked:
            if not one.listed:
                lines.append((one.row.opening(), of[one.key.name, 0]))
                continue
            names = [(item, text) for (name, item), text in of.items() if name == one.key.name and text]
            lines.append((one.row.opening(), text_of([name for _, name in names])))
            for item, _ in names:
                keys = (one.key, *one.others)
                lines += ((field.opening(item), of[field.name, item]) for field in keys)
        return "\n".join(f"{opening} {text or NONE}" for opening, text in lines)

    @property
    def described(self) -> dict[str, Any]:
        """The rows for a manifest: their number, and a hash of what the model reads but for the sources."""
        read = [self.text.prompt and self.text.prompt.parts, self.known]
        digest = hashlib.sha256(json.dumps([read, to_builtins(self.rows.fields)]).encode()).hexdigest()
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
        time_max = choice.time_max or (LIST_MAX if self._lists else VALUE_MAX)
        if time_max + max(map(len, self.known)) >= APART:
            raise UserError(f"a row has at most {APART} tokens", todo="give a smaller time_max")
        eos = self.checkpoint.eos
        made = Method(
            Together(),
            eos,
            eos,
            limits=Limits(time_max, None, choice.max_tokens),
            ends=self.ends,
            confident=bool(self.thresholds) or self.grounded,
            of_source=self._with_rows if self.grounded else None,
        )
        return self._with_rows(made)

    def _with_rows(self, method: Method, source: str | None = None) -> Method:
        """The method with rows whose free values are parts of a source, or any text without a source."""
        held = self._held(source)
        asked = [*self._asked, *(Asked([Field(question)]) for question in self.rows.questions)]
        openings = [
            Opening(known, allowed, (row.key.name, 0), row.row.name, end)
            for row, known in zip(asked, self.known, strict=True)
            for allowed, end in [held[row.row.name]]
        ]
        lists = [
            ItemRows((at,), partial(self._items, row, held)) for at, row in enumerate(asked) if row.others
        ]
        return dataclasses.replace(method, openings=tuple(openings), lists=tuple(lists), blind=True)

    @cached_property
    def _codec(self) -> FieldCodec:
        """The keys, and behind them the names of the items of each list."""
        return FieldCodec(self.text, [*self.rows.fields, *(asked.row for asked in self._lists)])

    def _held(self, source: str | None) -> Mapping[str, tuple[Allowed, int]]:
        """By the names of keys, lists and questions which tokens may follow in a row, and its `end`; see `Opening`."""
        held: dict[str, tuple[Allowed, int]] = dict.fromkeys(self.rows.questions, (any_token, -1))
        # Outside a chat a line break ends the line of a key.
        end = self.text.eos if self.chat else self.text.ids(["a\n"])[0][-1]
        codec = self._codec.held_to(source)
        for number, (field, allowed) in enumerate(
            zip(codec.fields, codec.allowed_with(NONE, end), strict=True)
        ):
            is_name = number >= len(self.rows.fields)  # of the items of a list
            choice = names_once(allowed, self.text.decode, end) if is_name else allowed
            held[field.name] = choice, end if source is not None and is_free(field) else -1
        return held

    def _items(
        self, of: Asked, held: Mapping[str, tuple[Allowed, int]], rows: Sequence[Sequence[Subsequence]]
    ) -> Sequence[Opening]:
        """The rows of the items whose names the first row has given."""
        made = list[Opening]()
        first = rows[0][0]
        names = self._names(self.text.decode(first.value_tokens or first.text_tokens))
        for item, name in enumerate(names, start=1):
            for field, words in zip(of.others, of.of_item(item, name, chat=self.chat), strict=True):
                label = path_name(field.at(item))
                known = tuple(self._whole(words)[self._shared :])
                allowed, end = held[field.name]
                made.append(Opening(known, allowed, (field.name, item), label, end))
        return made

    def _names(self, text: str) -> list[str]:
        """The names of items in an answer, without doubles."""
        names = Field("", "list").parsed("" if is_none(text) else text)
        return [*dict.fromkeys(names)] if isinstance(names, list) else []

    def answers(self, grid: Grid) -> tuple[Sequence[Subsequence], Sequence[str | None]]:
        """See `Answers`; "" for no value. An answer to a question is kept as far as it was written.

        The names of all items of a list have one row.
        """
        rows = grid.placed
        least = dict(zip((field.name for field in self.rows.fields), self.thresholds, strict=False))
        texts = {at: self._text(row, least.get(at[0], 0.0), at[0]) for at, row in rows.items()}
        names = {asked.key.name: self._names(texts[asked.key.name, 0] or "") for asked in self._lists}
        nothing = Subsequence(0, [self.text.eos], ended=True)
        of_values, found = list[Subsequence](), list[str | None]()
        for field, item in rows_with(self.fields.fields, max([1, *map(len, names.values())])):
            at, text = (field.name, item), texts.get((field.name, item), "")
            if field.name in names:
                at, text = (field.name, 0), "".join(names[field.name][item - 1 : item])
                text = None if item == 1 and texts[at] is None else text
            of_values.append(rows.get(at, nothing))
            found.append(text)
        return of_values, found

    def _text(self, row: Subsequence, least: float, name: str) -> str | None:
        """The text of a row; of a key "" for no value, or for one less sure than the `least`, and None if it was cut."""
        end = [token for token in row.tokens[-1:] if token in self.ends]  # it may begin with a full stop
        chosen = row.best[1] >= 0
        text = self.text.decode((chosen and row.value_tokens) or [*row.text_tokens, *end])
        ended = row.ended or chosen
        text = text if ended else text.rstrip("\ufffd").rstrip()  # it may stop within a character
        is_key = name not in self.rows.questions
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
        reader=ObjectReader(plan.fields, plan.answers, check=checker(rows.schema)),
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
    fields = plan.rows.fields
    plan.thresholds = ()
    method = dataclasses.replace(decoder.method(), confident=True)
    found: list[list[tuple[float, bool]]] = [[] for _ in fields]
    wanted = list[Sequence[str]]()

    def sources() -> Iterator[str]:
        for record in records:
            wanted.append(value_texts(record.target_fields or {}, fields, record.where)[: len(fields)])
            yield record.source

    for event in decoder.run(sources(), method, batch_size):
        if isinstance(event, Finished):
            advance()
            rows = zip(*plan.answers(event.grid), strict=True)
            for answers, (row, text), right in zip(found, rows, wanted[event.example], strict=False):
                if text != "":
                    answers.append((row.value_confidence, text == right))
    filled = [sum(map(bool, texts)) for texts in zip(*wanted, strict=True)]
    fitted = [best_threshold(*answers) for answers in zip(found, filled, strict=True)]
    pairs = zip(fields, fitted, strict=True)
    plan.thresholds = tuple(0.0 if field.forced or field.listed else least for field, least in pairs)


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
