"""CTranslate2 in a report."""

import pytest

from tests.jobs.report.running import report_of, reported


@pytest.mark.slow
@pytest.mark.extra("ctranslate2")
def test_memory_is_that_of_a_process_of_its_own(workspace):
    reported(
        "--delays", "1", "--compare", "transformers,ctranslate2", "--set", "memory=true"
    )
    memory = {name: entry["memory"] for name, entry in report_of(workspace)[1].items()}
    assert all(
        found["peak_bytes"] >= found["ready_bytes"] > 0 for found in memory.values()
    )
    assert (
        memory["ctranslate2"]["ready_bytes"] < memory["sequential"]["ready_bytes"] / 2
    )  # no torch in there
