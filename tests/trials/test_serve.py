"""The trial of `pipedec serve` in small: whatever others do, every answer is right, and the server ends well."""

import socket
import subprocess
import sys

import pytest

from tests.checkpoints import TOLD, tiny_checkpoint
from tests.jobs.test_fields import SCHEMA
from tests.model.chats import foreign
from tests.running import write_lines
from tests.trials.serve import Server

pytest.importorskip("uvicorn")
pytestmark = pytest.mark.extra("uvicorn")


@pytest.mark.slow
def test_no_answer_is_wrong_and_no_place_is_lost(tmp_path):
    write_lines(tmp_path / "docs.jsonl", *({"source": source} for source, _ in TOLD))
    model = ("--model", str(tiny_checkpoint(tmp_path / "model")), "--device", "cpu")
    trial = (
        sys.executable,
        "-m",
        "tests.trials.serve",
        "--data",
        str(tmp_path / "docs.jsonl"),
        *model,
    )
    short = ("--cases", "40", "--seconds", "1", "--clients", "1,4")
    done = subprocess.run(
        [*trial, *short], capture_output=True, text=True, timeout=900, check=True
    )
    assert "WRONG" not in done.stdout and "Traceback" not in done.stderr
    assert (
        done.stdout.count("places left (0, 0)") == 4
        and done.stdout.count("exit code 0") == 2
    )


def test_each_line_of_the_log_is_json_whatever_comes_over_the_wire(tmp_path, capsys):
    server = Server(
        ["--model", str(tiny_checkpoint(tmp_path / "model")), "--device", "cpu"],
        {},
        None,
    )
    with socket.create_connection(("127.0.0.1", server.port)) as made:
        made.sendall(b"no request\r\n\r\n")
        assert made.recv(99).startswith(b"HTTP/1.1 400")
    with server.process:
        server.process.terminate()
        server.reader.join()
    (warning,) = (line for line in server.log if line["event"] == "warning")
    assert warning["text"] == "Invalid HTTP request received."
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_answers_of_all_routes_are_those_of_generate(tmp_path):
    write_lines(tmp_path / "docs.jsonl", *({"source": source} for source, _ in TOLD))
    write_lines(tmp_path / "schema.json", SCHEMA)
    model = ("--model", str(foreign(tmp_path / "model")), "--device", "cpu")
    trial = ("-m", "tests.trials.serve", "--data", str(tmp_path / "docs.jsonl"))
    schema = ("--schema", str(tmp_path / "schema.json"), "--cache-mb", "1")
    done = subprocess.run(
        [sys.executable, *trial, *schema, "--routes", "60", "--", *model],
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )
    assert "WRONG" not in done.stdout and "'right'" in done.stdout
    assert "places left (0, 0)" in done.stdout and "exit code 0" in done.stdout
