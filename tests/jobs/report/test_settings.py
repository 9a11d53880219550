"""What `pipedec report` takes and what it refuses before all."""

import shutil

import pytest

from pipedec_cli.jobs.report_settings import ReportSettings
from pipedec_cli.jobs.settings import settings_of
from tests.jobs.report.running import QUICK, remove, trained_with
from tests.running import refused, run


@pytest.mark.parametrize(
    ("gone", "options", "words"),
    [
        ("models/pipelined", "", ("models/pipelined", "pipedec train")),
        ("data", "", ("data", "pipedec segment")),
        (
            "models/pipelined/config.json",
            "",
            ("models/pipelined", "pipedec train --resume"),
        ),
        (
            "models/sequential",
            "--compare transformers",
            ("sequential model", "train --decoder sequential"),
        ),
        (
            "models/sequential",
            "--compare exact-source",
            ("exact-source would run the", "--baseline"),
        ),
        (
            "",
            "--model pipedec-workspace/models/sequential",
            ("sequential model", "--baseline"),
        ),
        (
            "",
            "--baseline pipedec-workspace/models/pipelined",
            ("pipelined decoder", "--decoder sequential"),
        ),
        ("", "--compare sequential,vllm", ("'vllm'", "ctranslate2")),
    ],
)
def test_what_is_missing_or_misplaced_is_refused_before_all(
    workspace, gone, options, words
):
    if gone:
        remove(workspace / gone)
    said = refused("report", *options.split(), *QUICK)
    assert all(word in said for word in words), said
    assert not (workspace / "generations").exists()


@pytest.mark.parametrize(
    ("command", "peer", "package"),
    [
        ("report", "ctranslate2:int8", "'.[peers]'"),
        ("bench", "llama.cpp", "llama-cpp-python"),
    ],
)
def test_a_peer_that_is_not_installed_is_refused_before_any_model_is_loaded(
    workspace, command, peer, package, monkeypatch
):
    monkeypatch.setattr("pipedec_cli.compare.peers.find_spec", lambda name: None)
    monkeypatch.setattr("pipedec_cli.model.checkpoint.load_checkpoint", None)
    said = refused(command, "--compare", f"sequential,{peer}")
    assert f"{peer} is not installed; `pip install {package}` brings it" in said
    assert not (workspace / "generations").exists()


@pytest.mark.parametrize("name", ["report.md", "report.html", "report.json"])
def test_a_users_own_file_is_not_written_over(workspace, tmp_path, name):
    own = tmp_path / name
    own.write_text("{}")
    assert str(own) in refused("report", "--out", str(tmp_path))
    assert own.read_text() == "{}"


def test_delay_that_was_not_trained_is_refused_and_needs_a_plain_t5(workspace):
    trained_with(workspace / "models/pipelined", delay=1)
    assert "trained for delay 1 only" in refused("report", "--delays", "1,3", *QUICK)
    assert not (workspace / "generations").exists()
    shutil.rmtree(workspace / "models/sequential")
    said = refused("report", *QUICK)
    assert (
        "nothing to compare with" in said
        and "pipedec train --decoder sequential" in said
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(
            (f"--split {word}", "is not train, dev or test")
            for word in ("dev,tset", ",")
        ),
        *((f"--delays {word}", "whole number") for word in ("0", "1,,2", "a")),
        ("--batch-sizes 1,x", "whole number"),
    ],
)
def test_values_that_are_none_are_a_usage_error(options, said):
    assert said in run("report", *options.split(), exit_code=2).output


@pytest.mark.parametrize(
    ("written", "delays"), [(2, (2,)), ("2,1,wait", (1, 2, "wait")), ([2, 1], (1, 2))]
)
def test_delays_may_be_typed_or_stand_in_a_config_file(written, delays):
    (setting,) = (one for one in settings_of(ReportSettings) if one.name == "delays")
    assert setting.parse(written) == delays
