"""How many threads compute and how they wait, as OpenMP is told before torch loads it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipedec_cli import threads
from tests.running import write_lines

#: In place of torch: says what it would find.
TORCH = """
import os, sys
print("torch finds", os.environ["GOMP_SPINCOUNT"], os.environ["OMP_NUM_THREADS"], file=sys.stderr)
sys.exit(9)
"""


def told(monkeypatch, wanted=None, quota=None, busy=0.0, **environment):
    """What the environment says of threads once they are settled: 4 cores, 8 logical processors, so many percent busy."""
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(threads, "processor_quota", lambda: quota)
    monkeypatch.setattr(threads, "processors", lambda: 8)
    monkeypatch.setattr("psutil.cpu_count", lambda logical=True: 8 if logical else 4)
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: busy)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    threads.settle_threads(wanted)
    return environment


MODEL = "pipedec-workspace/models/pipelined"
SPARE, CROWDED = threads.IDLE, threads.BUSY


@pytest.mark.parametrize(
    ("busy", "quota", "expected"),
    [
        (0.0, None, SPARE),
        (50.0, None, SPARE),
        (60.0, None, CROWDED),
        (0.0, 8.0, SPARE),
        (0.0, 2.5, CROWDED),
    ],
)
def test_threads_wait_asleep_sooner_where_cores_are_short(
    monkeypatch, busy, quota, expected
):
    found = told(monkeypatch, busy=busy, quota=quota)
    assert found.items() >= expected.items()
    assert min(map(int, expected.values())) >= 0


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", *threads.IDLE])
def test_how_threads_wait_is_left_to_a_user_who_has_said_it(monkeypatch, name):
    assert told(monkeypatch, busy=100.0, **{name: "7"}) == {name: "7"}


@pytest.mark.parametrize(
    ("quota", "count"),
    [
        (0.5, "1"),
        (1.5, "2"),
        (2.0, "2"),
        (3.9, "4"),
        (None, None),
        (4.0, None),
        (9.0, None),
    ],
)
def test_a_quota_bounds_the_threads_which_else_are_left_to_torch(
    monkeypatch, quota, count
):
    found = told(monkeypatch, quota=quota)
    assert [found.get(name) for name in threads.COUNTS] == [count, count]


def test_a_number_that_is_asked_for_goes_before_the_environment_and_that_before_the_quota(
    monkeypatch,
):
    found = told(monkeypatch, quota=1.0, OMP_NUM_THREADS="3")
    assert found == {**CROWDED, "OMP_NUM_THREADS": "3"}
    found = told(monkeypatch, wanted=6, quota=1.0, OMP_NUM_THREADS="3")
    assert [found[name] for name in threads.COUNTS] == ["6", "6"]


@pytest.mark.parametrize(
    ("command", "loaded"),
    [
        ("generate", MODEL),
        ("report", MODEL),
        ("train", "scratch-tiny"),
        ("bench", "scratch-base"),
    ],
)
def test_what_is_loaded_is_said_and_threads_are_settled_before_torch(
    tmp_path, monkeypatch, command, loaded
):
    place = tmp_path / "pipedec-workspace"
    for split in ("train", "test"):
        write_lines(
            place / "data" / f"{split}.jsonl",
            {"id": 1, "source": "a", "target_segments": ["a b"]},
        )
    segmentation = {"level": "phrase", "separators": [";"], "joiner": "; "}
    write_lines(place / "data" / "segmentation.json", segmentation)
    if loaded == MODEL:
        write_lines(tmp_path / MODEL / "config.json", {})
    (tmp_path / "torch.py").write_text(TORCH)
    for name in threads.IDLE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(
        "PYTHONPATH", f"{tmp_path}{os.pathsep}{Path(threads.__file__).parents[1]}"
    )
    program = [sys.executable, "-m", "pipedec_cli", command, "--set", "threads=3"]
    ran = subprocess.run(
        program, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    said, found = ran.stderr.splitlines()
    assert said == f"loading {loaded} …"
    assert found in [
        f"torch finds {choice['GOMP_SPINCOUNT']} 3" for choice in (SPARE, CROWDED)
    ]
    assert ran.returncode == 9


@pytest.mark.parametrize(
    ("group", "files", "quota"),
    [
        (
            "0::/",
            {"cpu.max": "150000 100000\n"},
            1.5,
        ),  # version 2, as a container sees it
        ("0::/", {"cpu.max": "max 100000\n"}, None),
        (
            "0::/a/b",
            {
                "cpu.max": "max 100000",
                "a/cpu.max": "400000 100000",
                "a/b/cpu.max": "max 1",
            },
            4.0,
        ),
        (
            "0::/a/b",
            {"a/cpu.max": "400000 100000", "a/b/cpu.max": "800000 100000"},
            4.0,
        ),
        ("0::/not/here", {"cpu.max": "50000 100000"}, 0.5),
        ("0::/", {}, None),  # the system's own group
        (
            "5:memory:/m\n4:cpuacct,cpu:/host/c\n0::/",  # version 1, in a container: its path is the host's
            {
                "cpu/cpu.cfs_quota_us": "250000\n",
                "cpu/cpu.cfs_period_us": "100000\n",
                "m/cpu.max": "1 1",
            },
            2.5,
        ),
        (
            "4:cpu:/c\n0::/",
            {"cpu/c/cpu.cfs_quota_us": "-1\n", "cpu/c/cpu.cfs_period_us": "100000\n"},
            None,
        ),
        (
            "4:cpu:/c\n0::/",
            {"cpu/c/cpu.cfs_quota_us": "?", "cpu/c/cpu.cfs_period_us": "0"},
            None,
        ),
    ],
)
def test_a_quota_is_the_tightest_of_the_control_groups(tmp_path, group, files, quota):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(group + "\n")
    for name, content in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert threads.processor_quota(tmp_path) == quota
    assert threads.processor_quota(tmp_path / "sys") is None, (
        "there are no control groups"
    )
