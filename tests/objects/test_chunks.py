"""Long sources in chunks: they cover the text, a short text stays as it is, and the surest values are kept."""

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.fields import Field
from pipedec_cli.data.records import Generated
from pipedec_cli.decoding.blind import blind_decoder
from pipedec_cli.decoding.decoder import load
from pipedec_cli.objects.chunks import Chunk, Chunks
from pipedec_cli.objects.rows import Rows
from pipedec_cli.objects.tree import tree_of
from tests.jobs.test_blind import FEW
from tests.model.chats import foreign
from tests.running import lines_of, refused, run, write_lines

FIELDS = (
    Field("name"),
    Field("a.b", "integer", path=("a", "b")),
    Field("tags", "list"),
    Field("menu[].price", "integer", path=("menu", 0, "price")),
    Field("menu[].dish", path=("menu", 0, "dish")),
    Field("none"),
)
LONG = " ".join(f"Place {n} has Thai food." for n in range(12))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chunks")
    foreign(folder / "model")
    texts = ("Aromi has Greek food.", LONG, "Short.", LONG[:-40])
    write_lines(folder / "docs.jsonl", *({"source": text} for text in texts))
    return folder


@pytest.fixture(scope="module")
def decoder(place):
    return blind_decoder(
        load(str(place / "model"), device="cpu"), Rows(tree_of(FIELDS))
    )


def words(text, size):
    """The chunks of a text each of whose words is as many tokens as it has letters."""
    codec = SimpleNamespace(
        ids=lambda found: [[0] * len(word.strip()) for word in found],
        max_source_tokens=99,
        longest_around=0,
    )
    return Chunks(codec, None, size).cut(text)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(8, 60))
def test_chunks_cover_a_text_and_are_no_longer_than_asked(lengths, size):
    text, at = " ".join(chr(0x4E00 + n) * length for n, length in enumerate(lengths)), 0
    cut = words(text, size)
    chunks = [chunk.text for chunk in cut]
    assert (chunks == [text]) == (sum(lengths) <= size or len(lengths) == 1)
    for chunk in chunks:
        length = len("".join(chunk.split()))
        assert length <= size or len(chunk.split()) == 1
        assert text.index(chunk) <= at, "nothing is left out"
        at = text.index(chunk) + len(chunk)
    assert at == len(text)
    assert all(text[chunk.start :].startswith(chunk.text) for chunk in cut)


def test_chunks_share_an_eighth_of_their_length():
    assert words("aa bb cc dd ee ff gg hh ii", 16) == [
        ("aa bb cc dd ee ff gg hh", 0),
        (" hh ii", 20),
    ]
    assert [chunk.text for chunk in words("x" * 200, 70)] == ["x" * 64] * 3 + ["x" * 8]


def part(fields, sure, **more):
    usual = {"steps": 2, "tokens": 3, "seconds": 0.5, "source_ids": (1,)}
    usual["grid"] = ((0, (1,)),)
    return Generated(
        text="", segments=(), fields=fields, confidence=sure, **{**usual, **more}
    )


def test_the_surest_value_of_each_key_is_kept_and_lists_are_joined(decoder):
    soup = {"dish": "soup", "price": 3}
    one = part(
        {"name": "x", "tags": ["u", "v"], "menu": [soup, {"dish": "pie"}]},
        {
            "name": 0.5,
            "tags": 0.4,
            "menu": [{"dish": 0.9, "price": 0.1}, {"dish": 0.2}],
        },
        forced={"name": 0.3, "tags": 0.1},
    )
    menu = [{"dish": "tea"}, {**soup, "price": 4}]
    two = part(
        {"name": "y", "a": {"b": 7}, "tags": ["v", "w"], "menu": menu},
        {
            "name": 0.6,
            "a": {"b": 0.3},
            "tags": 0.7,
            "menu": [{"dish": 0.8}, {"dish": 0.1, "price": 0.2}],
        },
        forced={"name": 0.2, "tags": 0.7, "menu": [{"dish": 0.6}, {}]},
    )
    empty = part({"name": None}, {"name": 0.9})
    chunks = Chunk("x u v soup pie"), Chunk(" v soup pie w tea", 3), Chunk("", 20)
    made = decoder.chunks(20).merged([*zip(chunks, (one, two, empty), strict=True)])
    dishes = [{**soup, "price": 4}, {"dish": "pie"}, {"dish": "tea"}]
    tags = ["u", "v", "w"]
    assert made.fields == {"name": "y", "a": {"b": 7}, "tags": tags, "menu": dishes}
    assert json.loads(made.text) == made.fields
    sure = [{"dish": 0.9, "price": 0.2}, {"dish": 0.2}, {"dish": 0.8}]
    assert made.confidence == {"name": 0.6, "a": {"b": 0.3}, "tags": 0.4, "menu": sure}
    assert (made.forced["name"], made.forced["tags"]) == (0.2, 0.7)
    assert made.forced["menu"][2] == {"dish": 0.6}


def test_the_costs_of_chunks_are_added_up_and_no_grid_is_the_grid_of_all(decoder):
    cut = part(
        {"name": "x"},
        {"name": 0.5},
        truncated="time_max",
        values_lost=1,
        source_ids=(1, 2),
        calls=(1, 2),
        taken_back=((1, 1, 2, 3),),
    )
    chunks = [(Chunk("x"), cut), (Chunk("y", 3), part({"name": "y"}, {"name": 0.1}))]
    made = decoder.chunks(20).merged(chunks)
    assert (made.steps, made.tokens, made.seconds, made.values_lost) == (4, 6, 1.0, 1)
    assert (made.truncated, made.source_ids) == ("time_max", (1, 2))
    assert made.grid == made.calls == made.taken_back == ()
    assert decoder.chunks(20).merged(chunks[:1]) is cut


@pytest.mark.parametrize(
    ("chunks", "items", "wanted"),
    [
        # The source says cable three times, the second of them in both chunks.
        (
            (Chunk("cable, cable,"), Chunk(" cable, tea, cable", 6)),
            (["cable", "cable"], ["cable", "tea", "cable"]),
            ["cable", "cable", "tea", "cable"],
        ),
        ((Chunk("a"), Chunk("b", 1)), (["x"], ["x", "y"]), ["x", "y"]),
    ],
    ids=["places", "values"],
)
def test_items_of_chunks_are_told_apart_by_their_places_else_by_their_values(
    decoder, chunks, items, wanted
):
    parts = []
    for chunk, names in zip(chunks, items, strict=True):
        menu = [{"dish": name} for name in names]
        sure = {"tags": 0.5, "menu": [{"dish": 0.5}] * len(names)}
        parts.append((chunk, part({"tags": names, "menu": menu}, sure)))
    made = decoder.chunks(20).merged(parts).fields
    assert made == {"tags": wanted, "menu": [{"dish": name} for name in wanted]}


def test_a_value_of_chunks_that_must_be_there_keeps_how_probable_it_is_that_there_is_none(
    decoder,
):
    """That of the chunk whose value is taken."""
    sure = {"name": 0.5, "none": 0.6}
    missing = {"name": 0.9, "none": 0.8}
    one = part({"name": "x", "none": "a"}, sure, missing=missing)
    two = part({"name": "y", "none": "b"}, {"name": 0.4, "none": 0.7})
    made = decoder.chunks(20).merged([(Chunk("x"), one), (Chunk("y", 1), two)])
    assert (made.fields, made.missing) == ({"name": "x", "none": "b"}, {"name": 0.9})


def generate(place, name, *more):
    files = (place / "docs.jsonl", "--model", place / "model", "--out", place / name)
    asked = ("--fields", "name, tags list", *more)
    told = run("generate", *files, *FEW, *asked).stderr
    return told, [
        {**line, "seconds": 0, "batch_size": 0} for line in lines_of(place / name)
    ]


def test_a_short_text_gives_what_it_gives_without_chunks_and_a_long_one_all_that_its_chunks_give(
    place,
):
    chunked = ("--set", "chunk=24")
    _, plain = generate(place, "plain.jsonl")
    told, made = generate(place, "out.jsonl", *chunked, "--batch-size", 3)
    assert "2 sources read in 16 chunks, their objects merged" in told
    assert made[0] == plain[0] and made[2] == plain[2]
    assert "confidence" not in made[1] and made[1]["source"] == LONG
    assert made[1]["steps"] > plain[1]["steps"]
    sure = (*chunked, "--confidence")
    _, lines = generate(place, "sure.jsonl", *sure, "--batch-size", 1)
    for line, plainly in zip(lines, made, strict=True):
        assert line["fields"] == plainly["fields"]
        keys = line["confidence"].keys()
        assert keys == line["forced"].keys() == line["fields"].keys()
    write_lines(place / "sure.jsonl", *lines_of(place / "sure.jsonl")[:1])
    assert generate(place, "sure.jsonl", *sure, "--resume")[1] == lines


def test_chunks_that_nothing_can_be_made_of_are_refused(place):
    given = ("generate", "--text", LONG, "--model", place / "model", *FEW, "--set")
    named = ("--fields", "name")
    refused(*given, "chunk=24")
    refused(*given, "chunk=999999", *named)
    run(*given, "chunk=7", *named, exit_code=2)
    pair = place / "pair.json"
    pair.write_text(
        '{"properties": {"at": {"type": "array", "prefixItems": [{}, {}]}}}'
    )
    refused(*given, "chunk=24", "--schema", pair)
    shown = run(*given, "chunk=24", *named, "--show-prompt").stdout
    assert "Place 0 has" in shown and "Place 11 has" not in shown
