import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import SPLITS, FieldNames, Record
from pipedec_cli.data.splits import count_leaks, gather_splits, split_by_field, split_by_source

BOTH = {"dev": 0.1, "test": 0.1}


def record(source, number=1, **fields):
    return Record(str(number), source, "t", None, (), f"data.jsonl:{number}", fields)


@given(st.lists(st.sampled_from("abcdefghij")), st.integers())
def test_equal_sources_stay_together_and_nothing_is_lost(sources, seed):
    records = [record(source, i) for i, source in enumerate(sources)]
    splits = split_by_source(records, BOTH, seed)
    assert sorted(r.id for name in SPLITS for r in splits[name]) == sorted(r.id for r in records)
    assert count_leaks(splits) == 0
    for name in SPLITS:
        places = [int(r.id) for r in splits[name]]
        assert places == sorted(places)


@given(st.sets(st.text(), min_size=3, max_size=8), st.integers())
def test_three_sources_are_enough_for_three_splits(sources, seed):
    splits = split_by_source(map(record, sources), BOTH, seed)
    assert all(splits[name] for name in SPLITS)


@pytest.mark.parametrize("sources", [["a"], ["a", "b"]])
def test_fewer_sources_than_splits_all_go_to_train(sources):
    splits = split_by_source(map(record, sources), BOTH, 0)
    assert len(splits["train"]) == len(sources)


def dealt(count, fractions, seed=0):
    return split_by_source([record(f"source {i}") for i in range(count)], fractions, seed)


def test_shares_are_about_what_was_asked_for():
    splits = dealt(5000, {"dev": 0.1, "test": 0.3})
    assert 400 < len(splits["dev"]) < 600
    assert 1350 < len(splits["test"]) < 1650


def test_a_record_stays_where_it_is_when_others_are_added_and_another_seed_deals_differently():
    few, many = dealt(500, BOTH, 7), dealt(900, BOTH, 7)
    for name in SPLITS:
        assert {r.source for r in few[name]} <= {r.source for r in many[name]}
    assert few == dealt(500, BOTH, 7) != dealt(500, BOTH, 1)


def test_a_split_that_is_not_asked_for_gets_nothing():
    splits = dealt(100, {"test": 0.2})
    assert splits["test"]
    assert not splits["dev"]
    assert not dealt(2, {"dev": 0.0, "test": 0.0})["dev"]


@pytest.mark.parametrize("fractions", [{"dev": 0.5, "test": 0.5}, {"test": 1.0}, {"dev": -0.1}])
def test_shares_that_leave_nothing_to_train_on_are_refused(fractions):
    with pytest.raises(UserError, match="leaves nothing to train on"):
        split_by_source([record("a")], fractions, 0)


def test_a_split_field_is_kept():
    named = {"a": "train", "b": "Validation", "c": "test"}
    splits = split_by_field([record(source, split=split) for source, split in named.items()])
    assert [[r.source for r in splits[name]] for name in SPLITS] == [["a"], ["b"], ["c"]]


def test_a_field_that_is_called_split_but_names_none_is_no_split_field_and_one_that_names_some_is_refused():
    assert split_by_field([record("a", split="left"), record("b", split=3), record("c")]) is None
    with pytest.raises(UserError, match=r"data\.jsonl:2: 'split' names no split"):
        split_by_field([record("a", 1, split="train"), record("b", 2, split="held out")])


def test_leaks_are_counted():
    splits = {"train": [record("a")], "dev": [record("a"), record("b")], "test": [record("a")]}
    assert count_leaks(splits) == 2


def write(path, *sources, **fields):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({"source": s, "target": "t", **fields}) + "\n" for s in sources))
    return str(path)


def gather(data, extra=None, **options):
    return gather_splits(data, extra or {}, FieldNames(), BOTH, **options)


def sources(gathered):
    return {name: [record.source for record in records] for name, records in gathered[0].items()}


def test_a_single_file_is_split_and_given_files_are_kept(tmp_path):
    data = write(tmp_path / "data.jsonl", *map(str, range(50)))
    splits, origins = gather(data)
    assert all(splits.values())
    assert origins["test"] == "split off by source"
    gathered = gather(data, {"dev": write(tmp_path / "held.jsonl", "x", "y")})
    assert sources(gathered)["dev"] == ["x", "y"]
    assert len(gathered[0]["train"]) + len(gathered[0]["test"]) == 50
    assert gathered[0]["test"]


def test_a_folder_brings_its_own_splits(tmp_path):
    for name in ("train", "valid", "test"):
        write(tmp_path / "set" / f"{name}.jsonl", name)
    assert sources(gather(tmp_path / "set")) == {"train": ["train"], "dev": ["valid"], "test": ["test"]}
    with pytest.raises(UserError, match="brings its own dev split; leave out --dev"):
        gather(tmp_path / "set", {"dev": write(tmp_path / "dev.jsonl", "x")})


def test_a_split_field_brings_splits(tmp_path):
    rows = ({"source": s, "target": "t", "split": s} for s in ("dev", "test", "train"))
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert sources(gather(tmp_path / "data.jsonl")) == {"train": ["train"], "dev": ["dev"], "test": ["test"]}


def test_a_folder_without_anything_to_train_on_is_refused(tmp_path):
    write(tmp_path / "set" / "test.jsonl", "x")
    with pytest.raises(UserError, match="has no records to train on"):
        gather(tmp_path / "set")


def test_the_limit_holds_for_each_place_and_reads_no_further(tmp_path):
    data = write(tmp_path / "data.jsonl", *map(str, range(9)))
    with Path(data).open("a", encoding="utf-8") as file:
        file.write("nonsense\n")
    gathered = gather(data, {"dev": write(tmp_path / "dev.jsonl", *"abc")}, limit=2)
    assert len(gathered[0]["dev"]) == 2
    assert len(gathered[0]["train"]) + len(gathered[0]["test"]) == 2
