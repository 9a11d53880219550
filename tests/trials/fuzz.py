"""Every parser on files that chance has hurt: `python -m tests.trials.fuzz --cases 20000`.

A case is one command on valid files, of which one was mutated. It must end with exit code 0 or 2, without a traceback,
in seconds; what it says is printable, errors on one line of bounded length; and where it succeeds, no record is lost.
A case depends on the seed and its number alone: `--only NUMBER --keep FOLDER` makes it again.
"""

import argparse
import io
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from pipedec_cli.cli.app import main
from tests.trials.mutations import hurt
from tests.trials.targets import VALUE, Target, targets

# Read by huggingface_hub when it is imported: whatever a case asks for, nothing reaches for the network.
os.environ["HF_HUB_OFFLINE"] = "1"

#: No file here takes a command longer than that.
SECONDS = 60


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    code: Any
    stdout: str
    stderr: str
    crash: str  # the traceback, if something was raised


def laid_out(target: Target, folder: Path, victim: str = "", content: bytes = b"") -> list[str]:
    """Write a target's files, the victim with that content; gives its command line."""
    files = {**target.files, **({victim: content} if victim else {})}
    for name, whole in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(whole)
    return [
        os.fsdecode(files[VALUE].replace(b"\0", b""))[:5_000] if word == VALUE else word
        for word in target.arguments
    ]


def fuzz(number: int, seed: int = 0, keep: Path | None = None) -> tuple[Target, list[str], Ended]:
    """Run one case; gives its target and what is wrong with how it ended."""
    chance = Random(f"{seed}:{number}")
    target = chance.choice(targets())
    folder = keep or Path(tempfile.mkdtemp(prefix="pipedec-fuzz-"))
    try:
        victim = chance.choice([name for name in target.files if name.endswith(target.hurt)])
        content = hurt(target.files[victim], victim, chance)
        words = laid_out(target, folder, victim, content)
        ended = call(words, folder)
        wrong = [f"{what} [{victim}]" for what in wrong_with(ended)]
        return target, wrong or lost_in(target, folder, ended), ended
    finally:
        if keep is None:
            shutil.rmtree(folder)


def call(words: list[str], folder: Path) -> Ended:
    """The command in this process, as the shell would run it in that folder."""
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict") for _ in range(2))
    stderr.reconfigure(errors="backslashreplace")
    given = io.TextIOWrapper(io.BytesIO(b"".join(path.read_bytes() for path in folder.glob("stdin.*"))))
    here, code, crash = Path.cwd(), None, ""
    environment = {"COLUMNS": "100", "NO_COLOR": "1"}
    if (folder / "cache").exists():
        environment["XDG_CACHE_HOME"] = str(folder / "cache")
    os.chdir(folder)
    try:
        with (
            patch.multiple(sys, argv=["pipedec", *words], stdout=stdout, stderr=stderr, stdin=given),
            patch.dict(os.environ, environment),
            warnings.catch_warnings(),
            _in_time(),
        ):
            os.environ.pop("PIPEDEC_WORKSPACE", None)
            warnings.simplefilter("ignore")
            main()
            code = 0
    except SystemExit as error:
        code = error.code or 0
    except BaseException:  # whatever it is, it is what is looked for
        crash = traceback.format_exc()
    finally:
        os.chdir(here)
    for stream in (stdout, stderr):
        stream.flush()
    told = [stream.buffer.getvalue().decode("utf-8") for stream in (stdout, stderr)]  # type: ignore[attr-defined]
    return Ended(code, *told, crash)


@contextmanager
def _in_time() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"it takes longer than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late), signal.getsignal(signal.SIGTERM)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        for number, handler in zip((signal.SIGALRM, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)  # the command has set one, too


def wrong_with(ended: Ended) -> list[str]:
    if ended.crash:
        return [f"traceback: {ended.crash.strip().splitlines()[-1][:200]}"]
    wrong = []
    if ended.code not in (0, 2):
        wrong.append(f"exit code {ended.code}: {ended.stderr[-200:]!r}")
    if raw := {name for name in ended.stderr if name not in "\t\n" and _acts(name)}:
        wrong.append(f"raw {sorted(raw)!r} on stderr")
    if "Traceback" in ended.stderr:
        wrong.append("a traceback on stderr")
    lines = ended.stderr.splitlines()
    errors = [at for at, line in enumerate(lines, start=1) if "error: " in line]
    if ended.code == 2 and not (errors == [len(lines)] and lines[-1].startswith("error: ")):
        wrong.append(f"not one error line, the last: {lines[-3:]!r}")
    if long := [line for line in lines if line.startswith(("error: ", "warning: ")) and len(line) > 420]:
        wrong.append(f"a line of {len(long[0])} characters")
    return wrong


def _acts(character: str) -> bool:
    """Whether a character does something to a terminal rather than being shown."""
    kind = unicodedata.category(character)
    turns = ("RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI", "FSI", "PDI")
    return kind in ("Cc", "Zl", "Zp", "Cs") or unicodedata.bidirectional(character) in turns


def lost_in(target: Target, folder: Path, ended: Ended) -> list[str]:
    if ended.code != 0 or target.counted is None:
        return []
    try:
        written, read = target.counted(folder, ended.stdout)
    except Exception as error:  # what the command took, the count must be able to read, too
        return [f"taken, but not countable: {error!r}"]
    return [] if written == read else [f"{read} records were read, {written} written"]


def _script() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="one case, with all that it said")
    parser.add_argument("--keep", type=Path, help="with --only: the folder for its files")
    asked = parser.parse_args()
    if asked.only is not None:
        target, wrong, ended = fuzz(asked.only, asked.seed, asked.keep)
        print(target.arguments, wrong, ended.code, ended.stdout, ended.stderr, ended.crash, sep="\n")
        return bool(wrong)
    began, codes, found = time.monotonic(), Counter[Any](), 0
    for number in range(asked.start, asked.start + asked.cases):
        target, wrong, ended = fuzz(number, asked.seed)
        codes[ended.code] += 1
        for what in wrong:
            found += 1
            print(f"case {number}, {target.name}: {what}", flush=True)
    seconds = time.monotonic() - began
    ends = ", ".join(f"{count:,} with {code}" for code, count in sorted(codes.items(), key=str))
    print(f"{asked.cases:,} cases with seed {asked.seed} in {seconds:.0f} s ended {ends}; wrong: {found}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(_script())
