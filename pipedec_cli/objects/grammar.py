"""Which tokens may follow in a row whose value is held to a schema: a grammar of its text, and a bit mask for each step.

llguidance matches the bytes of the tokens with the grammar, so a tokenizer may divide a
value as it likes.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any, Final

import regex
from msgspec.structs import replace

from pipedec_cli.data.fields import Field, doubled, text_of
from pipedec_cli.data.sentences import abbreviations_in
from pipedec_cli.model.text import tokenized
from pipedec_cli.objects.keywords import (
    FREE,
    HELD_FORMATS,
    OF_NUMBERS,
)
from pipedec_cli.objects.patterns import holds, searched
from pipedec_cli.pipeline.grid import Allowed, any_token, mask_of

_INTEGER: Final = "-?(?:0|[1-9][0-9]{0,29})"  # bounded: some models repeat a digit
#: A number within bounds lies between −_FAR and _FAR, and is a multiple of _FINEST,
#: unless its bounds say otherwise.
_FAR: Final = 10**15
_FINEST: Final = 1e-6
#: How values of a kind are written.
_WRITTEN: Final = {
    "integer": f"/{_INTEGER}/",
    "number": rf"/{_INTEGER}(?:\.[0-9]{{1,17}})?(?:[eE][+-]?[0-9]{{1,2}})?/",
    "boolean": '"true" | "false"',
}
_TIME: Final = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_DAY: Final = r"(?:0[1-9]|1\d|2\d)"
_MONTH_DAY: Final = (
    rf"(?:(?:0[1-9]|1[0-2])-{_DAY}|(?:0[13-9]|1[0-2])-30|(?:0[13578]|1[02])-31)"
)
_BYTE: Final = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_LABEL: Final = "[A-Za-z0-9](?:-?[A-Za-z0-9]){0,28}"
#: Strings of a format: some of what its standard allows, and hardly anything else. The
#: object is checked at the end.
_DATE: Final = rf"\d{{4}}-{_MONTH_DAY}"
_FORMATS: Final = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "email": rf"[A-Za-z0-9_+-]{{1,20}}(?:\.[A-Za-z0-9_+-]{{1,20}}){{0,2}}@{_LABEL}(?:\.{_LABEL}){{1,3}}",
    "hostname": rf"{_LABEL}(?:\.{_LABEL}){{0,3}}",
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "ipv6": "[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{1,4}){7}",
    "uri": r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~/?@!$&'()*+,;=-]+(?:#[A-Za-z0-9._~/?-]*)?",
    "uuid": "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "json-pointer": r"(?:/[^/~ ]*)+",
    "duration": r"P(?:\d+W|\d+D|\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|T(?:\d+[HMS]|\d+H\d+M))",
    "relative-json-pointer": r"\d(?:/[^/~ ]*)*",
    "regex": r"[A-Za-z0-9_ -]+",
}
#: Formats that hold what another format holds.
_WIDER: Final = {
    "idn-email": "email",
    "idn-hostname": "hostname",
    "iri": "uri",
    "iri-reference": "uri",
    "uri-reference": "uri",
    "uri-template": "uri",
}
#: Keywords that llguidance cannot always read.
_UNREADABLE: Final = ("pattern", "multipleOf")
_HEAD: Final = '%llguidance {"no_forcing": true}'
#: States of a grammar that are kept.
_KEPT: Final = 64


def grammar_of(
    field: Field, texts: Sequence[str] = (), *, may_be_empty: bool = False
) -> str | None:
    """The grammar, in llguidance's Lark, of the text that a field's row may have; None if it may have any.

    `texts` are the field's choices as the tokenizer spells them. A row that
    `may_be_empty` can say that there is no value.
    """
    held = _value(field, texts)
    if held is None:
        return None
    # Terminals alone become one automaton, which needs no look ahead where an item
    # ends.
    row, name = ("row", "value") if "%json" in held[0] else ("ROW", "VALUE")
    lines = (
        _HEAD,
        f"start: (/ ?/ {row}){'?' if may_be_empty else ''}",
        f"{row}: {name}{held[1].format(name)}",
        f"{name}: {held[0]}",
    )
    return "\n".join(lines)


def _value(field: Field, texts: Sequence[str]) -> tuple[str, str] | None:
    """The parts of a field's grammar: what a value or an item of a list may be, and how more items follow.

    The second one has {} where the name of the item's rule belongs, and is "" for a
    single value. None if the field holds its row to nothing.
    """
    keywords = dict(field.keywords)
    more = _more(keywords) if field.kind == "list" else ""
    kinds: Sequence[str] = (field.kind,)
    if field.kind in ("string", "list"):
        kinds = field.scalars or ("string",)
    if texts:
        return _choices(texts, is_list=field.kind == "list"), more
    if "string" not in kinds and "any" not in kinds:
        return _numbers(kinds, keywords), more
    value = _text(field, keywords)
    return None if value is None else (value, more)


def _choices(texts: Sequence[str], *, is_list: bool) -> str:
    """The grammar of a value, or of an item of a list, that is one of some texts."""
    if is_list:
        texts = [text_of([text]) for text in texts]
    return " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)


def _text(field: Field, keywords: Mapping[str, Any]) -> str | None:
    """The grammar of a string, or of an item of a list, with a schema's `keywords`; None if it is held to nothing."""
    is_list = field.kind == "list"
    expressions = list[str]()
    if field.kind != "any" and len(field.scalars) < 2:
        expressions += _strings(keywords)
    if expressions and is_list:
        expressions.append("[^|]*")
    if expressions:
        # Lark has expressions between slashes: those within get a backslash.
        slashed = (
            re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\\/", text) for text in expressions
        )
        return " & ".join(f"/{text}/" for text in slashed)
    if not is_list or not {"minItems", "maxItems"} & keywords.keys():
        return None
    # A model that wants to end before the least number of items would write on in its
    # last one.
    most = "{0,200}" if keywords.get("minItems", 1) > 1 else "*"
    return rf"/\S([^|\n]|\|\|){most}/"


def _numbers(kinds: Sequence[str], keywords: Mapping[str, Any]) -> str:
    """The grammar of a value that has one of these `kinds`: numbers, held to the bounds among `keywords`, or booleans."""
    bounds = {word: keywords[word] for word in OF_NUMBERS if word in keywords}
    ways = []
    for kind in kinds:
        if bounds and kind != "boolean":
            ways.append(f"%json {json.dumps(_bounded(kind, bounds))}")
        else:
            ways.append(_WRITTEN[kind])
    return " | ".join(ways)


def _bounded(kind: str, bounds: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a number or integer (`kind`) within bounds, by keyword, which llguidance makes a grammar of.

    Its digits are bounded as well, since some models repeat a digit.
    """
    schema: dict[str, Any] = {"type": kind}
    if all(abs(bound) < _FAR for bound in bounds.values()):
        schema |= {"minimum": -_FAR, "maximum": _FAR}
    if kind == "number":
        schema["multipleOf"] = _FINEST
    return {**schema, **bounds}


def _more(keywords: Mapping[str, Any]) -> str:
    """The grammar by which more items of a list follow the first one, `|` between them, as many as `keywords` allow.

    It has {} where the name of the item's rule belongs, and is formatted once more.
    """
    least = max(1, keywords.get("minItems", 1))
    most = ""
    if "maxItems" in keywords:
        most = str(max(keywords["maxItems"], least) - 1)
    if most == "0":
        return ""
    return rf" (/ ?\| ?/ {{}}){{{{{least - 1},{most}}}}}"


def plain_grammar(
    fields: Sequence[Field], keys: Sequence[str], texts: Sequence[Sequence[str]]
) -> str:
    """The grammar of a whole object as a sequential model writes it: ``key: value; key: value``, in the schema's order.

    Numbers are not held to bounds. `keys` are what stands before each field's value
    (with ``[1]`` for the first item of a list) and `texts` each field's choices, both
    as the tokenizer spells them.
    """
    lines = list[str]()
    for number, (field, key) in enumerate(zip(fields, keys, strict=True)):
        lines += _pair(number, field, key, texts[number])
    listed = [f"PAIR{number}" for number, field in enumerate(fields) if field.listed]
    if listed:
        lines.append(f"REST{len(fields)}: ITEM (/; ?/ ITEM)*")
        lines.append(f"ITEM: {' | '.join(listed)}")
    # REST n is what may follow from field n on: its pair, or, where its value may be
    # missing, what follows the next field. Nothing needs to follow up to the last field
    # that must have a value.
    has_rest = bool(listed)
    optional = "?"
    for number in reversed(range(len(fields))):
        line = f"REST{number}: PAIR{number}"
        if has_rest:
            line += f" (/; ?/ REST{number + 1}){optional}"
        if has_rest and not fields[number].forced:
            line += f" | REST{number + 1}"
        if fields[number].forced:
            optional = ""
        lines.append(line)
        has_rest = True
    return "\n".join([_HEAD, f"start: (/ ?/ REST0){optional}", *lines])


def json_grammar(schema: Mapping[str, Any]) -> str:
    """The grammar of a text that is JSON and holds to a JSON Schema, as far as llguidance knows its keywords."""
    options = {
        "item_separator": ", ",
        "key_separator": ": ",
        "whitespace_flexible": False,
        "lenient": True,
    }
    held = json.dumps({**schema, "x-guidance": options})
    return "\n".join((_HEAD, "start: / ?/ value", f"value: %json {held}"))


def _pair(number: int, field: Field, key: str, texts: Sequence[str]) -> Iterator[str]:
    """The lines of the grammar for field number `number`: PAIR is its key and value, and TEXT the value without a lone ;."""
    keywords = tuple(pair for pair in field.keywords if pair[0] not in OF_NUMBERS)
    plain = replace(field, keywords=keywords)
    held = _value(plain, [doubled(text) for text in texts])
    value, more = held or (r"/[^; ]([^;]|;;)*/", "")
    before = key.split("[1]") if field.listed else [key]
    quoted = (json.dumps(text, ensure_ascii=False) for text in before)
    opening = r" /\[[1-9][0-9]{0,3}\]/ ".join(quoted)
    name = f"VALUE{number}"
    yield f"{name}: {value}"
    yield f"ROW{number}: {name}{more.format(name)}"
    yield f"TEXT{number}: ROW{number} & /([^;]|;;)*/"
    yield f"PAIR{number}: {opening} / ?/ TEXT{number}"


def format_expression(name: str) -> str:
    """The expression of the strings of a format; "" if no row is held to it."""
    return _FORMATS.get(_WIDER.get(name, name), "").replace(r"\d", "[0-9]")


def _strings(keywords: Mapping[str, Any]) -> Iterator[str]:
    """The regular expressions, all of which a string matches that holds to a schema's format, pattern and lengths."""
    expression = format_expression(keywords.get("format", ""))
    if expression:
        yield expression
    pattern = None
    if "pattern" in keywords:
        pattern = searched(keywords["pattern"])
    if pattern:
        yield pattern
    if pattern or "minLength" in keywords or "maxLength" in keywords:
        yield _length(keywords.get("minLength", 1), keywords.get("maxLength"))


def _length(least: int, most: int | None) -> str:
    """A regular expression of texts with `least` to `most` characters (None: any number) and no white space around them."""
    if most == 1:
        return r"\S"
    inner = "" if most is None else max(0, most - 2)
    longer = rf"\S.{{{max(0, least - 2)},{inner}}}\S"
    return longer if least > 1 else rf"\S|{longer}"


def is_free(field: Field) -> bool:
    """Whether a field's value, or each item of a list, may be any text, its length apart.

    A format that is not known and a pattern that cannot be read hold a row to nothing.
    A value that the model may word itself (``x-free``) is none of these.
    """
    keywords = dict(field.keywords)
    is_scalar = field.scalars and "string" not in field.scalars
    if field.kind not in ("string", "list") or field.enum or is_scalar:
        return False
    if FREE in keywords or keywords.get("format") in HELD_FORMATS:
        return False
    return "pattern" not in keywords or not holds(keywords["pattern"])


def span_grammar(source: str, field: Field, *, may_be_empty: bool = False) -> str:
    """The grammar of a value that is a part of the source, from the beginning of a word to the end of one.

    A field that is a list has several such items. A row that `may_be_empty` can say
    that there is no value. Words are those of Unicode (UAX 29), the possessive 's
    apart. A value ends before a full stop that belongs to no abbreviation. White space
    is one space.
    """
    is_list = field.kind == "list"
    keywords = dict(field.keywords)
    text = " ".join(source.split()).replace("|", "||" if is_list else "|")
    stopped = "|".join(map(re.escape, sorted(abbreviations_in(text))))
    ends = rf"|([^ .,;:!?)].* )?({stopped})" if stopped else ""
    words = [*filter(None, regex.split(r"(?V1w)\b|(?=['’]s\b)", text))]
    least = keywords.get("minLength", 0)
    most = min(len(text), keywords.get("maxLength", len(text)))
    length = ""
    if least or most < len(text):
        length = rf" & /.{{{min(least, most)},{most}}}/"
    more = _more(keywords).format("SPAN") if is_list else ""
    lines = (
        _HEAD,
        f"start: (/ ?/ ROW){'?' if may_be_empty else ''}",
        f"ROW: SPAN{more}",
        rf"SPAN: PART & /[^ .,;:!?)](.*[^ .,;:!?(])?{ends}/{length}",
        f"PART: %regex {json.dumps({'substring_chunks': words})}",
    )
    return "\n".join(lines)


@lru_cache(maxsize=8)
def spelled(tokenizer: Any) -> list[bytes]:
    """The bytes that each token of a tokenizer stands for within a text, by token id; b"" for special tokens."""
    added = tokenizer.added_tokens_decoder.items()
    special = {*tokenizer.all_special_ids}
    special.update(number for number, token in added if token.special)
    vocabulary = tokenizer.get_vocab()
    bytes_of = _bytes_of_tokens(tokenizer)
    texts = [b""] * (1 + max(vocabulary.values()))
    for piece, number in vocabulary.items():
        if number not in special:
            texts[number] = bytes_of(piece, number)
    return texts


def _bytes_of_tokens(tokenizer: Any) -> Callable[[str, int], bytes]:
    """A function that gives the bytes of a token, by its piece (its text in the vocabulary) and its id.

    There are three ways: pieces whose letters stand for single bytes (GPT-2's), pieces
    with ▁ for a space (SentencePiece), and whatever the tokenizer writes for the token
    behind a digit.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder = ""
    if backend is not None:
        decoder = str(json.loads(backend.to_str()).get("decoder"))
    write = partial(
        tokenizer.decode, skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    anchor = tokenized(tokenizer, "1")[-1:]
    before = len(write(anchor))
    letters = _letters_of_bytes()

    def bytes_of(piece: str, number: int) -> bytes:
        if "ByteLevel" in decoder and letters.keys() >= {*piece}:
            return bytes(letters[letter] for letter in piece)
        if "▁" not in decoder:
            return str(write([*anchor, number])[before:]).encode()
        byte = re.fullmatch("<0x([0-9A-F]{2})>", piece)
        return bytes.fromhex(byte[1]) if byte else piece.replace("▁", " ").encode()

    return bytes_of


def _letters_of_bytes() -> dict[str, int]:
    """Which byte each letter stands for in the vocabularies of GPT-2's kind: printable bytes stand for themselves."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    letters = {chr(byte): byte for byte in printable}
    others = sorted({*range(256)} - printable)
    for number, byte in enumerate(others, start=256):
        letters[chr(number)] = byte
    return letters


@lru_cache(maxsize=8)
def _trie(tokenizer: Any, end: int) -> Any:
    """A tokenizer in the form that llguidance reads: the bytes of all tokens, and the token `end` that ends a text."""
    # Imported late: most models write no values.
    from llguidance import LLTokenizer, TokenizerWrapper

    tokens = spelled(tokenizer)
    special = {number for number, text in enumerate(tokens) if not text}
    namespace = SimpleNamespace(
        tokens=tokens,
        eos_token_id=end,
        bos_token_id=None,
        special_token_ids=sorted(special | {end}),
    )
    return LLTokenizer(TokenizerWrapper(namespace), n_vocab=len(tokens))


class Grammar:
    """Allows the tokens with which a text goes on to fit a grammar, and `end` where the text may end.

    A pure function of the tokens that a row has made: states of the matcher are kept
    for the rows that go on.
    """

    def __init__(self, tokenizer: Any, end: int, grammar: str) -> None:
        """Read a grammar for a tokenizer, whose token `end` ends a text. A ValueError if llguidance does not take it."""
        from llguidance import LLMatcher

        start = LLMatcher(_trie(tokenizer, end), grammar, log_level=0)
        if start.is_error():
            raise ValueError(start.get_error())
        self._start = start
        self._end = mask_of([end])
        self._states = dict[tuple[int, ...], Any]()

    def __call__(self, tokens: Sequence[int]) -> bytes:
        """The bit mask of the tokens that may follow those that a row has made: bit t % 8 of byte t // 8 is token t.

        Where nothing fits the row ends, and its value is lost.
        """
        state = self._state(tuple(tokens))
        if state.is_stopped():
            return self._end
        mask: bytes = state.compute_bitmask()
        return mask if any(mask) else self._end

    def _state(self, tokens: tuple[int, ...]) -> Any:
        """The matcher's state behind these tokens, made of the state one token before if that is kept, and kept itself."""
        if not tokens:
            return self._start
        if tokens not in self._states:
            before = self._states.get(tokens[:-1], self._start)
            new = tokens if before is self._start else tokens[-1:]
            state = before.deep_copy()
            state.consume_tokens([*new])
            if len(self._states) >= _KEPT:
                oldest = next(iter(self._states))
                self._states.pop(oldest)
            self._states[tokens] = state
        return self._states[tokens]


@lru_cache(maxsize=64)  # the examples of a run share them
def allowed_of(
    tokenizer: Any,
    end: int,
    field: Field,
    texts: Sequence[str] = (),
    source: str | None = None,
    *,
    may_be_empty: bool = False,
) -> Allowed:
    """Make the `Allowed` function of a field's row: which tokens may follow those that the row has made.

    A pattern that llguidance cannot read holds a row to nothing.

    Args:
        tokenizer: Whose tokens the row is made of.
        end: The token that ends the row.
        field: What the row is held to.
        texts: The field's choices as the tokenizer spells them.
        source: The text that a value must be a part of; None where it need not be.
        may_be_empty: Whether the row may end at once, which says that there is no
            value.
    """
    plain = [pair for pair in field.keywords if pair[0] not in _UNREADABLE]

    def grammars() -> Iterator[str | None]:
        """The strictest grammar first: with all keywords, without those that may be unreadable, without any."""
        for keywords in (field.keywords, tuple(plain), ()):
            held = replace(field, keywords=keywords)
            if source is None:
                yield grammar_of(held, texts, may_be_empty=may_be_empty)
            else:
                yield span_grammar(source, held, may_be_empty=may_be_empty)

    return _readable(tokenizer, end, grammars())


def plain_allowed_of(
    tokenizer: Any,
    end: int,
    fields: Sequence[Field],
    keys: Sequence[str],
    texts: Sequence[Sequence[str]],
) -> Allowed:
    """Make the `Allowed` function of a whole object as a sequential model writes it: which tokens may follow others.

    `end` is the token that ends it. `keys` are what stands before each field's value,
    and `texts` each field's choices, both as the tokenizer spells them. Where llguidance
    cannot read the fields' keywords, these hold the object to nothing.
    """
    free = [replace(field, keywords=()) for field in fields]
    grammars = (plain_grammar(held, keys, texts) for held in (fields, free))
    return _readable(tokenizer, end, grammars)


def _readable(tokenizer: Any, end: int, grammars: Iterable[str | None]) -> Allowed:
    """What the first grammar allows that llguidance can read. Any token is allowed if this is None, or if it reads none."""
    for grammar in grammars:
        with suppress(ValueError):
            return any_token if grammar is None else Grammar(tokenizer, end, grammar)
    return any_token
