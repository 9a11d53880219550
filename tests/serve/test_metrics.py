"""What `/metrics` of `pipedec serve` tells Prometheus, read as Prometheus reads it."""

import json
import re

import pytest

from tests.serve.test_serve import SOURCES, models, serving, until  # noqa: F401

parser = pytest.importorskip("prometheus_client.parser")
pytestmark = pytest.mark.extra("uvicorn")


def families_of(served):
    """The families of metrics by name, and the samples of all by name and labels."""
    status, head, answer = served.raw("GET", "/metrics")
    assert status == 200 and "text/plain; version=0.0.4" in head
    families = {
        family.name: family
        for family in parser.text_string_to_metric_families(answer.decode())
    }
    samples = {}
    for family in families.values():
        for sample in family.samples:
            samples[sample.name, *sample.labels.values()] = sample.value
    return families, samples


def test_metrics_count_requests_by_status_seconds_by_route_and_tokens(models):  # noqa: F811
    with serving(models / "pipelined") as made:
        usages = [
            made.client.completions.create(model="pipelined", prompt=source).usage
            for source in SOURCES[:3]
        ]
        made.raw("GET", "/v1/models/other")
        for number in range(3):
            made.raw("GET", f"/made/up/{number}")
        body = {
            "model": "pipelined",
            "messages": [{"role": "user", "content": "a"}],
            "stream": True,
        }
        made.raw("POST", "/v1/chat/completions", json.dumps(body).encode())
        until(lambda: len(made.log) == 8)
        families, samples = families_of(made)
    assert all(
        family.documentation and family.type != "unknown"
        for family in families.values()
    )
    assert all(re.fullmatch("pipedec_[a-z_]+", name) for name in families)
    assert (
        samples["pipedec_requests_total", "200"]
        == samples["pipedec_requests_total", "404"]
        == 4
    )
    seconds = "pipedec_request_seconds"
    routes = {
        name[1]: count
        for name, count in samples.items()
        if name[0] == f"{seconds}_count"
    }
    assert routes == {
        "/v1/completions": 3,
        "/v1/models": 1,
        "/v1/chat/completions": 1,
        "other": 3,
    }
    assert 0 < samples[f"{seconds}_sum", "/v1/completions"] < 60
    assert {"_bucket", "_count", "_sum"} == {
        sample.name[len(seconds) :] for sample in families[seconds].samples
    }
    read, written = (
        sum(getattr(usage, name) for usage in usages)
        for name in ("prompt_tokens", "completion_tokens")
    )
    assert samples["pipedec_prompt_tokens_total",] > read > 0
    assert (
        samples["pipedec_tokens_total",]
        == samples["pipedec_answer_tokens_sum",]
        > written
        > 0
    )
    assert samples["pipedec_answer_tokens_count",] == 4
    assert (
        families["pipedec_running"].type == families["pipedec_waiting"].type == "gauge"
    )
