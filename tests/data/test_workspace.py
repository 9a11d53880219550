import errno
import json

import msgspec
import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Record, Segmentation
from pipedec_cli.data.segmentation import PhraseSegmenter, make_segmenter
from pipedec_cli.data.workspace import load_segmentation, load_segmenter, load_split, save_segmented
from pipedec_cli.data.writing import write_json

SEGMENTATION = Segmentation("phrase", (";", "|"), "; ", 7)


def record(number, *segments):
    return Record(str(number), "s", "; ".join(segments), segments, (), "data.jsonl:1", {"x": 1})


def test_what_is_saved_is_loaded(tmp_path):
    splits = {"train": [record(1, "a", "b"), record(2)], "test": []}
    details = {"counts": {"merged": 3}}
    files = save_segmented(tmp_path, splits, SEGMENTATION, PhraseSegmenter((";", "|")), details)
    assert [path.name for path in files] == ["train.jsonl", "dev.jsonl", "test.jsonl", "segmentation.json"]
    first, second = load_split(tmp_path / "train.jsonl")
    assert (first.id, first.target, first.target_segments, first.fields["x"]) == ("1", "a; b", ("a", "b"), 1)
    assert second.target_segments == ()
    assert load_split(tmp_path / "dev.jsonl") == []
    assert load_segmentation(tmp_path / "segmentation.json") == SEGMENTATION
    assert json.loads((tmp_path / "segmentation.json").read_text())["counts"] == {"merged": 3}
    assert load_segmenter(tmp_path) == PhraseSegmenter((";", "|"))


@pytest.mark.parametrize("level", ["sentence", "clause"])
def test_predictions_are_cut_as_the_targets_were(tmp_path, level):
    targets = ["The strain subsp. alba grew, then died. It grew."] * 20
    segmenter = make_segmenter(level, targets=targets)
    save_segmented(tmp_path, {}, Segmentation(level, (), " "), segmenter, {})
    assert load_segmenter(tmp_path).cut(targets[0]) == segmenter.cut(targets[0])


def test_an_error_while_writing_leaves_the_old_files(tmp_path):
    save_segmented(tmp_path, {"train": [record(1, "a")]}, SEGMENTATION, PhraseSegmenter(), {})
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    again = {"train": [record(1, "b")]}
    with pytest.raises(TypeError):
        save_segmented(tmp_path, again, SEGMENTATION, PhraseSegmenter(), {"bad": object()})
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_full_disk_names_the_file_that_did_not_fit(tmp_path):
    def records():
        yield record(1, "a")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        save_segmented(tmp_path, {"dev": records()}, SEGMENTATION, PhraseSegmenter(), {})
    assert caught.value.filename == str(tmp_path / "dev.jsonl")
    assert not list(tmp_path.iterdir())


def test_a_missing_file_says_which_command_makes_it(tmp_path):
    for load in (load_split, load_segmentation):
        with pytest.raises(UserError, match="run `pipedec segment DATA` first"):
            load(tmp_path / "none.json")
    write_json(tmp_path / "segmentation.json", msgspec.to_builtins(Segmentation("sentence", (), " ")))
    with pytest.raises(UserError, match=r"sentences\.json: no such file"):
        load_segmenter(tmp_path)


def test_a_split_that_is_not_segmented_is_refused(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text('{"source": "a", "target": "b"}\n')
    with pytest.raises(UserError, match=r"train\.jsonl:1: the target is not segmented"):
        load_split(path)


def test_a_segmentation_with_a_wrong_value_is_refused(tmp_path):
    path = tmp_path / "segmentation.json"
    good = msgspec.to_builtins(SEGMENTATION)
    wrong = ({"level": "word"}, {"separators": ";"}, {"joiner": None}, {"sub_max": "20"})
    for content in (*({**good, **change} for change in wrong), []):
        path.write_text(json.dumps(content))
        with pytest.raises(UserError, match=r"segmentation\.json: not what `pipedec segment` writes"):
            load_segmentation(path)
