"""What is said when a training stops before its end."""

import errno
import json

import pytest

from pipedec_cli.jobs.stopping import explain_stop


@pytest.fixture
def said(caplog):
    caplog.set_level("INFO", "pipedec")
    return caplog


def interrupt(folder):
    with pytest.raises(KeyboardInterrupt), explain_stop(folder):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("best", "weights", "named"),
    [
        (3, "model.safetensors", True),
        (3, "adapter_model.safetensors", False),
        (None, "model.safetensors", False),
    ],
)
def test_ctrl_c_says_how_to_go_on_and_names_the_best_weights_if_they_are_a_model(
    tmp_path, said, best, weights, named
):
    for update in (3, 6):
        folder = tmp_path / f"checkpoint-{update}"
        folder.mkdir()
        (folder / weights).touch()
        state = json.dumps({"best_global_step": best})
        (folder / "trainer_state.json").write_text(state)
    interrupt(tmp_path)
    assert "--resume goes on from the last checkpoint" in said.text
    model = f"`generate --model {tmp_path / 'checkpoint-3'}`"
    assert (model in said.text) is named


def test_ctrl_c_before_a_first_checkpoint_says_that_nothing_is_kept(tmp_path, said):
    interrupt(tmp_path)
    assert "nothing is kept" in said.text


def test_the_end_of_another_process_is_no_error_of_this_one(
    tmp_path, said, monkeypatch
):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit) as raised, explain_stop(tmp_path):
        raise RuntimeError("gloo: Connection closed by peer")
    assert raised.value.code == 1
    assert "since another process has ended" in said.text


def test_an_error_that_is_none_of_writing_stays_as_it_is(tmp_path):
    error = RuntimeError("odd")
    with pytest.raises(RuntimeError) as raised, explain_stop(tmp_path):
        raise error
    assert raised.value is error


def test_the_systems_error_behind_that_of_a_library_is_told(tmp_path):
    def write_file():
        try:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        except OSError:
            # As libraries do, which keep the error as the context of theirs.
            raise RuntimeError("the file was not written")  # noqa: B904

    with pytest.raises(OSError, match="quota") as raised, explain_stop(tmp_path):
        write_file()
    assert raised.value.errno == errno.EDQUOT
    assert raised.value.filename == str(tmp_path)


def test_an_error_of_the_system_keeps_its_file(tmp_path):
    error = OSError(errno.EACCES, "Permission denied", "other")
    with pytest.raises(PermissionError) as raised, explain_stop(tmp_path):
        raise error
    assert raised.value.filename == "other"
