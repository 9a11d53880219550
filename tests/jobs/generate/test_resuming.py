"""Stopping at any byte and going on; and predictions made whole for a report, out of what is there."""

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipedec_cli.data.writing import JsonLinesAppender, only_writer
from pipedec_cli.events import silent
from pipedec_cli.jobs import run as predicting
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.jobs.loading import load_decoder, read_inputs
from pipedec_cli.jobs.run import Run, plan_run, write
from tests.jobs.generate.running import (
    ROWS,
    done,
    lines,
    new_test_set,
    refused,
    written,
)
from tests.running import generated, run, write_lines
from tests.words import refusing


@pytest.fixture(scope="module")
def prepared(
    tmp_path_factory: pytest.TempPathFactory, models: Path
) -> tuple[Run, Path, bytes]:
    """A run with its model loaded already; where it writes, and what it writes if nothing disturbs it."""
    folder = tmp_path_factory.mktemp("resuming")
    data, out = write_lines(folder / "data.jsonl", *ROWS), folder / "out.jsonl"
    options = GenerateSettings(
        data=str(data), model=str(models / "pipelined"), batch_size=3, resume=True
    )
    decoder, inputs = load_decoder(options), read_inputs(options)
    run = plan_run(options, decoder, inputs)
    write(run, out, silent, resume=True, again="")
    return run, out, out.read_bytes()


@settings(max_examples=12)
@given(data=st.data())
def test_a_run_that_was_killed_at_any_byte_ends_as_an_undisturbed_one(prepared, data):
    run, out, whole = prepared
    out.write_bytes(whole[: data.draw(st.integers(0, len(whole)), label="bytes")])
    left = out.read_bytes().count(b"\n")
    result = write(run, out, silent, resume=True, again="")
    assert lines(out) == lines(whole.decode())
    assert (result.resumed_from, result.counts.examples) == (left, len(ROWS) - left)
    assert out.read_bytes().startswith(
        b"".join(whole.splitlines(keepends=True)[:left])
    )  # not written again


@pytest.mark.slow
def test_a_second_writer_is_refused_and_a_kill_leaves_whole_lines_that_are_resumed(
    place,
):
    new_test_set(
        place, *({**row, "id": f"{n} {row['id']}"} for n in range(40) for row in ROWS)
    )
    undisturbed = written("undisturbed.jsonl", "--batch-size", "2")
    out = Path("killed.jsonl")
    command = [
        sys.executable,
        "-m",
        "pipedec_cli",
        "generate",
        "--batch-size",
        "2",
        "--out",
        str(out),
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while not out.exists() or out.stat().st_size < 20_000:
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    process.send_signal(signal.SIGSTOP)
    told = refused("--batch-size", "2", "--out", out, "--resume")
    assert f"is being written by process {process.pid} on " in told
    assert "(pipedec generate --batch-size 2 --out killed.jsonl)" in told
    process.kill()
    process.wait()
    assert 0 < len(out.read_bytes().splitlines()) < 40 * len(ROWS)
    assert written("killed.jsonl", "--batch-size", "2", "--resume") == undisturbed


def test_a_file_that_is_being_written_is_refused_to_generate_and_to_report(place):
    done()
    out = generated(place, "pipelined-delay2")
    out.unlink()
    with only_writer(out, todo=""):
        refused()
        refused("--resume")
        with refusing():
            complete()
        done("--out", "other.jsonl")
    done()
    with only_writer(out, todo=""):
        assert complete()[1] == 0, "what is whole needs no writer"


def test_ctrl_c_leaves_whole_lines_says_how_to_go_on_and_exits_with_130(
    place, monkeypatch
):
    class Interrupted(JsonLinesAppender):
        def write(self, item: Any) -> None:
            super().write(item)
            if item["id"] == 4:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(predicting, "JsonLinesAppender", Interrupted)
        stopped = run("generate", "--out", "out.jsonl", "--quiet", exit_code=130)
    assert (
        "5 of 12 lines are in out.jsonl; the same command with --resume goes on"
        in stopped.stderr
    )
    assert [row["id"] for row in lines(Path("out.jsonl"))] == [0, 1, 2, 3, 4]
    before = Path("out.jsonl").read_text(encoding="utf-8")
    first, second, *others = before.splitlines(keepends=True)
    resume = ("--out", "out.jsonl", "--resume")
    for name, other in (
        ('"prediction": "', '"prediction": "X'),
        ('"steps"', '"stepz"'),
    ):
        Path("out.jsonl").write_text(
            "".join((first, second.replace(name, other), *others)), encoding="utf-8"
        )
        refused(*resume)
    Path("out.jsonl").write_text(before, encoding="utf-8")
    assert "5 of 12 lines are there" in done(*resume).stderr
    assert [row["id"] for row in lines(Path("out.jsonl"))] == [
        row["id"] for row in ROWS
    ]


def test_resuming_begins_what_never_began_and_leaves_a_whole_file_as_it_is(place):
    assert "starting at the beginning" in done("--resume").stderr
    file = generated(place, "pipelined-delay2")
    before = file.read_bytes(), file.stat().st_mtime_ns
    assert len(lines(file)) == len(ROWS)
    assert (
        "is whole already: 12 of 12 lines are there"
        in done("--resume", "--batch-size", "1").stderr
    )
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before


@pytest.mark.parametrize(
    "options",
    [
        "--delay 3",
        "--limit 2",
        "--set empty_rows=stop --set sub_max=9",
        "--model other",
        "",
    ],
)
def test_resuming_with_other_settings_or_data_is_refused_and_names_what_differs(
    place, models, options
):
    Path("other").symlink_to(models / "delay1")
    done("--out", "out.jsonl")
    before = Path("out.jsonl").read_bytes()
    if not options:
        new_test_set(place, *ROWS[:-1], {**ROWS[-1], "target": "Another."})
    refused("--out", "out.jsonl", "--resume", *options.split())
    assert Path("out.jsonl").read_bytes() == before


def test_a_line_whose_input_was_altered_is_seen_in_a_run_that_was_killed(place):
    done("--out", "out.jsonl")
    rows = Path("out.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    rows[1] = rows[1].replace('"target": "', '"target": "X')
    Path("out.jsonl").write_text("".join(rows[:5]), encoding="utf-8")
    told = refused("--out", "out.jsonl", "--resume")
    assert (
        "cannot go on: the input in line 2 was altered; leave out --resume to start anew"
        in told
    )


def test_a_new_run_keeps_what_stood_there_and_a_link_stays(place):
    Path("elsewhere").mkdir()
    link, file = Path("out.jsonl"), Path("elsewhere/file.jsonl")
    link.symlink_to(file)
    done("--out", "out.jsonl")
    before = file.read_bytes()
    assert "kept as file.jsonl.bak" in done("--out", "out.jsonl", "--delay", "1").stderr
    assert link.is_symlink() and len(lines(file)) == len(ROWS)
    assert Path("elsewhere/file.jsonl.bak").read_bytes() == before
    assert Path("out.manifest.json.bak").exists()
    assert (
        "is whole already"
        in done("--out", "out.jsonl", "--delay", "1", "--resume").stderr
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk here")
def test_a_full_disk_is_one_line_that_names_the_file(place):
    with pytest.raises(
        OSError, match="No space left on device; there is nothing to resume from"
    ) as raised:
        done("--out", "/dev/full")
    assert raised.value.filename == "/dev/full"


# ---- predictions made whole for a report
# ---------------------------------------------------------------------------


def complete(**options: Any) -> tuple[Path, int]:
    """The file, as a report has it made whole, and how many examples were generated for it."""
    settings = GenerateSettings(**options)
    run = plan_run(settings, load_decoder(settings), read_inputs(settings))
    result = predicting.complete(run, "the decoder", silent)
    return Path(result.out).resolve(), result.counts.examples


def test_a_report_reads_the_inputs_once_to_check_a_run_and_once_to_go_on_with_it(place):
    path = complete()[0]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    settings, read = GenerateSettings(), Mock()
    inputs = read_inputs(settings)
    read.side_effect = inputs.read
    run = plan_run(settings, load_decoder(settings), replace(inputs, read=read))
    predicting.complete(run, "the decoder", silent)
    assert read.call_count == 2 and len(lines(path)) == len(ROWS)


def test_what_was_begun_without_a_trace_is_taken_or_goes_on_so_unless_one_is_asked_for(
    place,
):
    done("--set", "trace=false")
    path, made = complete()
    assert (made, "grid" in lines(path)[0]) == (0, False)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    done("--resume")
    assert lines(path) == lines(whole.decode())
    refused("--resume", "--set", "trace=true")
    path, made = complete(trace=True)
    assert (made, "grid" in lines(path)[0]) == (len(ROWS), True)
    # what is begun anew has the trace that the workspace's files have
    done("--set", "trace=false")
    new_test_set(place, *ROWS[1:])
    assert "grid" in lines(complete()[0])[0]
