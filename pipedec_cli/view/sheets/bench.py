"""A bench as tables of words. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pipedec_cli.data.wording import many
from pipedec_cli.view import tables
from pipedec_cli.view.tables import Label, Row, Section, Sheet, milliseconds, times, told, under

if TYPE_CHECKING:
    from pipedec_cli.evaluate.comparison import Comparison, Entry

# Labels, and what of a `Timing` stands behind them.
_RATES: Final = {"tokens a step": "tokens_per_step", "examples/s": "examples_per_second"}


def bench_sheets(bench: Comparison) -> list[Sheet]:
    """Every table of a bench, in order."""
    made = [_forced(bench), _ratios(bench), *([_steps(bench)] if bench.steps else [])]
    passes = f"one pass to warm up, medians of {many(bench.sample.repeats, 'repeat')}"
    how = f"one process, the decoders in turn; {passes}"
    notes = (how, *bench.conditions.absences, *filter(None, [bench.conditions.disturbed]))
    return [*made, tables.settings_sheet("What was measured", bench, f"{bench.model};", notes)]


def _forced(bench: Comparison) -> Sheet:
    """Times of each decoder, by batch size."""
    assert bench.lengths is not None
    seconds = {"end to end, ms": "seconds"}
    seconds |= {f"  {label}": name for label, name in tables.parts(bench).items()}

    def column(one: Entry) -> Iterator[tuple[Label, str]]:
        yield from under("", tables.computed(one, bench))
        for size in bench.batch_sizes:
            timing = one.timings.get(size)
            cells = told(timing, milliseconds, seconds)
            cells.append(("decoder calls", f"{timing.decoder_calls:,}" if timing else tables.NONE))
            cells += told(timing, milliseconds, {"decoding, ms a call": "seconds_per_call"})
            yield from under(f"batch size {size}", [*cells, *told(timing, tables.figure, _RATES)])
        if any(each.memory for each in bench.entries):
            yield from under("memory", told(one.memory, tables.megabytes, {"peak, MB": "peak_bytes"}))

    return Sheet(
        f"Forced lengths: {bench.lengths.line}",
        tuple(one.name for one in bench.entries),
        tables.columns_side_by_side(list(map(column, bench.entries))),
        notes=(
            "times are those of all examples in flight together, in milliseconds, medians of the repeats",
            "the lengths are forced: every step is computed in earnest, and the texts mean nothing",
        ),
    )


def _ratios(bench: Comparison) -> Sheet:
    """How many times as fast each of ours is, end to end and in decoding alone, and where that comes from."""
    groups: dict[str, list[Row]] = {}
    for one, over, size, gain in bench.ratios:
        spread = f"{gain.low:.1f} to {gain.high:.1f}"
        parts = map(times, (gain.decoding, gain.fewer_calls, gain.faster_calls))
        sure = gain.low > 1 or gain.high < 1
        cells = (f"over {over.name}", times(gain.speedup) + ("" if sure else " ?"), spread, *parts)
        groups.setdefault(f"{one.name}, batch size {size}", []).append(cells)
    causes = "fewer calls (the schedule) × faster calls (kernels, and what more rows a call cost)"
    return Sheet(
        "Times as fast",
        ("end to end", "by repeats", "decoding", "fewer calls", "faster calls"),
        tuple(Section(heading, tuple(rows)) for heading, rows in groups.items()),
        notes=(f"decoding = {causes}", "?: faster in some repeats, slower in others: not to be relied on"),
    )


def _steps(bench: Comparison) -> Sheet:
    """One step by rows, beside what reading the weights alone takes."""
    groups: dict[str, list[Row]] = {}
    for step in bench.steps:
        seconds = map(milliseconds, (step.seconds, step.limit_seconds))
        cells = (f"{step.rows}", *seconds, f"{step.fraction:.2f}", f"{step.bytes / 1e6:,.0f}")
        groups.setdefault(step.dtype, []).append(cells)
    assert bench.bandwidth is not None
    speeds = bench.bandwidth.bytes_per_second
    low, middle, high = (f"{speed / 1e9:.1f}" for speed in (min(speeds), bench.bandwidth.median, max(speeds)))
    return Sheet(
        "One decoder step, by rows",
        ("step, ms", "limit, ms", "limit ÷ step", "MB read"),
        tuple(Section(dtype, tuple(rows)) for dtype, rows in groups.items()),
        notes=(
            "limit: reading every matrix of the decoder and one example's keys and values once, at the speed that the "
            "probe read memory beside each repeat; many rows are bound by arithmetic instead, and what fits into the "
            "processor's caches can be read faster than that",
            f"the probe ({bench.bandwidth.reader}) read {low} to {high} GB/s, median {middle}",
        ),
        corner="rows",
    )
