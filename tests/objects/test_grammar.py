"""What rows are held to: the texts that a grammar allows, in the tokens of several kinds of tokenizers."""

import random
import re
import time
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipedec_cli.data.fields import Field
from pipedec_cli.model.text import TextCodec
from pipedec_cli.objects.grammar import (
    Grammar,
    allowed_of,
    format_expression,
    grammar_of,
    span_grammar,
    spelled,
)
from pipedec_cli.objects.keywords import HELD, HELD_FORMATS, HOLD_NOTHING
from pipedec_cli.pipeline.grid import any_token
from tests.fakes import tokens_in
from tests.model.test_checkpoint import words_tokenizer
from tests.model.test_prompt_ids import KINDS, tokenizer_of

END = 0


def field(kind="string", **keywords):
    """Each in its schema's words; what a schema says of items holds for a list."""
    parts = {
        name: keywords.pop(name)
        for name in ("enum", "scalars", "absent")
        if name in keywords
    }
    return Field("x", kind, keywords=tuple(keywords.items()), **parts)


def fits(allowed, ids):
    """Whether a row may be written in these tokens and end."""
    made = [*ids, END]
    return all(token in tokens_in(allowed(made[:at])) for at, token in enumerate(made))


TABLE = [
    (field("integer"), ["12", "-3", "0", ""], ["1.5", "007", "+1", "a", "1e5"]),
    (field("integer"), [30 * "1"], [31 * "1"]),
    (field("integer", minimum=3, maximum=20), ["3", "20"], ["2", "21", "-3", "none"]),
    (field("integer", multipleOf=5), ["15", "0"], ["12"]),
    (field("integer", absent=("never",)), ["12"], [""]),
    (
        field("number"),
        ["12", "0.5", "-1e5", "3E+20", "2.50", "0." + 17 * "1"],
        ["0." + 18 * "1", "1.", ".5", "1e", "1e400"],
    ),
    (field("number", exclusiveMinimum=0), ["0.5", "7"], ["0", "-1"]),
    (field("boolean"), ["true", "false"], ["yes", "True", "none"]),
    (field(scalars=("integer", "boolean")), ["true", "12"], ["yes"]),
    (
        field(enum=("in", "in town", "a|b")),
        ["in", "in town", "a|b"],
        ["town", "in ", "none"],
    ),
    (
        field("list", enum=("in", "a|b")),
        ["in", "in | a||b", "a||b | in | in"],
        ["a|b", "in town", "in |"],
    ),
    (
        field("list", scalars=("integer",), minimum=3),
        ["3", "4 | 30"],
        ["1", "3 | 1", "a"],
    ),
    (
        field("list", minItems=2, maxItems=3),
        ["a | b", "a b | c | d", "a||b | c"],
        ["a", "a | b | c | d"],
    ),
    (field("list", minItems=1, absent=("never",)), ["a"], [""]),
    (field(pattern="^[A-Z]{2}$"), ["AB"], ["A", "abc", "ABC"]),
    (field(pattern="ab/c", maxLength=6), ["xab/c", "ab/c"], ["ab", "xxxab/c"]),
    (field(pattern="(?=a)", maxLength=3), ["abc"], ["abcd"]),
    (field(minLength=3), ["abc", "a c", "no one"], ["ab", "a"]),
    (field(maxLength=1), ["a"], ["ab"]),
    (
        field(format="date"),
        ["2024-02-29", "1999-12-31"],
        ["2024-02-30", "2024-13-01", "24-1-1"],
    ),
    (field(format="time"), ["09:30:00Z", "23:59:59.5+01:00"], ["24:00:00Z", "09:30"]),
    (
        field(format="date-time"),
        ["2024-02-29T09:30:00Z"],
        ["2024-02-29 09:30:00", "2024-02-29", "2024-01-00T09:30:00Z"],
    ),
    (
        field(format="email"),
        ["a@b.com", "a.b@c.example.org"],
        ["a", "a@", "@b.com", "a b@c.de"],
    ),
    (
        field(format="uri"),
        ["https://a.b/c?d=1", "mailto:a@b.c"],
        ["a.b", "https://a b"],
    ),
    (field(format="uuid"), ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567"]),
    (field(format="ipv4"), ["192.168.0.255"], ["192.168.0.256", "1.2.3"]),
    (field(format="ipv6"), ["2001:db8:0:0:0:0:0:1"], ["2001:db8", "g:0:0:0:0:0:0:1"]),
    (field(format="hostname"), ["a.example.org", "box"], ["-a.org", "a..b", "a_b"]),
]


@pytest.mark.parametrize(
    ("held", "good", "bad"), TABLE, ids=lambda value: str(value)[:40]
)
def test_a_row_may_say_what_its_schema_allows_and_nothing_else(held, good, bad):
    tokenizer = tokenizer_of("_gpt2")
    codec = TextCodec(tokenizer, "", 99, END)
    allowed = allowed_of(tokenizer, END, held, held.enum, may_be_empty=not held.must)
    for space in ("", " "):
        assert [
            text
            for text in good
            if text and not fits(allowed, codec.ids([space + text])[0])
        ] == []
        assert [
            text for text in bad if text and fits(allowed, codec.ids([space + text])[0])
        ] == []
    assert ("" in bad) != fits(allowed, [])


SOURCE = "The Eagle is a  family-friendly\npub near Café Rouge, and Anna's meal (soup | fish) costs $3.50."


@pytest.mark.parametrize(
    ("listed", "good", "bad"),
    [
        (
            False,
            "The Eagle; a family-friendly pub; friendly; 3.50; $3.50; Anna; Café Rouge; soup | fish",
            [
                "Eag",
                "the Eagle",
                "Eagle near",
                "3.5",
                "pub near Café Rouge,",
                ", and",
                "Caf",
                "a  family",
                "none",
            ],
        ),
        (
            True,
            "The Eagle; Anna | Eagle | Anna; soup || fish",
            ["Eagle | Eag", "The Eagle |", "none"],
        ),
    ],
)
def test_a_part_of_a_source_begins_and_ends_where_a_word_does(listed, good, bad):
    tokenizer = tokenizer_of("_gpt2")
    codec, kind = (
        TextCodec(tokenizer, "", 99, END),
        field("list" if listed else "string"),
    )
    allowed = Grammar(tokenizer, END, span_grammar(SOURCE, kind))
    assert [
        text for text in good.split("; ") if not fits(allowed, codec.ids([text])[0])
    ] == []
    assert [text for text in ["", *bad] if fits(allowed, codec.ids([text])[0])] == []
    held = field(kind.kind, maxLength=9, maxItems=1, minItems=1)
    short = Grammar(tokenizer, END, span_grammar(SOURCE, held))
    texts = ["The Eagle", "Anna", "The Eagle is", "Anna | Eagle"]
    assert [text for text in texts if fits(short, codec.ids([text])[0])] == texts[:2]


@pytest.mark.parametrize("kind", ["string", "list"])
def test_an_abbreviation_keeps_its_full_stop_and_a_sentence_does_not(kind):
    tokenizer = tokenizer_of("_gpt2")
    codec = TextCodec(tokenizer, "", 99, END)
    source = "Acme Inc. of Washington, D.C. sells a pie. John Q. Public Jr. works at S.p.A. Zinc. It is."
    allowed = Grammar(tokenizer, END, span_grammar(source, field(kind)))

    def may_say(text):
        return fits(allowed, codec.ids([text])[0])

    good = "Acme Inc.; Inc.; Acme Inc; Washington, D.C.; D.C.; Jr.; John Q. Public Jr.; S.p.A.; Q. Public"
    assert [text for text in good.split("; ") if not may_say(text)] == []
    bad = ["a pie.", "Zinc.", "works at S.p.A. Zinc.", "It is.", ".", "Inc. of.", "C."]
    assert [text for text in bad if may_say(text)] == []
    if kind == "list":
        assert may_say("Acme Inc. | Jr. | pie")


def test_a_row_that_may_be_empty_may_say_nothing_or_a_part_of_its_source():
    tokenizer = tokenizer_of("_gpt2")
    codec = TextCodec(tokenizer, "", 99, END)
    allowed = Grammar(tokenizer, END, span_grammar(SOURCE, field(), may_be_empty=True))
    assert fits(allowed, [])
    assert fits(allowed, codec.ids(["The Eagle"])[0])
    assert not fits(allowed, codec.ids(["Eag"])[0])


def test_of_a_blank_source_no_row_says_anything():
    tokenizer = tokenizer_of("_gpt2")
    codec = TextCodec(tokenizer, "", 99, END)
    nothing = Grammar(tokenizer, END, span_grammar(" ", field()))
    assert {codec.decode([token]) for token in tokens_in(nothing([]))} <= {"", " "}
    assert not fits(nothing, codec.ids(["a"])[0])


@pytest.mark.parametrize(
    "held", [field(), field("any"), field("list"), field(pattern="^a|b$")], ids=repr
)
def test_a_row_that_is_held_to_nothing_may_say_anything(held):
    assert allowed_of(tokenizer_of("_gpt2"), END, held) is any_token


class Occupied:
    """A tokenizer that takes its time, and notes whether it was called before a call had ended."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        self._busy = False
        self.overlapped = False

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)

    def __call__(self, texts, **options):
        self.overlapped |= self._busy
        self._busy = True
        time.sleep(0.2)
        self._busy = False
        return self._tokenizer(texts, **options)


def test_the_tokens_are_spelled_while_no_other_thread_tokenizes():
    """A tokenizer is told with each text whether special tokens are text."""
    tokenizer = Occupied(words_tokenizer(60))
    codec = TextCodec(tokenizer, "", 99, END)
    with ThreadPoolExecutor() as pool:
        calls = pool.submit(codec.ids, ["12"]), pool.submit(spelled, tokenizer)
    assert all(call.result() for call in calls)
    assert not tokenizer.overlapped


@pytest.mark.parametrize("kind", [*KINDS, "words"])
def test_the_tokens_of_a_text_spell_it(kind):
    tokenizer = words_tokenizer(60) if kind == "words" else tokenizer_of(kind)
    codec, bytes_of = TextCodec(tokenizer, "", 99, END), spelled(tokenizer)
    words = [
        word for word in tokenizer.get_vocab() if word.isascii() and word.isalnum()
    ][:20]
    for text in (
        "12 0",
        " ".join(words),
        *(["naïve 漢字"] if kind in ("_gpt2", "_llama3") else []),
    ):
        ids = codec.ids([text])[0]
        if tokenizer.unk_token_id not in ids:
            assert b"".join(bytes_of[number] for number in ids).decode().strip() == text


FORMATS = "date time date-time duration email idn-email hostname idn-hostname ipv4 ipv6 uri iri uri-reference iri-reference"


@pytest.mark.parametrize(
    "name",
    f"{FORMATS} uri-template uuid json-pointer relative-json-pointer regex".split(),
)
@settings(max_examples=30)
@given(data=st.data())
def test_texts_of_a_format_validate(name, data):
    written = re.compile(format_expression(name), re.ASCII)
    validator = jsonschema_rs.validator_for(
        {"type": "string", "format": name}, validate_formats=True
    )
    text = data.draw(st.from_regex(written, fullmatch=True))
    assume("02-29" not in text)  # of any year: the object is checked at the end
    validator.validate(text)


def test_what_is_written_at_random_validates():
    """Strings, numbers and lists of a toy model that says any token that is allowed, the end where it may."""
    tokenizer, chance = tokenizer_of("_gpt2"), random.Random(0)
    codec = TextCodec(tokenizer, "", 99, END)
    kinds, written = {"list": "array"}, 0
    for held, *_ in TABLE:
        if held.enum or held.scalars or "(?=" in str(held.keywords):
            continue
        schema = {"type": kinds.get(held.kind, held.kind), **dict(held.keywords)}
        checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
        allowed = allowed_of(tokenizer, END, held)
        for _ in range(20):
            made = []
            while len(made) < 60 and END not in made:
                choice = tokens_in(allowed(made))
                made.append(
                    END
                    if END in choice and chance.random() < 0.5
                    else chance.choice(choice)
                )
            value = held.parsed(codec.decode(made[:-1]))
            if made[-1] == END and len(made) > 1:
                written += 1
                jsonschema.validate(value, schema, format_checker=checker)
    assert written > 200


def test_where_nothing_fits_the_row_ends():
    """As behind tokens that the grammar does not know."""
    tokenizer = tokenizer_of("_gpt2")
    allowed = allowed_of(tokenizer, END, field("integer"))
    assert tokens_in(allowed([tokenizer.get_vocab()["a"]])) == [END]


def test_a_mask_is_a_function_of_the_tokens_however_many_states_are_kept(monkeypatch):
    monkeypatch.setattr("pipedec_cli.objects.grammar._KEPT", 3)
    tokenizer = tokenizer_of("_gpt2")
    codec = TextCodec(tokenizer, "", 99, END)
    allowed = allowed_of(tokenizer, END, field("number"))
    rows = [codec.ids([text])[0] for text in ("12.5", "-3e5", "12.7", "0.25", "7")]
    places = [(row, at) for row in rows for at in range(len(row) + 1)]
    random.Random(1).shuffle(places)
    for row, at in places:
        assert allowed(row[:at]) == allowed_of(tokenizer, END, field("number"))(
            row[:at]
        )


def test_all_keywords_of_a_schema_that_rows_are_held_to_are_tried_here():
    assert {word for held, *_ in TABLE for word, _ in held.keywords} >= {*HELD} - {
        "exclusiveMaximum"
    } - HOLD_NOTHING


def test_the_formats_that_are_said_to_be_held_are_those_that_rows_are_held_to():
    named = {*HELD_FORMATS, "phone", "password", "path", "binary", "decimal", "int32"}
    held = {name for name in named if grammar_of(field(format=name)) is not None}
    assert held == HELD_FORMATS
