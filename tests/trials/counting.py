"""The records that a case read and wrote, counted by other means than the tool's own."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

from tests.checkpoints import TOLD

#: Written and read, as counted in a case's folder after a command that succeeded with this on stdout.
Count = Callable[[Path, str], tuple[int, int]]


def _filled_lines(content: bytes) -> int:
    return sum(bool(line.removeprefix(b"\xef\xbb\xbf").strip()) for line in content.split(b"\n"))


def _records_in(path: Path) -> int:
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    if path.suffix in (".csv", ".tsv"):
        text = io.StringIO(content.decode("utf-8-sig"), newline="")
        separator = "," if path.suffix == ".csv" else "\t"
        return sum(bool(row) for row in csv.reader(text, delimiter=separator, strict=True)) - 1
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return int(parquet.read_table(path).num_rows)
    if path.suffix == ".json" and content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        return len(json.loads(content.decode("utf-8-sig")))
    return _filled_lines(content)


def segmented(name: str) -> Count:
    def counted(folder: Path, stdout: str) -> tuple[int, int]:
        written = sum(_filled_lines(path.read_bytes()) for path in folder.glob("out/*.jsonl"))
        return written, _records_in(folder / name)

    return counted


def generated(folder: Path, stdout: str) -> tuple[int, int]:
    return _filled_lines((folder / "out.jsonl").read_bytes()), _records_in(folder / "data.jsonl")


def learnt(folder: Path, stdout: str) -> tuple[int, int]:
    """Only texts that a tiny checkpoint knows by heart count as written."""
    right, made = dict(TOLD), map(json.loads, (folder / "out.jsonl").read_bytes().splitlines())
    written = sum(line["prediction"] == " ".join(right[line["source"]]) for line in made)
    return written, _records_in(folder / "data.jsonl")


def generated_or_set_aside(folder: Path, stdout: str) -> tuple[int, int]:
    written, read = generated(folder, stdout)
    bad = folder / "out.invalid.jsonl"
    return written + (_filled_lines(bad.read_bytes()) if bad.exists() else 0), read


def merged(folder: Path, stdout: str) -> tuple[int, int]:
    read = sum(_filled_lines(path.read_bytes()) for path in folder.glob("made/part-*.jsonl"))
    return _filled_lines((folder / "made" / "predictions.jsonl").read_bytes()), read


def generated_of_text(folder: Path, stdout: str) -> tuple[int, int]:
    read = (folder / "stdin.txt").read_bytes().decode("utf-8-sig").split("\n")
    return _filled_lines((folder / "out.jsonl").read_bytes()), sum(bool(line.strip()) for line in read)


def imported(folder: Path, stdout: str) -> tuple[int, int]:
    """Each file has as many lines as were counted; that nothing else was left out, JSON lines can tell."""
    written = told = 0
    for file in json.loads(stdout)["files"]:
        written += _filled_lines((folder / file["path"]).read_bytes())
        told += file["examples"]
    return written, told


def imported_lines(folder: Path, stdout: str) -> tuple[int, int]:
    written, told = imported(folder, stdout)
    left_out = sum(file["left_out"] for file in json.loads(stdout)["files"])
    read = sum(_filled_lines(path.read_bytes()) for path in (folder / "set").iterdir())
    return (written + left_out, read) if written == told else (written, told)


def scored(folder: Path, stdout: str) -> tuple[int, int]:
    return json.loads(stdout)["rows"]["scored"], _records_in(folder / "p.jsonl")
