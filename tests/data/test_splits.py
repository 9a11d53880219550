from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.inputs import given_splits
from pipedec_cli.data.records import SPLITS, FieldNames, Record
from pipedec_cli.data.splits import (
    count_leaks,
    gather_splits,
    split_by_field,
    split_by_source,
)
from pipedec_cli.data.stored import StoredRecords
from tests.words import refusing

BOTH = {"dev": 0.1, "test": 0.1}


def record(source, number=1, **fields):
    return Record(str(number), source, "t", None, (), f"data.jsonl:{number}", fields)


def stored(records):
    return StoredRecords(Path.cwd(), records)


@given(st.lists(st.sampled_from("abcdefghij")), st.integers())
def test_equal_sources_stay_together_and_nothing_is_lost(sources, seed):
    records = [record(source, i) for i, source in enumerate(sources)]
    splits = split_by_source(stored(records), BOTH, seed)
    assert sorted(r.id for name in SPLITS for r in splits[name]) == sorted(
        r.id for r in records
    )
    assert count_leaks(splits) == 0
    for name in SPLITS:
        places = [int(r.id) for r in splits[name]]
        assert places == sorted(places)


@given(st.sets(st.text(), min_size=3, max_size=8), st.integers())
def test_three_sources_are_enough_for_three_splits(sources, seed):
    splits = split_by_source(stored(map(record, sources)), BOTH, seed)
    assert all(splits[name] for name in SPLITS)


def dealt(count, fractions, seed=0):
    splits = split_by_source(
        stored(record(f"source {i}") for i in range(count)), fractions, seed
    )
    return {name: list(rows) for name, rows in splits.items()}


def test_a_record_stays_where_it_is_when_others_are_added_and_another_seed_deals_differently():
    few, many = dealt(500, BOTH, 7), dealt(900, BOTH, 7)
    for name in SPLITS:
        assert {r.source for r in few[name]} <= {r.source for r in many[name]}
    assert few == dealt(500, BOTH, 7) != dealt(500, BOTH, 1)


def test_shares_are_about_what_was_asked_for_and_too_few_sources_all_go_to_train():
    splits = dealt(5000, {"dev": 0.1, "test": 0.3})
    assert 400 < len(splits["dev"]) < 600 and 1350 < len(splits["test"]) < 1650
    splits = dealt(100, {"test": 0.2})
    assert splits["test"] and not splits["dev"]
    assert not dealt(2, {"dev": 0.0, "test": 0.0})["dev"]
    assert [len(dealt(count, BOTH)["train"]) for count in (1, 2)] == [1, 2]


def test_a_field_that_is_called_split_but_names_none_is_no_split_field_and_one_that_names_some_is_refused():
    assert (
        split_by_field(
            stored([record("a", split="left"), record("b", split=3), record("c")])
        )
        is None
    )
    with refusing():
        split_by_field(
            stored([record("a", 1, split="train"), record("b", 2, split="held out")])
        )


@pytest.fixture
def write(write_lines):
    return lambda name, *sources: write_lines(
        name, *({"source": one, "target": "t"} for one in sources)
    )


def gather(data, extra=None, **options):
    """The sources of each split, and where the test split came from."""
    splits, origins = gather_splits(
        data, extra or {}, FieldNames(), BOTH, near=Path.cwd(), **options
    )
    return {
        name: [record.source for record in records] for name, records in splits.items()
    }, origins["test"]


def test_a_folder_brings_its_own_splits_and_needs_something_to_train_on(write):
    folder = write("set/test.jsonl", "test").parent
    with refusing():
        gather(folder)
    for name in ("train", "valid"):
        write(f"set/{name}.jsonl", name)
    assert gather(folder)[0] == {"train": ["train"], "dev": ["valid"], "test": ["test"]}
    with refusing():
        gather(folder, {"dev": write("dev.jsonl", "x")})
    data = write("data.jsonl", *map(str, range(50)))
    given, _ = gather(data, {"dev": str(folder), "test": str(folder)})
    assert (given["dev"], given["test"]) == (["valid"], ["test"]), (
        "and not what the folder has for train"
    )
    (folder / "test.jsonl").unlink()
    with refusing():
        gather(data, {"test": str(folder)})


def test_the_folder_of_a_model_is_refused_as_data(tmp_path):
    for name in ("config.json", "training.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    with refusing(tmp_path):
        given_splits(tmp_path)


def test_a_split_field_brings_splits(write_lines):
    names = {"dev": "Validation", "test": "test", "train": "train"}
    rows = (
        {"source": source, "target": "t", "split": split}
        for source, split in names.items()
    )
    assert gather(write_lines("data.jsonl", *rows))[0] == {
        name: [name] for name in names
    }
