"""Where the rows of a data set are looked for."""

from itertools import chain

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers import layout, splits_at
from pipedec_cli.data.importers.layout import rows_at, split_files
from pipedec_cli.data.importers.phrases import keyphrases
from pipedec_cli.data.importers.phrases import multispanqa as msqa
from pipedec_cli.data.importers.summaries import cnn_dailymail
from pipedec_cli.data.rows import Row
from tests.data.importers.published import question, questions_file

ROW = {"title": "T", "abstract": "B", "keyword": "a"}


def test_split_is_told_by_a_word_of_the_files_name(tmp_path):
    for name in ("summary.txt", "constraint.jsonl", "testament.txt", "valid2k.json"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match="a folder without a file for any split"):
        split_files(tmp_path)
    told = {
        "train": ["kp20k_training.json", "train (2).json"],
        "dev": [
            "KPTimes.valid.jsonl.gz",
            "kp20k_validation.json",
            "val.txt",
            "validation-00000-of-00001.parquet",
        ],
        "test": ["kp20k_testing.json", "test_JPTimes.jsonl"],
    }
    for name in chain.from_iterable(told.values()):
        (tmp_path / name).touch()
        assert splits_at(str(tmp_path / name)) == ()
    assert {split: [file.name for file in files] for split, files in split_files(tmp_path).items()} == told


def test_released_folder_is_read_by_split(write_lines):
    write_lines("KPTimes.train.jsonl.gz", ROW, ROW)
    write_lines("KPTimes.valid.jsonl.gz", ROW)
    folder = str(write_lines("notes.txt", "nothing").parent)
    assert splits_at(folder) == ("train", "dev")
    assert [len(list(keyphrases(folder, split))) for split in ("train", "dev")] == [2, 1]
    with pytest.raises(UserError, match="has several splits; it has train, dev"):
        list(keyphrases(folder, None))
    with pytest.raises(UserError, match="has no split test; it has train, dev"):
        list(keyphrases(folder, "test"))


def test_folder_of_multispanqa_is_read_by_split(write_lines):
    write_lines("train.json", questions_file(question(id="a"), question(id="b")))
    folder = str(write_lines("valid.json", questions_file(question(id="c"))).parent)
    found = [[example.id for example in msqa(folder, split)] for split in ("train", "dev")]
    assert found == [["a", "b"], ["c"]]


def test_parquet_files_of_a_hub_copy_are_read_in_their_data_folder(tmp_path):
    from datasets import Dataset

    (tmp_path / "data").mkdir()
    for part in range(2):
        rows = [{"title": "T", "abstract": f"B{part}", "keyphrases": ["a", "b"]}]
        Dataset.from_list(rows).to_parquet(tmp_path / f"data/test-0000{part}-of-00002.parquet")
    assert splits_at(str(tmp_path)) == ("test",)
    examples = list(keyphrases(str(tmp_path), "test"))
    assert [example.source for example in examples] == ["T B0", "T B1"]
    assert examples[0].target == ("a", "b")


def test_folder_without_a_split_names_the_folders_in_it(write_lines):
    folder = write_lines("kp20k/train.json", {}).parent.parent
    with pytest.raises(UserError, match=r"without a file for any split.*; give one of its folders \(kp20k\)"):
        list(keyphrases(str(folder), None))


def test_place_that_is_not_there_is_refused():
    with pytest.raises(UserError, match="no such file"):
        list(rows_at("nowhere/at/all.jsonl", None))


def test_hub_data_set_is_read_by_name_and_split(monkeypatch):
    def rows(location, split):
        assert (location, split) == ("abisee/cnn_dailymail:3.0.0", "test")
        yield Row(1, "row 1", {"article": "A", "highlights": "H", "id": "1"})

    monkeypatch.setattr(layout, "read_rows", rows)
    (example,) = cnn_dailymail("abisee/cnn_dailymail:3.0.0", "test")
    assert example.target == ("H",)


def test_hub_data_set_with_a_program_is_refused_with_the_way_around(monkeypatch):
    def refuse(name, config):
        raise RuntimeError("Dataset scripts are no longer supported, but found kp20k.py")

    monkeypatch.setattr("datasets.get_dataset_split_names", refuse)
    message = r"midas/kp20k: needs a loading script.*hf download midas/kp20k --repo-type dataset"
    with pytest.raises(UserError, match=message):
        list(rows_at("midas/kp20k:raw", "train"))
    with pytest.raises(UserError, match=message):
        splits_at("midas/kp20k:raw")
