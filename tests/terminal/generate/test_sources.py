"""Where sources come from and where lines go."""

from __future__ import annotations

import os
from pathlib import Path

from tests.checkpoints import SOURCES, TOLD
from tests.terminal.generate.running import done, lines, refused, write


def test_texts_come_out_as_texts_on_stdout_or_go_to_a_file(place: Path) -> None:
    assert done("--text", SOURCES[1], "--out", "one.jsonl").stdout == ""
    assert lines(Path("one.jsonl"))[0]["prediction"] == TOLD[1][1][0]
    outcome = done("--text", SOURCES[0], "--text", SOURCES[1])
    assert outcome.stdout.splitlines() == ["; ".join(TOLD[0][1]), TOLD[1][1][0]]
    assert not (place / "generations").exists()


def test_texts_come_out_as_objects_with_json(place: Path) -> None:
    (row,) = lines(done("--text", SOURCES[1], "--json", "-q").stdout)
    assert row == {
        "id": "1",
        "prediction": TOLD[1][1][0],
        "segments": list(TOLD[1][1]),
        "steps": 7,
        "tokens": 6,
        "truncated": None,
        "source": SOURCES[1],
    }


def test_standard_input_to_standard_output(place: Path) -> None:
    outcome = done("-", "--out", "-", stdin='{"source": "a", "id": "x"}\n\n{"source": "Mr. Smith"}\n')
    rows = lines(outcome.stdout)
    assert [row["id"] for row in rows] == ["x", "3"]
    assert [row["segments"] for row in rows] == [list(TOLD[2][1]), list(TOLD[4][1])]
    assert not (place / "generations").exists()


def test_standard_input_to_a_file_can_be_resumed(place: Path) -> None:
    text = (place / "data" / "test.jsonl").read_text(encoding="utf-8")
    out = Path("out.jsonl")
    done("-", "--out", out, stdin=text)
    whole = out.read_bytes()
    out.write_bytes(whole[: len(whole) // 2])
    done("-", "--out", out, "--resume", stdin=text)
    assert lines(out) == lines(whole.decode())


def test_fields_by_other_names(place: Path) -> None:
    write(Path("other.jsonl"), [{"key": "k", "body": "a", "gold": "A. B."}])
    options = ("--source-field", "body", "--target-field", "gold", "--id-field", "key", "--out", "-")
    (row,) = lines(done("other.jsonl", *options).stdout)
    assert (row["id"], row["source"], row["target"]) == ("k", "a", "A. B.")
    assert (row["key"], row["body"], row["gold"]) == ("k", "a", "A. B.")


def test_a_split_of_a_folder(place: Path) -> None:
    for split in ("train", "dev"):
        write(Path("folder") / f"{split}.jsonl", [{"source": "a", "of": split}])
    assert lines(done("folder", "--split", "dev", "--out", "-").stdout)[0]["of"] == "dev"
    assert "has no file for test; give --split train or dev" in refused("folder")
    assert "a single file has no splits" in refused("folder/dev.jsonl", "--split", "dev")


def test_special_files_get_lines_and_no_manifest(place: Path) -> None:
    done("--out", os.devnull)
    assert not Path("/dev/null.manifest.json").exists()
