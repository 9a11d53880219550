"""A bench as tables of words. Nothing is computed here."""

from __future__ import annotations

from statistics import median

from pipedec_cli.evaluate.bench import Bench
from pipedec_cli.terminal.console import many
from pipedec_cli.terminal.report_sheets import Rows, settings_sheet
from pipedec_cli.terminal.tables import Row, Section, Sheet, figure, megabytes, milliseconds, times


def bench_sheets(bench: Bench) -> list[Sheet]:
    """Every table of a bench, in order."""
    made = [forced(bench), ratios(bench), *([steps(bench)] if bench.steps else [])]
    notes = (
        f"{bench.model}; on {bench.device}; {bench.machine.line}",
        bench.versions_line,
        f"one process, the decoders in turn; one pass to warm up, medians of {many(bench.repeats, 'repeat')}",
        *bench.absences,
        *filter(None, [bench.disturbed]),
    )
    return [*made, settings_sheet("What was measured", bench, notes)]


def forced(bench: Bench) -> Sheet:
    """Times of each decoder, by batch size."""
    rows = Rows(bench.entries, {})
    sections = [
        Section(
            f"batch size {size}",
            (
                rows.timed("end to end, ms", size, lambda t: milliseconds(t.seconds)),
                rows.timed("  encoder", size, lambda t: milliseconds(t.encoder_seconds)),
                rows.timed("  keys and values of the source", size, lambda t: milliseconds(t.setup_seconds)),
                rows.timed("  decoding", size, lambda t: milliseconds(t.decoding_seconds)),
                rows.timed("decoder calls", size, lambda t: f"{t.decoder_calls:,}"),
                rows.timed("decoding, ms a call", size, lambda t: milliseconds(t.seconds_per_call)),
                rows.timed("tokens a step", size, lambda t: figure(t.tokens_per_step)),
                rows.timed("examples/s", size, lambda t: figure(t.examples_per_second)),
            ),
        )
        for size in bench.batch_sizes
    ]
    if any(one.memory for one in bench.entries):
        peak = rows.row("peak, MB", lambda one: megabytes(one.memory.peak_bytes if one.memory else None))
        sections.append(Section("memory", (peak,)))
    return Sheet(
        f"Forced lengths: {bench.lengths.line}",
        tuple(one.name for one in bench.entries),
        tuple(sections),
        kept=1,
        notes=(
            "times are those of all examples in flight together, in milliseconds, medians of the repeats",
            "the lengths are forced: every step is computed in earnest, and the texts mean nothing",
        ),
    )


def ratios(bench: Bench) -> Sheet:
    """How many times as fast each of ours is, end to end and in decoding alone, and where that comes from."""
    groups: dict[str, list[Row]] = {}
    for name, over, size, gain in bench.ratios:
        spread = f"{gain.low:.1f} to {gain.high:.1f}"
        parts = map(times, (gain.decoding, gain.fewer_calls, gain.faster_calls))
        cells = (f"over {over}", times(gain.speedup), spread, *parts)
        groups.setdefault(f"{name}, batch size {size}", []).append(cells)
    return Sheet(
        "Times as fast",
        ("end to end", "by repeats", "decoding", "fewer calls", "faster calls"),
        tuple(Section(heading, tuple(rows)) for heading, rows in groups.items()),
        notes=(
            "decoding = fewer calls (the schedule) × faster calls (kernels, and what more rows a call cost)",
        ),
    )


def steps(bench: Bench) -> Sheet:
    """One step by rows, beside what reading the weights alone takes."""
    groups: dict[str, list[Row]] = {}
    for step in bench.steps:
        seconds = map(milliseconds, (step.seconds, step.limit_seconds))
        cells = (f"{step.rows}", *seconds, f"{step.fraction:.2f}", f"{step.bytes / 1e6:,.0f}")
        groups.setdefault(step.dtype, []).append(cells)
    low, middle, high = (f"{choose(bench.bandwidth) / 1e9:.1f}" for choose in (min, median, max))
    return Sheet(
        "One decoder step, by rows",
        ("step, ms", "limit, ms", "limit ÷ step", "MB read"),
        tuple(Section(dtype, tuple(rows)) for dtype, rows in groups.items()),
        notes=(
            "limit: reading every matrix of the decoder and one example's keys and values once, at the speed that the "
            "probe read memory beside each repeat; many rows are bound by arithmetic instead, and what fits into the "
            "processor's caches can be read faster than that",
            f"the probe ({bench.reader}) read {low} to {high} GB/s, median {middle}",
        ),
        corner="rows",
    )
