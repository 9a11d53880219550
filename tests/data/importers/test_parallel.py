"""Parallel text files: what comes of them, and what is refused where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.importers import Example
from pipedec_cli.data.importers.parallel import parallel, split_phrases
from tests.data.importers.reading import check_files, check_refused

LINES = {
    "a.src": ["title one <eos> body one", "two", "three"],
    "a.trg": ["a b;c;<peos>;d", "e", ""],
}
LINED = [
    (None, "title one body one", ("a b", "c", "d")),
    (None, "two", ("e",)),
    (None, "three", ()),
]
BOTH = {f"{split}_src.txt": ["s"] for split in ("valid", "test")}
BOTH |= {f"{split}_trg.txt": [f"{split}_trg.txt"] for split in ("valid", "test")}


@pytest.mark.parametrize(
    ("files", "place", "splits", "examples"),
    [
        (LINES, "a.src", (), LINED),
        (BOTH, ".", ("dev", "test"), [(None, "s", ("valid_trg.txt",))]),
    ],
)
def test_files_give_splits_and_examples(write_lines, files, place, splits, examples):
    check_files(write_lines, parallel, files, place, splits, examples)


def test_targets_may_be_plain_text_in_a_file_that_is_named(write_lines):
    source = write_lines("articles.txt.gz", "one")
    targets = write_lines("summaries.txt.gz", "A summary; with a semicolon.")
    assert list(parallel(str(source), None, targets=targets, separator="")) == [
        Example(f"{source}:1", None, "one", "A summary; with a semicolon.")
    ]


@pytest.mark.parametrize(
    ("files", "where", "read"),
    [
        ({"a.src": "sss", "a.trg": "tt"}, "a.src:3", None),
        ({"a.src": "s", "a.trg": "tt"}, "a.trg:2", "a.src"),
        ({"a.txt": "s"}, "a.txt", None),
        ({"a.src": "s"}, "a.src", None),
        ({"a.src": ["s", "t\udcff"], "a.trg": "tt"}, "a.src:2", None),
        ({"a.src": "s"}, "b.src", None),
    ],
)
def test_wrong_files_are_refused_at_their_place(
    write_lines, tmp_path, files, where, read
):
    check_refused(write_lines, tmp_path, parallel, files, where, read)


@given(
    st.lists(st.text().filter(lambda text: "<peos>" not in text)),
    st.sampled_from([";", "|", "<sep>"]),
)
def test_phrases_are_never_empty_and_hold_no_separator(parts, separator):
    phrases = split_phrases(separator.join(parts), separator)
    assert all(phrase.strip() == phrase != "" for phrase in phrases)
    assert not any(separator in phrase for phrase in phrases)
    assert (
        " ".join(phrases).split()
        == separator.join(parts).replace(separator, " ").split()
    )


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\n\r", codec="utf-8")),
        min_size=1,
        max_size=5,
    )
)
def test_only_a_line_feed_ends_a_line(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("parallel")
    source = folder / "a.src"
    source.write_bytes("".join(f"x{line}\n" for line in lines).encode())
    (folder / "a.trg").write_bytes(b"t\n" * len(lines))
    assert len(list(parallel(str(source), None))) == len(lines)
