"""CNN/DailyMail and PubMed, with SumPubMed."""

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers import splits_at
from pipedec_cli.data.importers.summaries import cnn_dailymail, pubmed

STORY = [
    "(CNN) -- It rained.",
    "",
    "All day.",
    "",
    "@highlight",
    "",
    "Rain fell",
    "",
    "@highlight",
    "",
    "All day",
]


def one(read, path):
    (example,) = read(str(path), None)
    return example


def test_each_highlight_of_cnn_dailymail_is_a_sentence(write_lines):
    row = {"article": "It rained.", "highlights": "Rain fell .\nAll day .", "id": "abc"}
    example = one(cnn_dailymail, write_lines("test.jsonl", row))
    assert (example.id, example.source, example.target) == ("abc", "It rained.", ("Rain fell .", "All day ."))


def test_story_files_of_the_release_are_read(write_lines):
    write_lines("stories/b2.story", *STORY)
    folder = write_lines("stories/a1.story", *STORY).parent
    examples = list(cnn_dailymail(str(folder), None))
    assert [example.id for example in examples] == ["a1", "b2"]
    assert examples[0].source == "(CNN) -- It rained. All day."
    assert examples[0].target == ("Rain fell", "All day")
    assert splits_at(str(folder)) == ()


def test_story_without_an_article_has_an_empty_source(write_lines):
    assert one(cnn_dailymail, write_lines("a.story", *STORY[4:])).source == ""


def test_story_without_highlights_is_refused(write_lines):
    path = write_lines("a.story", "Only text.")
    with pytest.raises(UserError, match=r"a\.story: expected a line '@highlight', found none"):
        list(cnn_dailymail(str(path), None))


def test_parquet_of_the_hub_is_read_by_split(tmp_path):
    from datasets import Dataset

    rows = [{"article": "A.", "highlights": "H .", "id": "1"}]
    Dataset.from_list(rows).to_parquet(tmp_path / "validation-00000-of-00001.parquet")
    assert splits_at(str(tmp_path)) == ("dev",)
    (example,) = cnn_dailymail(str(tmp_path), "dev")
    assert example.target == ("H .",)


def test_highlights_that_are_a_list_are_refused(write_lines):
    path = write_lines("test.jsonl", {"article": "A", "highlights": ["H"], "id": "1"})
    with pytest.raises(
        UserError, match=r"test\.jsonl:1: field 'highlights': expected a string, found a list of 1"
    ):
        list(cnn_dailymail(str(path), None))


def test_pubmed_as_released_has_its_sentences_between_marks(write_lines):
    row = {
        "article_id": "PMC1",
        "article_text": ["first .", "second ."],
        "abstract_text": ["<S> we tried . </S>", "<S> it worked . </S>"],
        "labels": None,
        "section_names": ["intro"],
        "sections": [["first .", "second ."]],
    }
    example = one(pubmed, write_lines("val.txt", row))
    assert example.id == "PMC1"
    assert example.source == "first . second ."
    assert example.target == ("we tried .", "it worked .")


def test_pubmed_of_the_hub_is_text(write_lines):
    row = {"article": " first .\n second .", "abstract": " we tried . it worked . "}
    example = one(pubmed, write_lines("train.jsonl", row))
    assert (example.source, example.target) == ("first .\n second .", "we tried . it worked .")


def test_sumpubmed_as_released_pairs_its_folders_by_number(write_lines, tmp_path):
    for number in (2, 10):
        write_lines(f"text/text_{number}.txt", "an article", "", f"numbered {number}.")
        write_lines(f"shorter_abstract/abst_{number}.txt", "one.", f"number {number}.")
    examples = list(pubmed(str(tmp_path), None))
    assert [example.id for example in examples] == ["2", "10"]
    assert examples[1].source == "an article numbered 10."
    assert examples[1].target == ("one.", "number 10.")
    assert splits_at(str(tmp_path)) == ()


def test_sumpubmed_article_without_its_summary_is_refused(write_lines, tmp_path):
    write_lines("text/text_1.txt", "an article")
    (tmp_path / "shorter_abstract").mkdir()
    with pytest.raises(
        UserError, match=r"text_1\.txt: expected its summary .*abst_1\.txt, found no such file"
    ):
        list(pubmed(str(tmp_path), None))


def test_sumpubmed_of_the_hub_is_text_where_its_line_ends_are_lost(write_lines):
    row = {"text": "An article.", "shorter_abstract": "One. Two.", "abstract": "Long.", "filename_text": 12}
    example = one(pubmed, write_lines("test.jsonl", row))
    assert (example.id, example.target) == ("12", "One. Two.")
    lines = one(pubmed, write_lines("lines.jsonl", row | {"shorter_abstract": "One.\nTwo."}))
    assert lines.target == ("One.", "Two.")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"title": "x"}, "expected a field 'article_text' or 'article' or 'text', found the fields title"),
        (
            {"article_text": ["a"], "abstract_text": "b"},
            "field 'abstract_text': expected a list of sentences, found the string 'b'",
        ),
        ({"article": "a"}, "expected a field 'abstract', found the fields article"),
        (
            {"text": "a", "abstract": "b"},
            "expected a field 'shorter_abstract', found the fields text, abstract",
        ),
    ],
)
def test_wrong_pubmed_layout_is_refused_at_its_line(write_lines, row, message):
    path = write_lines("train.txt", row)
    with pytest.raises(UserError) as caught:
        list(pubmed(str(path), None))
    assert (caught.value.where, message in caught.value.what) == (f"{path}:1", True)
