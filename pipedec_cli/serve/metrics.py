"""What `/metrics` tells Prometheus: requests and their seconds, tokens, and what the service holds now."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pipedec_cli.serve.service import Service

#: The bounds of the histograms: seconds up to the longest of a request, and tokens.
_SECONDS: Final = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    120,
    300,
)
_TOKENS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


class Metrics:
    """The metrics of a service since it began."""

    def __init__(self, service: Service) -> None:
        disable_created_metrics()  # a time beside each count, of no use here
        self._registry = made = CollectorRegistry()
        made.register(_Held(service))
        self._requests = Counter(
            "pipedec_requests",
            "Requests by the status of their answer; 0: the client left.",
            ["status"],
            registry=made,
        )
        self._seconds = Histogram(
            "pipedec_request_seconds",
            "Seconds from a request to the end of its answer.",
            ["route"],
            buckets=_SECONDS,
            registry=made,
        )
        self._read = Counter(
            "pipedec_prompt_tokens", "Tokens that were read.", registry=made
        )
        self._tokens = Counter(
            "pipedec_tokens", "Tokens that were generated.", registry=made
        )
        self._steps = Counter(
            "pipedec_steps", "Decoder calls, counted for each answer.", registry=made
        )
        self._lengths = Histogram(
            "pipedec_answer_tokens",
            "Generated tokens of an answer.",
            buckets=_TOKENS,
            registry=made,
        )

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request at its end."""
        self._requests.labels(str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_answer(self, read: int, tokens: int, steps: int) -> None:
        """Count an answer: the tokens that were read and generated, and its decoder calls."""
        self._read.inc(read)
        self._tokens.inc(tokens)
        self._steps.inc(steps)
        self._lengths.observe(tokens)

    @property
    def written(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return bytes(generate_latest(self._registry))


class _Held:
    """What a service holds now, and has counted itself."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now, as a registry asks for them."""
        service = self.service
        kept = service.kept
        yield GaugeMetricFamily(
            "pipedec_running", "Requests that are decoded.", len(service.running)
        )
        yield GaugeMetricFamily(
            "pipedec_waiting", "Requests that wait for a place.", len(service.waiting)
        )
        yield GaugeMetricFamily(
            "pipedec_cache_bytes", "Bytes of the texts that are kept.", kept.bytes
        )
        yield CounterMetricFamily(
            "pipedec_cached_tokens", "Tokens of prompts that were kept.", kept.hits
        )
        yield CounterMetricFamily(
            "pipedec_cache_evictions", "Kept texts that were dropped.", kept.evictions
        )
