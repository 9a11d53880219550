"""The ordinary way to an object without training: a decoder-only model writes it as JSON in one go, under a grammar."""

import copy
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pipedec_cli.data.errors import UserError, first_line
from pipedec_cli.data.fields import Field, Keys, kind_of, leaves, text_of
from pipedec_cli.data.records import Generated, Segmentation
from pipedec_cli.decoding.blind import require_ordinary
from pipedec_cli.decoding.decoder import Decoder
from pipedec_cli.decoding.plans import TextPlan
from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings
from pipedec_cli.model.choice import Choice
from pipedec_cli.model.text import SOURCE, TextCodec
from pipedec_cli.objects.checking import Checker, checker
from pipedec_cli.objects.codec import FieldCodec, row_text
from pipedec_cli.objects.grammar import Grammar, json_grammar
from pipedec_cli.objects.reader import in_words
from pipedec_cli.objects.rows import Rows
from pipedec_cli.pipeline.decode import Finished
from pipedec_cli.pipeline.grid import Method, Opening

#: The prompts in a chat and outside. The keys stand in the place of %s.
CHAT_PROMPT: Final = (
    "Text: {source}\n\nAnswer with a JSON object with these keys: %s. Take the values from the text. "
    "A key that the text says nothing of is null."
)
PROMPT: Final = "Text: {source}\nJSON:"
#: The keywords that hold schemas, by name or in a list.
_TABLES: Final = ("$defs", "definitions", "properties")
_LISTS: Final = ("anyOf", "oneOf", "allOf")


class WholePlan:
    """A single row: an object as JSON, which a grammar holds to its schema."""

    pipelined = False

    def __init__(self, checkpoint: Checkpoint, rows: Rows) -> None:
        """Take a checkpoint, and a JSON Schema whose keys may be null. A UserError if there is no grammar for it."""
        self._usual = TextPlan(checkpoint, None)
        grammar = json_grammar(with_nulls(rows.schema))
        #: Tells schemas apart.
        self.sha256 = hashlib.sha256(grammar.encode()).hexdigest()
        try:
            allowed = Grammar(checkpoint.tokenizer, checkpoint.eos, grammar)
        except ValueError as error:
            why = first_line(error).rstrip(":")
            what = f"has no grammar for JSON in one go ({why})"
            raise UserError(what, where=rows.where, todo="leave `whole` out") from None
        self._opening = Opening((), allowed)

    def method(self, choice: Choice) -> Method:
        """How to decode: as a sequential model. A UserError for a `choice` that does not apply."""
        return replace(self._usual.method(choice), free=self._opening)


@dataclass(frozen=True, slots=True)
class WholeReader:
    """Reads objects that were written as JSON."""

    text: TextCodec
    check: Checker

    def read(self, end: Finished) -> Generated:
        """The object of a finished grid; it is empty where a limit cut the text.

        Its nulls are left out, but for those that the schema asks for. What it cost
        (steps, tokens, seconds) is not filled in.
        """
        (row,) = end.grid.subsequences
        try:
            written = json.loads(row_text(self.text, row))
        except ValueError:
            written = {}
        if not isinstance(written, dict):
            written = {}
        values = without_nulls(written)
        violations = self.check(values)
        if violations:
            values = without_nulls(written, self.check.wrong(written))
            violations = self.check(values)
        texts = [text_of(value) for _, value in leaves(values) if kind_of(value)]
        return Generated(
            text=json.dumps(values, ensure_ascii=False),
            segments=tuple(texts),
            fields=values,
            violations=in_words(violations),
        )


def whole_decoder(
    plain: Decoder,
    rows: Rows,
    *,
    template: str | None = None,
    chat: bool | None = None,
) -> Decoder:
    """A decoder of objects that are written as JSON in one go.

    It has the weights of `plain`, an ordinary decoder-only model or one with blind
    rows; a UserError for any other, and for a schema without a grammar. `rows` have the
    JSON Schema of the objects. `template` is the prompt, with {source}. `chat` puts it
    into the model's chat template; by default it does so if there is one.
    """
    require_ordinary(plain)
    if chat is None:
        chat = bool(getattr(plain.checkpoint.tokenizer, "chat_template", None))
    fields = tuple(rows.tree.values())
    if template is None:
        template = PROMPT
        if chat:
            template = CHAT_PROMPT % _names(fields)
    segmentation = Segmentation("field", (), " ", fields=fields)
    settings = MethodSettings(
        "sequential", "any", segmentation, prompt=template, chat=chat
    )
    # It ends its texts in another way than that of `plain`.
    own = replace(plain.checkpoint, settings=settings, segmenter=None)
    own.end_as_usual(chat=chat)
    text = copy.copy(plain.text)
    text.eos = own.eos
    text.prompt = own.prompt(template, chat=chat)
    check = checker(rows.schema, rows.where, rows.warn, rows.of_class)
    return plain.sharing(
        checkpoint=own,
        settings=settings,
        text=text,
        fields=FieldCodec(text, fields, rows.tree),
        plan=WholePlan(own, rows),
        reader=WholeReader(text, check),
        blind=None,
    )


def _names(fields: Sequence[Field]) -> str:
    """The keys of an object that stand in no other object, with commas between them.

    A key that a template would take for the source is not named.
    """
    keys = dict.fromkeys(str(field.keys[0]) for field in fields)
    named = (json.dumps(key, ensure_ascii=False) for key in keys if SOURCE not in key)
    return ", ".join(named)


def with_nulls(schema: Any) -> Any:
    """A copy of a JSON Schema in which each key of an object must stand, and may be null unless the schema requires it.

    What is no schema stays as it is.
    """
    if not isinstance(schema, dict):
        return schema
    changed = {}
    for word, part in schema.items():
        changed[word] = part
        if word in _TABLES and isinstance(part, dict):
            changed[word] = {name: with_nulls(inner) for name, inner in part.items()}
        elif word in _LISTS and isinstance(part, list):
            changed[word] = [with_nulls(inner) for inner in part]
        elif word == "items":
            changed[word] = with_nulls(part)
    properties = changed.get("properties")
    if isinstance(properties, dict):
        required = schema.get("required")
        changed |= _closed(properties, required if isinstance(required, list) else ())
    return changed


def _closed(properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """The keywords of an object that has all these properties and no others. Those that are not `required` may be null."""
    nullable = {}
    for key, part in properties.items():
        nullable[key] = part
        if key not in required:
            nullable[key] = {"anyOf": [part, {"type": "null"}]}
    return {
        "type": "object",
        "properties": nullable,
        "required": [*properties],
        "additionalProperties": False,
    }


def without_nulls(
    value: Any, places: Collection[Keys] | None = None, at: Keys = ()
) -> Any:
    """A copy of an object, or of a value `at` a place in it, without the keys that are null: all, or those at these places."""
    if isinstance(value, list):
        items = enumerate(value, start=1)
        return [without_nulls(item, places, (*at, number)) for number, item in items]
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, part in value.items():
        place = (*at, key)
        if part is not None:
            kept[key] = without_nulls(part, places, place)
        elif places is not None and place not in places:
            kept[key] = None
    return kept
