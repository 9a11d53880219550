"""Folders and files of models that are refused before anything is loaded, with what is wrong and where."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import require_writable
from pipedec_cli.data.trained import require_model
from pipedec_cli.data.writing import only_writer
from tests.running import unprivileged

POINTER = (
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
)
#: Waits in a folder's lock until its input ends.
WRITER = """
import sys
from pathlib import Path
from pathlib import Path
from pipedec_cli.data.writing import only_writer
with only_writer(Path(sys.argv[1]), folder=True, todo=""):
    print("locked", flush=True)
    sys.stdin.read()
"""


def folder_with(place, *missing, **files):
    """A folder with the files of a model, which hold next to nothing."""
    place.mkdir(exist_ok=True)
    usual = dict.fromkeys(
        ("config.json", "tokenizer.json", "tokenizer_config.json"), "{}"
    )
    usual["model.safetensors"] = "weights"
    for name, content in (usual | files).items():
        if name not in missing:
            (place / name).write_text(content, encoding="utf-8")
    return place


def refused(folder):
    with pytest.raises(UserError) as error:
        require_model(str(folder))
    return error.value


def test_a_folder_with_the_files_of_a_model_is_not_refused(tmp_path):
    assert require_model(str(folder_with(tmp_path)))


@pytest.mark.parametrize(
    "name",
    ["config.json", "tokenizer.json", "model.safetensors", "generation_config.json"],
)
def test_a_pointer_of_git_lfs_is_called_so(name, tmp_path):
    error = refused(folder_with(tmp_path, **{name: POINTER}))
    assert error.where == f"{tmp_path / name}"
    assert "git lfs pull" in error.todo


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "tokenizer.model", "tf_model.h5", "a.txt"]
)
def test_a_pointer_in_the_place_of_a_file_that_is_not_read_does_no_harm(name, tmp_path):
    assert require_model(str(folder_with(tmp_path, **{name: POINTER})))


def test_pointers_are_looked_for_in_the_older_forms_of_weights_and_tokenizers_where_these_are_read(
    tmp_path,
):
    older = {"pytorch_model.bin": POINTER}
    error = refused(folder_with(tmp_path / "weights", "model.safetensors", **older))
    assert error.where.endswith("pytorch_model.bin")
    error = refused(
        folder_with(
            tmp_path / "tokenizer", "tokenizer.json", **{"spiece.model": POINTER}
        )
    )
    assert error.where.endswith("spiece.model")


def test_a_gguf_file_that_is_a_pointer_is_called_so(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_text(POINTER, encoding="utf-8")
    assert refused(path).where == str(path)


@pytest.mark.parametrize(
    "missing", [(), ("config.json", "model.safetensors"), ("model.safetensors",)]
)
def test_the_folder_of_an_adapter_is_called_so_with_the_model_that_it_is_for(
    missing, tmp_path
):
    adapter = {
        "adapter_config.json": json.dumps({"base_model_name_or_path": "org/base"})
    }
    error = refused(folder_with(tmp_path, *missing, **adapter))
    assert error.where == str(tmp_path)
    assert "adapter of org/base" in error.what and "merge" in error.todo
    for content in ("{}", "no JSON", "[]"):
        (tmp_path / "adapter_config.json").write_text(content)
        assert "an adapter," in refused(tmp_path).what


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "model.safetensors", "model.gguf", ""]
)
def test_what_may_not_be_read_is_said_to_be_there_without_permission(name):
    with unprivileged() as place:
        hidden = folder_with(place / "model", **{"model.gguf": "GGUF"}) / name
        hidden.chmod(0)
        error = refused(hidden if name.endswith("gguf") else place / "model")
        hidden.chmod(0o700)
    assert error.where == str(hidden)
    assert "permission" in error.what and "chmod" in error.todo


def test_a_folder_that_a_process_trains_into_names_this_process(tmp_path):
    """As long as it holds no model; a trained one may be used while another training begins."""
    begun = {"training.json": '{"settings": {"model": "a"}}'}
    folders = [
        folder_with(tmp_path / "begun", **begun),
        tmp_path / "empty",
        folder_with(tmp_path / "whole"),
    ]
    for folder in folders:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)], **pipes
        ) as writer:
            assert writer.stdout.readline() == "locked\n"
            if folder.name == "whole":
                assert require_model(str(folder))
            else:
                error = refused(folder)
                assert f"process {writer.pid} on " in error.what
                assert error.todo.startswith("wait")
            writer.stdin.close()
    assert "process" not in refused(folders[0]).what


def test_an_end_of_a_lock_leaves_no_trace(tmp_path):
    folder = folder_with(tmp_path, "config.json")
    (folder / ".lock").touch()  # left by a killed process
    assert "config.json" in refused(folder).what
    with only_writer(folder, folder=True, todo=""):
        pass


@pytest.mark.parametrize(
    "name", ["new.jsonl", "there.jsonl", "a/b/new.jsonl", "", "folder"]
)
def test_a_place_without_permission_to_write_is_named_with_out(name):
    with unprivileged() as place:
        locked = place / "locked"
        locked.mkdir()
        (locked / "there.jsonl").touch()
        require_writable(locked / name)
        locked.chmod(0o500)
        with pytest.raises(UserError) as error:
            require_writable(locked / name)
        if name.startswith("a/"):
            with pytest.raises(UserError), only_writer(locked / name, todo=""):
                pass
        locked.chmod(0o700)
    assert error.value.where == str(locked / name)
    assert "permission" in error.value.what and "--out" in error.value.todo


def test_a_device_is_left_to_whoever_writes_to_it():
    require_writable(Path(os.devnull))
