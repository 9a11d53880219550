"""What an engine decodes, and what the oracle says to the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pipedec_cli.model.steps.engine import Engine
from pipedec_cli.pipeline.decode import Finished, Method, decode
from pipedec_cli.pipeline.grid import Explore, Limits
from pipedec_cli.pipeline.schedule import Drawn, Fixed, Schedule, Waiting, Whole
from tests.model.families import SOURCES, Kind, small_model
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
