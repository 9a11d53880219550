"""Texts with their summaries: what comes of each layout, and what is refused where."""

import pytest

from pipedec_cli.data.importers.summaries import cnn_dailymail, pubmed, wikihowqa
from tests.data.importers.reading import check_files, check_refused, check_row

COHAN = {"article_id": "PMC1", "article_text": ["first .", "second ."], "labels": None}
COHAN |= {"abstract_text": ["<S> we tried . </S>", "<S> it worked . </S>"]}
SUMPUBMED = {
    "text": "An article.",
    "shorter_abstract": "One. Two.",
    "abstract": "Long.",
    "filename_text": 12,
}
CNN = {"article": "It rained.", "highlights": "Rain fell .\nAll day .", "id": "abc"}
WIKIHOW = {"question": "how", "answer": "so .", "summary": "thus ."}
HIGHLIGHTS = ["@highlight", "", "Rain fell", "", "@highlight", "", "All day"]
STORY = ["(CNN) -- It rained.", "", "All day.", "", *HIGHLIGHTS]
FELL = ("Rain fell", "All day")
STORIES = [("a1", "(CNN) -- It rained. All day.", FELL), ("b2", "", FELL)]
TEXTS = {f"text/text_{n}.txt": ["an article", "", f"numbered {n}."] for n in (2, 10)}
TEXTS |= {f"shorter_abstract/abst_{n}.txt": ["one.", f"number {n}."] for n in (2, 10)}
NUMBERED = [
    (n, f"an article numbered {n}.", ("one.", f"number {n}.")) for n in ("2", "10")
]
PAIRS = [
    "how to cook\t1\t1",
    "how to cook\t2\t0",
    "how to boil\t0\t1",
    "how to heat\t0\t1",
]
RELEASED = {
    "summary.txt": [
        "0\tboil water first .\tboil it .",
        "1\tbuy a pan .\tget a pan .",
        "2\tno .\tno .",
    ],
    "train.txt": PAIRS,
    "test.txt": ["how to refuse\t2\t1"],
}
COOKING = [
    ("0", "question: how to boil context: boil water first .", "boil it ."),
    ("0", "question: how to heat context: boil water first .", "boil it ."),
    ("1", "question: how to cook context: buy a pan .", "get a pan ."),
]
ZIPPED = {"summary.txt.gz": ["5\tanswer\tsummary"], "valid.txt.gz": ["question\t5\t1"]}
TEXT_11 = "text/text_11.txt"


@pytest.mark.parametrize(
    ("read", "row", "identifier", "source", "target"),
    [
        (cnn_dailymail, CNN, "abc", "It rained.", ("Rain fell .", "All day .")),
        (pubmed, COHAN, "PMC1", "first . second .", ("we tried .", "it worked .")),
        (
            pubmed,
            {"article": " a .\n b .", "abstract": " c . d . "},
            None,
            "a .\n b .",
            "c . d .",
        ),
        # SumPubMed's line ends, a sentence a line, are lost on the hub
        (pubmed, SUMPUBMED, "12", "An article.", "One. Two."),
        (
            pubmed,
            SUMPUBMED | {"shorter_abstract": "One.\nTwo."},
            "12",
            "An article.",
            ("One.", "Two."),
        ),
        (wikihowqa, WIKIHOW, None, "question: how context: so .", "thus ."),
        (wikihowqa, {"text": "so .", "summary": "thus ."}, None, "so .", "thus ."),
    ],
)
def test_row_gives_its_identifier_source_and_target(
    write_lines, read, row, identifier, source, target
):
    check_row(write_lines, read, row, identifier, source, target)


BOTH_STORIES = {"b2.story": HIGHLIGHTS, "a1.story": STORY}
REFUSING = [("2", "question: how to refuse context: no .", "no .")]
QUESTION = [("5", "question: question context: answer", "summary")]


@pytest.mark.parametrize(
    ("read", "files", "place", "splits", "examples"),
    [
        (cnn_dailymail, BOTH_STORIES, ".", (), STORIES),
        (cnn_dailymail, BOTH_STORIES, "a1.story", (), STORIES[:1]),
        (pubmed, TEXTS, ".", (), NUMBERED),
        (wikihowqa, RELEASED, ".", ("train", "test"), COOKING),
        (wikihowqa, RELEASED, "test.txt", (), REFUSING),
        (wikihowqa, ZIPPED, "valid.txt.gz", (), QUESTION),
    ],
)
def test_files_of_their_own_kind_give_splits_and_examples(
    write_lines, read, files, place, splits, examples
):
    check_files(write_lines, read, files, place, splits, examples)


@pytest.mark.parametrize(
    ("read", "row"),
    [
        (pubmed, {"title": "x"}),
        (pubmed, {"text": "a", "abstract": "b"}),
        (wikihowqa, {"question": "how", "answer": "."}),
    ],
)
def test_wrong_row_is_refused_at_its_place(write_lines, tmp_path, read, row):
    check_refused(write_lines, tmp_path, read, {"train.jsonl": [row]}, "train.jsonl:1")


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("valid.txt", [PAIRS[0], "how\t99\t1"]),
        ("valid.txt", ["how 1"]),
        ("valid.txt", ["how\t1\tyes"]),
        ("summary.txt", ["1\tb"]),
    ],
)
def test_wrong_line_of_the_released_files_is_refused_at_its_place(
    write_lines, tmp_path, name, lines
):
    files = RELEASED | {"valid.txt": PAIRS[:1], name: lines}
    where = f"{name}:{len(lines)}"
    check_refused(write_lines, tmp_path, wikihowqa, files, where, "valid.txt")


@pytest.mark.parametrize(
    ("read", "files", "where", "place"),
    [
        (cnn_dailymail, {"a.story": ["x"]}, "a.story", None),
        (pubmed, TEXTS | {TEXT_11: ["x"]}, TEXT_11, "."),
    ],
)
def test_text_without_its_summary_is_refused(
    write_lines, tmp_path, read, files, where, place
):
    check_refused(write_lines, tmp_path, read, files, where, place)
