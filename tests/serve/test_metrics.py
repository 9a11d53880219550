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


@pytest.fixture(scope="module")
def asked(models):  # noqa: F811
    """What three texts took, and the metrics after some more requests."""
    body = {
        "model": "pipelined",
        "messages": [{"role": "user", "content": "a"}],
        "stream": True,
    }
    with serving(models / "pipelined") as made:
        create = made.client.completions.create
        usages = [create(model="pipelined", prompt=one).usage for one in SOURCES[:3]]
        made.raw("GET", "/v1/models/other")
        for number in range(3):
            made.raw("GET", f"/made/up/{number}")
        made.raw("POST", "/v1/chat/completions", json.dumps(body).encode())
        until(lambda: len(made.log) == 8)
        return usages, *families_of(made)


def test_every_metric_has_a_name_of_ours_a_type_and_a_word(asked):
    _, families, _ = asked
    for name, family in families.items():
        assert re.fullmatch("pipedec_[a-z_]+", name)
        assert family.documentation and family.type != "unknown"
    assert families["pipedec_running"].type == "gauge"
    assert families["pipedec_waiting"].type == "gauge"


def test_requests_are_counted_by_status_and_their_seconds_by_route(asked):
    _, families, samples = asked
    for status in ("200", "404"):
        assert samples["pipedec_requests_total", status] == 4
    seconds = "pipedec_request_seconds"
    counts = {
        "/v1/completions": 3,
        "/v1/models": 1,
        "/v1/chat/completions": 1,
        "other": 3,
    }
    for route, count in counts.items():
        assert samples[f"{seconds}_count", route] == count
    assert sum(name[0] == f"{seconds}_count" for name in samples) == len(counts)
    assert 0 < samples[f"{seconds}_sum", "/v1/completions"] < 60
    ends = {sample.name[len(seconds) :] for sample in families[seconds].samples}
    assert ends == {"_bucket", "_count", "_sum"}


def test_tokens_are_counted(asked):
    usages, _, samples = asked
    read = sum(usage.prompt_tokens for usage in usages)
    written = sum(usage.completion_tokens for usage in usages)
    assert samples["pipedec_prompt_tokens_total",] > read > 0
    assert samples["pipedec_tokens_total",] > written > 0
    assert samples["pipedec_answer_tokens_sum",] == samples["pipedec_tokens_total",]
    assert samples["pipedec_answer_tokens_count",] == 4
