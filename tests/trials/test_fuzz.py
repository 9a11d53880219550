"""Files that chance has hurt end a command in one line, and lose no record: some for every change, many for CI."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipedec_cli.data.errors import log
from tests.trials.fuzz import call, fuzz, laid_out, lost_in, wrong_with
from tests.trials.targets import VALUE, targets

FEW, MANY = 10, 400


@pytest.fixture(autouse=True)
def _log_records_as_before() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(before)


@pytest.mark.parametrize(
    "cases",
    [range(FEW), pytest.param(range(FEW, MANY), marks=pytest.mark.slow)],
    ids=["few", "many"],
)
def test_hurt_files_end_a_command_in_one_line_and_lose_no_record(cases: range) -> None:
    found = []
    for number in cases:
        target, wrong, _ = fuzz(number)
        found += [f"case {number}, {target.name}: {what}" for what in wrong]
    assert not found, (
        "`python -m tests.trials.fuzz --only NUMBER --keep FOLDER` makes one again"
    )


@pytest.mark.slow
def test_whole_files_are_taken(tmp_path: Path) -> None:
    """Else all cases of a target would be refused for the same reason, and show nothing."""
    for number, target in enumerate(
        dict.fromkeys(one for one in targets() if VALUE not in one.hurt)
    ):
        folder = tmp_path / str(number)
        ended = call(laid_out(target, folder), folder)
        assert (ended.code, wrong_with(ended), lost_in(target, folder, ended)) == (
            0,
            [],
            [],
        ), target.name


@pytest.mark.parametrize("kind", ["folder", "loop", "nowhere", "in a file", "long"])
def test_a_path_of_another_kind_than_is_meant_ends_a_command_in_one_line(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "data.jsonl").write_text(
        '{"id": 1, "source": "a", "target": "b", "prediction": "b"}\n'
    )
    path = {"in a file": "data.jsonl/x", "long": "x" * 5_000}.get(kind, "path")
    if kind == "folder":
        (tmp_path / path).mkdir()
    if kind == "loop":
        (tmp_path / path).symlink_to("back")
        (tmp_path / "back").symlink_to(path)
    for line in (
        *(
            "segment PATH",
            "segment data.jsonl --dev PATH",
            "segment data.jsonl --config PATH",
        ),
        *(
            "import msqa PATH",
            "import pubmed PATH",
            "import wikihowqa PATH",
            "import parallel PATH",
        ),
        *(
            "score PATH",
            "score data.jsonl --gold PATH",
            "score data.jsonl PATH",
            "score -w PATH",
        ),
        *(
            "import parallel data.jsonl --targets PATH",
            "generate PATH --model none",
            "generate -w PATH",
        ),
        *("train --model PATH", "train -w PATH"),
    ):
        ended = call(
            [path if word == "PATH" else word for word in line.split()], tmp_path
        )
        assert (ended.code, wrong_with(ended)) == (2, []), line
    for line in (
        "segment data.jsonl --out PATH",
        "score data.jsonl --out PATH",
        "segment data.jsonl -w PATH",
    ):
        ended = call(
            [path if word == "PATH" else word for word in line.split()], tmp_path
        )
        assert not wrong_with(ended), line


def test_a_file_name_that_is_no_text_serves_as_any_other(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(
        log, "propagate", False
    )  # pytest's workers send each other texts
    name = os.fsdecode(b"\xff.jsonl")
    (tmp_path / name).write_text(
        '{"source": "a", "target": "b"}\n{"source": "c", "target": "d"}\n'
    )
    for options in (f"--out {name}.out", f"--level phrase --separator {name} --json"):
        ended = call(["segment", name, *options.split()], tmp_path)
        assert (ended.code, wrong_with(ended)) == (0, []), options
