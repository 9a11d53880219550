"""Sets of records: a folder of them, each with its schema, makes one data set."""

import pytest

from pipedec_cli.data.records import Record
from pipedec_cli.data.sets import has_sets, mixed, record_sets
from pipedec_cli.data.stored import StoredRecords
from tests.running import write_lines
from tests.words import refusing


@pytest.fixture
def folder(tmp_path):
    """Two sets, a folder and a file, of which one has a schema each way."""
    write_lines(tmp_path / "songs" / "train.jsonl", {"source": "a"})
    (tmp_path / "songs" / "schema.json").write_text("{}")
    write_lines(tmp_path / "places.jsonl", {"source": "a"})
    (tmp_path / "places.schema.json").write_text("{}")
    write_lines(tmp_path / "bare.jsonl", {"source": "a"})
    return tmp_path


def test_a_folder_without_files_of_splits_has_sets_with_their_schemas(folder):
    assert has_sets(str(folder))
    sets = record_sets(str(folder))
    assert [each.name for each in sets] == ["bare", "places", "songs"]
    assert [each.schema for each in sets] == [
        None,
        str(folder / "places.schema.json"),
        str(folder / "songs" / "schema.json"),
    ]


def test_a_schema_of_no_set_is_named(folder, caplog):
    (folder / "place.schema.json").write_text("{}")
    record_sets(str(folder))
    assert "place.schema.json" in caplog.text
    assert "places.schema.json" not in caplog.text


def test_a_folder_with_files_of_splits_is_one_set_and_so_is_a_file(folder):
    assert not has_sets(str(folder / "songs"))
    [songs] = record_sets(str(folder / "songs"))
    assert (songs.name, songs.schema) == ("songs", str(folder / "songs/schema.json"))
    [bare] = record_sets(str(folder / "bare.jsonl"), "other.json")
    assert (bare.name, bare.schema) == ("bare", "other.json")


def test_a_schema_for_several_sets_and_two_sets_of_one_name_are_refused(folder):
    with refusing():
        record_sets(str(folder), "other.json")
    write_lines(folder / "songs.jsonl", {"source": "a"})
    with refusing():
        record_sets(str(folder))
    (folder / "empty").mkdir()
    with refusing():
        record_sets(str(folder / "empty"))


def test_the_folder_of_a_model_is_no_folder_of_sets(folder):
    (folder / "model.safetensors").touch()
    (folder / "config.json").write_text("{}")
    with refusing(where=folder):
        record_sets(str(folder))


def test_records_of_all_sets_stand_among_each_other_under_names_of_their_own(tmp_path):
    def splits(count):
        records = [Record(str(n), "a", None, None, (), "here") for n in range(count)]
        return {
            "train": StoredRecords(tmp_path, records),
            "dev": StoredRecords(tmp_path),
            "test": StoredRecords(tmp_path),
        }

    together = mixed({"few": splits(2), "many": splits(4)}, tmp_path)
    ids = [record.id for record in together["train"]]
    assert ids == ["many/0", "few/0", "many/1", "many/2", "few/1", "many/3"]
    assert [record.set_name for record in together["train"]][:2] == ["many", "few"]
    assert not together["dev"]
