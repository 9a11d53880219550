"""Parallel text files."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers import splits_at
from pipedec_cli.data.importers.parallel import read


def test_lines_are_paired_and_phrases_split(write_lines):
    source = write_lines("train_src.txt", "title one <eos> body one", "two")
    write_lines("train_trg.txt", "a b;c;<peos>;d", "e")
    examples = list(read(str(source), None))
    assert [(example.source, example.target) for example in examples] == [
        ("title one body one", ("a b", "c", "d")),
        ("two", ("e",)),
    ]
    assert [example.where for example in examples] == [f"{source}:1", f"{source}:2"]


def test_empty_target_line_is_no_phrase(write_lines):
    source = write_lines("x.src", "one", "two")
    write_lines("x.tgt", "", "a")
    assert [example.target for example in read(str(source), None)] == [(), ("a",)]


def test_folder_gives_its_splits(write_lines):
    for split in ("train", "valid", "test"):
        write_lines(f"{split}_src.txt", split)
        folder = write_lines(f"{split}_trg.txt", "a").parent
    assert splits_at(str(folder)) == ("train", "dev", "test")
    assert [example.source for example in read(str(folder), "dev")] == ["valid"]


@pytest.mark.parametrize(("left", "right", "longer"), [(3, 2, "a.src"), (1, 2, "a.trg")])
def test_different_numbers_of_lines_are_an_error_at_the_first_line_without_a_partner(
    write_lines, left, right, longer
):
    source = write_lines("a.src", *["s"] * left)
    write_lines("a.trg", *["t"] * right)
    shorter = min(left, right)
    with pytest.raises(UserError) as caught:
        list(read(str(source), None))
    assert caught.value.where == f"{source.with_name(longer)}:{shorter + 1}"
    assert f"ends with line {shorter}" in caught.value.what


def test_target_file_may_be_named_and_gzipped(write_lines):
    source = write_lines("articles.txt.gz", "one")
    target = write_lines("summaries.txt.gz", "A summary; with a semicolon.")
    (example,) = read(str(source), None, targets=target, separator="")
    assert example.target == "A summary; with a semicolon."


def test_target_file_that_cannot_be_told_is_asked_for(write_lines):
    source = write_lines("articles.txt", "one")
    with pytest.raises(UserError, match=r"which file holds its targets\?; name it with --targets FILE"):
        list(read(str(source), None))
    source = write_lines("a.src", "one")
    with pytest.raises(UserError, match=r"expected one of a\.trg, a\.tgt, a\.target beside it, found none"):
        list(read(str(source), None))
    with pytest.raises(UserError, match="no such file or folder"):
        list(read(str(source.with_name("b.src")), None))


def test_line_that_is_not_utf8_is_refused_with_its_number(tmp_path):
    source = tmp_path / "a.src"
    source.write_bytes(b"one\ntw\xffo\n")
    (tmp_path / "a.trg").write_text("a\nb\n")
    with pytest.raises(UserError, match=r"a\.src:2: not UTF-8: byte 0xff at position 3"):
        list(read(str(source), None))


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8")), min_size=1, max_size=5))
def test_only_a_line_feed_ends_a_line(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("parallel")
    source = folder / "a.src"
    source.write_bytes("".join(f"x{line}\n" for line in lines).encode())
    (folder / "a.trg").write_bytes(b"t\n" * len(lines))
    assert len(list(read(str(source), None))) == len(lines)
