"""Every parser on files that chance has hurt: `python -m tests.trials.fuzz --cases 20000`.

A case is one command on valid files, of which one was mutated. It must end with exit
code 0 or 2, without a traceback, in seconds; what it says is printable, errors on one
line of bounded length; and where it succeeds, no record is lost. A case depends on the
seed and its number alone: `--only NUMBER --keep FOLDER` makes it again.
"""

import argparse
import gzip
import io
import json
import os
import resource
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
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from pipedec_cli.cli.app import main
from tests.trials.targets import VALUE, Target, targets

# Read by huggingface_hub when it is imported: whatever a case asks for, nothing reaches
# for the network.
os.environ["HF_HUB_OFFLINE"] = "1"

#: No file here takes a command longer than that.
SECONDS = 60


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    code: Any
    stdout: str
    stderr: str
    crash: str  # the traceback, if something was raised


def laid_out(
    target: Target, folder: Path, victim: str = "", content: bytes = b""
) -> list[str]:
    """Write a target's files, the victim with that content; gives its command line."""
    files = {**target.files, **({victim: content} if victim else {})}
    for name, whole in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(whole)
    return [
        os.fsdecode(files[VALUE].replace(b"\0", b""))[:5_000] if word == VALUE else word
        for word in target.arguments
    ]


def fuzz(
    number: int, seed: int = 0, keep: Path | None = None
) -> tuple[Target, list[str], Ended]:
    """Run one case; gives its target and what is wrong with how it ended."""
    chance = Random(f"{seed}:{number}")
    target = chance.choice(targets())
    folder = keep or Path(tempfile.mkdtemp(prefix="pipedec-fuzz-"))
    try:
        victim = chance.choice(
            [name for name in target.files if name.endswith(target.hurt)]
        )
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
    stdout, stderr = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict")
        for _ in range(2)
    )
    stderr.reconfigure(errors="backslashreplace")
    given = io.TextIOWrapper(
        io.BytesIO(b"".join(path.read_bytes() for path in folder.glob("stdin.*")))
    )
    here, code, crash = Path.cwd(), None, ""
    environment = {"COLUMNS": "100", "NO_COLOR": "1"}
    if (folder / "cache").exists():
        environment["XDG_CACHE_HOME"] = str(folder / "cache")
    os.chdir(folder)
    try:
        with (
            patch.multiple(
                sys, argv=["pipedec", *words], stdout=stdout, stderr=stderr, stdin=given
            ),
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
        for number, handler in zip(
            (signal.SIGALRM, signal.SIGTERM), before, strict=True
        ):
            signal.signal(number, handler)  # the command has set one, too


def wrong_with(ended: Ended) -> list[str]:
    if ended.crash:
        return [f"traceback: {ended.crash.strip().splitlines()[-1][:200]}"]
    wrong = []
    if ended.code not in (0, 2):
        wrong.append(f"exit code {ended.code}: {ended.stderr[-200:]!r}")
    if raw := {*filter(_acts, ended.stderr)} - {*"\t\n"}:
        wrong.append(f"raw {sorted(raw)!r} on stderr")
    if "Traceback" in ended.stderr:
        wrong.append("a traceback on stderr")
    lines = ended.stderr.splitlines()
    if ended.code == 2 and not _is_one_error(lines):
        wrong.append(f"not one error line, the last: {lines[-3:]!r}")
    for line in lines:
        if line.startswith(("error: ", "warning: ")) and len(line) > 420:
            wrong.append(f"a line of {len(line)} characters")
    return wrong


def _is_one_error(lines: list[str]) -> bool:
    """Whether the last line is an error, and no other one."""
    *others, last = lines or [""]
    return last.startswith("error: ") and "error: " not in "\n".join(others)


def _acts(character: str) -> bool:
    """Whether a character does something to a terminal rather than being shown."""
    kind = unicodedata.category(character)
    turns = ("RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI", "FSI", "PDI")
    return (
        kind in ("Cc", "Zl", "Zp", "Cs")
        or unicodedata.bidirectional(character) in turns
    )


def lost_in(target: Target, folder: Path, ended: Ended) -> list[str]:
    if ended.code != 0 or target.counted is None:
        return []
    try:
        written, read = target.counted(folder, ended.stdout)
    except (
        Exception
    ) as error:  # what the command took, the count must be able to read, too
        return [f"taken, but not countable: {error!r}"]
    return [] if written == read else [f"{read} records were read, {written} written"]


# ---- what chance does to a file that was whole: to its bytes, or to a value of the
# JSON that it holds ------------------

#: What a file may hold that nobody meant.
_SNIPPETS: Final = (
    *(
        b"\0",
        b"\xef\xbb\xbf",
        b"\r",
        b"\r\n",
        b"\n",
        b"\n\n",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xc3",
    ),
    *(
        b"\x1b[2J\x1b[31m",
        b"\xc2\x9b31m",
        "\u202e\u2028".encode(),
        b"\\ud800",
        b"\\u0000",
        b"\\u001b[2J",
    ),
    *(
        b"9" * 5_000,
        b"1e999",
        b"-1",
        b"NaN",
        b"null",
        b"[" * 100_000,
        b'{"a":' * 5_000,
        b"[[" * 40,
    ),
    *(b'"', b"'", b",", b";", b"\t", b"}", b"]", b"{", b":", b"=", b" ", b"x" * 2_000),
    # Of chat templates:
    *(
        b"{{ 'x' * 10**10 }}",
        b"{% for n in range(10**9) %}{% endfor %}",
        b"{{ a.b.c }}",
        b"{{",
    ),
)
#: What may stand in JSON where something else belongs.
_VALUES: Final = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        3,
        0.5,
        1e308,
        float("inf"),
        float("nan"),
        2**63,
        10**400,
        "",
        " ",
    ),
    *(
        "x",
        "1",
        [],
        {},
        [[]],
        [None],
        [1],
        [""],
        ["a", 1],
        {"a": 1},
        {"": []},
        "\ud800",
        "\0",
        "\x1b[2J",
    ),
    *(
        "\n",
        "\u202e",
        "train",
        "2024-01-01",
        "x" * 3_000,
        "a b " * 500,
        [["x"] * 3] * 3,
    ),
    json.loads("[" * 60 + "]" * 60),
)


def hurt(content: bytes, name: str, chance: Random) -> bytes:
    """The content after one to three mutations."""
    if name.endswith(".gz"):
        if chance.random() < 0.5:
            return gzip.compress(
                hurt(gzip.decompress(content), name.removesuffix(".gz"), chance)
            )
    elif name.endswith(".safetensors") and chance.random() < 0.6:
        size = 8 + int.from_bytes(content[:8], "little")
        header = _hurt_json(content[8:size], chance)
        return len(header).to_bytes(8, "little") + header + content[size:]
    elif name.endswith((".json", ".jsonl", ".txt")) and chance.random() < 0.6:
        return _hurt_json(content, chance)
    for _ in range(chance.choice((1, 1, 2, 3))):
        content = chance.choice(_OF_BYTES)(content, chance)
    return content


def _flip(content: bytes, chance: Random) -> bytes:
    if not content:
        return content
    made, place = bytearray(content), chance.randrange(len(content))
    made[place] ^= 1 << chance.randrange(8)
    return bytes(made)


def _cut_short(content: bytes, chance: Random) -> bytes:
    return content[: chance.randint(0, len(content))]


def _insert(content: bytes, chance: Random) -> bytes:
    place = chance.choice((0, len(content), chance.randint(0, len(content))))
    return content[:place] + chance.choice(_SNIPPETS) + content[place:]


def _leave_out(content: bytes, chance: Random) -> bytes:
    start, stop = _span(content, chance)
    return content[:start] + content[stop:]


def _repeat(content: bytes, chance: Random) -> bytes:
    start, stop = _span(content, chance)
    return content[:stop] + content[start:stop] + content[stop:]


def _swap(content: bytes, chance: Random) -> bytes:
    """Two words, numbers or marks change their places."""
    words = content.split(b" ")
    first, second = chance.randrange(len(words)), chance.randrange(len(words))
    words[first], words[second] = words[second], words[first]
    return b" ".join(words)


def _change_lines(content: bytes, chance: Random) -> bytes:
    """Some lines end in another way, or lines come in another order."""
    lines = content.split(b"\n")
    if chance.random() < 0.3:
        chance.shuffle(lines)
        return b"\n".join(lines)
    return b"".join(
        line + chance.choice((b"\n", b"\r\n", b"\n", b"\n\n")) for line in lines
    )


_OF_BYTES: Final = (
    _flip,
    _cut_short,
    _insert,
    _insert,
    _leave_out,
    _repeat,
    _swap,
    _change_lines,
)


def _span(content: bytes, chance: Random) -> tuple[int, int]:
    start = chance.randint(0, len(content))
    return start, chance.randint(
        start, min(len(content), start + chance.choice((1, 10, 300)))
    )


def _hurt_json(content: bytes, chance: Random) -> bytes:
    """A value in it is another, is missing, is there twice, or has another name."""
    lines = content.split(b"\n")
    texts = [content, *chance.sample(lines, min(3, len(lines)))]
    for text in texts:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        indent = chance.choice((None, 1)) if text is content else None
        dumped = json.dumps(_changed(value, chance), indent=indent)
        if chance.random() < 0.1:
            dumped = dumped.replace("{", '{"source": "twice", "id": "1", ', 1)
        return content.replace(text, dumped.encode("utf-8", "replace"), 1)
    return _insert(content, chance)


def _changed(value: Any, chance: Random) -> Any:
    """A copy in which one value, wherever it stands, is not what it was."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.15:
        return chance.choice(_VALUES)
    if isinstance(value, list):
        place = chance.randrange(len(value))
        cut = value[:place]
        return chance.choice(
            (
                cut,
                value + cut,
                [*cut, _changed(value[place], chance), *value[place + 1 :]],
            )
        )
    name = chance.choice(list(value))
    what = chance.random()
    if what < 0.15:
        return {key: one for key, one in value.items() if key != name}
    if what < 0.25:
        other = chance.choice(
            ("", "id", "prediction", "source", "\ud800", "\x1b[2J", "x" * 500)
        )
        return {other if key == name else key: one for key, one in value.items()}
    return value | {name: _changed(value[name], chance)}


def _script() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="one case, with all that it said")
    parser.add_argument(
        "--keep", type=Path, help="with --only: the folder for its files"
    )
    asked = parser.parse_args()
    if asked.only is not None:
        target, wrong, ended = fuzz(asked.only, asked.seed, asked.keep)
        print(
            target.arguments,
            wrong,
            ended.code,
            ended.stdout,
            ended.stderr,
            ended.crash,
            sep="\n",
        )
        return bool(wrong)
    # A hostile chat template may ask for all memory, and gets an error.
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
    began, codes, found = time.monotonic(), Counter[Any](), 0
    for number in range(asked.start, asked.start + asked.cases):
        target, wrong, ended = fuzz(number, asked.seed)
        codes[ended.code] += 1
        for what in wrong:
            found += 1
            print(f"case {number}, {target.name}: {what}", flush=True)
    seconds = time.monotonic() - began
    ends = ", ".join(
        f"{count:,} with {code}" for code, count in sorted(codes.items(), key=str)
    )
    print(
        f"{asked.cases:,} cases with seed {asked.seed} in {seconds:.0f} s ended {ends}; wrong: {found}"
    )
    return bool(found)


if __name__ == "__main__":
    sys.exit(_script())
