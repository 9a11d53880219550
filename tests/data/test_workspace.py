import json
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from pipedec_cli.data.records import Record, Segmentation
from pipedec_cli.data.segmentation import PhraseSegmenter, make_segmenter
from pipedec_cli.data.workspace import (
    load_segmentation,
    load_segmenter,
    read_split,
    save_segmented,
)
from pipedec_cli.data.writing import only_writer
from tests.words import refusing

SEGMENTATION = Segmentation("phrase", (";", "|"), "; ", 7)


def read_all(path, **options):
    return [*read_split(path, **options)]


def record(number, *segments):
    return Record(
        str(number), "s", "; ".join(segments), segments, (), "data.jsonl:1", {"x": 1}
    )


def test_what_is_saved_is_loaded(tmp_path):
    splits, segmenter = (
        {"train": [record(1, "a", "b"), record(2)], "test": []},
        PhraseSegmenter((";", "|")),
    )
    files = save_segmented(
        tmp_path, splits, SEGMENTATION, segmenter, {"counts": {"merged": 3}}
    )
    assert [path.name for path in files] == [
        "train.jsonl",
        "dev.jsonl",
        "test.jsonl",
        "segmentation.json",
    ]
    first, second = read_all(tmp_path / "train.jsonl")
    assert (first.id, first.target, first.target_segments, first.fields["x"]) == (
        "1",
        "a; b",
        ("a", "b"),
        1,
    )
    assert second.target_segments == ()
    assert [*read_split(tmp_path / "dev.jsonl")] == []
    assert load_segmentation(tmp_path / "segmentation.json") == SEGMENTATION
    assert json.loads((tmp_path / "segmentation.json").read_text())["counts"] == {
        "merged": 3
    }
    assert load_segmenter(tmp_path) == segmenter


@pytest.mark.parametrize("level", ["sentence", "clause"])
def test_predictions_are_cut_as_the_targets_were(tmp_path, level):
    targets = ["The strain subsp. alba grew, then died. It grew."] * 20
    segmenter = make_segmenter(level, targets=targets)
    save_segmented(tmp_path, {}, Segmentation(level, (), " "), segmenter, {})
    assert load_segmenter(tmp_path).cut(targets[0]) == segmenter.cut(targets[0])


@pytest.mark.parametrize("renamed", range(5))
def test_a_kill_between_two_files_leaves_no_mixture_that_passes_for_whole(
    tmp_path, monkeypatch, renamed
):
    def save(text):
        splits = {name: [record(1, text)] for name in ("train", "dev", "test")}
        save_segmented(tmp_path, splits, SEGMENTATION, PhraseSegmenter(), {})

    def replace(path, target, rename=Path.replace, left=iter(range(renamed))):  # noqa: B008
        if next(left, None) is None:
            raise KeyboardInterrupt
        return rename(path, target)

    save("old")
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Path, "replace", replace)
        save("new")
    held = {
        next(read_split(tmp_path / f"{name}.jsonl")).target
        for name in ("train", "dev", "test")
    }
    assert (tmp_path / "segmentation.json").exists() == (renamed == 4)
    assert held == ({"new"} if renamed == 4 else held)


def test_two_do_not_write_one_folder(tmp_path):
    with (
        only_writer(tmp_path, folder=True, todo=""),
        refusing(),
    ):
        save_segmented(tmp_path, {}, SEGMENTATION, PhraseSegmenter(), {})


def test_a_missing_file_says_which_command_makes_it(tmp_path, write_lines):
    for load in (read_all, load_segmentation):
        with refusing():
            load(tmp_path / "none.json")
    write_lines(
        "segmentation.json", msgspec.to_builtins(Segmentation("sentence", (), " "))
    )
    with refusing():
        load_segmenter(tmp_path)


def test_half_a_surrogate_pair_in_a_segmentation_is_no_hindrance(write_lines):
    path = write_lines(
        "a.json", {"level": "sentence", "separators": [], "joiner": " ", "\ud800": 1}
    )
    assert load_segmentation(path).joiner == " "


GOOD = msgspec.to_builtins(SEGMENTATION)


@pytest.mark.parametrize(
    ("load", "content"),
    [
        (read_all, {"source": "a", "target": "b"}),
        (read_all, {"source": "a"}),
        (load_segmentation, GOOD | {"sub_max": "20"}),
    ],
)
def test_what_segment_would_not_write_is_refused(write_lines, load, content):
    with refusing():
        load(write_lines("a.json", content))
