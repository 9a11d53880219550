"""All shards of a job by the workers of a Ray cluster: a fake one in this process, and a real one whose workers are killed."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipedec_cli.data.inputs import Shard
from pipedec_cli.jobs import ray as jobs_ray
from pipedec_cli.jobs.ray import ShardWorker
from tests import running
from tests.jobs.generate.running import ROWS, done, lines, written
from tests.running import read_json, run, write_lines

JOB = ("generate", "corpus", "--out", "made", "--ray", "--batch-size", "2")
COPIES = 50


@pytest.fixture
def corpus(place: Path) -> Path:
    rows = [
        {**row, "id": f"{n}-{row['id']}"} for n in range(COPIES // 10) for row in ROWS
    ]
    write_lines("corpus/a.jsonl", *rows[:25], {"id": "no source"})
    write_lines("corpus/b.jsonl", *rows[25:])
    return Path("corpus")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The shards that a worker in this process is given instead of Ray's."""
    given: list[str] = []

    @contextmanager
    def ray(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(cluster_resources=lambda: {"CPU": 2.0})

    def run_here(
        _: Any, settings: Any, job: Any, todo: list[Shard], *counts: int
    ) -> Iterator[bytes]:
        worker = ShardWorker(
            pickle.loads(pickle.dumps(settings)), str(Path.cwd()), job, "run"
        )
        for shard in todo:
            given.append(str(shard))
            yield worker({"number": [shard.number], "of": [shard.of]})["outcome"][0]

    monkeypatch.setattr(jobs_ray, "_ray", ray)
    monkeypatch.setattr(jobs_ray, "_run", run_here)
    monkeypatch.setattr(jobs_ray, "FEWEST_RECORDS", 12)
    return given


def test_all_shards_are_made_told_and_merged_and_whole_ones_left_alone(corpus, here):
    short = ("--max-source-tokens", "12")
    alone = json.loads(
        done(
            "corpus", "--skip-invalid", "--out", "whole.jsonl", *short, "--json"
        ).stdout
    )
    whole = lines(Path("whole.jsonl"))
    outcome = run(*JOB, *short, "--json")
    result = json.loads(outcome.stdout)
    assert {"rows": 60, "shards": 5, "invalid": 1}.items() <= result.items()
    made, one_run = result["counts"], alone["counts"]
    assert made | {"seconds": 0} == one_run | {"seconds": 0}
    assert made["sources_cut"]["count"], "of all shards together"
    assert "of 60 sources were longer than 12 tokens and cut: id 0-" in outcome.stderr
    assert (
        "1 invalid record skipped, listed in made/part-*.invalid.jsonl"
        in outcome.stderr
    )
    assert read_json("made/manifest.json")["shards"] == 5
    assert sorted(path.name for path in Path("made").glob(".*")) == []
    Path("made/part-3-of-5.jsonl").unlink()
    here.clear()
    assert "4 shards of 5 in made whole already" in run(*JOB, *short).stderr
    assert here == ["3/5"]
    run("shard", "merge", "made")
    assert lines(Path("made/predictions.jsonl")) == whole


def test_a_shard_that_fails_is_told_and_the_others_are_made(corpus, here):
    run("generate", "corpus", "--out", "made", "--part", "2/5")
    Path("made/part-2-of-5.manifest.json").write_text("{}")
    running.refused(*JOB)
    for path in Path("made").glob("part*"):
        path.unlink()
    here.clear()
    Path("made/.part-3-of-5.tries").write_text("run 0 3")
    running.refused(*JOB)
    assert here == [f"{k}/5" for k in range(1, 6)]
    Path("made/.part-3-of-5.tries").write_text("another 0 3")
    assert run(*JOB)


def test_a_worker_that_sees_other_data_refuses(corpus, here, monkeypatch):
    inputs = jobs_ray.read_inputs

    def changed(settings: Any, **more: Any) -> Any:
        if more:  # a worker's
            write_lines("corpus/c.jsonl", {"source": "new"})
        return inputs(settings, **more)

    monkeypatch.setattr(jobs_ray, "read_inputs", changed)
    running.refused(*JOB)


def test_without_ray_one_line_says_what_to_install(corpus, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    running.refused(*JOB)


def test_a_single_part_and_standard_input_do_not_go_with_ray(corpus):
    running.refused(*JOB, "--part", "1/2")
    running.refused("generate", "-", "--out", "made", "--ray")


def test_an_address_where_nothing_answers_is_one_line_before_ray_tries_for_minutes(
    corpus, monkeypatch
):
    started = []
    ray = SimpleNamespace(
        init=lambda *_, **__: started.append(1), shutdown=lambda: None
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.data", SimpleNamespace())
    for port in ("1", "99999"):
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
        told = running.refused(*JOB)
        assert told.startswith(f"no Ray cluster at 127.0.0.1:{port}: ")
    assert not started


def test_another_job_is_refused_before_ray_is_started(corpus, here, monkeypatch):
    run(*JOB)
    monkeypatch.setattr(jobs_ray, "_ray", lambda *_: pytest.fail("Ray was started"))
    running.refused(*JOB, "--delay", "3")


def test_what_rays_libraries_write_as_they_start_is_not_shown_and_stderr_is_back(
    monkeypatch, capfd
):
    def init(*_: Any, **__: Any) -> None:
        os.write(2, b"logging.cc:303: Set ray log level")

    monkeypatch.setitem(
        sys.modules, "ray", SimpleNamespace(init=init, shutdown=lambda: None)
    )
    monkeypatch.setitem(sys.modules, "ray.data", SimpleNamespace())
    with jobs_ray._ray():
        os.write(2, b"after")
    assert capfd.readouterr().err == "after"


# ---- a real cluster
# ------------------------------------------------------------------------------------------------


def begun() -> tuple[subprocess.Popen[str], Path]:
    """The job once a part has lines and is being written, and that part."""
    environment = {**os.environ, "RAY_worker_niceness": "0"}
    command = [sys.executable, "-m", "pipedec_cli", *JOB, "--batch-size", "1"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, **pipes, text=True, env=environment)
    while True:
        for path in Path("made").glob("part-*.jsonl"):
            if path.stat().st_size and locked(path).exists():
                return process, path
        if process.poll() is not None:
            pytest.fail(f"the job ended first: {process.communicate()[1]}")
        time.sleep(0.01)


def locked(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


@pytest.mark.slow
@pytest.mark.extra("ray")
def test_a_killed_worker_and_a_killed_job_end_with_every_record_once_and_the_single_runs_texts(
    place,
):
    rows = [{**row, "id": f"{n}-{row['id']}"} for n in range(COPIES) for row in ROWS]
    write_lines("corpus/a.jsonl", *rows)
    whole = written("whole.jsonl", "corpus")
    process, part = begun()
    os.kill(int(locked(part).read_text().split()[1]), signal.SIGKILL)
    printed, told = process.communicate()
    assert (process.returncode, printed) == (0, ""), told
    run("shard", "merge", "made")
    assert lines(Path("made/predictions.jsonl")) == whole
    assert "warning" not in told
    assert "\nRay: (raylet) " in told

    Path("made").rename("first")
    process, _ = begun()
    process.kill()
    process.communicate()
    assert (
        "missing" in (told := running.refused("shard", "merge", "made"))
        or "no end" in told
    )
    environment = {**os.environ, "RAY_worker_niceness": "0"}
    command = [sys.executable, "-m", "pipedec_cli", *JOB]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    run("shard", "merge", "made")
    assert lines(Path("made/predictions.jsonl")) == whole
