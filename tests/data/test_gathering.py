import json
from pathlib import Path

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.gathering import SplitRules, gather_splits
from pipedec_cli.data.records import FieldNames


def write(path, *sources, **fields):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({"source": s, "target": "t", **fields}) + "\n" for s in sources))
    return str(path)


def gather(data, extra=None, **options):
    return gather_splits(data, extra or {}, FieldNames(), SplitRules(), **options)


def sources(gathered):
    return {name: [record.source for record in records] for name, records in gathered.splits.items()}


def test_a_single_file_is_split(tmp_path):
    gathered = gather(write(tmp_path / "data.jsonl", *map(str, range(50))))
    assert all(gathered.splits.values())
    assert gathered.origins["test"] == "split off by source"


def test_given_files_are_kept_and_only_the_missing_split_is_made(tmp_path):
    data = write(tmp_path / "data.jsonl", *map(str, range(50)))
    gathered = gather(data, {"dev": write(tmp_path / "held.jsonl", "x", "y")})
    assert sources(gathered)["dev"] == ["x", "y"]
    assert len(gathered.splits["train"]) + len(gathered.splits["test"]) == 50
    assert gathered.splits["test"]


def test_a_folder_brings_its_own_splits(tmp_path):
    for name in ("train", "valid", "test"):
        write(tmp_path / "set" / f"{name}.jsonl", name)
    assert sources(gather(tmp_path / "set")) == {"train": ["train"], "dev": ["valid"], "test": ["test"]}
    with pytest.raises(UserError, match="brings its own dev split; leave out --dev"):
        gather(tmp_path / "set", {"dev": write(tmp_path / "dev.jsonl", "x")})


def test_a_split_field_brings_splits(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text(
        "".join(json.dumps({"source": s, "target": "t", "split": s}) + "\n" for s in ("dev", "test", "train"))
    )
    assert sources(gather(path)) == {"train": ["train"], "dev": ["dev"], "test": ["test"]}


def test_a_folder_without_anything_to_train_on_is_refused(tmp_path):
    write(tmp_path / "set" / "test.jsonl", "x")
    with pytest.raises(UserError, match="has no records to train on"):
        gather(tmp_path / "set")


def test_the_limit_holds_for_each_place_and_reads_no_further(tmp_path):
    data = write(tmp_path / "data.jsonl", *map(str, range(9)))
    with Path(data).open("a", encoding="utf-8") as file:
        file.write("nonsense\n")
    gathered = gather(data, {"dev": write(tmp_path / "dev.jsonl", *"abc")}, limit=2)
    assert len(gathered.splits["dev"]) == 2
    assert len(gathered.splits["train"]) + len(gathered.splits["test"]) == 2


def test_every_record_needs_a_target(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"source": "a"}\n')
    with pytest.raises(UserError, match=r"data\.jsonl:1: field 'target' is missing"):
        gather(path)
