"""One job in several shards, each made on its own, then put together; and records that cannot be used."""

import gzip
import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import running
from tests.jobs.generate.running import ROWS, done, lines, refused, written
from tests.running import lines_of, read_json, run, write_lines

JOB = ("corpus", "--out", "made", "--batch-size", "2")
part = partial(run, "generate", *JOB, "--part")
refused_part = partial(running.refused, "generate", *JOB, "--part")
merge = partial(run, "shard", "merge", "made")
refused_merge = partial(running.refused, "shard", "merge", "made")


@pytest.fixture
def corpus(place: Path) -> Path:
    """A folder of JSON lines, gzipped or not, and parquet; three of its rows cannot be used."""
    from pyarrow import Table, parquet

    folder = Path("corpus")
    rows = [{**row, "kept": "x"} for row in ROWS]
    good = [json.dumps(row) for row in rows]
    folder.mkdir()
    (folder / "a.jsonl").write_text(
        "\n".join([*good[:4], "{", *good[4:6], '{"id": 99}']), encoding="utf-8"
    )
    table = Table.from_pylist(rows[6:9])
    parquet.write_table(table, folder / "b.parquet")
    with gzip.open(folder / "c.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join([*good[9:], good[0]]))
    (folder / "README.md").write_text("not data", encoding="utf-8")
    return folder


def sharded(*shards: str) -> None:
    for shard in shards:
        part(shard)


def merged(*arguments: object) -> list[dict[str, Any]]:
    merge(*arguments)
    return lines(Path("made/predictions.jsonl"))


def test_shards_merged_are_what_one_run_writes_and_bad_records_are_told_once(corpus):
    whole = written("whole.jsonl", "corpus", "--skip-invalid")
    assert [row["id"] for row in whole] == [row["id"] for row in ROWS]
    told = [part(shard).stderr for shard in ("3/3", "1/3", "2/3")]
    skipped = "1 invalid record skipped, listed in made/part-3-of-3.invalid.jsonl"
    assert f"{skipped}; the first: corpus/c.jsonl.gz:4: id '0'" in told[0]
    assert merged() == whole
    bad = lines_of("made/predictions.invalid.jsonl")
    assert bad == lines_of("whole.invalid.jsonl")
    assert [one["where"] for one in bad] == [
        "corpus/a.jsonl:5",
        "corpus/a.jsonl:8",
        "corpus/c.jsonl.gz:4",
    ]
    assert not Path("made/part-1-of-3.invalid.jsonl").exists()
    one, other = (
        read_json(path)
        for path in ("whole.manifest.json", "made/predictions.manifest.json")
    )
    assert {**one["settings"], "batch_size": 2} == other.pop("settings")
    assert one["result"]["examples"] == other.pop("result")["examples"] == 12
    assert {name: one[name] for name in other} == other
    again = ("corpus", "--skip-invalid", "--out", "made/predictions.jsonl", "--resume")
    assert "is whole already: 12 of 12" in done(*again).stderr
    assert "next: `pipedec shard merge made`, once all parts are there\n" in told[0]
    assert "next: `pipedec score made/predictions.jsonl`\n" in merge().stderr
    path = Path("made/part-2-of-3.jsonl")
    before = path.read_bytes()
    assert "is a part that is to be merged; choose another --out" in refused_merge(
        "--out", path
    )
    assert path.read_bytes() == before
    assert lines(merge("--out", "-").stdout) == whole


def test_a_file_with_a_bad_record_is_still_refused_unless_it_is_to_be_set_aside(place):
    write_lines(
        "data.jsonl",
        *ROWS[:2],
        {"id": "none"},
        {**ROWS[2], "prediction": "taken"},
        ROWS[3],
    )
    refused("data.jsonl")
    assert [
        row["id"] for row in written("out.jsonl", "data.jsonl", "--skip-invalid")
    ] == [0, 1, 3]
    assert [one["where"] for one in lines_of("out.invalid.jsonl")] == [
        "data.jsonl:3",
        "data.jsonl:4",
    ]
    write_lines("data.jsonl", *ROWS[:2])
    done("data.jsonl", "--skip-invalid", "--out", "out.jsonl")
    assert not Path("out.invalid.jsonl").exists()
    write_lines("data.jsonl", {"id": 1}, {})
    refused("data.jsonl", "--skip-invalid")


def test_a_shard_that_was_stopped_goes_on_and_a_whole_one_is_left_as_it_is(corpus):
    sharded("1/2")
    path = Path("made/part-1-of-2.jsonl")
    whole, manifest = path.read_bytes(), Path("made/part-1-of-2.manifest.json")
    ended = manifest.read_bytes()
    content = json.loads(ended)
    del content["result"]  # as a kill leaves it
    manifest.write_text(json.dumps(content))
    path.write_bytes(whole[: len(whole) // 2])
    sharded("2/2")
    left = path.read_bytes().count(b"\n")
    again = "run the job's command with --part 1/2 again"
    assert (
        refused_merge()
        == f"made/part-1-of-2.jsonl: has {left} of 6 lines and no end; {again}"
    )
    assert f"goes on: {left} of 6 lines are there" in part("1/2").stderr
    assert lines(path) == lines(whole.decode())
    before = path.read_bytes(), path.stat().st_mtime_ns, manifest.stat().st_mtime_ns
    assert "is whole already" in part("1/2", "--batch-size", "1").stderr
    assert (
        path.read_bytes(),
        path.stat().st_mtime_ns,
        manifest.stat().st_mtime_ns,
    ) == before
    merged()
    said = refused_part("1/2", "--delay", "3")
    assert "made: cannot go on: delay was 2 and is now 3; name another folder" in said
    write_lines("corpus/d.jsonl", {"source": "a"})
    assert "the data changed" in refused_part("1/2")


def test_more_shards_than_records_leave_empty_ones(place):
    write_lines("corpus/a.jsonl", *ROWS[:2])
    sharded("1/3", "2/3", "3/3")
    assert [
        Path(f"made/part-{k}-of-3.jsonl").read_bytes().count(b"\n") for k in (1, 2, 3)
    ] == [0, 1, 1]
    assert [row["id"] for row in merged()] == [0, 1]


def test_a_missing_copied_foreign_or_changed_shard_is_refused_by_name(corpus):
    assert refused_merge() == "made: no such folder"
    Path("made").mkdir()
    assert "made: holds no manifest.json of a job" in refused_merge()
    sharded("1/4", "3/4")
    assert refused_merge() == (
        "made: shards 2/4, 4/4 are missing; run the job's command with --part 2/4"
    )
    assert "made: cannot go on: shards was 4 and is now 3" in refused_part("2/3")
    sharded("2/4", "4/4")
    path, manifest = (
        Path("made/part-3-of-4.jsonl"),
        Path("made/part-3-of-4.manifest.json"),
    )
    ended = path.read_bytes(), manifest.read_text()
    for end in ("jsonl", "manifest.json"):
        shutil.copy(f"made/part-1-of-4.{end}", f"made/part-3-of-4.{end}")
    foreign = "made/part-3-of-4.jsonl: is of another job: "
    changed = "the shard changed (number was 3 and is now 1)"
    assert refused_merge().startswith(f"{foreign}{changed}")
    other = json.loads(ended[1])
    other["settings"]["delay"] = 3
    manifest.write_text(json.dumps(other))
    assert refused_merge().startswith(f"{foreign}delay was 2 and is now 3")
    manifest.write_text(ended[1])
    path.write_bytes(ended[0].replace(b" ", b"  ", 1))
    assert "made/part-3-of-4.jsonl: was changed after it was written" in refused_merge()
    job = Path("made/manifest.json")
    for number in ("3.0", '"4"', "NaN", "-1", "1000000"):
        whole = json.dumps({**read_json(job), "shards": 0})
        job.write_text(whole.replace('"shards": 0', f'"shards": {number}'))
        assert "field 'shards'" in refused_merge()
        job.write_text(job.read_text().replace(f'"shards": {number}', '"shards": 4'))
    path.rename("part")
    os.mkfifo(path)
    assert "part-3-of-4.jsonl: is no file" in refused_merge()
    Path("part").replace(path)
    manifest.unlink()
    assert "there is no part-3-of-4.manifest.json beside it" in refused_merge()


@pytest.mark.parametrize("field", ["shards", "examples"])
def test_a_damaged_manifest_of_a_job_is_refused_and_made_again_by_a_part(place, field):
    write_lines("corpus/a.jsonl", *ROWS[:2])
    sharded("1/2", "2/2")
    path = Path("made/manifest.json")
    content = read_json(path)
    path.write_text(json.dumps({**content, field: None}), encoding="utf-8")
    assert str(path) in refused_merge()
    del content[field]
    path.write_text(json.dumps(content), encoding="utf-8")
    assert str(path) in refused_merge()
    path.unlink()
    part("1/2")
    assert len(merged()) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        "data.jsonl --part 1/2",
        "data.jsonl --part 1/2 --out -",
        "data.jsonl --part 1/2 --out data.jsonl",
        "corpus --part 1/2 --out ./corpus",
        "corpus --out made --part 1/2 --split dev",
        "empty --out made --part 1/2",
    ],
)
def test_what_does_not_go_together_is_refused(place, arguments):
    write_lines("data.jsonl", ROWS[0])
    write_lines("corpus/a.jsonl", ROWS[0])
    Path("empty").mkdir()
    running.refused("generate", *arguments.split())
