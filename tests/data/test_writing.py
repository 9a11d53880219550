import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data import writing
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.writing import JsonLinesAppender, atomic_writer, read_whole_lines

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON | st.characters(categories=["Cs"]).map("a{}b".format))
def test_json_is_one_line_that_reads_back(value):
    text = writing.to_json(value)
    assert text.encode("utf-8").count(b"\n") == 0
    assert json.loads(text) == value


def test_a_file_takes_its_name_only_when_it_is_whole(tmp_path):
    path = tmp_path / "folder" / "file.txt"
    with atomic_writer(path) as file:
        file.write("half")
        file.flush()
        assert not path.exists()
        file.write(" and half\n")
    assert path.read_bytes() == b"half and half\n"
    assert list(path.parent.iterdir()) == [path]
    (tmp_path / "plain").touch()
    read, write = os.pipe()
    with atomic_writer(Path(f"/dev/fd/{write}")) as file:  # a shell's >(…), which has no name of its own
        file.write("down the pipe")
    os.close(write)
    assert os.read(read, 100) == b"down the pipe"
    os.close(read)
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode, "it has the usual permissions"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("x"), OSError(errno.ENOSPC, "No space")])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "file.txt"
    path.write_text("old")

    def fail():
        with atomic_writer(path) as file:
            file.write("new")
            raise error

    with pytest.raises(type(error)) as caught:
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    assert getattr(caught.value, "filename", str(path)) == str(path)  # a full disk names the file


@given(st.lists(st.dictionaries(st.text(), st.text(), max_size=2), max_size=4), st.data())
def test_after_a_kill_at_any_byte_resuming_keeps_the_whole_lines(tmp_path_factory, items, data):
    path = tmp_path_factory.mktemp("torn") / "out.jsonl"
    writing.write_json_lines(path, items)
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    kept = list(read_whole_lines(path))
    assert kept == items[: len(kept)]
    with JsonLinesAppender(path, resume=True) as out:
        for item in items[len(kept) :]:
            out.write(item)
    assert path.read_bytes() == content


def test_a_torn_line_that_a_line_feed_ends_is_dropped_and_one_in_the_middle_is_refused(write_lines):
    assert list(read_whole_lines(write_lines("out.jsonl", {"n": 1}, '{"n": '))) == [{"n": 1}]
    path = write_lines("out.jsonl", {"n": 1}, "nonsense", {"n": 3})
    with pytest.raises(UserError, match=r"out\.jsonl:2: not a JSON object"):
        list(read_whole_lines(path))


@pytest.mark.parametrize("resume", [False, True])
def test_a_line_that_does_not_fit_on_the_disk_is_taken_back(tmp_path, resume):
    """A part of it fits; and when there is room again, only what is written then turns up."""
    path = tmp_path / "out.jsonl"
    with JsonLinesAppender(path) as before:
        before.write({"n": 1})
    program = f"""
import resource, signal
from contextlib import suppress
from pathlib import Path
from pipedec_cli.data.writing import JsonLinesAppender
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
out = JsonLinesAppender(Path({str(path)!r}), resume={resume})
if not {resume}:
    out.write({{"n": 1}})
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (12, hard))
with suppress(OSError):
    out.write({{"n": 2}})
    print("it fits")
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
print(out.path.read_text(), end="")
out.write({{"n": 3}})
out.__exit__()
"""
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == '{"n": 1}\n'
    assert path.read_text() == '{"n": 1}\n{"n": 3}\n'
