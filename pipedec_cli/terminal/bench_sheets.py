"""A bench as tables of words. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from pipedec_cli.evaluate.bench import Bench
from pipedec_cli.evaluate.competitor import Competitor
from pipedec_cli.terminal.console import many
from pipedec_cli.terminal.report_sheets import settings_sheet
from pipedec_cli.terminal.tables import (
    NONE,
    Label,
    Row,
    Section,
    Sheet,
    columns_side_by_side,
    figure,
    megabytes,
    milliseconds,
    times,
)


def bench_sheets(bench: Bench) -> list[Sheet]:
    """Every table of a bench, in order."""
    made = [forced(bench), ratios(bench), *([steps(bench)] if bench.steps else [])]
    notes = (
        f"one process, the decoders in turn; one pass to warm up, medians of {many(bench.repeats, 'repeat')}",
        *bench.absences,
        *filter(None, [bench.disturbed]),
    )
    return [*made, settings_sheet("What was measured", bench, f"{bench.model};", notes)]


def forced(bench: Bench) -> Sheet:
    """Times of each decoder, by batch size."""
    weighed = any(one.memory for one in bench.entries)

    def column(one: Competitor) -> Iterator[tuple[Label, str]]:
        for size in bench.batch_sizes:
            heading, timing = f"batch size {size}", one.timings.get(size)
            shown = {
                "end to end, ms": timing and milliseconds(timing.seconds),
                "  encoder": timing and milliseconds(timing.encoder_seconds),
                "  keys and values of the source": timing and milliseconds(timing.setup_seconds),
                "  decoding": timing and milliseconds(timing.decoding_seconds),
                "decoder calls": timing and f"{timing.decoder_calls:,}",
                "decoding, ms a call": timing and milliseconds(timing.seconds_per_call),
                "tokens a step": timing and figure(timing.tokens_per_step),
                "examples/s": timing and figure(timing.examples_per_second),
            }
            yield from (((heading, name), cell or NONE) for name, cell in shown.items())
        if weighed:
            yield ("memory", "peak, MB"), megabytes(one.memory.peak_bytes if one.memory else None)

    return Sheet(
        f"Forced lengths: {bench.lengths.line}",
        tuple(one.name for one in bench.entries),
        columns_side_by_side(list(map(column, bench.entries))),
        kept=1,
        notes=(
            "times are those of all examples in flight together, in milliseconds, medians of the repeats",
            "the lengths are forced: every step is computed in earnest, and the texts mean nothing",
        ),
    )


def ratios(bench: Bench) -> Sheet:
    """How many times as fast each of ours is, end to end and in decoding alone, and where that comes from."""
    groups: dict[str, list[Row]] = {}
    for one, over, size, gain in bench.ratios:
        spread = f"{gain.low:.1f} to {gain.high:.1f}"
        parts = map(times, (gain.decoding, gain.fewer_calls, gain.faster_calls))
        cells = (f"over {over.name}", times(gain.speedup), spread, *parts)
        groups.setdefault(f"{one.name}, batch size {size}", []).append(cells)
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
