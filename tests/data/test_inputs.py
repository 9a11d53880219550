"""What a place gives: a folder its splits, by the names of its files, and a missing file a refusal."""

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.inputs import given_splits, read_records, read_rows


def test_a_folder_gives_its_splits_by_the_names_of_its_files(tmp_path, write_lines):
    with pytest.raises(UserError, match=r"train\.jsonl, dev\.jsonl, test\.jsonl"):
        given_splits(tmp_path)
    for name in ("train-0-of-2", "train-1-of-2", "validation", "notes", "trainer"):
        write_lines(f"{name}.jsonl", {"source": name})
    assert given_splits(tmp_path) == ("train", "dev")
    rows = list(read_rows(tmp_path, "train"))
    assert [(row.number, row.value["source"]) for row in rows] == [
        (1, "train-0-of-2"),
        (2, "train-1-of-2"),
    ]


def test_a_missing_file_is_refused_without_asking_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name in (
        "nothing.jsonl",
        "no/such/file",
        "no-folder/data.jsonl",
        "nothing",
        "data/in-a-folder",
    ):
        with pytest.raises(UserError, match=f"{name}: no such file"):
            list(read_records(name))
