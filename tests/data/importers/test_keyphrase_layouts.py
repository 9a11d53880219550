"""KP20k, KPTimes and their like, in every layout that they are published in."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers import splits_at
from pipedec_cli.data.importers.keyphrases import read, split_phrases


def one(path):
    (example,) = read(str(path), None)
    return example


def test_kp20k_as_released_has_one_string_with_semicolons(write_lines):
    row = {"title": "On grids", "abstract": "We draw grids.", "keyword": "grid;time step; decoding "}
    example = one(write_lines("kp20k_testing.json", row))
    assert example.source == "On grids We draw grids."
    assert example.target == ("grid", "time step", "decoding")


def test_list_of_keywords_is_taken_as_it_is(write_lines):
    row = {"id": 7, "title": "On grids", "abstract": "We draw.", "keywords": ["grid", "time  step"]}
    example = one(write_lines("train.json", row))
    assert (example.id, example.target) == ("7", ("grid", "time step"))


def test_kptimes_variants_leave_the_first_as_target_and_keep_all(write_lines):
    row = {
        "id": "0282969",
        "title": "Speeches",
        "headline": "not read",
        "abstract": "A body.",
        "keyword": [["Speeches"], ["Republican National Convention", "RNC"]],
    }
    example = one(write_lines("test_NYTimes.jsonl", row))
    assert example.source == "Speeches A body."
    assert example.target == ("Speeches", "Republican National Convention")
    assert example.extra == {"keyphrase_variants": [["Speeches"], ["Republican National Convention", "RNC"]]}


def test_single_variants_need_no_extra_field(write_lines):
    example = one(write_lines("a.jsonl", {"title": "T", "abstract": "B", "keyword": [["x"], ["y"]]}))
    assert (example.target, example.extra) == (("x", "y"), {})


def test_hub_layout_of_token_lists_joins_present_and_absent_phrases(write_lines):
    row = {
        "id": 1,
        "document": ["We", "draw", "grids", "."],
        "doc_bio_tags": ["O", "O", "B", "O"],
        "extractive_keyphrases": ["grids"],
        "abstractive_keyphrases": ["decoding"],
    }
    example = one(write_lines("test.jsonl", row))
    assert example.source == "We draw grids ."
    assert example.target == ("grids", "decoding")


def test_set_with_source_and_keyphrases_is_read(write_lines):
    example = one(write_lines("dev.jsonl", {"id": "1461", "source": "A text", "keyphrases": ["a", "b"]}))
    assert (example.id, example.source, example.target) == ("1461", "A text", ("a", "b"))


@pytest.mark.parametrize("empty", ["", " ; ;", [], [" "], [[""], []]])
def test_empty_keyphrase_is_no_phrase(write_lines, empty):
    assert one(write_lines("a.jsonl", {"title": "T", "abstract": "B", "keywords": empty})).target == ()


def test_csv_with_semicolons_is_read(write_lines):
    path = write_lines("train.csv", "title,abstract,keywords", "T,Body,a;b c")
    assert one(path).target == ("a", "b c")


def test_released_folder_with_gzipped_files_is_read_by_split(write_lines):
    row = {"title": "T", "abstract": "B", "keyword": "a"}
    write_lines("KPTimes.train.jsonl.gz", row, row)
    write_lines("KPTimes.valid.jsonl.gz", row)
    folder = write_lines("notes.txt", "nothing").parent
    assert splits_at(str(folder)) == ("train", "dev")
    assert len(list(read(str(folder), "train"))) == 2
    with pytest.raises(UserError, match="has several splits; it has train, dev"):
        list(read(str(folder), None))


def test_parquet_files_of_a_hub_copy_are_read_in_their_data_folder(tmp_path):
    from datasets import Dataset

    data = tmp_path / "copy" / "data"
    data.mkdir(parents=True)
    for part in range(2):
        rows = [{"title": "T", "abstract": f"B{part}", "keyphrases": ["a", "b"]}]
        Dataset.from_list(rows).to_parquet(data / f"test-0000{part}-of-00002.parquet")
    examples = list(read(str(tmp_path / "copy"), "test"))
    assert [example.source for example in examples] == ["T B0", "T B1"]
    assert examples[0].target == ("a", "b")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"title": "T", "abstract": "B"}, "expected a field 'keyphrases' or 'keywords' or 'keyword' or"),
        ({"title": "T", "keywords": ["a"]}, "expected a field 'abstract' or 'body' or 'text'"),
        (
            {"title": "T", "abstract": "B", "keywords": 3},
            "field 'keywords': expected a list of strings, or one string with ';' between phrases, "
            "found the number 3",
        ),
        (
            {"title": "T", "abstract": "B", "keywords": ["a", None]},
            "field 'keywords', item 2: expected a list",
        ),
        (
            {"title": "T", "abstract": "B", "keyword": [["a"], [1]]},
            "field 'keyword', item 2: expected a list",
        ),
        (
            {"title": "T", "abstract": ["B"], "keywords": []},
            "field 'abstract': expected a string, found a list",
        ),
        (
            {"document": "a b", "extractive_keyphrases": []},
            "field 'document': expected a list of tokens, found the string 'a b'",
        ),
        (
            {"document": ["a"], "extractive_keyphrases": "a"},
            "field 'extractive_keyphrases': expected a list of strings, found the string 'a'",
        ),
        (["a"], "expected an object, found a list of 1"),
    ],
)
def test_wrong_layout_is_refused_at_its_line(write_lines, row, message):
    good = {"title": "T", "abstract": "B", "keywords": ["a"]}
    path = write_lines("train.jsonl", good, row, good)
    with pytest.raises(UserError) as caught:
        list(read(str(path), None))
    assert caught.value.where == f"{path}:2"
    assert message in caught.value.what


def test_folder_without_a_split_names_the_folders_in_it(write_lines):
    folder = write_lines("kp20k/train.json", {}).parent.parent
    with pytest.raises(UserError, match=r"without a file for any split.*; give one of its folders \(kp20k\)"):
        list(read(str(folder), None))


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.text()), st.sampled_from([";", "|", "<sep>"]))
def test_phrases_are_never_empty_and_hold_no_separator(parts, separator):
    phrases = split_phrases(separator.join(parts), separator)
    assert all(phrase.strip() == phrase != "" for phrase in phrases)
    assert not any(separator in phrase for phrase in phrases)
    assert " ".join(phrases).split() == separator.join(parts).replace(separator, " ").split()
