"""How a bench looks: the decoders side by side, the ratios between them, and steps beside their limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from rich.console import Console

from pipedec_cli.evaluate.bench import Bench, BenchEntry, Ratio
from pipedec_cli.evaluate.timing import Timing
from pipedec_cli.terminal.console import many
from pipedec_cli.terminal.views.report import show_sheet
from pipedec_cli.terminal.views.report_sheet import (
    NONE,
    Section,
    Sheet,
    figure,
    megabytes,
    milliseconds,
    times,
)


def show(console: Console, bench: Bench) -> None:
    """Print every table."""
    for sheet in sheets(bench):
        show_sheet(console, sheet)


def sheets(bench: Bench) -> list[Sheet]:
    """Every table of a bench, in order."""
    made = [side_by_side(bench), ratios(bench)]
    if bench.steps:
        made.append(steps(bench))
    made.append(what_was_measured(bench))
    return made


def side_by_side(bench: Bench) -> Sheet:
    """Times of each decoder, by batch size."""
    sections = [_section(bench, size) for size in bench.batch_sizes]
    if any(entry.memory for entry in bench.entries):
        peaks = [megabytes(entry.memory.peak_bytes if entry.memory else None) for entry in bench.entries]
        sections.append(Section("memory", (("peak, MB", *peaks),)))
    return Sheet(
        f"Forced lengths: {bench.lengths.line}",
        tuple(entry.name for entry in bench.entries),
        tuple(sections),
        kept=1,
        notes=(
            "times are those of all examples in flight together, in milliseconds, medians of the repeats",
            "the lengths are forced: every step is computed in earnest, and the texts mean nothing",
        ),
    )


def _section(bench: Bench, size: int) -> Section:
    def row(name: str, show: Callable[[Timing], str]) -> tuple[str, ...]:
        cells = [show(entry.timings[size]) if size in entry.timings else NONE for entry in bench.entries]
        return (name, *cells)

    return Section(
        f"batch size {size}",
        (
            row("end to end, ms", lambda timing: milliseconds(timing.seconds)),
            row("  encoder", lambda timing: milliseconds(timing.encoder_seconds)),
            row("  keys and values of the source", lambda timing: milliseconds(timing.setup_seconds)),
            row("  decoding", lambda timing: milliseconds(timing.decoding_seconds)),
            row("decoder calls", lambda timing: f"{timing.calls:,}"),
            row("decoding, ms a call", lambda timing: milliseconds(timing.seconds_per_call)),
            row("tokens a step", lambda timing: figure(timing.tokens_per_step)),
            row("examples/s", lambda timing: figure(timing.throughput)),
        ),
    )


def ratios(bench: Bench) -> Sheet:
    """How many times as fast each of ours is, end to end and in decoding alone, and where that comes from."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    for ratio in bench.ratios:
        groups.setdefault(f"{ratio.name}, batch size {ratio.batch_size}", []).append(_ratio(ratio))
    return Sheet(
        "Times as fast",
        ("end to end", "by repeats", "decoding", "fewer calls", "faster calls"),
        tuple(Section(heading, tuple(rows)) for heading, rows in groups.items()),
        notes=(
            "decoding = fewer calls (the schedule) × faster calls (kernels, and what more rows a call cost)",
        ),
    )


def _ratio(ratio: Ratio) -> tuple[str, ...]:
    gain = ratio.gain
    return (
        f"over {ratio.over}",
        times(gain.speedup),
        f"{gain.low:.1f} to {gain.high:.1f}",
        times(gain.decoding),
        times(gain.fewer_calls),
        times(gain.faster_calls),
    )


def steps(bench: Bench) -> Sheet:
    """One step by rows, beside what reading the weights alone takes."""
    sections = []
    for dtype in dict.fromkeys(step.dtype for step in bench.steps):
        rows = [
            (
                f"{step.rows}",
                milliseconds(step.seconds),
                milliseconds(step.limit_seconds),
                f"{step.fraction:.2f}",
                f"{step.bytes / 1e6:,.0f}",
            )
            for step in bench.steps
            if step.dtype == dtype
        ]
        sections.append(Section(dtype, tuple(rows)))
    return Sheet(
        "One decoder step, by rows",
        ("step, ms", "limit, ms", "limit ÷ step", "MB read"),
        tuple(sections),
        notes=(
            "limit: reading every matrix of the decoder and one example's keys and values once, at the speed that the "
            "probe read memory beside each repeat; many rows are bound by arithmetic instead, and what fits into the "
            "processor's caches can be read faster than that",
            _bandwidth(bench.bandwidth, bench.reader),
        ),
        corner="rows",
    )


def _bandwidth(readings: Sequence[float], reader: str) -> str:
    return (
        f"the probe ({reader}) read {min(readings) / 1e9:.1f} to {max(readings) / 1e9:.1f} GB/s, "
        f"median {median(readings) / 1e9:.1f}"
    )


def what_was_measured(bench: Bench) -> Sheet:
    """Settings of each decoder, the machine, and the versions of everything."""
    versions = ", ".join(f"{name} {version or 'not installed'}" for name, version in bench.versions.items())
    notes = [
        f"{bench.model}; on {bench.device}; {bench.machine.line}",
        versions,
        f"one process, the decoders in turn; one pass to warm up, medians of {many(bench.repeats, 'repeat')}",
        *(f"{peer.name} is absent: {peer.why}" for peer in bench.absent),
    ]
    if bench.disturbed:
        notes.append(bench.disturbed)
    return Sheet(
        "What was measured",
        ("settings",),
        (Section("", tuple((entry.name, _settings(entry)) for entry in bench.entries)),),
        notes=tuple(notes),
    )


def _settings(entry: BenchEntry) -> str:
    return ", ".join(f"{name} {value}" for name, value in entry.settings.items())
