"""What the library `datasets` reads: parquet files, and data sets of the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import SPLIT_NAMES, SplitName

_HUB_NAME = re.compile(r"(?P<name>[\w.-]+/[\w.-]+?)(?::(?P<config>[\w.-]+))?")


def parse_hub_name(text: str) -> tuple[str, str | None] | None:
    """Name and configuration out of ``owner/name`` or ``owner/name:config``; None if the text is neither."""
    match = _HUB_NAME.fullmatch(text)
    return None if match is None else (match["name"], match["config"])


def hub_splits(name: str, config: str | None) -> dict[SplitName, str]:
    """The splits of a hub data set by our names, each with its own.

    Raises:
        UserError: the hub cannot be reached, or has no such data set.
    """
    with _hushed():
        from datasets import get_dataset_split_names

        try:
            names = get_dataset_split_names(name, config)
        except (
            Exception
        ) as error:  # the library raises whatever its file systems, parsers and HTTP client raise
            raise UserError(_why(error), where=name, todo="no such file here either") from error
    return {SPLIT_NAMES[split]: split for split in names if split in SPLIT_NAMES}


def hub_objects(name: str, config: str | None, theirs: str) -> Iterator[dict[str, Any]]:
    """The rows of one split of a hub data set, the split by the hub's name for it.

    Raises:
        UserError: it cannot be read.
    """
    return _stream(name, name, config, split=theirs)


def parquet_objects(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a parquet file.

    Raises:
        UserError: it cannot be read.
    """
    return _stream("parquet", str(path), split="train", data_files=str(path))


def _stream(builder: str, where: str, *arguments: Any, **options: Any) -> Iterator[dict[str, Any]]:
    """Rows as `datasets` streams them: nothing is copied to its cache, and memory stays bounded."""
    with _hushed():
        from datasets import load_dataset

        try:
            yield from load_dataset(builder, *arguments, streaming=True, **options)
        except UserError:
            raise
        except Exception as error:  # see hub_splits
            raise UserError(_why(error), where=where) from error


@contextmanager
def _hushed() -> Iterator[None]:
    """Keep `datasets` and the hub's client from logging what they raise as well, and from counting downloads."""
    import datasets
    import huggingface_hub

    counts = datasets.config.HF_UPDATE_DOWNLOAD_COUNTS
    levels = [
        (library.utils.logging, library.utils.logging.get_verbosity())
        for library in (datasets, huggingface_hub)
    ]
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = (
        False  # else reading a local file, too, is reported over the network
    )
    for logging, _ in levels:
        logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = counts
        for logging, level in levels:
            logging.set_verbosity(level)


def _why(error: Exception) -> str:
    """The first line of an error, and of what caused it where that says more."""
    deepest: BaseException = error
    while deepest.__cause__ is not None:
        deepest = deepest.__cause__
    lines = str(deepest).strip().splitlines() or [type(deepest).__name__]
    return f"cannot be read: {lines[0]}"
