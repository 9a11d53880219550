"""The tables of segmented and of imported data: lengths of targets, expected decoder steps, the schema."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from pipedec_cli.compare.expected_calls import Estimate
from pipedec_cli.data.fields import Field
from pipedec_cli.data.paper import TARGET_LENGTHS
from pipedec_cli.data.records import SplitName
from pipedec_cli.data.segmentation import TargetStatistics
from pipedec_cli.jobs.import_ import ImportedFile
from pipedec_cli.view.tables import (
    NONE,
    Line,
    Sheet,
    cells,
    count,
    first_rows,
    one_section,
    points,
    rate,
)

#: Targets in groups by their number of subsequences, and the largest number of each
#: group.
_GROUPS: Final = ("0", "1 to 2", "3 to 5", "6 to 10", "11 or more")
_LARGEST: Final = (0, 2, 5, 10)
# Headings, attributes and formats of `TargetStatistics` and `Estimate`.
LENGTHS: Final[list[Line]] = [
    ("words / target", "words_per_target", points),
    ("subsequences / target", "subsequences_per_target", points),
    ("words / subsequence", "words_per_subsequence", points),
]
_STEPS: Final[list[Line]] = [
    ("sequential steps", "sequential_steps", points),
    ("pipelined steps", "pipelined_steps", points),
    ("times fewer", "ratio", points),
    ("targets cut", "truncated", rate),
]


def segment_sheets(
    statistics: Mapping[SplitName, TargetStatistics],
    estimates: Sequence[Estimate],
    unit: str,
    fields: Sequence[Field] = (),
) -> list[Sheet]:
    """The lengths of each split, as in the paper's Table 1; the decoder steps by delay; and the schema, if there is one."""
    lengths = []
    for split, row in statistics.items():
        means = [cell if row.examples else NONE for _, cell in cells(row, LENGTHS)]
        lengths.append((split, count(row.examples), *means))
    steps = [
        (str(entry.delay), *(cell for _, cell in cells(entry, _STEPS)))
        for entry in estimates
    ]
    train, groups = statistics["train"], Counter[str]()
    for length, targets in sorted(train.histogram.items()):
        groups[_GROUPS[bisect_left(_LARGEST, length)]] += targets
    shares = ", ".join(
        f"{name}: {times / train.examples:.0%}"
        for name, times in groups.items()
        if times
    )
    counted = f"{estimates[0].targets if estimates else 0:,}"
    if counted != (whole := f"{train.examples:,}"):
        counted = f"a sample of {counted} of {whole}"
    sheets = [
        Sheet(
            "Targets, as in the paper's Table 1",
            ("examples", *(heading for heading, *_ in LENGTHS)),
            one_section(lengths),
            notes=(f"train, by subsequences per target: {shares or 'none'}",),
            corner="split",
        ),
        Sheet(
            f"Decoder steps on the grid, in {unit}",
            tuple(heading for heading, *_ in _STEPS),
            one_section(steps),
            notes=(
                f"counted on {counted} targets of train, as if both decoders wrote exactly these",
            ),
            corner="Δt",
        ),
    ]
    if fields:
        keys = [
            (one.name, one.kind, str(len(one.enum) or "any"), rate(one.share))
            for one in fields
        ]
        sections, notes = first_rows(keys)
        columns = ("kind", "values", "filled in train")
        sheets.append(
            Sheet("Keys, a row each", columns, sections, notes=notes, corner="key")
        )
    return sheets


def import_sheet(files: Sequence[ImportedFile], dataset: str) -> Sheet:
    """A row for each file, and the paper's row."""
    rows = []
    for file in files:
        lengths = file.statistics
        means = [
            cell if lengths.examples else "no targets"
            for _, cell in cells(lengths, LENGTHS)
        ]
        rows.append((file.path, count(file.tally.examples), *means))
    paper = TARGET_LENGTHS.get(dataset)
    if paper is not None:
        means = [cell for _, cell in cells(paper, LENGTHS)]
        rows.append(
            (f"the paper, {paper.table}", f"train {paper.train_examples:,}", *means)
        )
        rows.append(("", f"test {paper.test_examples:,}", "", "", ""))
    columns = ("examples", *(heading for heading, *_ in LENGTHS))
    return Sheet("", columns, one_section(rows), corner="targets")
