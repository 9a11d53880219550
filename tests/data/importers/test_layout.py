"""Where rows are looked for, and what is written of them."""

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.file_formats import RawRow
from pipedec_cli.data.importers import (
    CleaningCounts,
    Example,
    cleaned,
    layout,
    splits_at,
)
from pipedec_cli.data.importers.layout import rows_at, split_files
from tests.words import refusing


def test_split_is_told_by_a_word_of_the_files_name(tmp_path):
    for name in ("summary.txt", "constraint.jsonl", "testament.txt", "valid2k.json"):
        (tmp_path / name).touch()
    with refusing():
        split_files(tmp_path)
    told = {
        "train": ["kp20k_training.json", "train (2).json"],
        "dev": [
            "KPTimes.valid.jsonl.gz",
            "val.txt",
            "validation-00000-of-00001.parquet",
        ],
        "test": ["kp20k_testing.json", "test_JPTimes.jsonl"],
    }
    for name in chain.from_iterable(told.values()):
        (tmp_path / name).touch()
        assert splits_at(str(tmp_path / name)) == ()
    assert {
        split: [file.name for file in files]
        for split, files in split_files(tmp_path).items()
    } == told


def test_parquet_files_of_a_hub_copy_are_read_in_their_data_folder(tmp_path):
    import pyarrow
    from pyarrow import parquet

    (tmp_path / "data").mkdir()
    for part in range(2):
        rows = [{"title": "T", "abstract": f"B{part}", "keyphrases": ["a", "b"]}]
        path = tmp_path / f"data/test-0000{part}-of-00002.parquet"
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert splits_at(str(tmp_path)) == ("test",)
    found = rows_at(str(tmp_path), "test")
    assert [fields.text("abstract") for fields in found] == ["B0", "B1"]


def test_hub_data_set_is_read_by_name_and_split_and_one_with_a_program_refused(
    monkeypatch,
):
    def rows(location, split):
        assert (location, split) == ("abisee/cnn_dailymail:3.0.0", "test")
        yield RawRow(1, "row 1", lambda: {"article": "A", "highlights": "H", "id": "1"})

    def refuse(name, config):
        raise RuntimeError(
            "Dataset scripts are no longer supported, but found kp20k.py"
        )

    monkeypatch.setattr("datasets.get_dataset_split_names", refuse)
    for look in (lambda name: list(rows_at(name, "train")), splits_at):
        with refusing():
            look("midas/kp20k:raw")

    def unreachable(name, config):
        raise ConnectionError(
            f"Couldn't reach '{name}' on the Hub (LocalEntryNotFoundError)"
        )

    monkeypatch.setattr("datasets.get_dataset_split_names", unreachable)
    with refusing():
        splits_at("me/transcripts")
    monkeypatch.setattr(layout, "read_rows", rows)
    (fields,) = rows_at("abisee/cnn_dailymail:3.0.0", "test")
    assert fields.text("highlights") == "H"


def write(*examples):
    tally = CleaningCounts()
    usual = {"where": "f:1", "id": None, "source": "s", "target": "t"}
    return list(
        cleaned([Example(**(usual | changes)) for changes in examples], tally)
    ), tally


def test_targets_are_given_out_as_they_are_with_further_fields_and_counted():
    extra = {"keyphrase_variants": [["a", "b"]]}
    several = {"target": ("a", "b"), "extra": extra}
    objects, tally = write(
        {"target": None}, {"target": ()}, {"target": ""}, several, {"target": "a. b."}
    )
    assert objects[0] == {"id": "1", "source": "s"}
    assert [item["target"] for item in objects[1:]] == [[], "", ["a", "b"], "a. b."]
    assert objects[3].items() >= extra.items()
    counts = tally.as_json()
    assert [
        counts[name] for name in ("without_target", "empty_targets", "with_variants")
    ] == [1, 2, 1]


@given(st.lists(st.sampled_from([None, "1", "2", "1-2", "a"]), max_size=12))
def test_identifiers_are_unique_and_first_come_keeps_its_own(identifiers):
    objects, tally = write(*({"id": identifier} for identifier in identifiers))
    given_out = [item["id"] for item in objects]
    assert len(set(given_out)) == len(given_out) == len(identifiers)
    wanted = [
        identifier or str(number)
        for number, identifier in enumerate(identifiers, start=1)
    ]
    changed = sum(
        ours != theirs for ours, theirs in zip(given_out, wanted, strict=True)
    )
    assert changed == tally.times["renamed"]
    assert given_out[:1] == wanted[:1]
