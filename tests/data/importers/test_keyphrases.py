"""Documents with keyphrases: what comes of each layout, and what is refused where."""

import pytest

from pipedec_cli.data.importers.keyphrases import keyphrases
from tests.data.importers.reading import check_refused, check_row

PAPER = {"title": "On grids", "abstract": "We draw."}
SHORT = {"title": "T", "abstract": "B"}
RNC = [["Speeches"], ["Republican National Convention", "RNC"]]
RNC_FIRST = (RNC[0][0], RNC[1][0])
DRAWN = "On grids We draw."
TWO = ("grid", "time step")
MIDAS = {
    "id": 1,
    "document": ["We", "draw", "grids", "."],
    "doc_bio_tags": ["O", "O", "B", "O"],
    "extractive_keyphrases": ["grids"],
    "abstractive_keyphrases": ["decoding"],
}
EMPTY = ("", " ; ;", [], [" "])


@pytest.mark.parametrize(
    ("row", "identifier", "source", "target"),
    [
        (PAPER | {"keyword": "grid;time step;x "}, None, DRAWN, (*TWO, "x")),
        (PAPER | {"id": 7, "keywords": ["grid", "time  step"]}, "7", DRAWN, TWO),
        # the first of each keyphrase's variants
        (
            PAPER | {"id": "02", "headline": "not read", "keyword": RNC},
            "02",
            DRAWN,
            RNC_FIRST,
        ),
        (MIDAS, "1", "We draw grids .", ("grids", "decoding")),
        (
            {"id": "14", "source": "A text", "keyphrases": ["a", "b"]},
            "14",
            "A text",
            ("a", "b"),
        ),
        *((SHORT | {"keywords": empty}, None, "T B", ()) for empty in EMPTY),
        (SHORT | {"keywords": [[""], []]}, None, "T B", ()),
    ],
)
def test_row_gives_its_identifier_source_and_target(
    write_lines, row, identifier, source, target
):
    check_row(write_lines, keyphrases, row, identifier, source, target)


def test_variants_of_keyphrases_are_a_further_field(write_lines):
    for variants, extra in ((RNC, {"keyphrase_variants": RNC}), ([["x"], ["y"]], {})):
        rows = write_lines("a.jsonl", SHORT | {"keyword": variants})
        (example,) = keyphrases(str(rows), None)
        assert example.extra == extra


@pytest.mark.parametrize(
    "row",
    [
        SHORT,
        {"keywords": ["a"]},
        SHORT | {"keywords": 3},
        SHORT | {"keywords": ["a", None]},
        SHORT | {"keyword": [["a"], [1]]},
        MIDAS | {"document": "a"},
        ["a"],
    ],
)
def test_wrong_row_is_refused_at_its_place(write_lines, tmp_path, row):
    files = {"train.jsonl": [SHORT | {"keywords": ["a"]}, row]}
    check_refused(write_lines, tmp_path, keyphrases, files, "train.jsonl:2")
