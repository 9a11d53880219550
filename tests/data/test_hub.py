"""Data sets of the hub: their splits, their rows, and what is said of one that cannot be had."""

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.inputs import given_splits, read_rows


def test_a_hub_data_set_is_read_by_split_and_one_that_cannot_be_had_is_one_line(
    tmp_path, monkeypatch
):
    import datasets

    asked = []

    def load(name, config=None, *, split, streaming):
        asked.append((name, config, split, streaming))
        return iter([{"source": "s"}])

    def fail(name, config):
        raise ConnectionError("offline\nlong explanation")

    monkeypatch.chdir(tmp_path)
    names = ["train", "validation", "extra"]
    monkeypatch.setattr(datasets, "get_dataset_split_names", lambda name, config: names)
    monkeypatch.setattr(datasets, "load_dataset", load)
    assert given_splits("owner/name:v1") == ("train", "dev")
    (row,) = read_rows("owner/name:v1", "dev")
    assert row.where == "owner/name validation row 1"
    assert asked == [("owner/name", "v1", "validation", True)]

    monkeypatch.setattr(datasets, "get_dataset_split_names", fail)
    with pytest.raises(
        UserError,
        match=r"^owner/name: cannot be read: offline; no such file here either$",
    ):
        given_splits("owner/name")
