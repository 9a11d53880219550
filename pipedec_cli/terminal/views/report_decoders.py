"""The main table of a report: every decoder a column, and the paper's figures beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pipedec_cli.data.paper import NOT_AVAILABLE, DecoderFigures
from pipedec_cli.evaluate.advice import Rates
from pipedec_cli.evaluate.comparison import Entry, Report
from pipedec_cli.evaluate.gain import Gain
from pipedec_cli.evaluate.memory import Memory
from pipedec_cli.evaluate.significance import Difference
from pipedec_cli.evaluate.timing import Timing
from pipedec_cli.terminal.views.report_sheet import (
    NONE,
    Section,
    Sheet,
    figure,
    interval,
    label,
    megabytes,
    milliseconds,
    points,
    rate,
    signed,
    times,
)

Row = tuple[str, ...]
#: Δt of the paper's main tables.
PAPER_DELAY: Final = 1


def side_by_side(report: Report) -> Sheet:
    """Quality, speed, where the speed comes from, memory, and what goes wrong."""
    papers = _published(report)
    columns = _Columns(report, tuple(papers.values()))
    size = report.batch_sizes[0]
    sections = [
        Section(f"quality, {columns.examples:,} examples", tuple(columns.quality())),
        Section("decoder steps, the same examples", tuple(columns.work())),
    ]
    sections += [
        Section(f"speed, batch size {size}", tuple(columns.speed(size))) for size in report.batch_sizes
    ]
    sections += [
        Section(f"decoder calls, batch size {size}", tuple(columns.origins(size))),
        Section(f"memory, batch size {size}", tuple(columns.memory())),
        Section("what goes wrong", tuple(columns.failures())),
    ]
    return Sheet(
        "Decoders side by side",
        (*(entry.name for entry in report.entries), *papers),
        tuple(sections),
        kept=1,
        notes=_notes(report),
    )


@dataclass(frozen=True, slots=True)
class _Published:
    """A decoder of the paper, and its speedup."""

    figures: DecoderFigures
    speedup: float


class _Columns:
    """The rows of the table: a cell for each decoder, and one for each of the paper's."""

    def __init__(self, report: Report, papers: Sequence[_Published]) -> None:
        self.report = report
        self.entries = report.entries
        self.papers = papers
        totals = report.first.totals
        self.examples = totals.examples if totals else 0
        self._agreed = any(entry.agreement for entry in self.entries)

    def quality(self) -> list[Row]:
        scored = self.report.first.scored
        rows: list[Row] = []
        for metric in scored.scores.measure.headline if scored else ():
            rows.append(self._row(label(metric), _score(metric), _published_score(metric)))
            rows.append(self._row("  over the baseline", _difference(metric, signed)))
            rows.append(self._row("  95 % interval", _difference(metric, interval)))
        return rows

    def work(self) -> list[Row]:
        """Decoder steps and what they give, over all examples."""

        def counted(name: str) -> Callable[[Entry], str]:
            return lambda entry: f"{getattr(entry.totals, name):.1f}" if entry.totals else NONE

        return [
            self._row("steps an example", counted("steps_per_example")),
            self._row("tokens an example", counted("tokens_per_example")),
            self._row("tokens a step", counted("tokens_per_step")),
        ]

    def speed(self, size: int) -> list[Row]:
        def timed(show: Callable[[Timing], str]) -> Callable[[Entry], str]:
            return lambda entry: show(entry.timings[size]) if size in entry.timings else NONE

        alone = size == 1  # the paper measured one example at a time
        return [
            self._row(
                "examples/s",
                timed(lambda timing: figure(timing.throughput)),
                (lambda paper: f"{paper.figures.throughput:.1f}") if alone else None,
            ),
            self._row(
                "speedup",
                lambda entry: _speedup(entry, size),
                (lambda paper: times(paper.speedup)) if alone else None,
            ),
            self._row("  its range", lambda entry: _range(entry, size)),
            self._row("encoder, ms", timed(lambda t: milliseconds(t.encoder_seconds, t.examples))),
            self._row("source keys, ms", timed(lambda t: milliseconds(t.setup_seconds, t.examples))),
            self._row("decoding, ms", timed(lambda t: milliseconds(t.decoding_seconds, t.examples))),
            *([self._row("same tokens", _agreement)] if alone and self._agreed else []),
        ]

    def origins(self, size: int) -> list[Row]:
        """Decoder calls saved, by the schedule, and time per call, by the kernels: two gains that multiply."""

        def gained(show: Callable[[Gain], str]) -> Callable[[Entry], str]:
            return lambda entry: show(entry.gains[size]) if size in entry.gains else ""

        def calls(entry: Entry) -> str:
            timing = entry.timings.get(size)
            return NONE if timing is None else f"{timing.calls / timing.examples:.1f}"

        def call(entry: Entry) -> str:
            return milliseconds(entry.timings[size].seconds_per_call) if size in entry.timings else NONE

        return [
            self._row("calls an example", calls),
            self._row("ms a call", call),
            self._row("fewer calls (schedule)", gained(lambda gain: times(gain.fewer_calls))),
            self._row("cheaper calls (kernels)", gained(lambda gain: times(gain.faster_calls))),
            self._row("decoding, both together", gained(lambda gain: times(gain.decoding))),
        ]

    def memory(self) -> list[Row]:
        def measured(show: Callable[[Memory], int]) -> Callable[[Entry], str]:
            return lambda entry: megabytes(show(entry.memory) if entry.memory else None)

        return [
            self._row(
                "peak, MB",
                measured(lambda memory: memory.peak_bytes),
                _published_memory,
            ),
            self._row("  of it before decoding", measured(lambda memory: memory.ready_bytes)),
        ]

    def failures(self) -> list[Row]:
        def counted(show: Callable[[Rates], float | None]) -> Callable[[Entry], str]:
            return lambda entry: NONE if entry.role == "peer" else rate(show(entry.rates))

        return [
            self._row("duplicated subsequences", counted(lambda rates: rates.duplicated)),
            self._row("dropped subsequences", counted(lambda rates: rates.dropped)),
            self._row("truncated predictions", counted(lambda rates: rates.truncated)),
            self._row("sub_max used up", counted(lambda rates: rates.used_up)),
        ]

    def _row(
        self,
        name: str,
        show: Callable[[Entry], str],
        published: Callable[[_Published], str] | None = None,
    ) -> Row:
        theirs = ["" if published is None else published(paper) for paper in self.papers]
        return (name, *map(show, self.entries), *theirs)


def _notes(report: Report) -> tuple[str, ...]:
    notes = [
        f"baseline: {report.baseline}",
        "times are those of an example; a call is one of the decoder, which serves a whole batch",
        "sub_max used up: examples in which failed explorations took up places of later subsequences",
    ]
    if any(entry.agreement for entry in report.entries):
        notes.append(f"same tokens: timed examples with the very tokens of {report.first.name}")
    if report.first.scored:
        notes.append(f"signature: {report.first.scored.scores.measure.signature}")
    notes += [f"intervals: {report.significance}", f"speed: {report.sample.line}"]
    if report.paper:
        row = report.paper.row
        notes.append(
            f"paper: {row.table}, {row.backbone}, Δt = {PAPER_DELAY}, one example at a time on one RTX 4090, trained on its own data"
        )
    return (*notes, *(f"{peer.name} is absent: {peer.why}" for peer in report.absent))


def _published(report: Report) -> dict[str, _Published]:
    """The paper's decoders by the heading of their columns; {} where the data set is none of its."""
    if report.paper is None:
        return {}
    row = report.paper.row
    return {
        "paper: sequential": _Published(row.sequential, 1.0),
        f"paper: Δt = {PAPER_DELAY}": _Published(row.pipelined, row.speedup),
    }


def _published_score(metric: str) -> Callable[[_Published], str]:
    return lambda paper: points(paper.figures.quality.get(metric))


def _published_memory(paper: _Published) -> str:
    memory = paper.figures.memory_mb
    return NOT_AVAILABLE if memory is None else f"{memory:,}"


def _score(metric: str) -> Callable[[Entry], str]:
    return lambda entry: points(entry.scored.scores.values[metric]) if entry.scored else NONE


def _difference(metric: str, show: Callable[[Difference | None], str]) -> Callable[[Entry], str]:
    return lambda entry: show(entry.differences.get(metric))


def _agreement(entry: Entry) -> str:
    return f"{entry.agreement.equal} of {entry.agreement.of}" if entry.agreement else ""


def _speedup(entry: Entry, size: int) -> str:
    if entry.role == "baseline":
        return times(1.0)
    return times(entry.gains[size].speedup) if size in entry.gains else NONE


def _range(entry: Entry, size: int) -> str:
    """Of the speedup, from repeat to repeat."""
    gain = entry.gains.get(size)
    return "" if gain is None else f"{gain.low:.1f} to {gain.high:.1f}"
