"""The figures of the README beside what its commands print today.

``python -m tests.trials.readme [--data FOLDER] [--write] [BLOCK...]`` runs the commands of the README's blocks of figures, each in a
fresh folder with the files of FOLDER/BLOCK, and compares: line by line, in order, white space aside. Counts and
steps must be equal; what a model that was trained in the block says may differ by `TOLERANCE`; times and what follows of them are the
machine's own, and are only shown. ``--write`` puts the new figures into the README.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

README: Final = Path(__file__).parents[2] / "README.md"
#: After a training on another machine: so large a share, or so many units.
TOLERANCE: Final = (0.05, 1.0)
_BLOCK: Final = re.compile(r"(<!-- figures: (\S+) -->\n+```\n)(.*?)(?=^```$)", re.DOTALL | re.MULTILINE)
_NUMBER: Final = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")
_MACHINES_OWN: Final = re.compile(r"×|times as fast|\bms\b|/s\b|GB|threads|trained in|: about")


class Line(NamedTuple):
    """A line of a block, the same with the figures that are printed now, None if it is not, and whether that will do."""

    shown: str
    now: str | None
    holds: bool


def blocks(text: str) -> dict[str, list[str]]:
    """The lines of each block of figures, by name."""
    return {name: body.splitlines() for _, name, body in _BLOCK.findall(text)}


def commands(lines: Sequence[str]) -> list[str]:
    """The commands of a block, which stand behind a `$`."""
    return [line[2:] for line in lines if line.startswith("$ ")]


def printed(lines: Sequence[str], folder: Path) -> str:
    """What the commands of a block print in a folder, all of it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": "200", "NO_COLOR": "1"}
    options = {"check": True, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    run = partial(subprocess.run, cwd=folder, env=environment, **options)
    return "".join(run(["bash", "-c", command]).stdout for command in commands(lines))


def compared(lines: Sequence[str], output: str) -> Iterator[Line]:
    """Each line of a block beside the next one of the output that has the same words."""
    text, at, trained = " ".join(output.replace("─", "").split()), 0, False
    for line in lines:
        words = " ".join(line.replace("─", "").split())
        if line.startswith("$ ") or not words:
            trained |= any(command in line for command in ("pipedec train", "pipedec demo"))
            yield Line(line, line, holds=True)
            continue
        pattern = re.compile(f"({_NUMBER.pattern})".join(map(re.escape, _NUMBER.split(words))))
        old = _NUMBER.findall(words)
        # Of several lines with these words the one that begins with these figures, else the next one.
        likely = max(pattern.finditer(text, at), key=lambda found: _alike(old, found.groups()), default=None)
        if likely is None:
            yield Line(line, None, holds=False)
            continue
        at, new = likely.end(), iter(likely.groups())
        pairs = zip(old, likely.groups(), strict=True)
        same = all(before == now or (trained and _near(before, now)) for before, now in pairs)
        now = _NUMBER.sub(lambda _, new=new: next(new), line)  # type: ignore[misc]
        yield Line(line, now, same or bool(_MACHINES_OWN.search(line)))


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """How many figures from the first on are equal."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=True))))


def _near(old: str, now: str) -> bool:
    before, after = (float(number.replace(",", "")) for number in (old, now))
    return abs(after - before) <= max(TOLERANCE[0] * abs(before), TOLERANCE[1])


def main(arguments: Sequence[str]) -> int:
    """Compare, and give the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("blocks", nargs="*", help="all of them if none is named")
    parser.add_argument("--data", type=Path, help="a folder of folders of files, one for a block with data")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args(arguments)
    text, failed = README.read_text(encoding="utf-8"), False
    for name, lines in blocks(text).items():
        if asked.blocks and name not in asked.blocks:
            continue
        with TemporaryDirectory() as folder:
            if asked.data and (asked.data / name).is_dir():
                shutil.copytree(asked.data / name, folder, dirs_exist_ok=True)
            made = list(compared(lines, printed(lines, Path(folder))))
        for line in made:
            mark = " " if line.shown == line.now else "~" if line.holds else "!"
            print(mark, line.shown, *([] if mark == " " else [f"\n{mark} {line.now or 'not printed'}"]))
        failed |= not all(line.holds for line in made)
        text = text.replace("\n".join(lines), "\n".join(line.now or line.shown for line in made))
    if asked.write:
        README.write_text(text, encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
