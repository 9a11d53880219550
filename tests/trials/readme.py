"""Run the commands of README and docs again, and compare what they print with the figures that stand there.

``python -m tests.trials.readme [--data FOLDER] [--write] [BLOCK...]`` takes the blocks
that are marked ``<!-- figures: NAME -->``. It runs the commands of each block in a
fresh folder that holds the files of FOLDER/NAME. It compares line by line, in order,
and ignores white space. Counts and steps must be equal. Figures of a model that was
trained in the block may differ by `TOLERANCE`. Times and what follows from them belong
to the machine: they are shown, and not compared. ``--write`` puts the new figures into
the page.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parents[2]
#: What people wrote: not the page of commands, which the site makes.
PAGES: Final = (
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").glob("*.md") if page.stem != "commands"),
)
#: How far a figure may be off after a training on another machine: a share of it, or so
#: many units.
TOLERANCE: Final = (0.05, 1.0)
_BLOCK: Final = re.compile(
    r"(<!-- figures: (\S+) -->\n+```\n)(.*?)(?=^```$)", re.DOTALL | re.MULTILINE
)
_NUMBER: Final = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")
_OF_THE_MACHINE: Final = re.compile(
    r"×|times as fast|\bms\b|/s\b|GB|threads|trained in|: about"
)


@dataclass(frozen=True)
class Line:
    """A line of a block, the same line with today's figures (None if it was not printed), and whether it holds."""

    shown: str
    now: str | None
    holds: bool


def blocks(text: str) -> dict[str, list[str]]:
    """The lines of each block of figures, by its name."""
    return {name: body.splitlines() for _, name, body in _BLOCK.findall(text)}


def commands(lines: Sequence[str]) -> list[str]:
    """The commands of a block. They stand behind a `$`."""
    return [line[2:] for line in lines if line.startswith("$ ")]


def printed(lines: Sequence[str], folder: Path) -> str:
    """All that the commands of a block print when they run in a folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": "200", "NO_COLOR": "1"}
    options = {
        "check": True,
        "text": True,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
    }
    run = partial(subprocess.run, cwd=folder, env=environment, **options)
    return "".join(run(["bash", "-c", command]).stdout for command in commands(lines))


def compared(lines: Sequence[str], output: str) -> Iterator[Line]:
    """Compare each line of a block with the next line of the output that has the same words."""
    text, at, trained = _words(output), 0, False
    for line in lines:
        words = _words(line)
        if line.startswith("$ ") or not words:
            trained |= "pipedec train" in line
            yield Line(line, line, holds=True)
            continue
        pattern = re.compile(
            f"({_NUMBER.pattern})".join(map(re.escape, _NUMBER.split(words)))
        )
        old = _NUMBER.findall(words)
        # Several lines may have these words. Take the line that begins with these
        # figures, else the next line.
        likely = max(
            pattern.finditer(text, at),
            key=lambda found: _alike(old, found.groups()),
            default=None,
        )
        if likely is None:
            yield Line(line, None, holds=False)
            continue
        at, new = likely.end(), iter(likely.groups())
        pairs = zip(old, likely.groups(), strict=True)
        same = all(
            before == now or (trained and _near(before, now)) for before, now in pairs
        )
        now = _NUMBER.sub(lambda _, new=new: next(new), line)  # type: ignore[misc]
        yield Line(line, now, same or bool(_OF_THE_MACHINE.search(line)))


def _words(text: str) -> str:
    return " ".join(text.replace("─", "").split())


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """How many figures are equal, counted from the first."""
    return len(
        list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=True)))
    )


def _near(old: str, now: str) -> bool:
    before, after = (float(number.replace(",", "")) for number in (old, now))
    return abs(after - before) <= max(TOLERANCE[0] * abs(before), TOLERANCE[1])


def main(arguments: Sequence[str]) -> int:
    """Compare all pages. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "blocks", nargs="*", help="names of blocks; without any, all of them"
    )
    parser.add_argument(
        "--data", type=Path, help="a folder of files for each block that needs data"
    )
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args(arguments)
    held = [_compare_page(page, asked) for page in PAGES]
    return int(not all(held))


def _compare_page(page: Path, asked: argparse.Namespace) -> bool:
    text = page.read_text(encoding="utf-8")
    holds = True
    for name, lines in blocks(text).items():
        if asked.blocks and name not in asked.blocks:
            continue
        with TemporaryDirectory() as folder:
            if asked.data and (asked.data / name).is_dir():
                shutil.copytree(asked.data / name, folder, dirs_exist_ok=True)
            found = list(compared(lines, printed(lines, Path(folder))))
        for line in found:
            _show(line)
            holds = holds and line.holds
        now = [line.now or line.shown for line in found]
        text = text.replace("\n".join(lines), "\n".join(now))
    if asked.write:
        page.write_text(text, encoding="utf-8")
    return holds


def _show(line: Line) -> None:
    """Print a line as it stands, and as it is now if that is another one."""
    if line.shown == line.now:
        print(" ", line.shown)
        return
    mark = "~" if line.holds else "!"
    print(mark, line.shown)
    print(mark, line.now or "not printed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
