"""Locks, with a second real process that holds them, and what a killed one leaves."""

import errno
import fcntl
import os
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.writing import atomic_writer, only_writer, write_text

WRITE = """
import sys
from pathlib import Path
from pipedec_cli.data.writing import only_writer
from pipedec_cli.data.writing import atomic_writer
with {}:
    print(flush=True)
    sys.stdin.read(1)
"""


@contextmanager
def another(call, *words):
    """A process that is in the midst of writing until its input ends, or it is killed."""
    program = [sys.executable, "-c", WRITE.format(call), *words]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        yield process


def left(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("folder", [False, True])
def test_the_second_writer_is_told_who_the_first_is_and_a_killed_one_blocks_nobody(tmp_path, folder):
    path = tmp_path / ("models/mine" if folder else "out.jsonl")
    call = f"only_writer(Path({str(path)!r}), todo='', folder={folder})"
    with another(call, "generate", "--resume") as first:
        with (
            pytest.raises(UserError, match=r"since [\d-]+ \d\d:\d\d \(pipedec generate --resume\)") as raised,
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
    assert left(tmp_path) == (["models"] if folder else []), "nothing is left, the empty folder neither"


def test_two_names_of_a_file_have_one_lock_and_a_link_is_not_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "out.jsonl")
    with (
        only_writer(tmp_path / "out.jsonl", todo=""),
        pytest.raises(UserError, match="is being written by process"),
        only_writer(tmp_path / "link", todo=""),
    ):
        pass
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / ".out.jsonl.lock").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"), only_writer(tmp_path / "out.jsonl", todo=""):
        pass
    assert precious.read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "another process"),
        (b"\xff{", "another process"),
        (b"process 7 on far\nsince 2026", "process 7 on far since 2026"),
    ],
)
def test_whatever_the_lock_file_says_the_answer_is_one_line(tmp_path, content, told):
    path = tmp_path / "out.jsonl"
    with only_writer(path, todo=""):
        (tmp_path / ".out.jsonl.lock").write_bytes(content)
        with pytest.raises(UserError, match=f"is being written by {told}; wait"), only_writer(path, todo=""):
            pass


def test_without_locks_the_user_is_warned_and_goes_on(tmp_path, monkeypatch, caplog):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    half = tmp_path / ".out.jsonl.abcd.partial"
    half.touch()
    with only_writer(tmp_path / "out.jsonl", todo=""):
        write_text(tmp_path / "out.jsonl", "whole")
    assert [line.partition(":")[0] for line in caplog.messages] == [f"there are no locks in {tmp_path}"]
    assert left(tmp_path) == [half.name, "out.jsonl"], "who knows whether it is being written"


def test_what_a_killed_writer_left_is_removed_by_the_next_and_what_is_being_written_is_not(tmp_path):
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
