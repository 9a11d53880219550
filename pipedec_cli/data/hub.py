"""Reads the splits and rows of a data set on the Hugging Face hub, by the library `datasets`."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from pipedec_cli.data.errors import UserError, first_line
from pipedec_cli.data.file_formats import SUFFIXES, RawRow, rows_of
from pipedec_cli.data.records import SPLIT_NAMES, SplitName

_HUB_NAME: Final = re.compile(r"(?P<name>[\w.-]+/[\w.-]+?)(?::(?P<config>[\w.-]+))?")


class HubDataSet(NamedTuple):
    """A data set of the hub: its name, its configuration (None: its only one), and what it calls each of our splits."""

    name: str
    config: str | None
    splits: dict[SplitName, str]

    def rows(self, split: SplitName) -> Iterator[RawRow]:
        """The rows of a split, streamed: nothing is copied, memory stays bounded. A UserError if there is no such split."""
        theirs = self.splits.get(split)
        if theirs is None:
            raise UserError(f"has no split for {split}", where=self.name)
        with _hub_errors(self.name):
            streamed = _datasets().load_dataset(
                self.name, self.config, split=theirs, streaming=True
            )
            yield from rows_of(streamed, f"{self.name} {theirs} row")


def hub_match(location: str | Path) -> re.Match[str] | None:
    """The location as a hub name; None if it cannot be one, or looks like a mistyped path."""
    text = str(location)
    if text.lower().endswith(SUFFIXES) or Path(text).parent.exists():
        return None
    return _HUB_NAME.fullmatch(text)


def hub_data_set(location: str | Path) -> HubDataSet:
    """The data set of a hub name ``owner/name[:config]``, whose splits the hub is asked for; else a UserError."""
    match = hub_match(location)
    if match is None:
        todo = "give a file, a folder, `-` for standard input, or a hub data set `owner/name`"
        raise UserError("no such file", where=location, todo=todo)
    name = match["name"]
    config = match["config"]
    with _hub_errors(name, "no such file here either"):
        theirs = _datasets().get_dataset_split_names(name, config)
    splits = {SPLIT_NAMES[split]: split for split in theirs if split in SPLIT_NAMES}
    return HubDataSet(name, config, splits)


def _datasets() -> Any:
    """The library `datasets`: without its logs, running no code of a data set, counting no downloads."""
    import datasets
    import huggingface_hub

    # Release 3 ran code, or asked.
    datasets.config.HF_DATASETS_TRUST_REMOTE_CODE = False
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    for library in (datasets, huggingface_hub):
        library.utils.logging.set_verbosity(logging.CRITICAL)
    return datasets


@contextmanager
def _hub_errors(name: str, todo: str | None = None) -> Iterator[None]:
    """Make an error of `datasets` a UserError of one line about the data set `name`, with what to do about it."""
    try:
        yield
    except UserError:
        raise
    # The library raises the errors of its file systems, parsers and HTTP client.
    except Exception as error:
        deepest: BaseException = error
        while deepest.__cause__ is not None:
            deepest = deepest.__cause__
        what = f"cannot be read: {first_line(deepest)}"
        # All that the library says of a data set with a script.
        if type(error) is RuntimeError:
            what = "needs a loading script, and no program of a data set is run here"
            fetch = f"hf download {name} --repo-type dataset --local-dir DIR"
            todo = f"fetch its files (`{fetch}`) and import those"
        raise UserError(what, where=name, todo=todo) from error
