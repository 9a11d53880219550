"""What `pipedec segment` shows: a bar for what takes long, the paper's Table 1 for the data, the grid's promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipedec_cli.data.preparation import Counts
from pipedec_cli.data.records import SplitName
from pipedec_cli.data.statistics import TargetStatistics
from pipedec_cli.evaluate.promise import Promise


def render_summary(
    statistics: Mapping[SplitName, TargetStatistics], promises: Sequence[Promise], unit: str
) -> RenderableType:
    """Table 1 for each split and the promise, side by side where there is room, and how n is spread in train."""
    targets = promises[0].targets if promises else 0
    return Group(
        Columns(
            [
                Group(
                    Text("Targets, as in the paper's Table 1", style="bold"), _statistics_table(statistics)
                ),
                Group(
                    Text(f"Decoder steps that the grid promises, in {unit}", style="bold"),
                    _promise_table(promises),
                ),
            ],
            padding=(0, 3),
        ),
        Text(
            f"train, by subsequences a target: {describe_histogram(statistics['train'])}\n"
            f"The promise is counted on {targets:,} targets of train: what both decoders would need to write just them.",
            style="dim",
        ),
    )


def describe_histogram(statistics: TargetStatistics) -> str:
    """The share of targets by number of subsequences, in groups that are not empty."""
    parts = []
    for low, high in ((0, 0), (1, 2), (3, 5), (6, 10), (11, 10**9)):
        count = sum(n for length, n in statistics.histogram.items() if low <= length <= high)
        if count:
            name = str(low) if low == high else f"{low} or more" if high == 10**9 else f"{low} to {high}"
            parts.append(f"{name}: {count / statistics.examples:.0%}")
    return ", ".join(parts) or "none"


def describe_counts(counts: Counts, *, sub_max: int) -> list[str]:
    """What was done to the targets, a line for each thing that happened at all."""
    lines = [
        (counts.given, f"{counts.given:,} targets came segmented and were kept as they are"),
        (
            counts.merged,
            f"{counts.merged:,} targets had too many segments: neighbours were merged to {sub_max - 1}",
        ),
        (counts.split, f"{counts.split:,} splits were made in segments that were too long"),
        (counts.dropped, f"{counts.dropped:,} empty segments between separators were left out"),
        (counts.empty, f"{counts.empty:,} targets are empty"),
    ]
    return [line for count, line in lines if count]


def describe_too_long(counts: Counts, *, unit: str, time_max: int) -> str | None:
    """A warning of subsequences that decoding would cut; None if there are none."""
    if not counts.too_long:
        return None
    return (
        f"{counts.too_long:,} subsequences in {counts.too_long_targets:,} of {counts.targets:,} targets do not fit into "
        f"{time_max} time-steps at Δt = 1 (the longest has {counts.longest:,} {unit}) and would be cut: "
        "--split-long splits them, or decode with a larger --time-max"
    )


def _statistics_table(statistics: Mapping[SplitName, TargetStatistics]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("split")
    for name in ("examples", "words /\ntarget", "subsequences /\ntarget", "words /\nsubsequence"):
        table.add_column(name, justify="right")
    for split, row in statistics.items():
        averages = (row.words_per_target, row.subsequences_per_target, row.words_per_subsequence)
        shown = [f"{value:.1f}" for value in averages] if row.examples else ["–"] * len(averages)
        table.add_row(split, f"{row.examples:,}", *shown)
    return table


def _promise_table(promises: Sequence[Promise]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for name in ("Δt", "sequential\nsteps", "pipelined\nsteps", "times\nfewer", "targets\ncut"):
        table.add_column(name, justify="right")
    for row in promises:
        table.add_row(
            str(row.delay),
            f"{row.sequential_steps:.1f}",
            f"{row.pipelined_steps:.1f}",
            f"{row.ratio:.1f}",
            f"{row.truncated:.1%}",
        )
    return table
