"""Memory of each decoder, in a process of its own."""

import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from pipedec_cli.evaluate.child import ChildError, Memory
from pipedec_cli.jobs import measuring
from tests.jobs.report.running import report_of, reported


def test_memory_is_measured_for_each_decoder_and_a_failure_is_no_end(workspace, monkeypatch):
    asked = []

    @contextmanager
    def weighing(factory, payload):
        json.dumps(payload)  # what cannot be sent to a child process fails here

        def peak(sources, batch_size):
            asked.append((len(sources), batch_size))
            if payload["choice"].get("delay") == 1:
                raise ChildError("killed")
            return Memory(1_000_000, 3_000_000, "c")

        yield SimpleNamespace(peak=peak)

    monkeypatch.setattr(measuring, "Child", weighing)
    result = reported("--delays", "1,2", "--set", "memory=true")
    _, decoders = report_of(workspace)
    assert asked == [(3, 1)] * 3
    assert decoders["Δt = 2"]["memory"]["peak_bytes"] == 3_000_000
    assert decoders["Δt = 1"]["memory"] is None
    assert "the memory of Δt = 1 could not be measured: killed" in result.stderr


@pytest.mark.slow
def test_memory_is_that_of_a_process_of_its_own(workspace):
    pytest.importorskip("ctranslate2")
    reported("--delays", "1", "--compare", "transformers,ctranslate2", "--set", "memory=true")
    memory = {name: entry["memory"] for name, entry in report_of(workspace)[1].items()}
    assert all(found["peak_bytes"] >= found["ready_bytes"] > 0 for found in memory.values())
    assert memory["ctranslate2"]["ready_bytes"] < memory["sequential"]["ready_bytes"] / 2  # no torch in there
