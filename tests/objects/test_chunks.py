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


def part(fields, confidence, **more):
    more = {
        "steps": 2,
        "tokens": 3,
        "seconds": 0.5,
        "source_ids": (1,),
        "grid": ((0, (1,)),),
        **more,
    }
    return Generated(text="", segments=(), fields=fields, confidence=confidence, **more)


def test_the_surest_value_of_each_key_is_kept_and_lists_are_joined(decoder):
    one = part(
        {
            "name": "x",
            "tags": ["u", "v"],
            "menu": [{"dish": "soup", "price": 3}, {"dish": "pie"}],
        },
        {
            "name": 0.5,
            "tags": 0.4,
            "menu": [{"dish": 0.9, "price": 0.1}, {"dish": 0.2}],
        },
        forced={"name": 0.3, "tags": 0.1},
        truncated="time_max",
        values_lost=1,
        source_ids=(1, 2),
        calls=(1, 2),
        taken_back=((1, 1, 2, 3),),
    )
    menu = [{"dish": "tea"}, {"dish": "soup", "price": 4}]
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
    first, second = Chunk("x u v soup pie"), Chunk(" v soup pie w tea", 3)
    parts = [
        (first, one),
        (second, two),
        (Chunk("", 20), part({"name": None}, {"name": 0.9})),
    ]
    made = decoder.chunks(20).merged(parts)
    assert (made.forced["name"], made.forced["tags"], made.forced["menu"][2]) == (
        0.2,
        0.7,
        {"dish": 0.6},
    )
    dishes = [{"dish": "soup", "price": 4}, {"dish": "pie"}, {"dish": "tea"}]
    assert made.fields == {
        "name": "y",
        "a": {"b": 7},
        "tags": ["u", "v", "w"],
        "menu": dishes,
    }
    sure = [{"dish": 0.9, "price": 0.2}, {"dish": 0.2}, {"dish": 0.8}]
    assert made.confidence == {"name": 0.6, "a": {"b": 0.3}, "tags": 0.4, "menu": sure}
    assert json.loads(made.text) == made.fields
    assert (made.steps, made.tokens, made.seconds, made.values_lost) == (6, 9, 1.5, 1)
    assert (made.truncated, made.source_ids) == ("time_max", (1, 2))
    assert made.grid == made.calls == made.taken_back == (), (
        "no part's grid is the grid of all"
    )
    assert decoder.chunks(20).merged([(first, one)]) is one


def merged_lists(decoder, *parts):
    """The tags and the dishes of chunks, each with its tags and dishes."""
    generated = []
    for chunk, tags, dishes in parts:
        fields = {"tags": tags, "menu": [{"dish": dish} for dish in dishes]}
        sure = {"tags": 0.5, "menu": [{"dish": 0.5} for _ in dishes]}
        generated.append((chunk, part(fields, sure)))
    fields = decoder.chunks(20).merged(generated).fields
    return fields["tags"], [item["dish"] for item in fields["menu"]]


def test_equal_items_in_different_places_stay_and_one_in_the_overlap_of_chunks_is_one(
    decoder,
):
    """The source says cable three times, the second of them in both chunks."""
    first, second = Chunk("cable, cable,"), Chunk(" cable, tea, cable", 6)
    names = ["cable", "cable"], ["cable", "tea", "cable"]
    wanted = ["cable", "cable", "tea", "cable"]
    assert merged_lists(
        decoder, (first, names[0], names[0]), (second, names[1], names[1])
    ) == (
        wanted,
        wanted,
    )


def test_items_of_chunks_that_stand_nowhere_are_told_apart_by_their_values(decoder):
    chunks = Chunk("a"), Chunk("b", 1)
    wanted = ["x", "y"]
    assert merged_lists(
        decoder, (chunks[0], ["x"], ["x"]), (chunks[1], wanted, wanted)
    ) == (wanted, wanted)


def test_a_value_of_chunks_that_must_be_there_keeps_how_probable_it_is_that_there_is_none(
    decoder,
):
    """That of the chunk whose value is taken."""
    one = part(
        {"name": "x", "none": "a"},
        {"name": 0.5, "none": 0.6},
        missing={"name": 0.9, "none": 0.8},
    )
    two = part({"name": "y", "none": "b"}, {"name": 0.4, "none": 0.7})
    made = decoder.chunks(20).merged([(Chunk("x"), one), (Chunk("y", 1), two)])
    assert (made.fields, made.missing) == ({"name": "x", "none": "b"}, {"name": 0.9})


def generate(place, *more, name="out.jsonl"):
    given = (
        place / "docs.jsonl",
        "--model",
        place / "model",
        "--out",
        place / name,
        *FEW,
    )
    return run("generate", *given, "--fields", "name, tags list", *more).stderr


def lines(place, name="out.jsonl"):
    return [{**line, "seconds": 0, "batch_size": 0} for line in lines_of(place / name)]


def test_a_short_text_gives_what_it_gives_without_chunks_and_a_long_one_all_that_its_chunks_give(
    place,
):
    generate(place, name="plain.jsonl")
    told = generate(place, "--set", "chunk=24", "--batch-size", 3)
    assert "2 sources read in 16 chunks, their objects merged" in told
    plain, made = lines(place, "plain.jsonl"), lines(place)
    assert made[0] == plain[0] and made[2] == plain[2]
    assert "confidence" not in made[1] and made[1]["source"] == LONG
    assert made[1]["steps"] > plain[1]["steps"]
    generate(
        place, "--set", "chunk=24", "--batch-size", 1, "--confidence", name="sure.jsonl"
    )
    sure = lines(place, "sure.jsonl")
    assert [line["fields"] for line in sure] == [line["fields"] for line in made]
    assert all(
        line["confidence"].keys() == line["forced"].keys() == line["fields"].keys()
        for line in sure
    )
    write_lines(place / "sure.jsonl", *lines_of(place / "sure.jsonl")[:1])
    generate(place, "--set", "chunk=24", "--confidence", "--resume", name="sure.jsonl")
    assert lines(place, "sure.jsonl") == sure


def test_chunks_that_nothing_can_be_made_of_are_refused(place):
    given = ("generate", "--text", LONG, "--model", place / "model", *FEW, "--set")
    assert "chunk=… is for a model that writes objects" in refused(*given, "chunk=24")
    assert "the model takes sources of at most" in refused(
        *given, "chunk=999999", "--fields", "name"
    )
    run(*given, "chunk=7", "--fields", "name", exit_code=2)
    pair = place / "pair.json"
    pair.write_text(
        '{"properties": {"at": {"type": "array", "prefixItems": [{}, {}]}}}'
    )
    assert "tuples and lists within lists of several chunks" in refused(
        *given, "chunk=24", "--schema", pair
    )
    shown = run(*given, "chunk=24", "--fields", "name", "--show-prompt").stdout
    assert "Place 0 has" in shown and "Place 11 has" not in shown
