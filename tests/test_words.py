"""The golden file of what the program says."""

import pytest

from pipedec_cli.data.errors import UserError
from tests import words


def test_every_entry_is_of_a_test_that_is_there():
    """Those of a file that was taken out as a whole may stay until words are next written."""
    known = (case for case in words.entries() if words.file_of(case).exists())
    assert [case for case in known if not words.is_there(case)] == []


def test_what_is_refused_in_other_words_or_at_another_place_is_noticed(monkeypatch):
    monkeypatch.delenv(words.ANEW, raising=False)
    with pytest.raises(AssertionError), words.refusing():
        raise UserError("in words that no entry has")
    with pytest.raises(AssertionError), words.refusing("there"):
        raise UserError("wrong", where="here")


def test_what_changes_from_run_to_run_has_a_name_in_its_place(tmp_path):
    said = f"{tmp_path}/a.json: process 4711 writes out-0123abcd.jsonl; torch:2.13.0 "
    told = "TMP/a.json: process N writes out-HASH.jsonl; torch:VERSION"
    assert words.steady(said) == told
