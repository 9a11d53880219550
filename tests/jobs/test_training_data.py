"""What a training learns; with `--teacher`, what a plain model writes for the sources."""

import contextlib
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipedec_cli.data.trained import FRESH, start_of
from pipedec_cli.data.writing import JsonLinesAppender
from pipedec_cli.events import silent
from pipedec_cli.jobs import run as predicting
from pipedec_cli.jobs.train_settings import TrainSettings
from pipedec_cli.jobs.training_data import TrainingData, load_data
from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.model.scratch import SHAPES
from tests import running
from tests.checkpoints import TOLD, change, tiny_checkpoint, weights_of
from tests.running import generated, lines_of, read_json, run, write_lines
from tests.words import refusing

#: One update that changes nothing.
UNCHANGED = ("--max-steps", "1", "--learning-rate", "1e-12", "--device", "cpu")
SEGMENTS = dict(TOLD)
WHOLE = {source: " ".join(segments) for source, segments in TOLD}
#: Sources that the teacher knows, with targets that it would not write, or without.
ROWS = [
    {"source": source, "target": f"{n}. No."} for n, (source, _) in enumerate(TOLD * 4)
]
BARE = [{"source": row["source"]} for row in ROWS]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> Path:
    """A sequential model. Not to be changed."""
    folder = tmp_path_factory.mktemp("teacher") / "my-t5"
    return tiny_checkpoint(folder, decoder="sequential", level="sentence")


@pytest.fixture(scope="module")
def made(tmp_path_factory, teacher) -> Path:
    """A workspace with data and the teacher's texts. Not to be changed."""
    workspace = segmented(tmp_path_factory.mktemp("made"), ROWS)
    data_of(workspace, teacher)
    return workspace


@pytest.fixture
def workspace(made, tmp_path) -> Path:
    """A copy of that workspace."""
    return Path(shutil.copytree(made, tmp_path / "work"))


def segmented(folder: Path, rows: list[dict[str, Any]], *more: str) -> Path:
    write_lines(folder / "d.jsonl", *rows)
    run("segment", folder / "d.jsonl", "-w", folder / "work", *more)
    return folder / "work"


def train(workspace: Path, teacher: Path, *more: object, **options: Any) -> str:
    asked = ("train", "-w", workspace, *UNCHANGED, "--teacher", teacher)
    return run(*asked, *more, **options).stderr


def refused(workspace: Path, *more: object) -> str:
    return running.refused("train", "-w", workspace, *UNCHANGED, *more)


@pytest.fixture
def said(caplog) -> pytest.LogCaptureFixture:
    """What is said from now on, in `text`."""
    caplog.set_level("INFO", "pipedec")
    return caplog


def data_of(workspace: Path, teacher: Path, **more: Any) -> TrainingData:
    settings = TrainSettings(
        teacher=str(teacher), workspace=workspace, device="cpu", **more
    )
    return load_data(settings, workspace / "data", silent)


def written(workspace: Path) -> Path:
    """The teacher's texts."""
    return generated(workspace, "my-t5-train")


def method_of(workspace: Path) -> Any:
    """The settings of the student."""
    return read_json(workspace / "models/pipelined/config.json")["pipedec"]


def segments_of(data: TrainingData) -> dict[str, Any]:
    return {record.id: record.target_segments for record in data.train}


def cut(row: dict[str, Any], prediction: str | None = None) -> dict[str, Any]:
    """A row of the teacher's texts that a limit cut."""
    text = row["prediction"] if prediction is None else prediction
    return {**row, "prediction": text, "truncated": "max_tokens"}


def repeated(row: dict[str, Any], times: int) -> dict[str, Any]:
    """A row whose text repeats itself."""
    return {**row, "prediction": " ".join([row["prediction"]] * times)}


def test_a_student_starts_from_its_teachers_weights_and_learns_its_texts(
    tmp_path, teacher
):
    workspace = segmented(tmp_path, ROWS)
    talk = train(workspace, teacher)
    for words in (f"the teacher {teacher} …", "predictions in", "sequential decoder"):
        assert words in talk
    texts = lines_of(written(workspace))
    assert all(line["prediction"] == WHOLE[line["source"]] for line in texts)

    student = workspace / "models" / "pipelined"
    after = weights_of(load_checkpoint(str(student)))
    for name, before in weights_of(load_checkpoint(str(teacher))).items():
        assert before.allclose(after[name], atol=1e-6)
    assert method_of(workspace)["stop_on_repeat"] is True
    manifest = read_json(student / "training.json")
    assert manifest["settings"]["model"] == str(teacher)
    assert manifest["settings"]["teacher"]["name"] == str(teacher)
    assert len(manifest["settings"]["teacher"]["sha256"]) == 64
    assert str(written(workspace)) in [file["path"] for file in manifest["inputs"]]
    card = (student / "README.md").read_text()
    assert "started from its teacher's weights" in card
    assert "with the texts of my-t5 for targets" in card

    generate = ("generate", "-w", workspace, "--limit", "1", "--device", "cpu")
    usual = run(*generate, "--delay", "1").stderr
    assert "empty rows stop, stop on repeat" in usual
    as_paper = ("--set", "empty_rows=retry", "--set", "stop_on_repeat=false")
    paper = run(*generate, "--delay", "1", *as_paper).stderr
    assert "empty rows retry" in paper and "stop on repeat" not in paper


def test_data_are_the_first_sources_with_the_teachers_segments(workspace, teacher):
    data = data_of(workspace, teacher, limit=3)
    assert len(data.train) == 3 and data.dev
    for record in data.train:
        assert record.target_segments == SEGMENTS[record.source]


def test_texts_that_are_there_are_taken_and_a_stopped_run_goes_on(
    workspace, teacher, monkeypatch, said
):
    kept = written(workspace)
    whole = kept.read_bytes()
    begun = b"".join(whole.splitlines(keepends=True)[:2])
    data_of(workspace, teacher)
    assert "the teacher's texts for train: all" in said.text
    kept.write_bytes(begun + b'{"id"')
    data_of(workspace, teacher)
    assert "goes on: 2 of" in said.text
    times = rb'"seconds": [^,]+'
    assert re.sub(times, b"", kept.read_bytes()) == re.sub(times, b"", whole)

    class Interrupted(JsonLinesAppender):
        def write(self, item: Any) -> None:
            raise KeyboardInterrupt

    kept.write_bytes(begun)
    monkeypatch.setattr(predicting, "JsonLinesAppender", Interrupted)
    stopped = train(workspace, teacher, exit_code=130)
    assert "the same command goes on" in stopped, "there is no --resume yet"


def test_texts_that_repeat_themselves_are_learnt_up_to_there_and_cut_ones_left_out(
    workspace, teacher, said
):
    first, second, third, *rows = lines_of(written(workspace))
    changed = [cut(first), repeated(second, 3), cut(repeated(third, 30)), *rows]
    write_lines(written(workspace), *changed)
    data = data_of(workspace, teacher)
    texts = f"of the teacher's {len(rows) + 3} texts for train"
    assert f"1 {texts} were cut short: left out" in said.text
    assert f"2 {texts} began to repeat themselves: learnt up to there" in said.text
    assert "had said before" not in said.text
    learnt = {row["id"]: SEGMENTS[row["source"]] for row in (second, third, *rows)}
    assert segments_of(data) == learnt
    for record in data.train:
        assert record.target == " ".join(learnt[record.id])


def test_a_teacher_none_of_whose_texts_comes_to_its_end_is_refused(workspace, teacher):
    kept = written(workspace)
    write_lines(kept, *(cut(row) for row in lines_of(kept)))
    with refusing() as raised:
        data_of(workspace, teacher)
    assert raised.value.where == str(kept)


@pytest.mark.slow
def test_limits_hold_the_datas_own_targets_which_may_be_longer_than_the_teachers(
    tmp_path, teacher
):
    long = [{**row, "target": "word " * 90 + "end."} for row in ROWS]
    workspace = segmented(tmp_path, long)
    train(workspace, teacher)
    assert method_of(workspace)["time_max"] > 90
    train(workspace, teacher, "--set", "time_max=60", "--overwrite")
    assert method_of(workspace)["time_max"] == 60
    bare = segmented(tmp_path / "bare", BARE, "--sources-only")
    train(bare, teacher)
    assert method_of(bare)["time_max"] == 50


def test_a_clause_that_the_teacher_says_again_is_learnt_once(tmp_path, teacher, said):
    workspace = segmented(tmp_path, ROWS, "--level", "clause")
    once = segments_of(data_of(workspace, teacher))
    first, *rows = lines_of(written(workspace))
    write_lines(written(workspace), repeated(first, 3), *rows)
    assert segments_of(data_of(workspace, teacher)) == once
    count = 2 * len(once[first["id"]])
    assert f"{count} subsequences that the teacher had said before" in said.text


def test_sources_suffice_and_the_teachers_texts_tell_where_sentences_end(
    tmp_path, teacher
):
    workspace = segmented(tmp_path, BARE, "--sources-only")
    refused(workspace)
    data = data_of(workspace, teacher)
    assert data.segmentation.joiner == " "
    for record in data.train:
        assert " ".join(record.target_segments) == WHOLE[record.source]
    assert max(len(record.target_segments) for record in data.train) > 2


def test_a_text_that_was_cut_teaches_no_abbreviation(tmp_path, teacher):
    workspace = segmented(tmp_path, BARE, "--sources-only")
    data_of(workspace, teacher)
    first, *rows = lines_of(written(workspace))

    def sentences_if_cut(prediction):
        write_lines(written(workspace), cut(first, prediction), *rows)
        segmenter = data_of(workspace, teacher).segmenter
        return segmenter.cut("The Brt. Mill is cheap. It is near.")

    abbreviated = "It is by the brt. river " * 50
    assert sentences_if_cut(abbreviated) == sentences_if_cut("A.")


def test_a_teachers_text_is_read_as_the_object_that_it_says(tmp_path, teacher):
    how = ("--sources-only", "--level", "field", "--fields", "A,B")
    workspace = segmented(tmp_path, BARE, *how)
    data_of(workspace, teacher, limit=4)
    kept = written(workspace)
    told = {"prediction": "B: b; C: c", "fields": {"B": "b"}}
    write_lines(kept, *({**row, **told} for row in lines_of(kept)))
    data = data_of(workspace, teacher, limit=4)
    assert [field.name for field in data.segmentation.fields] == ["A", "B"]
    assert {record.target_segments for record in data.train} == {("", "b")}
    assert data.segmenter.cut("A: a; B: x;; y") == ("a", "x; y")


def test_texts_of_a_teacher_from_elsewhere_are_cut_as_the_data_that_were_given(
    tmp_path, teacher
):
    teacher = Path(shutil.copytree(teacher, tmp_path / "elsewhere"))
    change(teacher / "config.json", "pipedec")
    rows = [{**row, "target": {"A": "a"}} for row in BARE]
    objects = segmented(tmp_path / "o", rows, "--level", "field")
    texts = segmented(tmp_path / "t", ROWS) / "data"
    settings = TrainSettings(data=texts, teacher=str(teacher), workspace=objects)
    for record in load_data(settings, texts, silent).train:
        assert record.target == WHOLE[record.source]
        assert record.target_fields is None


def test_scratch_is_the_teachers_shape_and_tokenizer_with_fresh_weights(
    workspace, teacher
):
    train(workspace, teacher, "--model", "scratch")
    student = load_checkpoint(str(workspace / "models" / "pipelined"))
    known = load_checkpoint(str(teacher))
    assert known.tokenizer.get_vocab() == student.tokenizer.get_vocab()
    before, fresh = weights_of(known), weights_of(student)
    assert before.keys() == fresh.keys()
    assert all(before[name].shape == fresh[name].shape for name in before)
    name = "decoder.block.0.layer.0.SelfAttention.q.weight"
    assert not before[name].allclose(fresh[name], atol=1e-2)
    refused(workspace, "--model", "scratch", "--overwrite")


@pytest.mark.slow
def test_how_the_teacher_reads_its_sources_is_taken_over(tmp_path, workspace):
    own = tiny_checkpoint(
        tmp_path / "own",
        decoder="sequential",
        source_prefix="say: ",
        max_source_tokens=40,
    )
    train(workspace, own)
    method = method_of(workspace)
    assert (method["source_prefix"], method["max_source_tokens"]) == ("say: ", 40)
    bare = ("--set", "prompt_template={source}")
    talk = train(workspace, own, *bare, "--overwrite")
    assert f"{own} was trained with the source prefix 'say: ', not ''" in talk
    manifests = workspace.glob("generations/own-train-*.manifest.json")
    newest = max(manifests, key=lambda path: path.stat().st_mtime)
    assert read_json(newest)["settings"]["source_prefix"] == ""
    assert method_of(workspace)["source_prefix"] == ""


def test_what_can_be_no_teacher_is_refused(tmp_path, workspace, teacher):
    pipelined = Path(shutil.copytree(teacher, tmp_path / "pipelined"))
    method = read_json(pipelined / "config.json")["pipedec"]
    change(pipelined / "config.json", pipedec={**method, "decoder": "pipelined"})
    said = refused(workspace, "--teacher", pipelined)
    assert said.startswith(f"{pipelined} is a pipelined decoder, and no teacher")
    over = ("--teacher", teacher, "--model", "scratch", "--out", teacher)
    refused(workspace, *over)
    refused(workspace, "--teacher", "none")


def test_several_processes_take_texts_that_one_has_written(
    workspace, teacher, monkeypatch
):
    shutil.rmtree(workspace / "generations")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for _ in ("train", "dev"):
        with refusing() as raised:
            data_of(workspace, teacher)
        (command,) = re.findall("`pipedec (.*)`", str(raised.value))
        run(*shlex.split(command), "--device", "cpu")
    assert data_of(workspace, teacher).dev


@pytest.mark.slow
def test_a_training_tells_what_a_model_started_from_wherever_it_was_moved(
    workspace, teacher, tmp_path
):
    student = workspace / "models" / "pipelined"
    named = Path(shutil.copytree(teacher, tmp_path / "scratch-t5"))
    with contextlib.chdir(tmp_path):
        train(workspace, Path(named.name))
        assert start_of(named.name) == start_of(str(student)) == "published"
    assert "started from its teacher's weights" in (student / "README.md").read_text()
    train(workspace, teacher, "--model", "scratch", "--overwrite")
    moved = student.rename(tmp_path / "moved")
    more = tmp_path / "more"
    run("train", "-w", workspace, *UNCHANGED, "--model", moved, "--out", more)
    shutil.rmtree(moved)
    assert start_of(str(more)) == "from-scratch"


def test_the_names_of_fresh_weights_are_those_of_shapes():
    names = (*FRESH, "scratch-tiny-llama")
    assert {start_of(name) for name in names} == {"fresh"}
    assert {*FRESH} == {"scratch", *SHAPES}
    assert start_of("google-t5/t5-base") == "published"
