"""`pipedec train --teacher`: what a plain model writes for the sources is what the decoder learns."""

import contextlib
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.trained import FRESH, start_of
from pipedec_cli.data.writing import JsonLinesAppender
from pipedec_cli.jobs import run as predicting
from pipedec_cli.jobs.events import silent
from pipedec_cli.jobs.train import TrainingData, load_data
from pipedec_cli.jobs.train_settings import TrainSettings
from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.model.scratch import SHAPES
from tests import running
from tests.checkpoints import TOLD, change, tiny_checkpoint, weights_of
from tests.running import generated, lines_of, read_json, run, write_lines

#: One update that changes nothing.
UNCHANGED = [
    "--max-steps",
    "1",
    "--set",
    "evaluations=1",
    "--learning-rate",
    "1e-12",
    "--device",
    "cpu",
]
WHOLE = {source: " ".join(told) for source, told in TOLD}
#: Sources that the teacher knows, with targets that it would not write.
ROWS = [
    {"source": source, "target": f"{n}. No."} for n, (source, _) in enumerate(TOLD * 4)
]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sequential model. Not to be changed."""
    folder = tmp_path_factory.mktemp("teacher") / "my-t5"
    return tiny_checkpoint(folder, decoder="sequential", level="sentence")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, teacher: Path) -> Path:
    """A workspace with data and the teacher's texts. Not to be changed."""
    workspace = segmented(tmp_path_factory.mktemp("made"), *ROWS)
    data_of(workspace, teacher)
    return workspace


@pytest.fixture
def workspace(made: Path, tmp_path: Path) -> Path:
    """A copy of that workspace."""
    return Path(shutil.copytree(made, tmp_path / "work"))


def segmented(folder: Path, *rows: dict[str, Any], more: tuple[str, ...] = ()) -> Path:
    write_lines(folder / "d.jsonl", *rows)
    run("segment", folder / "d.jsonl", "-w", folder / "work", *more)
    return folder / "work"


def train(workspace: Path, *more: object, **options: Any) -> str:
    return run("train", "-w", workspace, *UNCHANGED, *more, **options).stderr


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
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


def test_the_teachers_texts_are_kept_cut_and_learnt_from_its_own_weights(
    tmp_path, teacher
):
    workspace = segmented(tmp_path, *ROWS)
    talk = train(workspace, "--teacher", teacher)
    kept = written(workspace)
    assert all(line["prediction"] == WHOLE[line["source"]] for line in lines_of(kept))
    student = workspace / "models" / "pipelined"
    before, after = (
        weights_of(load_checkpoint(str(one))) for one in (teacher, student)
    )
    assert all(before[name].allclose(after[name], atol=1e-6) for name in before)
    asked = read_json(student / "training.json")
    assert (
        asked["settings"]["model"]
        == asked["settings"]["teacher"]["name"]
        == str(teacher)
    )
    assert len(asked["settings"]["teacher"]["sha256"]) == 64
    assert str(kept) in [one["path"] for one in asked["inputs"]]
    assert read_json(student / "config.json")["pipedec"]["stop_on_repeat"] is True
    one = ("generate", "-w", workspace, "--limit", "1", "--device", "cpu")
    made = run(*one, "--delay", "1").stderr
    assert (
        "empty rows stop, stop on repeat" in made
        and "generations/pipelined-delay1-" in made
    )
    paper = run(*one, "--set", "recipe=paper").stderr
    assert "empty rows retry" in paper and "stop on repeat" not in paper
    card = (student / "README.md").read_text()
    assert (
        "started from its teacher's weights" in card
        and "with the texts of my-t5 for targets" in card
    )
    words = (f"loading the teacher {teacher} …", "predictions in", "sequential decoder")
    assert all(one in talk for one in words)
    data = data_of(workspace, teacher, limit=3)
    assert all(dict(TOLD)[one.source] == one.target_segments for one in data.train)
    assert len(data.train) == 3 and data.dev


def test_texts_that_are_there_are_taken_and_a_stopped_run_goes_on(
    workspace, teacher, monkeypatch, said
):
    kept = written(workspace)
    whole = kept.read_bytes()
    data_of(workspace, teacher)
    assert "the teacher's texts for train: all" in said.text
    kept.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]) + b'{"id"')
    data_of(workspace, teacher)
    assert "goes on: 2 of" in said.text
    lines = (
        re.sub(rb'"seconds": [^,]+', b"", text) for text in (whole, kept.read_bytes())
    )
    assert len(set(lines)) == 1

    class Interrupted(JsonLinesAppender):
        def write(self, item: Any) -> None:
            raise KeyboardInterrupt

    kept.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    monkeypatch.setattr(predicting, "JsonLinesAppender", Interrupted)
    stopped = run(
        "train", "-w", workspace, *UNCHANGED, "--teacher", teacher, exit_code=130
    )
    assert "the same command goes on" in stopped.stderr, (
        "and knows no --resume before a first checkpoint"
    )


def test_texts_that_repeat_themselves_are_learnt_up_to_there_and_cut_ones_left_out(
    workspace, teacher, said
):
    first, second, third, *rows = lines_of(written(workspace))
    repeats = {**second, "prediction": " ".join([second["prediction"]] * 3)}
    cut = {
        **third,
        "prediction": " ".join([third["prediction"]] * 30),
        "truncated": "max_tokens",
    }
    write_lines(
        written(workspace), {**first, "truncated": "max_tokens"}, repeats, cut, *rows
    )
    data = data_of(workspace, teacher)
    texts = f"of the teacher's {len(rows) + 3} texts for train"
    assert f"1 {texts} were cut short: left out" in said.text
    assert f"2 {texts} began to repeat themselves: learnt up to there" in said.text
    assert "had said before" not in said.text
    told = {row["id"]: dict(TOLD)[row["source"]] for row in (second, third, *rows)}
    assert {one.id: one.target_segments for one in data.train} == told
    assert all(one.target == " ".join(told[one.id]) for one in data.train)
    every = (first, second, third, *rows)
    write_lines(
        written(workspace), *({**row, "truncated": "max_tokens"} for row in every)
    )
    told = running.refused("train", "-w", workspace, *UNCHANGED, "--teacher", teacher)
    assert (
        "none of the teacher's texts can be learnt from" in told
        and str(written(workspace)) in told
    )


@pytest.mark.slow
def test_limits_hold_the_datas_own_targets_which_may_be_longer_than_the_teachers(
    tmp_path, teacher
):
    long = [{**row, "target": "word " * 90 + "end."} for row in ROWS]
    workspace = segmented(tmp_path, *long)
    train(workspace, "--teacher", teacher)
    config = workspace / "models" / "pipelined" / "config.json"
    assert read_json(config)["pipedec"]["time_max"] > 90
    train(workspace, "--teacher", teacher, "--set", "time_max=60", "--overwrite")
    assert read_json(config)["pipedec"]["time_max"] == 60
    sources = ({"source": row["source"]} for row in ROWS)
    bare = segmented(tmp_path / "bare", *sources, more=("--sources-only",))
    train(bare, "--teacher", teacher)
    assert (
        read_json(bare / "models" / "pipelined" / "config.json")["pipedec"]["time_max"]
        == 50
    )


def test_a_clause_that_the_teacher_says_again_is_learnt_once(tmp_path, teacher, said):
    workspace = segmented(tmp_path, *ROWS, more=("--level", "clause"))
    once = {one.id: one.target_segments for one in data_of(workspace, teacher).train}
    first, *rows = lines_of(written(workspace))
    write_lines(
        written(workspace),
        {**first, "prediction": " ".join([first["prediction"]] * 3)},
        *rows,
    )
    again = data_of(workspace, teacher)
    assert (
        f"{2 * len(once[first['id']])} subsequences that the teacher had said before"
        in said.text
    )
    assert {one.id: one.target_segments for one in again.train} == once


def test_sources_suffice_and_the_teachers_texts_tell_where_sentences_end(
    tmp_path, teacher
):
    rows = ({"source": source} for source, _ in TOLD * 4)
    workspace = segmented(tmp_path, *rows, more=("--sources-only",))
    assert "--teacher" in running.refused("train", "-w", workspace, *UNCHANGED)
    train(workspace, "--teacher", teacher)
    data = data_of(workspace, teacher)
    assert data.segmentation.joiner == " "
    assert all(
        " ".join(one.target_segments or ()) == WHOLE[one.source] for one in data.train
    )
    assert max(len(one.target_segments or ()) for one in data.train) > 2
    first, *kept = lines_of(written(workspace))

    def ends_if_cut(prediction):
        cut = {**first, "prediction": prediction, "truncated": "max_tokens"}
        write_lines(written(workspace), cut, *kept)
        return data_of(workspace, teacher).segmenter.cut(
            "The Brt. Mill is cheap. It is near."
        )

    abbreviated = "It is by the brt. river " * 50
    assert ends_if_cut(abbreviated) == ends_if_cut(
        "A."
    )  # what was cut teaches no abbreviation
    write_lines(
        written(workspace),
        *({**row, "truncated": "max_tokens"} for row in (first, *kept)),
    )
    told = running.refused(
        "train", "-w", workspace, *UNCHANGED, "--teacher", teacher, "--overwrite"
    )
    assert "none of the teacher's texts can be learnt from" in told
    assert (
        "2 predictions"
        in run("generate", "-w", workspace, "--limit", "2", "--device", "cpu").stderr
    )


def test_a_teachers_text_is_read_as_the_object_that_it_says(tmp_path, teacher):
    rows = ({"source": source} for source, _ in TOLD * 4)
    workspace = segmented(
        tmp_path, *rows, more=("--sources-only", "--level", "field", "--fields", "A,B")
    )
    data_of(workspace, teacher, limit=4)
    kept = written(workspace)
    write_lines(
        kept,
        *(
            {**row, "prediction": "B: b; C: c", "fields": {"B": "b"}}
            for row in lines_of(kept)
        ),
    )
    data = data_of(workspace, teacher, limit=4)
    assert [field.name for field in data.segmentation.fields] == ["A", "B"]
    assert {one.target_segments for one in data.train} == {("", "b")}
    assert data.segmenter.cut("A: a; B: x;; y") == ("a", "x; y")


def test_texts_of_a_teacher_from_elsewhere_are_cut_as_the_data_that_were_given(
    tmp_path, teacher
):
    teacher = Path(shutil.copytree(teacher, tmp_path / "elsewhere"))
    change(teacher / "config.json", "pipedec")
    rows = ({"source": source, "target": {"A": "a"}} for source, _ in TOLD * 4)
    objects = segmented(tmp_path / "o", *rows, more=("--level", "field"))
    texts = segmented(tmp_path / "t", *ROWS)
    settings = TrainSettings(
        data=texts / "data", teacher=str(teacher), workspace=objects
    )
    data = load_data(settings, texts / "data", silent)
    assert all(
        one.target == WHOLE[one.source] and one.target_fields is None
        for one in data.train
    )


def test_scratch_is_the_teachers_shape_and_tokenizer_with_fresh_weights(
    workspace, teacher
):
    train(workspace, "--teacher", teacher, "--model", "scratch")
    known, fresh = (
        load_checkpoint(str(one))
        for one in (teacher, workspace / "models" / "pipelined")
    )
    assert known.tokenizer.get_vocab() == fresh.tokenizer.get_vocab()
    shapes = [
        {name: one.shape for name, one in weights_of(each).items()}
        for each in (known, fresh)
    ]
    assert shapes[0] == shapes[1]
    name = "decoder.block.0.layer.0.SelfAttention.q.weight"
    assert not weights_of(known)[name].allclose(weights_of(fresh)[name], atol=1e-2)
    alone = ("train", "-w", workspace, "--model", "scratch", "--overwrite")
    assert "scratch with --teacher" in running.refused(*alone)


@pytest.mark.slow
def test_how_the_teacher_reads_its_sources_is_taken_over(tmp_path, workspace):
    own = tiny_checkpoint(
        tmp_path / "own",
        decoder="sequential",
        source_prefix="say: ",
        max_source_tokens=40,
    )
    train(workspace, "--teacher", own)
    settings = read_json(workspace / "models" / "pipelined" / "config.json")["pipedec"]
    assert (settings["source_prefix"], settings["max_source_tokens"]) == ("say: ", 40)
    told = train(workspace, "--teacher", own, "--set", "source_prefix=", "--overwrite")
    assert f"{own} was trained with the source prefix 'say: ', not ''" in told
    manifest = read_json(
        max(
            workspace.glob("generations/own-train-*.manifest.json"),
            key=lambda path: path.stat().st_mtime,
        )
    )
    assert manifest["settings"]["source_prefix"] == ""
    assert (
        read_json(workspace / "models" / "pipelined" / "config.json")["pipedec"][
            "source_prefix"
        ]
        == ""
    )


def test_what_can_be_no_teacher_is_refused(tmp_path, workspace, teacher):
    pipelined = Path(shutil.copytree(teacher, tmp_path / "pipelined"))
    settings = read_json(pipelined / "config.json")["pipedec"]
    change(pipelined / "config.json", pipedec={**settings, "decoder": "pipelined"})
    told = running.refused("train", "-w", workspace, *UNCHANGED, "--teacher", pipelined)
    assert told.startswith(
        f"{pipelined} is a pipelined decoder, and no teacher; name a sequential model"
    )
    over = ("--teacher", teacher, "--model", "scratch", "--out", teacher)
    assert "would be written over" in running.refused(
        "train", "-w", workspace, *UNCHANGED, *over
    )
    assert "no checkpoint folder 'none'" in running.refused(
        "train", "-w", workspace, "--teacher", "none"
    )


def test_several_processes_take_texts_that_one_has_written(
    workspace, teacher, monkeypatch
):
    shutil.rmtree(workspace / "generations")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for split in ("train", "dev"):
        with pytest.raises(
            UserError, match=f"the teacher's texts for {split} are not all there"
        ) as refusal:
            data_of(workspace, teacher, dev_examples=2)
        (command,) = re.findall("`pipedec (.*)`", str(refusal.value))
        run(*shlex.split(command), "--device", "cpu")
    assert len(data_of(workspace, teacher, dev_examples=2).dev) == 2


@pytest.mark.slow
def test_a_training_tells_what_a_model_started_from_wherever_it_was_moved(
    workspace, teacher, tmp_path
):
    student = workspace / "models" / "pipelined"
    assert {*map(start_of, FRESH)} == {"fresh"} and {*FRESH} == {"scratch", *SHAPES}
    assert start_of("google-t5/t5-base") == start_of(str(teacher)) == "published"
    named = Path(shutil.copytree(teacher, tmp_path / "scratch-t5"))
    with contextlib.chdir(tmp_path):
        assert "loading the teacher scratch-t5" in train(
            workspace, "--teacher", named.name
        )
        assert start_of(named.name) == start_of(str(student)) == "published"
    assert "started from its teacher's weights" in (student / "README.md").read_text()
    train(workspace, "--teacher", teacher, "--model", "scratch", "--overwrite")
    moved = student.rename(tmp_path / "moved")
    train(workspace, "--model", moved, "--out", tmp_path / "more")
    shutil.rmtree(moved)
    assert start_of(str(tmp_path / "more")) == "from-scratch"
