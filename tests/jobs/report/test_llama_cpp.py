"""llama.cpp in a report."""

from tests.jobs.report.running import QUICK
from tests.running import refused


def test_llama_cpp_is_refused_where_no_gguf_file_is_named(workspace, monkeypatch):
    monkeypatch.setattr("pipedec_cli.jobs.measuring.require_peer", lambda *_: None)
    monkeypatch.setattr("pipedec_cli.model.checkpoint.load_checkpoint", None)
    refused("report", "--compare", "llama.cpp", *QUICK)
