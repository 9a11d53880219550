"""`pipedec import`, from published files to JSON lines, as a user runs it."""

import gzip
import json
from functools import partial
from pathlib import Path
from typing import get_args

import pytest

from pipedec_cli.data.importers import IMPORTERS
from pipedec_cli.data.inputs import given_splits
from pipedec_cli.jobs.import_ import DataSet
from tests import running
from tests.running import lines_of, refused, write_lines
from tests.words import same_words

run = partial(running.run, "import")
pytestmark = pytest.mark.usefixtures("empty_folder")

MSQA = {
    "question": ["who", "?"],
    "context": ["Ann", "and", "Bo"],
    "label": ["B", "O", "B"],
}
NOUNS = "grid token model table river stone house engine letter window"
KEYPHRASES = {"title": "On grids", "abstract": "We draw.", "keyword": "grid;time step"}


def test_splits_of_a_folder_become_a_folder_and_one_of_them_a_file():
    assert list(get_args(DataSet)) == list(
        IMPORTERS
    )  # what can be typed is what there is
    write_lines("published/kp20k_training.json", KEYPHRASES, KEYPHRASES)
    write_lines("published/kp20k_validation.json", KEYPHRASES)
    result = run("kp20k", "published")
    assert result.stdout == ""
    same_words(result.stderr)
    counts = [len(lines_of(f"kp20k/{split}.jsonl")) for split in ("train", "dev")]
    assert counts == [2, 1]
    assert not Path("kp20k/test.jsonl").exists()
    run("kp20k", "published", "--split", "dev")
    assert len(lines_of("kp20k-dev.jsonl")) == 1
    few = ("--split", "train", "--limit", 1)
    run("kp20k", "published", *few, "--out", "out/mine.jsonl")
    assert len(lines_of("out/mine.jsonl")) == 1


def test_split_without_answers_is_named_for_segment_and_what_had_to_be_changed_is_said_even_when_quiet():
    Path("msqa_data").mkdir()
    unlabelled = {key: value for key, value in MSQA.items() if key != "label"}
    for split, row in (("train", MSQA), ("test", unlabelled)):
        content = json.dumps({"data": [{"id": "q", **row}]})
        Path(f"msqa_data/{split}.json").write_text(content)
    same_words(run("msqa", "msqa_data").stderr)
    assert not Path("msqa/test.jsonl").exists()
    assert "target" not in lines_of("msqa/unlabelled-test.jsonl")[0]
    assert given_splits("msqa") == ("train",)
    write_lines(
        "a.jsonl",
        {"article": "", "highlights": "H"},
        {"article": "A", "highlights": "H", "id": "1"},
    )
    result = run("cnn_dailymail", "a.jsonl", "--quiet")
    assert len(lines_of("cnn_dailymail.jsonl")) == 1
    same_words(result.stderr)


def test_json_gives_the_statistics_of_table_1_sentences_counted_and_the_papers():
    write_lines(
        "a.jsonl",
        KEYPHRASES | {"keyword": "one two;three"},
        KEYPHRASES | {"keyword": "four"},
    )
    result = run("kp20k", "a.jsonl", "--json")
    report = json.loads(result.stdout)
    (file,) = report["files"]
    statistics = file["statistics"]
    assert (statistics["words_per_target"], statistics["subsequences_per_target"]) == (
        2.0,
        1.5,
    )
    assert statistics["words_per_subsequence"] == pytest.approx(4 / 3, abs=1e-3)
    assert report["paper"]["words_per_target"] == 10.6
    assert (file["path"], file["examples"], file["left_out"]) == ("kp20k.jsonl", 2, 0)
    nouns = NOUNS.split()
    text = "We gave the {0} a {1}. The {0} met another {1}. No {0} knows every {1}."
    abstracts = [text.format(x, y) for x in nouns for y in nouns]
    write_lines(
        "a.jsonl",
        *[{"article": "body", "abstract": abstract} for abstract in abstracts],
    )
    report = json.loads(run("pubmed", "a.jsonl", "--json").stdout)
    assert report["files"][0]["statistics"]["subsequences_per_target"] == 3.0
    assert [row["target"] for row in lines_of("pubmed.jsonl")] == abstracts


def test_stdout_gets_the_data_stderr_the_table_and_text_that_drives_terminals_is_data(
    empty_folder,
):
    hostile = "\x1b[31mred\x1b[0m [bold]x[/bold] :smile: \x00"
    write_lines(
        "a.jsonl", KEYPHRASES | {"title": hostile, "keyword": [hostile, "grid"]}
    )
    result = run("kp20k", "a.jsonl", "--out", "-")
    row = json.loads(result.stdout)
    assert row["source"].startswith(hostile)
    assert row["target"] == [hostile, "grid"]
    assert "\x1b" not in same_words(result.stderr)
    assert sorted(path.name for path in empty_folder.iterdir()) == ["a.jsonl"]


def test_parallel_files_are_imported_with_the_options_of_their_own():
    Path("a.txt").write_text("title <eos> body\nsecond\n")
    Path("b.txt").write_text("x | y\n\n")
    run("parallel", "a.txt", "--targets", "b.txt", "--separator", "|")
    rows = [(row["source"], row["target"]) for row in lines_of("parallel.jsonl")]
    assert rows == [("title body", ["x", "y"]), ("second", [])]
    report = json.loads(
        run(
            "parallel", "a.txt", "--targets", "b.txt", "--separator", "", "--json"
        ).stdout
    )
    assert [row["target"] for row in lines_of("parallel.jsonl")] == ["x | y", ""]
    assert report["files"][0]["empty_targets"] == 1
    Path("b.txt").write_text("x\ty\n\n")
    run("parallel", "a.txt", "--targets", "b.txt", "--separator", r"\t")
    assert [row["target"] for row in lines_of("parallel.jsonl")] == [["x", "y"], []]


@pytest.mark.parametrize(
    "arguments",
    [
        "good.jsonl --out - --json",
        "good.jsonl --separator ,",
        "bad.jsonl",
        "empty.jsonl",
        "blank.jsonl",
        "empty.jsonl.gz",
        "published --out taken",
        "published --out -",
        "good.jsonl --out table.csv",
        "good.jsonl --out weights",
        "published --split test",
    ],
)
def test_what_cannot_be_imported_is_refused_and_every_file_stays_as_it_was(
    empty_folder, arguments
):
    for name in ("good.jsonl", "published/train.json", "published/valid.json"):
        write_lines(name, KEYPHRASES)
    write_lines("bad.jsonl", KEYPHRASES, {"title": "T", "abstract": "B", "keyword": 3})
    contents = {
        "empty.jsonl": b"",
        "blank.jsonl": b"\n\n",
        "empty.jsonl.gz": gzip.compress(b""),
        "taken": b"",
        "weights": b"\0\x08",
        "kp20k.jsonl": b'{"id": "1", "source": "a"}\n',
    }
    for name, content in contents.items():
        Path(name).write_bytes(content)

    def files():
        paths = [path for path in empty_folder.rglob("*") if path.is_file()]
        return {path: path.read_bytes() for path in paths}

    before = files()
    refused("import", "kp20k", *arguments.split())
    assert files() == before
