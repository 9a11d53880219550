"""Packed weights in the cache: whole, the user's own, and no more than there may be."""

import fcntl
import os

import pytest
import torch

from pipedec_cli.data.trained import UNFINISHED
from pipedec_cli.model import notes
from pipedec_cli.model.engine.native import store


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where packed weights of a file are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(store.VARIABLE, raising=False)
    weights = tmp_path / "weights"
    weights.write_bytes(b"weights")
    return store.place_of([weights], "facts")


def packed(number=0):
    return torch.full((1000,), number, dtype=torch.uint8)


def test_what_is_kept_is_mapped_again(place):
    store.keep(place, packed(7))
    assert torch.equal(store.load(place, 1000), packed(7))
    assert [path.name for path in place.parent.iterdir()] == [place.name]


def test_a_place_depends_on_the_bytes_of_the_files_and_on_how_they_are_packed(
    place, tmp_path
):
    files = [tmp_path / "weights"]
    assert store.place_of(files, "facts") == place
    assert store.place_of(files, "other facts") != place
    files[0].write_bytes(b"changed")
    assert store.place_of(files, "facts") != place


def test_what_is_torn_linked_or_may_be_anothers_is_not_used(place, tmp_path):
    store.keep(place, packed())
    assert store.load(place, 1001) is None
    place.chmod(0o666)
    assert store.load(place, 1000) is None
    moved = place.rename(tmp_path / "elsewhere")
    moved.chmod(0o600)
    place.symlink_to(moved)
    assert store.load(place, 1000) is None
    place.unlink()
    assert store.load(place, 1000) is None


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A large file, of which nothing is known yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(store.VARIABLE, raising=False)
    file = tmp_path / "weights"
    file.write_bytes(b"a" * (1 << 24))
    return [file]


def test_files_are_hashed_when_their_weights_are_packed_already(files):
    looked_for = store.Packed(files, "facts", 1000)
    assert looked_for.find() is None
    assert notes.known_sha256(files[0]) is None
    looked_for.keep(packed(7))
    store.settle()
    assert notes.known_sha256(files[0]) is not None
    assert torch.equal(store.Packed(files, "facts", 1000).find(), packed(7))
    assert store.Packed(files, "facts", 1001).find() is None


def test_a_copy_of_files_finds_what_was_packed_of_them(files, tmp_path):
    store.Packed(files, "facts", 1000).keep(packed(7))
    store.settle()
    copy = tmp_path / "copy"
    copy.write_bytes(files[0].read_bytes())
    assert torch.equal(store.Packed([copy], "facts", 1000).find(), packed(7))


def test_weights_of_files_that_changed_meanwhile_are_not_kept(files):
    looked_for = store.Packed(files, "facts", 1000)
    files[0].write_bytes(b"b" * (1 << 24))
    looked_for.keep(packed(7))
    store.settle()
    assert store.Packed(files, "facts", 1000).find() is None


def test_files_that_are_gone_end_nothing(files):
    looked_for = store.Packed(files, "facts", 1000)
    files[0].unlink()
    looked_for.keep(packed(7))
    store.settle()


def test_the_least_recently_used_go_where_there_is_no_room(place, monkeypatch):
    monkeypatch.setenv(store.VARIABLE, "2.5e-6")
    places = [place.with_name(f"{name}.bin") for name in "abc"]
    store.keep(places[0], packed())
    store.keep(places[1], packed())
    os.utime(places[1], (1, 1))
    assert store.load(places[0], 1000) is not None
    store.keep(places[2], packed())
    assert [path.exists() for path in places] == [True, False, True]


def test_nothing_is_kept_where_nothing_may_be(place, monkeypatch, tmp_path):
    monkeypatch.setenv(store.VARIABLE, "0")
    assert store.place_of([tmp_path / "weights"], "facts") is None
    monkeypatch.setenv(store.VARIABLE, "1e-7")
    store.keep(place, packed())
    assert not place.exists()


def test_a_write_that_fails_leaves_nothing(place, monkeypatch):
    def fail(file):
        raise OSError("full")

    monkeypatch.setattr(os, "fsync", fail)
    store.keep(place, packed())
    assert [*place.parent.iterdir()] == []


def test_what_a_killed_process_left_goes_and_what_another_writes_stays(place):
    store.keep(place, packed())
    left, written = (place.with_name(f"{UNFINISHED}{name}") for name in "ab")
    left.write_bytes(b"half")
    with written.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        store.keep(place.with_name("other.bin"), packed())
        assert not left.exists() and written.exists()
