"""What is kept on disk instead of in memory: it comes back as it was, in any order, and memory does not grow."""

import json
import tracemalloc
from functools import partial
from pathlib import Path

import pytest

from pipedec_cli.data.inputs import scan_inputs
from pipedec_cli.data.records import FieldNames, Record
from pipedec_cli.data.stored import FirstPlaces, StoredRecords
from pipedec_cli.data.writing import only_writer, write_text
from tests.running import run

ODD = {"big": 10**40, "half": "\ud800", "deep": [{"a": [None, 0.5]}]}


def record(number, **fields):
    return Record(
        str(number), f"s{number}", "t", ("t",), ("t",), f"data.jsonl:{number}", fields
    )


@pytest.mark.parametrize("size", [1, 1_000_000], ids=["in memory", "on disk"])
def test_records_come_back_as_they_were_in_any_order_and_leave_no_file(tmp_path, size):
    records = [record(number, text="x" * size, **ODD) for number in range(7)]
    rows = StoredRecords(tmp_path / "not" / "there", records)
    assert [*rows] == [*rows] == records
    assert list(zip(rows, rows[::-1], strict=True)) == list(
        zip(records, records[::-1], strict=True)
    )
    assert [
        one.id for one in rows.only(number % 3 == 0 for number in range(7))[1:]
    ] == ["3", "6"]
    rows.append(records[0])
    assert rows[-1] == records[0] and len(rows) == 8
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="no folder that takes no file from anybody"
)
def test_where_no_file_can_be_made_no_name_of_a_temporary_file_or_a_lock_is_told():
    def store(path):
        StoredRecords(path, [record(1, text="x" * 2_000_000)])

    def lock(path):
        only_writer(path, todo="").__enter__()

    for write, named in (
        (store, "/proc"),
        (lock, "/proc/new"),
        (partial(write_text, text="a"), "/proc/new"),
    ):
        with pytest.raises(FileNotFoundError) as raised:
            write(Path("/proc/new"))
        assert raised.value.filename == named


def test_the_first_place_of_an_identifier_is_found_whatever_it_holds():
    places = FirstPlaces()
    names = ["1", "01", "\ud800", "a\0b", "", "é"]
    assert [
        places.before(name, f"\udcff:{number}") for number, name in enumerate(names)
    ] == [None] * 6
    assert [places.before(name, "again") for name in names] == [
        f"\udcff:{number}" for number in range(6)
    ]


def peak(work, count):
    """The most memory that Python and numpy hold meanwhile, in bytes."""
    tracemalloc.start()
    work(count)
    size = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return size


def test_the_memory_that_inputs_from_a_pipe_take_does_not_grow_with_the_records(
    tmp_path,
):
    def read(count):
        records = (record(number, text=f"{number}" * 200) for number in range(count))
        inputs = scan_inputs(records.__iter__, FieldNames(), keep=tmp_path)
        assert sum(1 for _ in inputs.read()) == sum(1 for _ in inputs.read()) == count

    assert peak(read, 9_000) - peak(read, 3_000) < 6_000 * 100


@pytest.mark.slow
def test_the_memory_that_segment_takes_does_not_grow_with_the_records(tmp_path):
    def segment(count):
        rows = (
            {"id": f"r{i}", "source": f"{i} " + "words " * 60, "target": "a; b"}
            for i in range(count)
        )
        with (tmp_path / "data.jsonl").open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        run(
            "segment",
            tmp_path / "data.jsonl",
            "--level",
            "phrase",
            "--out",
            tmp_path / f"{count}",
        )

    segment(10)  # what is imported and kept once
    assert (
        peak(segment, 1_500) - peak(segment, 500) < 1_000 * 300
    )  # its source alone has more bytes
