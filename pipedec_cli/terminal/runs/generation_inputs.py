"""What `pipedec generate` reads: texts from the command line, the workspace's test set, or data of any kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import Inputs, look_through
from pipedec_cli.data.reading import read_records
from pipedec_cli.data.records import FieldNames, Record, SplitName, whole_text
from pipedec_cli.data.rows import STDIN, given_splits
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.runs.generation_request import DEFAULT_SPLIT, GenerateRequest


def read_texts(texts: Sequence[str]) -> Inputs:
    """Sources that stand on the command line; their identifiers are their places, from 1.

    Raises:
        UserError: one of them is empty.
    """
    records = []
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            raise UserError(
                "is empty", where=f"--text {number}", todo="there must be something to generate from"
            )
        whole = whole_text(text)  # bytes that are not UTF-8 come as halves of surrogate pairs
        fields = {"id": str(number), "source": whole}
        records.append(Record(str(number), whole, None, None, (), f"--text {number}", fields))
    return look_through(lambda: iter(records), FieldNames())


def read_data(request: GenerateRequest, place: Workspace, talk: Talk) -> tuple[Inputs, str]:
    """Look through the records to generate from.

    Files are read once here and once more while generating, so that memory does not grow with them; standard input,
    pipes and hub data sets are held in memory.

    Args:
        request: names the data and their fields.
        place: where the data are if it names none.
        talk: where to say what was mended.

    Returns:
        the records, and the place that they come from.

    Raises:
        UserError: nothing is there, or a record is not as it must be.
    """
    names, split = request.names, request.split or DEFAULT_SPLIT
    if request.data is None:
        path = place.require(place.split(split), "pipedec segment DATA")
        if path.stat().st_size == 0:
            raise UserError(
                "is empty", where=str(path), todo="give --split dev, or data of your own to generate from"
            )
        location, names = str(path), FieldNames()  # `segment` has given the fields their plain names
    else:
        location = request.data
        _check_split(location, request.split)
    kept = location == STDIN or not (Path(location).is_file() or Path(location).is_dir())
    warn: Callable[[str], None] | None = talk.warn

    def read() -> Iterator[Record]:
        nonlocal warn
        first, warn = warn, None  # what is read again was said the first time
        yield from read_records(location, names, split=split, warn=first)

    return look_through(read, names, limit=request.limit, keep=kept), location


def _check_split(data: str, split: SplitName | None) -> None:
    """Refuse a split of what has none, and name those that a folder has.

    Raises:
        UserError: there is no such split.
    """
    if Path(data).is_dir():
        there = given_splits(data)
        if (split or DEFAULT_SPLIT) not in there:
            raise UserError(
                f"has no file for {split or DEFAULT_SPLIT}",
                where=data,
                todo=f"give --split {' or '.join(there)}",
            )
    elif split is not None and (data == STDIN or Path(data).exists()):
        raise UserError("a single file has no splits", where=data, todo="leave out --split")
