"""Segmented data as sheets: lengths of the targets, and the decoder steps that the grid would take."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from pipedec_cli.data.fields import Field
from pipedec_cli.data.preparation import TargetStatistics
from pipedec_cli.data.records import SplitName
from pipedec_cli.evaluate.estimate import Estimate
from pipedec_cli.view.tables import NONE, Section, Sheet, first_rows

#: Targets in groups by their number of subsequences, and the largest number of each group.
_GROUPS: Final = ("0", "1 to 2", "3 to 5", "6 to 10", "11 or more")
_REACH: Final = (0, 2, 5, 10)


def segment_sheets(
    statistics: Mapping[SplitName, TargetStatistics],
    estimates: Sequence[Estimate],
    unit: str,
    fields: Sequence[Field] = (),
) -> list[Sheet]:
    """The lengths of each split, as in the paper's Table 1; the decoder steps by delay; and the schema, if there is one."""
    lengths = []
    for split, row in statistics.items():
        averages = (row.words_per_target, row.subsequences_per_target, row.words_per_subsequence)
        means = (f"{value:.1f}" if row.examples else NONE for value in averages)
        lengths.append((split, f"{row.examples:,}", *means))
    promised = []
    for entry in estimates:
        means = (f"{value:.1f}" for value in (entry.sequential_steps, entry.pipelined_steps, entry.ratio))
        promised.append((str(entry.delay), *means, f"{entry.truncated:.1%}"))
    train, spread = statistics["train"], Counter[str]()
    for length, times in sorted(train.histogram.items()):
        spread[_GROUPS[bisect_left(_REACH, length)]] += times
    shares = ", ".join(f"{name}: {times / train.examples:.0%}" for name, times in spread.items() if times)
    targets = estimates[0].targets if estimates else 0
    return [
        Sheet(
            "Targets, as in the paper's Table 1",
            ("examples", "words / target", "subsequences / target", "words / subsequence"),
            (Section("", tuple(lengths)),),
            notes=(f"train, by subsequences a target: {shares or 'none'}",),
            corner="split",
        ),
        Sheet(
            f"Decoder steps on the grid, in {unit}",
            ("sequential steps", "pipelined steps", "times fewer", "targets cut"),
            (Section("", tuple(promised)),),
            notes=(f"counted on {targets:,} targets of train, if both decoders wrote just them",),
            corner="Δt",
        ),
        *([_schema_sheet(fields)] if fields else []),
    ]


def _schema_sheet(fields: Sequence[Field]) -> Sheet:
    rows = [(field.name, field.kind, str(len(field.enum) or "any"), f"{field.share:.1%}") for field in fields]
    shown, notes = first_rows(rows)
    columns = ("kind", "values", "filled in train")
    return Sheet("Keys, a row each", columns, (Section("", shown),), notes=notes, corner="key")
