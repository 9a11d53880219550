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
_WIDER: Final = {"idn-email": "email", "idn-hostname": "hostname"} | dict.fromkeys(
    ("iri", "iri-reference", "uri-reference", "uri-template"), "uri"
)
#: Keywords that llguidance cannot always read.
_UNREADABLE: Final = ("pattern", "multipleOf")
_HEAD: Final = '%llguidance {"no_forcing": true}'
#: States of a grammar that are kept.
_KEPT: Final = 64


def grammar_of(
    field: Field, texts: Sequence[str] = (), *, may_be_empty: bool = False
) -> str | None:
    """The grammar, in llguidance's Lark, of a row's text.

    None if the field holds its row to nothing.

    `texts` are the choices as the tokenizer spells them. A row that `may_be_empty` can
    say that there is no value.
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
    """What a value, or an item of a list, may be, and how more items follow, which names the item as {}."""
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
    """What a value may be that is one of some texts, or an item that is."""
    if is_list:
        texts = [text_of([text]) for text in texts]
    return " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)


def _text(field: Field, keywords: Mapping[str, Any]) -> str | None:
    """What a string or an item may be; None if it is held to nothing."""
    is_list = field.kind == "list"
    expressions = list[str]()
    if field.kind != "any" and len(field.scalars) < 2:
        expressions += _strings(keywords)
    if expressions and is_list:
        expressions.append("[^|]*")
    if expressions:
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
    """What a number or a boolean may be."""
    bounds = {word: keywords[word] for word in OF_NUMBERS if word in keywords}
    ways = []
    for kind in kinds:
        if bounds and kind != "boolean":
            ways.append(f"%json {json.dumps(_bounded(kind, bounds))}")
        else:
            ways.append(_WRITTEN[kind])
    return " | ".join(ways)


def _bounded(kind: str, bounds: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a number within bounds.

    Its digits are bounded as well, since some models repeat a digit.
    """
    schema: dict[str, Any] = {"type": kind}
    if all(abs(bound) < _FAR for bound in bounds.values()):
        schema |= {"minimum": -_FAR, "maximum": _FAR}
    if kind == "number":
        schema["multipleOf"] = _FINEST
    return {**schema, **bounds}


def _more(keywords: Mapping[str, Any]) -> str:
    """How more items follow, which names the item as {}."""
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
    """The grammar of an object that a sequential model writes; see `plain_text`.

    Numbers are not held to bounds.

    `keys` are the openings of the first item and `texts` the choices, both as the
    tokenizer spells them.
    """
    lines = list[str]()
    for number, (field, key) in enumerate(zip(fields, keys, strict=True)):
        lines += _pair(number, field, key, texts[number])
    listed = [f"PAIR{number}" for number, field in enumerate(fields) if field.listed]
    if listed:
        lines.append(f"REST{len(fields)}: ITEM (/; ?/ ITEM)*")
        lines.append(f"ITEM: {' | '.join(listed)}")
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


def _pair(number: int, field: Field, key: str, texts: Sequence[str]) -> Iterator[str]:
    """The lines of a key and its value."""
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
    """The expressions that all hold for a string with these keywords."""
    expression = format_expression(keywords.get("format", ""))
    if expression:
        yield expression
    found = None
    if "pattern" in keywords:
        found = searched(keywords["pattern"])
    if found:
        yield found
    if found or "minLength" in keywords or "maxLength" in keywords:
        yield _length(keywords.get("minLength", 1), keywords.get("maxLength"))


def _length(least: int, most: int | None) -> str:
    """The expression of texts of such a length, which have no white space around them."""
    if most == 1:
        return r"\S"
    inner = "" if most is None else max(0, most - 2)
    longer = rf"\S.{{{max(0, least - 2)},{inner}}}\S"
    return longer if least > 1 else rf"\S|{longer}"


def is_free(field: Field) -> bool:
    """Whether a value, or each item of a list, may be any text of a length.

    A format that is not known and a pattern that cannot be read hold a row to nothing.
    """
    keywords = dict(field.keywords)
    is_scalar = field.scalars and "string" not in field.scalars
    if field.kind not in ("string", "list") or field.enum or is_scalar:
        return False
    if FREE in keywords or keywords.get("format") in HELD_FORMATS:
        return False
    return "pattern" not in keywords or not holds(keywords["pattern"])


def span_grammar(source: str, field: Field, *, may_be_empty: bool = False) -> str:
    """The grammar of a part of a source that begins and ends where a word does, or of several such items.

    A row that `may_be_empty` can say that there is no value. Words are those of Unicode
    (UAX 29), the possessive 's apart. White space is one space.
    """
    is_list = field.kind == "list"
    keywords = dict(field.keywords)
    text = " ".join(source.split()).replace("|", "||" if is_list else "|")
    words = [*filter(None, regex.split(r"(?V1w)\b|(?=['’]s\b)", text))]
    least = keywords.get("minLength", 0)
    most = min(len(text), keywords.get("maxLength", len(text)))
    length = (
        rf" & /.{{{min(least, most)},{most}}}/" if least or most < len(text) else ""
    )
    more = _more(keywords).format("SPAN") if is_list else ""
    lines = (
        _HEAD,
        f"start: (/ ?/ ROW){'?' if may_be_empty else ''}",
        f"ROW: SPAN{more}",
        rf"SPAN: PART & /[^ .,;:!?)](.*[^ .,;:!?(])?/{length}",
        f"PART: %regex {json.dumps({'substring_chunks': words})}",
    )
    return "\n".join(lines)


@lru_cache(maxsize=8)
def spelled(tokenizer: Any) -> list[bytes]:
    """The bytes that each token of a tokenizer writes within a text; none of special tokens."""
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
    """A function that gives the bytes of a token, by its piece and its number."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder = ""
    if backend is not None:
        decoder = str(json.loads(backend.to_str()).get("decoder"))
    write = partial(
        tokenizer.decode, skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    anchor = tokenizer("1", add_special_tokens=False)["input_ids"][-1:]
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
    """The bytes by the letters that stand for them in tokens of bytes, as GPT-2 has them."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    letters = {chr(byte): byte for byte in printable}
    others = sorted({*range(256)} - printable)
    for number, byte in enumerate(others, start=256):
        letters[chr(number)] = byte
    return letters


@lru_cache(maxsize=8)
def _trie(tokenizer: Any, end: int) -> Any:
    """The tokens as llguidance reads them."""
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
        """A ValueError if llguidance does not take the grammar."""
        from llguidance import LLMatcher

        start = LLMatcher(_trie(tokenizer, end), grammar, log_level=0)
        if start.is_error():
            raise ValueError(start.get_error())
        self._start, self._end = start, mask_of([end])
        self._states = dict[tuple[int, ...], Any]()

    def __call__(self, made: Sequence[int]) -> bytes:
        """The mask behind these tokens; see `Allowed`."""
        state = self._state(tuple(made))
        mask: bytes = self._end if state.is_stopped() else state.compute_bitmask()
        return (
            mask if any(mask) else self._end
        )  # nothing fits: the row ends, and its value is lost

    def _state(self, made: tuple[int, ...]) -> Any:
        if not made:
            return self._start
        if made not in self._states:
            known = self._states.get(made[:-1], self._start)
            state = known.deep_copy()
            state.consume_tokens([*(made if known is self._start else made[-1:])])
            if len(self._states) >= _KEPT:
                self._states.pop(next(iter(self._states)))
            self._states[made] = state
        return self._states[made]


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
    """Which tokens may follow in the row of a field, whose values are parts of a `source` if there is one.

    See `grammar_of` and `span_grammar`. A pattern that llguidance cannot read holds
    nothing.
    """
    plain = [pair for pair in field.keywords if pair[0] not in _UNREADABLE]

    def grammars() -> Iterator[str | None]:
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
    """Which tokens may follow in an object that a sequential model writes.

    See `plain_grammar` and `allowed_of`.
    """
    free = [replace(field, keywords=()) for field in fields]
    grammars = (plain_grammar(held, keys, texts) for held in (fields, free))
    return _readable(tokenizer, end, grammars)


def _readable(tokenizer: Any, end: int, grammars: Iterable[str | None]) -> Allowed:
    """The first grammar that llguidance can read; anything is allowed if it is None, or there is none."""
    for grammar in grammars:
        with suppress(ValueError):
            return any_token if grammar is None else Grammar(tokenizer, end, grammar)
    return any_token
