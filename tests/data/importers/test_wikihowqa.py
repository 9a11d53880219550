"""WikiHowQA's tab-separated files, and flat copies of it."""

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers import splits_at
from pipedec_cli.data.importers.summaries import wikihowqa as read

SUMMARY = "summary.txt"


@pytest.fixture
def released(write_lines):
    write_lines(SUMMARY, "0\tboil water first .\tboil it .", "1\tbuy a pan .\tget a pan .", "2\tno .\tno .")
    write_lines(
        "train.txt", "how to cook\t1\t1", "how to cook\t2\t0", "how to boil\t0\t1", "how to heat\t0\t1"
    )
    return write_lines("test.txt", "how to refuse\t2\t1").parent


def test_positive_pairs_become_question_answer_and_summary(released):
    examples = list(read(str(released), "train"))
    assert [(example.source, example.target) for example in examples] == [
        ("question: how to boil context: boil water first .", "boil it ."),
        ("question: how to heat context: boil water first .", "boil it ."),
        ("question: how to cook context: buy a pan .", "get a pan ."),
    ]
    assert [example.id for example in examples] == ["0", "0", "1"]


def test_summary_file_is_no_split_and_a_split_file_finds_it(released):
    assert splits_at(str(released)) == ("train", "test")
    assert [example.target for example in read(str(released / "test.txt"), None)] == ["no ."]


def test_gzipped_files_are_read(write_lines):
    write_lines("summary.txt.gz", "5\tanswer\tsummary")
    path = write_lines("valid.txt.gz", "question\t5\t1")
    assert [example.target for example in read(str(path), None)] == ["summary"]


def test_answer_that_is_not_in_the_summaries_is_an_error_at_its_pair(released, write_lines):
    path = write_lines("valid.txt", "how to cook\t1\t1", "how to fly\t99\t1")
    with pytest.raises(UserError, match=r"valid\.txt:2: answer id '99' is not in summary\.txt"):
        list(read(str(path), None))


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        (
            "valid.txt",
            "how to cook 1 1",
            r"valid\.txt:1: expected 3 columns .*\(question, answer id, label\), found 1",
        ),
        ("valid.txt", "how to cook\t1\tyes", r"valid\.txt:1: column 'label': expected 0 or 1, found 'yes'"),
        (
            SUMMARY,
            "1\tan answer",
            r"summary\.txt:1: expected 3 columns .*\(answer id, answer, summary\), found 2",
        ),
    ],
)
def test_wrong_columns_are_refused_at_their_line(released, write_lines, name, line, message):
    write_lines("valid.txt", "how to cook\t1\t1")
    path = write_lines(name, line).parent / "valid.txt"
    with pytest.raises(UserError, match=message):
        list(read(str(path), None))


def test_flat_copy_is_read_with_and_without_a_question(write_lines):
    path = write_lines(
        "data.jsonl",
        {"question": "how", "answer": "so .", "summary": "thus ."},
        {"text": "so .", "summary": "thus ."},
    )
    assert [example.source for example in read(str(path), None)] == ["question: how context: so .", "so ."]


def test_flat_copy_without_a_summary_is_refused(write_lines):
    path = write_lines("data.jsonl", {"question": "how", "answer": "so ."})
    with pytest.raises(
        UserError, match=r"data\.jsonl:1: expected a field 'summary', found the fields question"
    ):
        list(read(str(path), None))
