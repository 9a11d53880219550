"""The trial of `pipedec serve` in small: whatever others do, every answer is right, and the server ends well."""

import subprocess
import sys

import pytest

from tests.checkpoints import TOLD, tiny_checkpoint
from tests.running import write_lines

pytest.importorskip("uvicorn")


@pytest.mark.slow
def test_no_answer_is_wrong_and_no_place_is_lost(tmp_path):
    write_lines(tmp_path / "docs.jsonl", *({"source": source} for source, _ in TOLD))
    model = ("--model", str(tiny_checkpoint(tmp_path / "model")), "--device", "cpu")
    trial = (sys.executable, "-m", "tests.trials.serve", "--data", str(tmp_path / "docs.jsonl"), *model)
    short = ("--cases", "40", "--seconds", "1", "--clients", "1,4")
    done = subprocess.run([*trial, *short], capture_output=True, text=True, timeout=900, check=True)
    assert "WRONG" not in done.stdout and "Traceback" not in done.stderr
    assert done.stdout.count("places left (0, 0)") == 4 and done.stdout.count("exit code 0") == 2
