"""What one target of the fuzzer is, the records that it is made of, and how many records a command read and wrote.

Records are counted by other means than the tool's own.
"""

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.checkpoints import TOLD

#: Written and read, as counted in a case's folder after a command that succeeded with this on stdout.
Count = Callable[[Path, str], tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Target:
    """A command line, the files that it finds, those of them that are hurt, and how often it is drawn."""

    arguments: tuple[str, ...]
    files: Mapping[str, bytes]
    hurt: tuple[str, ...]  # names, or ends of names; the content of VALUE stands in the command line
    counted: Count | None = None
    share: int = 1

    @property
    def name(self) -> str:
        return f"{' '.join(self.arguments[:2])} ({', '.join(self.hurt)})"


VALUE = "VALUE"  # the name of a file whose content stands in the command line
ROWS: Final[list[dict[str, Any]]] = [
    {"id": str(n), "source": source, "target": " ".join(told), "keyphrases": [*told], "more": {"a": [None]}}
    for n, (source, told) in enumerate(TOLD * 2)
]
#: Of objects: a key of each kind, one in a part that is referred to, and one in an object within the object.
SCHEMA: Final[dict[str, Any]] = {
    "properties": {
        "name": {"type": ["string", "null"]},
        "stars": {"$ref": "#/$defs/S"},
        "tags": {"type": "array"},
        "place": {"type": "object", "properties": {"city": {"type": "string", "description": "a town"}}},
    },
    "$defs": {"S": {"enum": list(range(9))}},
}


def lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _filled(content: bytes) -> int:
    return sum(bool(line.removeprefix(b"\xef\xbb\xbf").strip()) for line in content.split(b"\n"))


def _filled_lines(*paths: Path) -> int:
    return sum(_filled(path.read_bytes()) for path in paths)


def _records_in(path: Path) -> int:
    content = path.read_bytes()
    if path.suffix == ".gz":
        return _filled(gzip.decompress(content))
    if path.suffix in (".csv", ".tsv"):
        text = io.StringIO(content.decode("utf-8-sig"), newline="")
        separator = "," if path.suffix == ".csv" else "\t"
        return sum(bool(row) for row in csv.reader(text, delimiter=separator, strict=True)) - 1
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return int(parquet.read_table(path).num_rows)
    if path.suffix == ".json" and content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        return len(json.loads(content.decode("utf-8-sig")))
    return _filled_lines(path)


def segmented(name: str) -> Count:
    return lambda folder, _: (_filled_lines(*folder.glob("out/*.jsonl")), _records_in(folder / name))


def generated(folder: Path, stdout: str) -> tuple[int, int]:
    """Those that were set aside are counted as written."""
    aside = folder.glob("out.invalid.jsonl")
    return _filled_lines(folder / "out.jsonl", *aside), _records_in(folder / "data.jsonl")


def generated_of_text(folder: Path, stdout: str) -> tuple[int, int]:
    read = (folder / "stdin.txt").read_bytes().decode("utf-8-sig").split("\n")
    return _filled_lines(folder / "out.jsonl"), sum(bool(line.strip()) for line in read)


def merged(folder: Path, stdout: str) -> tuple[int, int]:
    return _filled_lines(folder / "made/predictions.jsonl"), _filled_lines(*folder.glob("made/part-*.jsonl"))


def imported(folder: Path, stdout: str) -> tuple[int, int]:
    """Each file has as many lines as were counted; that nothing else was left out, JSON lines can tell."""
    files = json.loads(stdout)["files"]
    return _filled_lines(*(folder / file["path"] for file in files)), sum(file["examples"] for file in files)


def imported_lines(folder: Path, stdout: str) -> tuple[int, int]:
    written, told = imported(folder, stdout)
    left_out = sum(file["left_out"] for file in json.loads(stdout)["files"])
    read = _filled_lines(*(folder / "set").iterdir())
    return (written + left_out, read) if written == told else (written, told)


def scored(folder: Path, stdout: str) -> tuple[int, int]:
    return json.loads(stdout)["rows"]["scored"], _records_in(folder / "p.jsonl")
