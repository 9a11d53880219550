"""A bench as sheets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pipedec_cli.data.wording import many
from pipedec_cli.view.formats import count, figure, interval, megabytes, milliseconds, times
from pipedec_cli.view.sheet import Label, Line, Sheet, cells, grouped, side_by_side, with_section
from pipedec_cli.view.sheets.shared import precision_cells, settings_sheet, time_parts

if TYPE_CHECKING:
    from pipedec_cli.evaluate.comparison import Bench
    from pipedec_cli.evaluate.entry import Entry

# Row names, attributes and formats of `Timing` and `Memory`.
_TIMING: Final[list[Line]] = [
    ("decoder calls", "decoder_calls", count),
    ("decoding, ms per call", "seconds_per_call", milliseconds),
    ("tokens per step", "tokens_per_step", figure),
    ("examples/s", "examples_per_second", figure),
]
_MEMORY: Final[list[Line]] = [("peak, MB", "peak_bytes", megabytes)]


def bench_sheets(bench: Bench) -> list[Sheet]:
    """Every table of a bench, in order."""
    passes = f"one pass to warm up, medians of {many(bench.sample.repeats, 'repeat')}"
    how = f"one process, the decoders in turn; {passes}"
    notes = (how, *bench.conditions.absences, *filter(None, [bench.conditions.disturbed]))
    measured = settings_sheet("What was measured", bench, f"{bench.model};", notes)
    return [_decoders(bench), _ratios(bench), measured]


def _decoders(bench: Bench) -> Sheet:
    """Times of each decoder, by batch size."""
    return Sheet(
        f"Forced lengths: {bench.lengths.line}",
        tuple(entry.name for entry in bench.entries),
        side_by_side([_column(entry, bench) for entry in bench.entries]),
        notes=(
            "times are in milliseconds for all examples in flight together, medians of the repeats",
            "the lengths are forced: the model computes every step, but the texts mean nothing",
        ),
    )


def _column(entry: Entry, bench: Bench) -> Iterator[tuple[Label, str]]:
    yield from with_section("", precision_cells(entry, bench))
    parts = [(f"  {name}", attribute, milliseconds) for name, attribute in time_parts(bench).items()]
    lines: list[Line] = [("end to end, ms", "seconds", milliseconds), *parts, *_TIMING]
    for size in bench.batch_sizes:
        yield from with_section(f"batch size {size}", cells(entry.timings.get(size), lines))
    if any(each.memory for each in bench.entries):
        yield from with_section("memory", cells(entry.memory, _MEMORY))


def _ratios(bench: Bench) -> Sheet:
    """How many times as fast each of our decoders is, and the causes."""
    rows = []
    for entry, other, size, gain in bench.ratios:
        unsure = gain.low <= 1 <= gain.high
        parts = map(times, (gain.decoding, gain.fewer_calls, gain.faster_calls))
        row = (f"over {other.name}", times(gain.speedup) + (" ?" if unsure else ""), interval(gain), *parts)
        rows.append((f"{entry.name}, batch size {size}", row))
    return Sheet(
        "Times as fast",
        ("end to end", "by repeats", "decoding", "fewer calls", "faster calls"),
        grouped(rows),
        notes=(
            "decoding = fewer calls (the schedule) × faster calls (the kernels, and the cost of more rows in a call)",
            "?: faster in some repeats and slower in others, so do not rely on it",
        ),
    )
