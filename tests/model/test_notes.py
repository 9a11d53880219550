"""What the cache remembers of large files."""

import os

import pytest

from pipedec_cli.data.writing import file_sha256
from pipedec_cli.model import notes

LARGE = 1 << 24


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A large file, and a cache without notes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "weights"
    path.write_bytes(b"a" * LARGE)
    return path


def reads_of(monkeypatch):
    """The files that are hashed from now on."""
    read = []

    def counted(file):
        read.append(file)
        return file_sha256(file)

    monkeypatch.setattr(notes, "file_sha256", counted)
    return read


def test_a_large_file_is_hashed_once_until_it_changes(file, monkeypatch):
    read = reads_of(monkeypatch)
    expected = file_sha256(file)
    assert [notes.remembered_sha256(file) for _ in range(3)] == [expected] * 3
    assert read == [file]
    file.write_bytes(b"b" * LARGE)
    assert notes.remembered_sha256(file) == file_sha256(file)
    assert len(read) == 2


def test_a_file_of_the_same_size_and_time_in_the_same_place_is_another(file):
    notes.note_finite(file)
    state = file.stat()
    other = file.with_name("other")
    other.write_bytes(b"b" * LARGE)
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    other.replace(file)
    assert not notes.is_finite(file)


def test_notes_that_others_may_have_written_do_not_count(file, tmp_path):
    notes.note_finite(file)
    assert notes.is_finite(file)
    (tmp_path / "cache/pipedec/notes").chmod(0o777)
    assert not notes.is_finite(file)


def test_without_a_cache_nothing_is_remembered_and_nothing_fails(file, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "no absolute path")
    read = reads_of(monkeypatch)
    notes.note_finite(file)
    assert not notes.is_finite(file)
    for _ in range(2):
        assert notes.remembered_sha256(file) == file_sha256(file)
    assert len(read) == 2
