"""Files that are whole or not there, files that grow by a line, and locks, held by a second real process."""

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data import writing
from pipedec_cli.data.writing import (
    JsonLinesAppender,
    atomic_writer,
    only_writer,
    read_whole_lines,
    write_text,
)
from tests.words import refusing

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters()),
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
    with atomic_writer(
        Path(f"/dev/fd/{write}")
    ) as file:  # a shell's >(…), which has no name of its own
        file.write("down the pipe")
    os.close(write)
    assert os.read(read, 100) == b"down the pipe"
    os.close(read)
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode, (
        "it has the usual permissions"
    )


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), ValueError("x"), OSError(errno.ENOSPC, "No space")]
)
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
    assert getattr(caught.value, "filename", str(path)) == str(
        path
    )  # a full disk names the file


def test_files_that_belong_together_come_all_or_none(tmp_path):
    last, others = tmp_path / "last", [tmp_path / "a", tmp_path / "b"]

    def failing():
        yield "2"
        raise OSError(errno.ENOSPC, "No space")

    writing.write_together({path: ["1"] for path in (last, *others)}, last)
    with pytest.raises(OSError, match="No space") as caught:
        writing.write_together(
            {last: ["2"], others[0]: ["2"], others[1]: failing()}, last
        )
    assert caught.value.filename == str(others[1])
    assert [path.read_text() for path in (last, *others)] == ["1"] * 3
    writing.write_together({others[0]: ["3"], last: ["3"]}, last)
    assert [path.read_text() for path in (last, *others)] == ["3", "3", "1"]
    assert sorted(tmp_path.iterdir()) == [*others, last], "nothing is left over"


def test_the_last_file_tells_whose_files_that_belong_together_are(tmp_path):
    last, other = tmp_path / "last.json", tmp_path / "a"

    def check():
        writing.require_own_together([other], last, {"made"}, "pipedec segment")

    check()
    other.touch()
    check()
    other.write_text("mine")
    with refusing(other):
        check()
    partial, held = writing.new_file(last)  # as a killed command leaves it
    os.close(held)
    check()
    partial.unlink()
    last.write_text('{"made": 1}')
    check()
    last.write_text('{"mine": 1}')
    with refusing(last):
        check()


@given(
    st.lists(st.dictionaries(st.text(), st.text(), max_size=2), max_size=4), st.data()
)
def test_after_a_kill_at_any_byte_resuming_keeps_the_whole_lines(
    tmp_path_factory, items, data
):
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


def test_a_torn_line_that_a_line_feed_ends_is_dropped_and_one_in_the_middle_is_refused(
    write_lines,
):
    assert list(read_whole_lines(write_lines("out.jsonl", {"n": 1}, '{"n": '))) == [
        {"n": 1}
    ]
    path = write_lines("out.jsonl", {"n": 1}, "nonsense", {"n": 3})
    with refusing():
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
    assert (
        subprocess.check_output([sys.executable, "-c", program], text=True)
        == '{"n": 1}\n'
    )
    assert path.read_text() == '{"n": 1}\n{"n": 3}\n'


WRITE = """
import sys
from pathlib import Path
from pipedec_cli.data.writing import atomic_writer, only_writer
with {}:
    print(flush=True)
    sys.stdin.read(1)
"""


@contextmanager
def another(call, *words):
    """A process that is in the midst of writing until its input ends, or it is killed."""
    program = [sys.executable, "-c", WRITE.format(call), *words]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        process.stdout.readline()
        yield process


def left(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("folder", [False, True])
def test_the_second_writer_is_told_who_the_first_is_and_a_killed_one_blocks_nobody(
    tmp_path, folder
):
    path = tmp_path / ("models/mine" if folder else "out.jsonl")
    call = f"only_writer(Path({str(path)!r}), todo='', folder={folder})"
    with another(call, "generate", "--resume") as first:
        with (
            refusing() as raised,
            only_writer(path, folder=folder, todo="choose another"),
        ):
            pass
        told = f"{path}: is being written by process {first.pid} on {socket.gethostname()} since"
        assert told in str(raised.value)
        assert str(raised.value).endswith("; wait for it, or choose another")
        first.kill()
        first.wait()
    lock = path / ".lock" if folder else tmp_path / ".out.jsonl.lock"
    assert lock.exists()
    with only_writer(path, folder=folder, todo=""):
        assert f"process {os.getpid()} on" in lock.read_text()
    assert left(tmp_path) == (["models"] if folder else []), (
        "nothing is left, the empty folder neither"
    )


def test_two_names_of_a_file_have_one_lock_and_a_link_is_not_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "out.jsonl")
    with (
        only_writer(tmp_path / "out.jsonl", todo=""),
        refusing(),
        only_writer(tmp_path / "link", todo=""),
    ):
        pass
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / ".out.jsonl.lock").symlink_to(precious)
    with (
        pytest.raises(OSError, match="symbolic links"),
        only_writer(tmp_path / "out.jsonl", todo=""),
    ):
        pass
    assert precious.read_text() == "mine"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff{",
        b"process 7 on far\nsince 2026",
    ],
)
def test_whatever_the_lock_file_says_the_answer_is_one_line(tmp_path, content):
    path = tmp_path / "out.jsonl"
    with only_writer(path, todo=""):
        (tmp_path / ".out.jsonl.lock").write_bytes(content)
        with (
            refusing(),
            only_writer(path, todo=""),
        ):
            pass


def test_without_locks_the_user_is_warned_and_goes_on(tmp_path, monkeypatch, caplog):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    half = tmp_path / ".out.jsonl.abcd.partial"
    half.touch()
    with only_writer(tmp_path / "out.jsonl", todo=""):
        write_text(tmp_path / "out.jsonl", "whole")
    assert [line.partition(":")[0] for line in caplog.messages] == [
        f"there are no locks in {tmp_path}"
    ]
    assert left(tmp_path) == [half.name, "out.jsonl"], (
        "who knows whether it is being written"
    )


def test_what_a_killed_writer_left_is_removed_by_the_next_and_what_is_being_written_is_not(
    tmp_path,
):
    path = tmp_path / "report [1].md"
    call = f"atomic_writer(Path({str(path)!r}))"
    with another(call) as killed, another(call) as alive:
        assert len(left(tmp_path)) == 2
        killed.kill()
        killed.wait()
        with atomic_writer(path) as file:
            assert len(left(tmp_path)) == 2
            file.write("third")
        assert len(left(tmp_path)) == 2
        alive.communicate("x")
    assert left(tmp_path) == [path.name]
