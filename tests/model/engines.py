"""What an engine decodes, and what the oracle says to the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

import pytest
import torch

from pipedec_cli.model.backbone import can_prepack
from pipedec_cli.model.native.library import BuildError, library
from pipedec_cli.model.steps.engine import DecoderWeights, Engine, lay_out
from pipedec_cli.model.steps.operators import Matrices, TorchStepper
from pipedec_cli.pipeline.decode import Finished, Method, decode
from pipedec_cli.pipeline.grid import Explore, Limits
from pipedec_cli.pipeline.schedule import Drawn, Fixed, Schedule, Waiting, Whole
from tests.model.families import BOS, EOS, SOURCES, Kind, small_model
from tests.oracle import OracleResult, next_logits_of
from tests.pipeline import driving

#: Two best logits closer than this are a near-tie: float32 rounding may turn them round.
TIE: Final = 1e-4
FIXED: Final = Limits(time_max=12, sub_max=5)
SCHEDULES: Final[dict[str, tuple[Schedule, Limits]]] = {
    "1": (Fixed(1), FIXED),
    "2": (Fixed(2), FIXED),
    "3": (Fixed(3), FIXED),
    "wait": (Waiting(), Limits(time_max=None, sub_max=5, max_tokens=20)),
    "whole": (Whole(), Limits(time_max=None, sub_max=None, max_tokens=12)),
    "drawn": (Drawn((1, 4, float("inf"), 2)), FIXED),
}


try:
    library()
    missing = ""
except BuildError as error:
    missing = str(error)
needs_kernels = pytest.mark.skipif(bool(missing), reason=missing or "the kernels are there")
needs_packing = pytest.mark.skipif(not can_prepack(torch.float32), reason="no oneDNN kernels here")

#: What takes the steps; ``fixed`` is torch's operators in the shapes of a GPU's graphs.
Stepping = Literal["plain", "packed", "fixed", "native"]
STEPPINGS: Final = [
    "plain",
    pytest.param("packed", marks=needs_packing),
    "fixed",
    pytest.param("native", marks=needs_kernels),
]


@dataclass(frozen=True)
class Outcome:
    """What came of an example, in the words of both sides."""

    rows: list[tuple[int, list[int]]]
    steps: int
    truncated: str | None


@cache
def expected_of(kind: Kind, schedule: str, explore: Explore, source: int) -> OracleResult:
    """The oracle's answer, kept for the tests that ask again."""
    return ask_oracle(small_model(kind), SOURCES[source], *SCHEDULES[schedule], explore)


def ask_oracle(
    model: Any, source: Sequence[int], schedule: Schedule, limits: Limits, explore: Explore
) -> OracleResult:
    return driving.ask_oracle(next_logits_of(model, source), schedule, limits, explore)


@cache
def weights_of(kind: Kind, stepping: Stepping) -> DecoderWeights:
    if stepping == "native":
        return lay_out(small_model(kind), native=True)
    return lay_out(small_model(kind), prepack=stepping == "packed")


def make_engine(kind: Kind, stepping: Stepping, sequences: int) -> Engine:
    engine = Engine(small_model(kind), sequences, weights=weights_of(kind, stepping))
    if stepping == "fixed":
        assert isinstance(engine.weights.stepping, Matrices)
        engine.stepper = TorchStepper(engine.weights.stepping, sequences, fixed=True)
    return engine


def method_of(schedule: str, explore: Explore = "retry") -> Method:
    return Method(SCHEDULES[schedule][0], BOS, EOS, SCHEDULES[schedule][1], explore)


def run_engine(engine: Engine, sources: Sequence[Sequence[int]], method: Method) -> list[Outcome]:
    """All sources through an engine, with all of its sequences in use."""
    found: dict[int, Outcome] = {}
    for event in decode(engine, enumerate(sources), method, engine.sequences):
        if isinstance(event, Finished):
            rows = [(row.start, row.tokens) for row in event.subsequences]
            found[event.example] = Outcome(rows, event.steps, event.truncated)
    return [found[number] for number in range(len(sources))]


def outcome_of(result: OracleResult) -> Outcome:
    return Outcome(result.rows, result.steps, result.truncated)


def expected_outcomes(
    kind: Kind, schedule: str, explore: Explore = "retry", count: int | None = None
) -> list[Outcome]:
    """The oracle's outcomes of the sources, none of which has a near-tie."""
    results = [expected_of(kind, schedule, explore, number) for number in range(count or len(SOURCES))]
    assert min(result.gap for result in results) >= TIE
    return [outcome_of(result) for result in results]
