"""What exact mode would take on a bench's lengths: its acceptance from a report, its calls timed in the bench."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from pipedec_cli.data.checking import checked
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import read_json
from pipedec_cli.data.records import Count

if TYPE_CHECKING:
    from pipedec_cli.evaluate.bench import StepSpeed
    from pipedec_cli.evaluate.competitor import Competitor

_MADE_BY: Final = "pipedec report --compare exact"
_MOST_ROWS: Final = 64  # a call that checks more is none of ours


class _Speed(Struct):
    batch_size: Count
    examples: Count
    tokens: Count
    decoder_calls: Count
    draft_calls: Count = 0
    rows_per_call: float | None = None


class _Compared(Struct):
    name: str
    role: str
    delay: Count | None = None
    speed: tuple[_Speed, ...] = ()


class _Reported(Struct):
    """What is looked at of a report.json."""

    decoders: tuple[_Compared, ...]


class Acceptance(NamedTuple):
    """Tokens that a checking call gives, <eos> and the free one counted, and its rows, one example at a time.

    The drafter has a delay, if there is one. The rows of transformers' prompt lookup are not known.
    """

    name: str
    delay: int | None
    tokens_per_check: float
    rows: float | None


class Projected(NamedTuple):
    """A decoder on forced lengths, in seconds a text, and how many times as fast as each that was timed, by name."""

    name: str
    dtype: str
    tokens_per_check: float
    rows: float | None
    checks: float
    check_seconds: float
    draft_seconds: float
    seconds: float
    speedups: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Projection:
    """What was projected, and from which report."""

    report: str
    decoders: tuple[Projected, ...]

    @property
    def line(self) -> str:
        """The statement that a projection must carry."""
        own = "no text was checked here: tokens and rows a check are those of the report's texts and models, one example "
        return f"projected, not measured, from {self.report}; {own}at a time"

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "report": self.report,
            "line": self.line,
            "decoders": [decoder._asdict() for decoder in self.decoders],
        }


def read_acceptance(path: Path) -> list[Acceptance]:
    """That of each exact mode, and of prompt lookup, from a report.json; a UserError if it has no exact mode."""
    found = []
    for one in checked(read_json(path, _Reported, _MADE_BY), _Reported, str(path)).decoders:
        speed = next((each for each in one.speed if each.batch_size == 1), None)
        looks_up, exact = one.name == "prompt-lookup", one.role == "exact"
        if speed is None or not (exact or looks_up):
            continue
        checks, made = speed.decoder_calls - speed.draft_calls, speed.tokens + speed.examples
        rows = speed.rows_per_call
        if checks < 1 or not made or (exact and not 1 <= (rows or 0) <= _MOST_ROWS):
            what = f"the calls of {one.name} do not fit: {checks} to check, {made} tokens, {rows} rows a call"
            raise UserError(what, where=str(path), todo=f"run `{_MADE_BY}` again")
        found.append(
            Acceptance(one.name, one.delay if exact else None, made / checks, rows if exact else None)
        )
    if not any(one.rows for one in found):
        what = "holds no exact mode that was timed one example at a time"
        raise UserError(what, where=str(path), todo=f"make it with `{_MADE_BY} --batch-sizes 1`")
    return found


def rows_of(found: Sequence[Acceptance]) -> set[int]:
    """The rows to time: one, and whole numbers around those that a check has; none if there is nothing to project."""
    edges = {edge(one.rows) for one in found if one.rows is not None for edge in (math.floor, math.ceil)}
    return {1, *edges} if found else set()


def project(
    found: Sequence[Acceptance], entries: Sequence[Competitor], steps: Sequence[StepSpeed], tokens: int
) -> Iterator[Projected]:
    """Seconds for a text of so many tokens and <eos>: encoder and source keys as timed, all checks, and the draft.

    A check is a call of our sequential decoder, as it was timed, times what a step of more rows takes over one of a single
    row: steps are timed together, the whole decoders at another time. `entries` were timed at batch size 1, `steps` at
    `rows_of` what was found. Prompt lookup takes transformers' calls of one row, which is the least that it can take.
    """
    timed = {one.name: one.timings[1].seconds for one in entries if 1 in one.timings}
    for one in entries:
        timing, dtype = one.timings[1], one.runner.settings["dtype"]
        mine = {each.rows: each.seconds for each in steps if each.dtype == dtype}
        for accepted in found if one.role == "baseline" or one.name == "transformers" else ():
            if (accepted.rows is None) != (one.role == "peer"):
                continue
            drafters = (e for e in entries if e.delay is not None and e.delay == accepted.delay)
            drafting = sum(e.timings[1].seconds for e in drafters if e.runner.settings["dtype"] == dtype)
            check, checks = timing.seconds_per_call or 0.0, (tokens + 1) / accepted.tokens_per_check
            if accepted.rows is not None:
                low, part = math.floor(accepted.rows), accepted.rows % 1
                check *= max(1.0, (mine[low] * (1 - part) + mine[math.ceil(accepted.rows)] * part) / mine[1])
            before = timing.seconds - (timing.decoding_seconds or 0.0)
            seconds = before + checks * check + drafting
            ratios = {name: other / seconds for name, other in timed.items()}
            yield Projected(accepted.name, dtype, *accepted[2:], checks, check, drafting, seconds, ratios)
