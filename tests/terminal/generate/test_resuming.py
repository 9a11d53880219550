"""Stopping at any byte and going on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipedec_cli.data.writing import JsonLinesAppender
from pipedec_cli.terminal import predicting
from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.generate import GenerateSettings, load_decoder, read_inputs
from pipedec_cli.terminal.predicting import Predictions
from tests.terminal.generate.running import ROWS, done, lines, refused, run, write


@pytest.fixture(scope="module")
def prepared(
    tmp_path_factory: pytest.TempPathFactory, models: Path
) -> tuple[Callable[[], Predictions], Path, bytes]:
    """Makes a run with its model loaded already; where it writes, and what it writes if nothing disturbs it."""
    folder = tmp_path_factory.mktemp("resuming")
    data = write(folder / "data.jsonl", ROWS)
    talk = Talk(quiet=True)
    options = GenerateSettings(data=str(data), model=str(models / "pipelined"), batch_size=3, resume=True)
    inputs, decoder = read_inputs(options, talk), load_decoder(options, talk)
    out = folder / "out.jsonl"

    def predictions() -> Predictions:
        return Predictions(options, decoder, inputs, talk)

    predictions().write(out)
    return predictions, out, out.read_bytes()


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_run_that_was_killed_at_any_byte_ends_as_an_undisturbed_one(
    prepared: tuple[Callable[[], Predictions], Path, bytes], data: st.DataObject
) -> None:
    predictions, out, whole = prepared
    out.write_bytes(whole[: data.draw(st.integers(0, len(whole)), label="bytes")])
    left = sum(line.endswith(b"\n") for line in out.read_bytes().splitlines(keepends=True))
    result = predictions().write(out)
    assert lines(out) == lines(whole.decode())
    assert result["resumed_from"] == left
    assert result["examples"] == len(ROWS) - left
    assert out.read_bytes().startswith(b"".join(whole.splitlines(keepends=True)[:left]))  # not written again


@pytest.mark.slow
def test_a_kill_leaves_whole_lines_and_resuming_ends_as_an_undisturbed_run(place: Path) -> None:
    write(
        place / "data" / "test.jsonl", [{**row, "id": f"{n} {row['id']}"} for n in range(40) for row in ROWS]
    )
    done("--batch-size", "2", "--out", "undisturbed.jsonl")
    out = Path("killed.jsonl")
    command = [sys.executable, "-m", "pipedec_cli", "generate", "--batch-size", "2", "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while not out.exists() or out.stat().st_size < 20_000:
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 0 < len(out.read_bytes().splitlines()) < 40 * len(ROWS)
    done("--batch-size", "2", "--out", out, "--resume")
    assert lines(out) == lines(Path("undisturbed.jsonl"))


def test_ctrl_c_leaves_whole_lines_says_how_to_go_on_and_exits_with_130(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(JsonLinesAppender):
        def write(self, item: Any) -> None:
            super().write(item)
            if item["id"] == 4:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(predicting, "JsonLinesAppender", Interrupted)
        stopped = run("--out", "out.jsonl", "--quiet")
    assert stopped.exit_code == 130
    assert "5 of 12 lines are in out.jsonl; the same command with --resume goes on" in stopped.stderr
    assert [row["id"] for row in lines(Path("out.jsonl"))] == [0, 1, 2, 3, 4]
    outcome = done("--out", "out.jsonl", "--resume")
    assert "5 of 12 lines are there" in outcome.stderr
    assert [row["id"] for row in lines(Path("out.jsonl"))] == [row["id"] for row in ROWS]


def test_resuming_begins_what_never_began_and_leaves_a_whole_file_as_it_is(place: Path) -> None:
    assert "starting at the beginning" in done("--resume").stderr
    file = place / "generations" / "pipelined-delay2.jsonl"
    before = file.read_bytes(), file.stat().st_mtime_ns
    assert len(lines(file)) == len(ROWS)
    outcome = done("--resume", "--batch-size", "1")
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert "is whole already: 12 of 12 lines are there" in outcome.stderr


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--delay", "3"], "delay was 2 and is now 3"),
        (["--trace"], "trace was false and is now true"),
        (["--dtype", "bfloat16"], 'dtype was "float32" and is now "bfloat16"'),
        (["--limit", "2"], "limit was null and is now 2; the data changed"),
        (["--explore", "once", "--sub-max", "9"], 'explore was "retry" and is now "once"; sub_max was 20'),
        (["--model", "other", "--untrained-delay"], "the model changed"),
        ([], "cannot go on: the data changed"),
    ],
)
def test_resuming_with_other_settings_or_data_is_refused_and_names_what_differs(
    place: Path, models: Path, options: list[str], what: str
) -> None:
    Path("other").symlink_to(models / "delay1")
    done("--out", "out.jsonl")
    before = Path("out.jsonl").read_bytes()
    if not options:
        write(place / "data" / "test.jsonl", [*ROWS[:-1], {**ROWS[-1], "target": "Another."}])
    assert what in refused("--out", "out.jsonl", "--resume", *options)
    assert Path("out.jsonl").read_bytes() == before


def test_a_new_run_keeps_what_stood_there(place: Path) -> None:
    done("--out", "out.jsonl")
    before = Path("out.jsonl").read_bytes()
    assert "kept as out.jsonl.bak" in done("--out", "out.jsonl", "--delay", "1").stderr
    assert Path("out.jsonl.bak").read_bytes() == before
    assert Path("out.manifest.json.bak").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk here")
def test_a_full_disk_is_one_line_that_names_the_file(place: Path) -> None:
    with pytest.raises(OSError, match="No space left on device; there is nothing to resume from") as raised:
        run("--out", "/dev/full")
    assert raised.value.filename == "/dev/full"
