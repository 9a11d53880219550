"""What the dtype of a report changes in its models, as a part of the report."""

import json

from tests.jobs.report.running import report_of, reported
from tests.running import run


def test_another_dtype_is_compared_with_float32_on_the_targets_of_the_report(workspace):
    result = reported("--delays", "1", "--dtype", "bfloat16", "--set", "fidelity_tokens=99")
    tables = {table["model"].rpartition("/")[2]: table for table in report_of(workspace)[0]["fidelity"]}
    assert list(tables) == ["sequential", "pipelined"]
    options = ("--dtypes", "bfloat16", "--json", "--set", "fidelity_tokens=99")
    for name, table in tables.items():
        texts = ("--model", workspace / "models" / name, "--fidelity", workspace / "data/test.jsonl")
        alone = json.loads(run("bench", *texts, *options).stdout)
        assert {key: alone[key] for key in table} == table
        assert (table["places"], table["dtypes"][1]["dtype"]) == (99, "bfloat16")
    markdown, page = ((workspace / f"report/report.{kind}").read_text("utf-8") for kind in ("md", "html"))
    for shown in (result.stdout, markdown, page):
        assert "Fidelity of pipedec-workspace/models/sequential: 99 tokens" in " ".join(shown.split())
        assert "perplexity" in shown


def test_float32_and_no_tokens_leave_it_out(workspace):
    reported("--delays", "1")
    assert report_of(workspace)[0]["fidelity"] == []
    reported("--delays", "1", "--dtype", "bfloat16", "--set", "fidelity_tokens=0")
    assert report_of(workspace)[0]["fidelity"] == []
