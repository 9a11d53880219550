"""The data sets that are published in files of their own kind: stories, tab-separated pairs, parallel text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers import splits_at
from pipedec_cli.data.importers.phrases import parallel
from pipedec_cli.data.importers.summaries import cnn_dailymail, pubmed, wikihowqa

HIGHLIGHTS = ["@highlight", "", "Rain fell", "", "@highlight", "", "All day"]
STORY = ["(CNN) -- It rained.", "", "All day.", "", *HIGHLIGHTS]
SUMMARY = "summary.txt"


def test_story_files_are_read_and_one_without_an_article_has_an_empty_source(write_lines):
    write_lines("stories/b2.story", *HIGHLIGHTS)
    folder = write_lines("stories/a1.story", *STORY).parent
    first, second = cnn_dailymail(str(folder), None)
    assert first[1:4] == ("a1", "(CNN) -- It rained. All day.", ("Rain fell", "All day"))
    assert second[1:4] == ("b2", "", ("Rain fell", "All day"))
    assert splits_at(str(folder)) == ()
    assert list(cnn_dailymail(str(folder / "a1.story"), None)) == [first]
    path = write_lines("a.story", "Only text.")
    with pytest.raises(UserError, match=r"a\.story: expected a line '@highlight', found none"):
        list(cnn_dailymail(str(path), None))


def test_sumpubmed_as_released_pairs_its_folders_by_number(write_lines, tmp_path):
    for number in (2, 10):
        write_lines(f"text/text_{number}.txt", "an article", "", f"numbered {number}.")
        write_lines(f"shorter_abstract/abst_{number}.txt", "one.", f"number {number}.")
    assert splits_at(str(tmp_path)) == ()
    assert [example[1:4] for example in pubmed(str(tmp_path), None)] == [
        ("2", "an article numbered 2.", ("one.", "number 2.")),
        ("10", "an article numbered 10.", ("one.", "number 10.")),
    ]
    write_lines("text/text_11.txt", "an article")
    with pytest.raises(
        UserError, match=r"text_11\.txt: expected its summary .*abst_11\.txt, found no such file"
    ):
        list(pubmed(str(tmp_path), None))


@pytest.fixture
def released(write_lines):
    write_lines(SUMMARY, "0\tboil water first .\tboil it .", "1\tbuy a pan .\tget a pan .", "2\tno .\tno .")
    pairs = ("how to cook\t1\t1", "how to cook\t2\t0", "how to boil\t0\t1", "how to heat\t0\t1")
    write_lines("train.txt", *pairs)
    return write_lines("test.txt", "how to refuse\t2\t1").parent


def test_positive_pairs_become_question_answer_and_summary(released):
    assert [example[1:4] for example in wikihowqa(str(released), "train")] == [
        ("0", "question: how to boil context: boil water first .", "boil it ."),
        ("0", "question: how to heat context: boil water first .", "boil it ."),
        ("1", "question: how to cook context: buy a pan .", "get a pan ."),
    ]


def test_summary_file_is_no_split_and_a_split_file_finds_it(released, write_lines):
    assert splits_at(str(released)) == ("train", "test")
    assert [example.target for example in wikihowqa(str(released / "test.txt"), None)] == ["no ."]
    write_lines("zipped/summary.txt.gz", "5\tanswer\tsummary")
    path = write_lines("zipped/valid.txt.gz", "question\t5\t1")
    assert [example.target for example in wikihowqa(str(path), None)] == ["summary"]


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("valid.txt", ["how\t1\t1", "how\t99\t1"], r"valid\.txt:2: answer id '99' is not in summary\.txt"),
        (
            "valid.txt",
            ["how 1"],
            r"valid\.txt:1: expected 3 columns .*\(question, answer id, label\), found 1",
        ),
        ("valid.txt", ["how\t1\tyes"], r"valid\.txt:1: column 'label': expected 0 or 1, found 'yes'"),
        (SUMMARY, ["1\tb"], r"summary\.txt:1: expected 3 columns .*\(answer id, answer, summary\), found 2"),
    ],
)
def test_wrong_pair_or_summary_is_refused_at_its_line(released, write_lines, name, lines, message):
    write_lines("valid.txt", "how to cook\t1\t1")
    path = write_lines(name, *lines).parent / "valid.txt"
    with pytest.raises(UserError, match=message):
        list(wikihowqa(str(path), None))


def test_lines_are_paired_and_phrases_split(write_lines):
    source = write_lines("train_src.txt", "title one <eos> body one", "two", "three")
    write_lines("train_trg.txt", "a b;c;<peos>;d", "e", "")
    assert list(parallel(str(source), None)) == [
        (f"{source}:1", None, "title one body one", ("a b", "c", "d"), {}),
        (f"{source}:2", None, "two", ("e",), {}),
        (f"{source}:3", None, "three", (), {}),
    ]


@pytest.mark.parametrize("names", ["{}_src.txt {}_trg.txt", "{}.src {}.tgt"])
def test_folder_of_parallel_text_gives_its_splits(write_lines, names):
    source, target = names.split()
    for split in ("train", "valid", "test"):
        write_lines(source.format(split), split)
        folder = str(write_lines(target.format(split), "a").parent)
    assert splits_at(folder) == ("train", "dev", "test")
    assert [example.source for example in parallel(folder, "dev")] == ["valid"]


@pytest.mark.parametrize(("left", "right", "longer"), [(3, 2, "a.src"), (1, 2, "a.trg")])
def test_the_first_line_without_a_partner_is_refused(write_lines, left, right, longer):
    source = write_lines("a.src", *["s"] * left)
    write_lines("a.trg", *["t"] * right)
    shorter = min(left, right)
    with pytest.raises(UserError, match=rf"{longer}:{shorter + 1}: .* ends with line {shorter}$"):
        list(parallel(str(source), None))


def test_target_file_may_be_named_and_gzipped(write_lines):
    source = write_lines("articles.txt.gz", "one")
    target = write_lines("summaries.txt.gz", "A summary; with a semicolon.")
    (example,) = parallel(str(source), None, targets=target, separator="")
    assert example.target == "A summary; with a semicolon."


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("articles.txt", r"which file holds its targets\?; name it with --targets FILE"),
        ("a.src", r"expected one of a\.trg, a\.tgt, a\.target beside it, found none"),
        ("b.src", "no such file or folder"),
    ],
)
def test_target_file_that_cannot_be_told_is_asked_for(write_lines, name, message):
    folder = write_lines("a.src", "one").parent
    write_lines("articles.txt", "one")
    with pytest.raises(UserError, match=message):
        list(parallel(str(folder / name), None))


def test_line_that_is_not_utf8_is_refused_with_its_number(write_lines):
    source = write_lines("a.trg", "a", "b").with_name("a.src")
    source.write_bytes(b"one\ntw\xffo\n")
    with pytest.raises(UserError, match=r"a\.src:2: not UTF-8: byte 0xff at position 3"):
        list(parallel(str(source), None))


@given(st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8")), min_size=1, max_size=5))
def test_only_a_line_feed_ends_a_line(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("parallel")
    source = folder / "a.src"
    source.write_bytes("".join(f"x{line}\n" for line in lines).encode())
    (folder / "a.trg").write_bytes(b"t\n" * len(lines))
    assert len(list(parallel(str(source), None))) == len(lines)
