"""Blind rows: a decoder-only model that was not trained for fields answers a question in each row, all at once.

Each row sees the prompt and itself alone, so it is what the model writes if only this row follows the prompt. In a chat a
row asks for one key, or is a question of the user. Else it is the line of a key behind examples, and a line break ends it.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from msgspec import to_builtins
from msgspec.structs import replace

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Field, texts_of, value_texts
from pipedec_cli.data.records import Record, Segmentation
from pipedec_cli.model.checkpoint import MethodSettings
from pipedec_cli.model.decoder import Decoder
from pipedec_cli.model.engine.engine import DecoderWeights, Engine
from pipedec_cli.model.fields import FieldCodec
from pipedec_cli.model.text import SOURCE, Prompt, TextCodec, prompt_around, template_ids
from pipedec_cli.pipeline.attention import APART
from pipedec_cli.pipeline.decode import Finished
from pipedec_cli.pipeline.grid import Method, Opening

#: The part of a prompt that stands for what differs between the rows.
QUESTION: Final = "{question}"
#: The answer that means "no value".
NONE: Final = "none"
#: The default prompts: questions for keys, questions of the user, and lines of keys behind examples.
KEYS_PROMPT: Final = (
    "Text: {source}\n\nAnswer with the value alone, in the words of the text. Answer none if the text does not say it.\n\n"
    "{question}"
)
ASK_PROMPT: Final = "{source}\n\n{question}"
SHOTS_PROMPT: Final = "Text: {source}\n{question}\n\n"
#: The most tokens of a row, its end counted, by default: of a value, and of an answer to a question.
VALUE_MAX, ANSWER_MAX = 64, 512
_HINTS: Final = {
    "boolean": " Answer true or false.",
    "number": " Answer with a number.",
    "integer": " Answer with a whole number.",
    "list": " Write all of them, with | between them.",
}

#: The tokens that may follow those that a row has made; see `Opening`.
_Choice = Callable[[Sequence[int]], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Rows:
    """What the rows ask for: the keys of a schema, then questions of the user, whose answers are given as they are.

    With `shots`, records with targets, a row is the line of a key behind these examples.
    """

    fields: tuple[Field, ...] = ()
    questions: tuple[str, ...] = ()
    shots: tuple[Record, ...] = ()


class BlindDecoder(Decoder):
    """A model whose rows are blind. It is used as a `Decoder` is, and gives objects."""

    def __init__(
        self, plain: Decoder, rows: Rows, *, template: str | None = None, chat: bool | None = None
    ) -> None:
        """Share the weights of `plain`; a UserError if rows and model do not fit.

        `template` is the prompt, with {source} and, behind it, {question}. `chat` puts it into the model's chat template;
        by default it does so if there is a chat template and there are no examples.
        """
        name, prompted = plain.checkpoint.name, plain.checkpoint.backbone.prompted
        if not prompted or plain.settings.decoder != "sequential":
            kind = "pipelined decoder" if prompted else plain.checkpoint.backbone.name
            what = f"{name} is a {kind}: only an ordinary decoder-only model answers without training"
            raise UserError(what, todo="leave --schema, --shots and --ask out, or take another --model")
        if rows.shots and chat:
            raise UserError("examples do not go into a chat", todo="leave --chat or --shots out")
        self._plain, self.rows = plain, rows
        #: For each key the least confidence of a value, from `calibrate`.
        self.thresholds: tuple[float, ...] = ()
        tokenizer, longest = plain.checkpoint.tokenizer, ANSWER_MAX if rows.questions else VALUE_MAX
        self.chat = not rows.shots and bool(tokenizer.chat_template) if chat is None else chat
        if rows.questions and not self.chat:
            todo = "leave --shots and --no-chat out, and take a model with a chat template"
            raise UserError("a free question is a turn of a chat", todo=todo)
        usual = (KEYS_PROMPT if rows.fields else ASK_PROMPT) if self.chat else SHOTS_PROMPT
        plain.checkpoint.end_as_usual(chat=self.chat)
        segmentation = Segmentation("field", (), " ", fields=(*rows.fields, *map(Field, rows.questions)))
        settings = MethodSettings("sequential", "together", segmentation, time_max=longest)
        checkpoint = dataclasses.replace(plain.checkpoint, settings=settings, segmenter=None)
        super().__init__(checkpoint, batch_size=plain.batch_size)
        self.unconstrained, self.confident = plain.unconstrained, plain.confident
        self.text = copy.copy(plain.text)
        self.text.eos = checkpoint.eos
        self._read(template or usual)

    def _read(self, template: str) -> None:
        """Make the prompt, and the known tokens of each row, which go on behind it."""
        tokenizer, rows = self.checkpoint.tokenizer, self.rows
        prompt = prompt_around(tokenizer, template, chat=self.chat)
        if prompt.text.count(QUESTION) != 1 or prompt.text.index(QUESTION) < prompt.text.index(SOURCE):
            what = f"the prompt {template[:60]!r} does not say {QUESTION} once, behind {SOURCE}"
            raise UserError(what, todo="questions differ behind the text, so that the text is read once")
        before, rest = prompt.text.split(SOURCE)
        between, behind = rest.split(QUESTION)
        head, tail = list(prompt.head), template_ids(tokenizer, between)
        if self.chat:
            turn = template_ids(tokenizer, behind)
            asked = self.text.ids([*map(question_of, rows.fields), *rows.questions])
            self.known = [(*ids, *turn) for ids in asked]
        else:
            first = head[: len(head) - len(template_ids(tokenizer, before))]  # such as <bos>
            alone, start, word = self.text.ids(["a b", "a", " b"])
            if before.endswith(" ") and alone == start + word:  # the tokenizer puts a space before a word
                before, self.text.prefix = before[:-1], f" {self.text.prefix}"
            shots = "".join(self._shot(shot, prompt.text) for shot in rows.shots)
            head = [*first, *self.text.ids([shots + before])[0]]
            self.known = [tuple(ids) for ids in self.text.ids([field.opening for field in rows.fields])]
        self.text.prompt = Prompt(head, tail, template, self.chat)

    def _shot(self, shot: Record, template: str) -> str:
        """An example as the prompt shows it."""
        texts = value_texts(shot.target_fields or {}, self.rows.fields, shot.where)
        pairs = zip(self.rows.fields, texts, strict=True)
        lines = "\n".join(f"{field.opening} {_one_line(text) or NONE}" for field, text in pairs)
        return template.replace(QUESTION, lines).replace(SOURCE, _one_line(shot.source))

    def calibrate(self, records: Sequence[Record], batch_size: int) -> None:
        """Fit to records with targets, for each key, the confidence below which an answer means no value."""
        self.thresholds = ()
        method = dataclasses.replace(self.method(), confident=True)
        found: list[list[tuple[float, bool]]] = [[] for _ in self.rows.fields]
        wanted = [texts_of(record.target_fields or {}, self.rows.fields) for record in records]
        for event in self.run([record.source for record in records], method, batch_size):
            if isinstance(event, Finished):
                rows = zip(event.grid.subsequences, self._values(event), strict=True)
                for answers, (row, text), right in zip(found, rows, wanted[event.example], strict=False):
                    if text != "":
                        answers.append((row.confidence, text == right))
        filled = [sum(map(bool, texts)) for texts in zip(*wanted, strict=True)]
        fitted = [best_threshold(*one) for one in zip(found, filled, strict=True)]
        pairs = zip(self.rows.fields, fitted, strict=True)
        self.thresholds = tuple(0.0 if field.forced else least for field, least in pairs)

    @property
    def described(self) -> dict[str, Any]:
        """The rows for a manifest: their number, and a hash of what the model reads but for the sources."""
        read = [self.text.prompt.head, self.text.prompt.tail, self.known] if self.text.prompt else []
        digest = hashlib.sha256(json.dumps([read, to_builtins(self.rows.fields)]).encode()).hexdigest()
        made = {"count": len(self.known), "shots": len(self.rows.shots), "sha256": digest}
        return made | ({"thresholds": self.thresholds} if self.thresholds else {})

    @cached_property
    def weights(self) -> DecoderWeights:
        """The weights of the ordinary model."""
        return self._plain.weights

    def engine(self, batch_size: int | None = None) -> Engine:
        """As `Decoder.engine`; it reads what stands before the texts once, and not again for each text."""
        engine = super().engine(batch_size)
        engine.keep(self.text.prompt.head if self.text.prompt else ())
        return engine

    @cached_property
    def ends(self) -> frozenset[int]:
        """The tokens that end a row as <eos> does: outside a chat those with a line break."""
        pieces = {} if self.chat else self.checkpoint.tokenizer.get_vocab()
        breaks = (id_ for piece, id_ in pieces.items() if re.search("\n|Ċ|^<0x0A>$", piece))
        return frozenset(id_ for id_ in breaks if "\n" in self.text.written([id_]))

    def method(self, *args: Any, **chosen: Any) -> Method:
        """How to decode: all rows together, at most time_max tokens each. A UserError for what does not apply."""
        how = super().method(*args, **chosen)
        if (how.limits.time_max or 0) + max(map(len, self.known)) >= APART:
            raise UserError(f"a row has at most {APART} tokens", todo="give a smaller time_max")
        openings = tuple(map(Opening, self.known, self._choices()))
        confident = how.confident or bool(self.thresholds)
        how = dataclasses.replace(how, bos=how.eos, openings=openings, blind=True)
        return dataclasses.replace(how, ends=self.ends, confident=confident)

    def _choices(self) -> Sequence[_Choice]:
        """Which tokens may follow in each row."""
        free: _Choice = lambda _: ()  # noqa: E731
        if self.unconstrained:
            return [free] * len(self.known)
        codec: Any = self.text if self.chat else _Line(self.text)
        openings = FieldCodec(codec, [_with_none(field) for field in self.rows.fields]).openings()
        choices = [opening.allowed for opening in openings]
        for number, field in enumerate(self.rows.fields):
            if field.kind in ("number", "integer") and not (field.enum or field.forced):
                choices[number] = _NumberOrNone(choices[number], (*codec.ids([NONE])[0], codec.eos))
        return [*choices, *[free] * len(self.rows.questions)]

    def _values(self, event: Finished, fields: FieldCodec | None = None) -> Sequence[str | None]:
        """The text of each answer, "" for no value or one below its threshold; None for an answer that was cut."""
        texts: list[str | None] = []
        for number, row in enumerate(event.grid.subsequences):
            end = [token for token in row.tokens[-1:] if token in self.ends]  # it may begin with a full stop
            text = self.text.decode([*row.text_tokens, *end])
            is_key = number < len(self.rows.fields)
            least = self.thresholds[number] if is_key and self.thresholds else 0.0
            is_empty = row.confidence < least or (is_key and row.ended and is_none(text))
            texts.append("" if is_empty else text if row.ended else None)
        return texts


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


def question_of(field: Field) -> str:
    """The question for a key, with its description and choices."""
    meaning = f" ({field.description})" if field.description else ""
    choices = f" One of: {', '.join(field.enum)}." if field.enum else _HINTS.get(field.kind, "")
    return f"What is the {field.name}{meaning}?{choices}"


def is_none(text: str) -> bool:
    """Whether an answer means that there is no value."""
    return text.strip(" .\"'").lower() == NONE


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _with_none(field: Field) -> Field:
    """The field with the answer for "no value" among its choices, unless the schema wants a value."""
    texts = field.enum or (("true", "false") if field.kind == "boolean" else ())
    return replace(field, enum=(*texts, NONE)) if texts and not field.forced else field


class _Line:
    """A codec for the values in a line of a key: they begin with the space behind the colon, and a line break ends them."""

    def __init__(self, codec: TextCodec) -> None:
        self._codec, self.tokenizer, self.decode = codec, codec.tokenizer, codec.decode
        self._key = codec.ids([":"])[0]
        self.eos = codec.ids(["a\n"])[0][-1]

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts behind a colon and a space."""
        found = self._codec.ids([f": {text}" for text in texts])
        return [ids[len(self._key) :] if ids[: len(self._key)] == self._key else ids for ids in found]


class _NumberOrNone:
    """The tokens that may follow in a number, or in the answer for "no value"."""

    def __init__(self, number: _Choice, none: Sequence[int]) -> None:
        self._number, self._none, self._first = number, tuple(none), frozenset(number(()))

    def __call__(self, made: Sequence[int]) -> Sequence[int]:
        if not self._first:  # any token may follow
            return ()
        allowed = set(self._number(made)) if not made or made[0] in self._first else set[int]()
        if tuple(made) == self._none[: len(made)]:
            allowed.add(self._none[len(made)])
        return sorted(allowed)
