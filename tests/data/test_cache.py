"""The user's cache: what it makes is the user's alone, and what others may have written is not taken."""

import os

import pytest

from pipedec_cli.data.cache import cache_folder, is_own, make_own_folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_folder() / "notes"


def test_folders_are_the_users_alone_whatever_a_group_may_write_elsewhere(folder):
    before = os.umask(0o002)
    try:
        assert make_own_folder(folder)
    finally:
        os.umask(before)
    assert is_own(folder)
    folder.parent.chmod(0o770)
    assert not is_own(folder)


def test_a_file_is_not_taken_that_is_missing_or_a_link_or_may_be_anothers(folder):
    make_own_folder(folder)
    file = folder / "note"
    assert not is_own(file)
    file.write_text("a", encoding="ascii")
    assert is_own(file)
    link = folder / "link"
    link.symlink_to(file)
    assert not is_own(link)
    file.chmod(0o666)
    assert not is_own(file)
    folder.chmod(0o777)
    assert not make_own_folder(folder)
