"""What segmented data are like, and what the grid promises on them, as tables of words. Nothing is computed here."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.columns import Columns
from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from pipedec_cli.data.fields import Field
from pipedec_cli.data.preparation import TargetStatistics
from pipedec_cli.data.records import SplitName
from pipedec_cli.evaluate.estimate import Estimate
from pipedec_cli.view.console import one_line
from pipedec_cli.view.tables import NONE, Section, Sheet, figures, first_rows

#: By subsequences a target: what is told together, and up to how many each reaches.
_GROUPS: Final = ("0", "1 to 2", "3 to 5", "6 to 10", "11 or more")
_REACH: Final = (0, 2, 5, 10)


def segment_sheets(
    statistics: Mapping[SplitName, TargetStatistics],
    estimates: Sequence[Estimate],
    unit: str,
    fields: Sequence[Field] = (),
) -> list[Sheet]:
    """Table 1 for each split with how n is spread in train, the steps, and the schema if there is one."""
    told = []
    for split, row in statistics.items():
        averages = (row.words_per_target, row.subsequences_per_target, row.words_per_subsequence)
        means = (f"{value:.1f}" if row.examples else NONE for value in averages)
        told.append((split, f"{row.examples:,}", *means))
    promised = []
    for entry in estimates:
        means = (f"{value:.1f}" for value in (entry.sequential_steps, entry.pipelined_steps, entry.ratio))
        promised.append((str(entry.delay), *means, f"{entry.truncated:.1%}"))
    train, spread = statistics["train"], Counter[str]()
    for length, times in sorted(train.histogram.items()):
        spread[_GROUPS[bisect_left(_REACH, length)]] += times
    shares = ", ".join(f"{name}: {times / train.examples:.0%}" for name, times in spread.items() if times)
    counted = (
        f"The promise is counted on {estimates[0].targets if estimates else 0:,} targets of train: what both "
    )
    return [
        Sheet(
            "Targets, as in the paper's Table 1",
            ("examples", "words /\ntarget", "subsequences /\ntarget", "words /\nsubsequence"),
            (Section("", tuple(told)),),
            notes=(f"train, by subsequences a target: {shares or 'none'}",),
            corner="split",
        ),
        Sheet(
            f"Decoder steps that the grid promises, in {unit}",
            ("sequential\nsteps", "pipelined\nsteps", "times\nfewer", "targets\ncut"),
            (Section("", tuple(promised)),),
            notes=(f"{counted}decoders would need to write just them.",),
            corner="Δt",
        ),
        *([_schema_sheet(fields)] if fields else []),
    ]


def _schema_sheet(fields: Sequence[Field]) -> Sheet:
    rows = [(field.name, field.kind, str(len(field.enum) or "any"), f"{field.share:.1%}") for field in fields]
    shown, notes = first_rows(rows)
    columns = ("kind", "values", "filled\nin train")
    return Sheet("Keys, a row each", columns, (Section("", shown),), notes=notes, corner="key")


def render_summary(sheets: Sequence[Sheet]) -> Group:
    """The tables side by side where there is room, their notes beneath."""
    drawn = []
    for sheet in sheets:
        right = all(label.isdigit() for label in sheet.column(0))
        first = Column(sheet.corner, justify="right" if right else "left")
        table = Table(first, *figures(*sheet.columns), box=SIMPLE_HEAD)
        for row in (row for section in sheet.sections for row in section.rows):
            table.add_row(*(Text(one_line(cell)) for cell in row))
        drawn.append(Group(Text(sheet.title, style="bold"), table))
    notes = (note for sheet in sheets for note in sheet.notes)
    return Group(Columns(drawn, padding=(0, 3)), Text("\n".join(notes), style="dim"))
