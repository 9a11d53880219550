"""Places of data: the splits of a folder, told by the names of its files, and the data sets of the hub."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pipedec_cli.data.errors import UserError, first_line
from pipedec_cli.data.records import SPLIT_NAMES, SplitName

STDIN: Final = "-"

_SPLIT_FILE: Final = re.compile(rf"^({'|'.join(SPLIT_NAMES)})(?=[-_.])", re.IGNORECASE)
#: What to do about a folder without such a file.
_NAME_FILES: Final = "name its files train.jsonl, dev.jsonl, test.jsonl, or give a single file"
_HUB_NAME: Final = re.compile(r"(?P<name>[\w.-]+/[\w.-]+?)(?::(?P<config>[\w.-]+))?")
_SUFFIXES: Final = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".txt", ".gz")
_CORPUS: Final = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".parquet")


def given_splits(location: str | Path, todo: str = _NAME_FILES) -> tuple[SplitName, ...]:
    """The splits of a folder or hub data set, else (); a UserError with `todo` for a folder without any."""
    path = Path(location)
    if path.is_dir():
        return tuple(split_files(path, todo))
    return () if str(location) == STDIN or path.exists() else tuple(_hub(location)[2])


def files_by_split(
    folder: Path, name: re.Pattern[str], accepts: Callable[[Path], bool]
) -> dict[SplitName, list[Path]]:
    """The files of a folder by split, without empty splits; the first group of the pattern finds a split in a name."""
    found: dict[SplitName, list[Path]] = {split: [] for split in SPLIT_NAMES.values()}
    for file in sorted(folder.iterdir()):
        if (word := name.search(file.name)) and file.is_file() and accepts(file):
            found[SPLIT_NAMES[word[1].lower()]].append(file)
    return {split: files for split, files in found.items() if files}


def _is_data(file: Path) -> bool:
    return file.name.lower().endswith(_SUFFIXES)


def split_files(folder: Path, todo: str = _NAME_FILES) -> dict[SplitName, list[Path]]:
    """The files of each split, found by name: ``train.jsonl``, ``validation-00000-of-00001.parquet``."""
    found = files_by_split(folder, _SPLIT_FILE, _is_data)
    if not found:
        raise UserError("a folder without a file for any split", where=str(folder), todo=todo)
    return found


def corpus_files(folder: Path) -> list[Path]:
    """The JSON lines and parquet files of a folder by name; none if a file is named after a split."""
    if files_by_split(folder, _SPLIT_FILE, _is_data):
        return []
    files = (file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    return sorted(file for file in files if file.name.lower().endswith(_CORPUS))


def is_hub_name(location: str | Path) -> bool:
    """Whether nothing of that name is here, so that the hub is asked for it."""
    return str(location) != STDIN and not Path(location).exists() and _hub_match(location) is not None


def _hub_match(location: str | Path) -> re.Match[str] | None:
    """The location as a hub name; None if it looks like a mistyped path."""
    text = str(location)
    mistyped = text.lower().endswith(_SUFFIXES) or Path(text).parent.exists()
    return None if mistyped else _HUB_NAME.fullmatch(text)


def _hub(location: str | Path) -> tuple[str, str | None, dict[SplitName, str]]:
    """Name, configuration and splits of a hub data set; its own name of a split by ours."""
    if (found := _hub_match(location)) is None:
        todo = "give a file, a folder, `-` for standard input, or a hub data set `owner/name`"
        raise UserError("no such file", where=str(location), todo=todo)
    name, config = found["name"], found["config"]
    with _hub_errors(name, "no such file here either"):
        splits = _datasets().get_dataset_split_names(name, config)
    return name, config, {SPLIT_NAMES[split]: split for split in splits if split in SPLIT_NAMES}


def hub_rows(location: str | Path, split: SplitName) -> Iterator[tuple[int, str, Any]]:
    """Number, place and value of each row of a hub data set. They are streamed: nothing is copied, memory stays bounded."""
    name, config, splits = _hub(location)
    if (theirs := splits.get(split)) is None:
        raise UserError(f"has no split for {split}", where=name)
    with _hub_errors(name):
        rows = _datasets().load_dataset(name, config, split=theirs, streaming=True)
        for number, value in enumerate(rows, start=1):
            yield number, f"{name} {theirs} row {number}", value


def _datasets() -> Any:
    """The library `datasets`: without its logs, running no code of a data set, counting no downloads."""
    import datasets
    import huggingface_hub

    datasets.config.HF_DATASETS_TRUST_REMOTE_CODE = False  # release 3 ran code, or asked
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    for library in (datasets, huggingface_hub):
        library.utils.logging.set_verbosity(logging.CRITICAL)
    return datasets


@contextmanager
def _hub_errors(name: str, todo: str | None = None) -> Iterator[None]:
    """Make the errors of `datasets` one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # the library raises the errors of its file systems, parsers and HTTP client
        deepest: BaseException = error
        while deepest.__cause__ is not None:
            deepest = deepest.__cause__
        what = f"cannot be read: {first_line(deepest)}"
        if "script" in what:
            what = "needs a loading script, and no program of a data set is run here"
            todo = (
                f"fetch its files (`hf download {name} --repo-type dataset --local-dir DIR`) and import those"
            )
        raise UserError(what, where=name, todo=todo) from error
