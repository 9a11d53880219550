"""What `pipedec report` takes and what it refuses before all."""

import shutil

import pytest

from pipedec_cli.jobs.report_settings import ReportSettings
from pipedec_cli.jobs.settings import settings_of
from tests.jobs.report.running import QUICK, remove, trained_with
from tests.running import refused


@pytest.mark.parametrize(
    ("gone", "options"),
    [
        ("models/pipelined", ""),
        ("data", ""),
        ("models/pipelined/config.json", ""),
        ("models/sequential", "--compare transformers"),
        ("models/sequential", "--compare exact-source"),
        ("", "--model pipedec-workspace/models/sequential"),
        ("", "--baseline pipedec-workspace/models/pipelined"),
        ("", "--compare sequential,vllm"),
    ],
)
def test_what_is_missing_or_misplaced_is_refused_before_all(workspace, gone, options):
    if gone:
        remove(workspace / gone)
    refused("report", *options.split(), *QUICK)
    assert not (workspace / "generations").exists()


@pytest.mark.parametrize("name", ["report.md", "report.html", "report.json"])
def test_a_users_own_file_is_not_written_over(workspace, tmp_path, name):
    own = tmp_path / name
    own.write_text("{}")
    refused("report", "--out", str(tmp_path))
    assert own.read_text() == "{}"


def test_delay_that_was_not_trained_is_refused_and_needs_a_plain_t5(workspace):
    trained_with(workspace / "models/pipelined", delay=1)
    refused("report", "--delays", "1,3", *QUICK)
    assert not (workspace / "generations").exists()
    shutil.rmtree(workspace / "models/sequential")
    refused("report", *QUICK)


@pytest.mark.parametrize(
    ("written", "delays"), [(2, (2,)), ("2,1,wait", (1, 2, "wait")), ([2, 1], (1, 2))]
)
def test_delays_may_be_typed_or_stand_in_a_config_file(written, delays):
    (setting,) = (one for one in settings_of(ReportSettings) if one.name == "delays")
    assert setting.parse(written) == delays
