"""A bench as tables of words. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, Final

from pipedec_cli.data.wording import many
from pipedec_cli.view import tables
from pipedec_cli.view.tables import Label, Row, Section, Sheet, milliseconds, times, told, under

if TYPE_CHECKING:
    from pipedec_cli.evaluate.bench import Bench
    from pipedec_cli.evaluate.competitor import Competitor
    from pipedec_cli.evaluate.projection import Projection

# Labels, and what of a `Timing` stands behind them.
_RATES: Final = {"tokens a step": "tokens_per_step", "examples/s": "examples_per_second"}


def bench_sheets(bench: Bench) -> list[Sheet]:
    """Every table of a bench, in order."""
    made = [_forced(bench), _ratios(bench), *([_steps(bench)] if bench.steps else [])]
    made += [_projected(bench.projection)] if bench.projection else []
    passes = f"one pass to warm up, medians of {many(bench.repeats, 'repeat')}"
    how = f"one process, the decoders in turn; {passes}"
    notes = (how, *bench.absences, *filter(None, [bench.disturbed]))
    return [*made, tables.settings_sheet("What was measured", bench, f"{bench.model};", notes)]


def _forced(bench: Bench) -> Sheet:
    """Times of each decoder, by batch size."""
    seconds = {"end to end, ms": "seconds"}
    seconds |= {f"  {label}": name for label, name in tables.parts(bench).items()}

    def column(one: Competitor) -> Iterator[tuple[Label, str]]:
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


def _ratios(bench: Bench) -> Sheet:
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


def _projected(projection: Projection) -> Sheet:
    """Exact mode by what its calls would take."""
    groups: dict[str, list[Row]] = {}
    for one in projection.decoders:
        figures = [f"{one.tokens_per_check:.1f}", tables.points(one.rows), f"{one.checks:.0f}"]
        seconds = map(milliseconds, (one.check_seconds, one.draft_seconds, one.seconds))
        groups.setdefault(one.dtype, []).append(
            (one.name, *figures, *seconds, *map(times, one.speedups.values()))
        )
    best = "prompt-lookup: transformers' calls at the cost of one row each, so at best"
    others = (f"over {name}" for name in projection.decoders[0].speedups)
    return Sheet(
        "Exact mode, projected (not measured)",
        ("tokens a check", "rows", "checks", "check, ms", "draft, ms", "end to end, ms", *others),
        tuple(Section(dtype, tuple(rows)) for dtype, rows in groups.items()),
        notes=(
            projection.line,
            "end to end = the plain model's reading of the source + all checks + all that the drafter takes, as timed here; "
            "tokenizing the draft is left out",
            "check = a call of the sequential decoder × a step of so many rows ÷ a step of one row",
            *([best] if any(one.rows is None for one in projection.decoders) else []),
        ),
    )


def _steps(bench: Bench) -> Sheet:
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
