"""What the tests of all importers ask: what a row and files give, and what is refused where."""

import re

from pipedec_cli.data.importers import splits_at
from tests.words import refusing


def sides(example):
    return example.id, example.source, example.target


def check_row(write_lines, read, row, *expected):
    """A row has to give this identifier, source and target."""
    (example,) = read(str(write_lines("test.jsonl", row)), None)
    assert sides(example) == expected


def check_files(write_lines, read, files, place, splits, examples):
    """Files have to give these splits, and the examples of the first of them."""
    for name, lines in files.items():
        root = write_lines(name, *lines).parents[name.count("/")]
    location = str(root / place)
    assert splits_at(location) == splits
    first = splits[0] if splits else None
    assert [sides(example) for example in read(location, first)] == examples


def check_refused(write_lines, tmp_path, read, files, where, given=None):
    """Files have to be refused at a place; `given` is what is read, if that is another file."""
    for name, lines in files.items():
        write_lines(name, *lines)
    name = given or re.split("[: ]", where)[0]
    with refusing(tmp_path / where):
        list(read(str(tmp_path / name), None))
