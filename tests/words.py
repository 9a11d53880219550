"""What the program says, in one file: a test asks for a refusal and its place, and `words.txt` holds how it is worded.

    python -m tests.words --write [PATH...]

runs the tests (all of them, or those of the paths) and writes their words anew. Words
of tests that were not run stay as they are; where all were, those of cases that are no
more go. `git diff` shows what the users will read.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pipedec_cli.data.errors import UserError

FILE = Path(__file__).with_suffix(".txt")
TESTS = FILE.parent
#: Names the folder that words go to instead of being compared.
ANEW = "PIPEDEC_WORDS"
INDENT = "    "
#: What differs from run to run and between versions of Python and of libraries, and
#: what stands in its place.
CHANGING = (
    (r"/[^\s'\"]*/pytest-of-[^/]+/pytest-\d+/(popen-gw\d+/)?[^/\s'\";:,)]+", "TMP"),
    (r"\bprocess (\d+|N)( on \S+ since [^(;]+\([^)]*\))?", "process N"),
    (r"\bport \d+", "port N"),
    (r"(\w[:|=] ?)\d+\.\d+\.\d+(\.\w+)?", r"\1VERSION"),
    (r"-[0-9a-f]{8}\b", "-HASH"),
    (r"(not JSON|not a TOML file): [^;]+", r"\1: …"),
    (r"(choose from sequential), [^\n]+", r"\1, …"),
    (r"(named after commands): [a-z, ]+", r"\1: …"),
    (r"[ \t]+$", ""),
)
#: How often each test has asked so far.
_counts = Counter()


@contextmanager
def refusing(where=None):
    """What is done here must be refused in one line, in the words of its entry; gives what `pytest.raises` does.

    A place, if one is given, is where the error says that the fault is.
    """
    with pytest.raises(UserError) as raised:
        yield raised
    assert "\n" not in str(raised.value)
    same_words(raised.value)
    if where is not None:
        assert raised.value.where == str(where)


def same_words(said):
    """Hold a text to its entry: that of the running test and of how often it has asked. Gives the text."""
    words = steady(str(said))
    test = os.environ["PYTEST_CURRENT_TEST"].removeprefix("tests/").rpartition(" ")[0]
    _counts[test] += 1
    case = f"{test} {_counts[test]}"
    if ANEW in os.environ:
        path = Path(os.environ[ANEW], str(os.getpid()))
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([case, words]) + "\n")
        return said
    file = test.partition("::")[0]
    unknown = f"not in {FILE.name}: `python -m tests.words --write tests/{file}`"
    assert words == entries().get(case, unknown), case
    return said


def steady(text):
    """The text without what changes from run to run."""
    for pattern, name in CHANGING:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return text.strip("\n")


@cache
def entries():
    """The words of each case: a line with its name, and its words below, indented."""
    found = {}
    for line in FILE.read_text(encoding="utf-8").split("\n"):
        if line and not line.startswith(INDENT):
            case = line
            found[case] = []
        elif found:
            found[case].append(line.removeprefix(INDENT))
    return {case: "\n".join(lines).strip("\n") for case, lines in found.items()}


def file_of(case):
    """The file of tests that a case is from."""
    return TESTS / case.partition("::")[0]


def is_there(case):
    """Whether the test of a case still stands in its file."""
    function = re.search(r"::(\w+)", case)[1]
    path = file_of(case)
    return path.exists() and f"def {function}(" in path.read_text(encoding="utf-8")


def write(options):
    """Run tests and write their words; gives pytest's exit status."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q"]
        chosen = ["-m", "not gpu and not browser", *options]
        environment = {**os.environ, ANEW: folder}
        ended = subprocess.run([*command, *chosen], env=environment, check=False)
        records = []
        for path in Path(folder).iterdir():
            lines = path.read_text(encoding="utf-8").split("\n")[:-1]
            records.extend(map(json.loads, lines))
    words = dict(records)
    again = set() if options else {function_of(case) for case in words}
    for case, before in entries().items():
        if is_there(case) and function_of(case) not in again:
            words.setdefault(case, before)
    text = ""
    for case in sorted(words):
        indented = words[case].replace("\n", f"\n{INDENT}")
        text += f"{case}\n{INDENT}{indented}\n"
    FILE.write_text(re.sub(r"[ ]+$", "", text, flags=re.MULTILINE), encoding="utf-8")
    return ended.returncode


def function_of(case):
    """The file and the function of a case."""
    return re.split(r"[\[ ]", case)[0]


if __name__ == "__main__":
    if sys.argv[1:2] != ["--write"]:
        sys.exit(__doc__)
    sys.exit(write(sys.argv[2:]))
