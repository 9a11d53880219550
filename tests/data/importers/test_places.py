"""Where the rows of a data set are looked for."""

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers import IMPORTERS, layout
from pipedec_cli.data.importers.layout import rows_at, split_files, splits_at
from pipedec_cli.data.rows import Row


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("kp20k_training.json", "train"),
        ("kp20k_validation.json", "dev"),
        ("kp20k_testing.json", "test"),
        ("KPTimes.valid.jsonl.gz", "dev"),
        ("test_JPTimes.jsonl", "test"),
        ("train (2).json", "train"),
        ("validation-00000-of-00001.parquet", "dev"),
        ("val.txt", "dev"),
        ("summary.txt", None),
        ("constraint.jsonl", None),
        ("testament.txt", None),
        ("valid2k.json", None),
    ],
)
def test_split_is_told_by_a_word_of_the_files_name(tmp_path, name, split):
    (tmp_path / name).touch()
    if split is None:
        with pytest.raises(UserError, match="a folder without a file for any split"):
            split_files(tmp_path)
    else:
        assert split_files(tmp_path) == {split: [tmp_path / name]}


def test_single_file_has_no_splits(write_lines):
    assert splits_at(str(write_lines("train.jsonl", {}))) == ()


def test_place_that_is_not_there_is_refused():
    with pytest.raises(UserError, match="no such file"):
        list(rows_at("nowhere/at/all.jsonl", None))


def test_hub_data_set_with_a_program_is_refused_with_the_way_around(monkeypatch):
    def refuse(location, split=None):
        raise UserError(
            "cannot be read: Dataset scripts are no longer supported, but found kp20k.py", where=location
        )
        yield Row(1, "", {})

    monkeypatch.setattr(layout, "read_rows", refuse)
    monkeypatch.setattr(layout, "given_splits", lambda location: tuple(refuse(location)))
    message = r"midas/kp20k:raw: needs a loading script.*hf download midas/kp20k --repo-type dataset"
    with pytest.raises(UserError, match=message):
        list(rows_at("midas/kp20k:raw", "train"))
    with pytest.raises(UserError, match=message):
        splits_at("midas/kp20k:raw")


def test_hub_data_set_is_read_by_name_and_split(monkeypatch):
    asked = []

    def rows(location, split):
        asked.append((location, split))
        yield Row(1, "row 1", {"article": "A", "highlights": "H", "id": "1"})

    monkeypatch.setattr(layout, "read_rows", rows)
    (example,) = IMPORTERS["cnn_dailymail"].read("abisee/cnn_dailymail:3.0.0", "test")
    assert (example.target, asked) == (("H",), [("abisee/cnn_dailymail:3.0.0", "test")])
