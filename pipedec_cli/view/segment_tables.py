"""The tables of segmented and of imported data: lengths of targets, expected decoder steps, the schema."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from pipedec_cli.compare.expected_calls import Estimate
from pipedec_cli.data.fields import Field
from pipedec_cli.data.importers import ImportedFile
from pipedec_cli.data.paper import TARGET_LENGTHS
from pipedec_cli.data.records import SplitName
from pipedec_cli.data.segmentation import TargetStatistics
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
    """The tables of segmented data: the lengths of each split; the decoder steps by delay; the keys of objects, if they are.

    `unit` is what steps are counted in: tokens or words.
    """
    train = statistics["train"]
    sheets = [_length_sheet(statistics)]
    if estimates:
        sheets.append(_step_sheet(estimates, unit, train.examples))
    if fields:
        sheets.append(_key_sheet(fields))
    return sheets


def _length_sheet(statistics: Mapping[SplitName, TargetStatistics]) -> Sheet:
    """The lengths of the targets of each split, and how many targets of train have how many subsequences."""
    rows = []
    for split, lengths in statistics.items():
        means = _means(lengths) if lengths.examples else [NONE] * len(LENGTHS)
        rows.append((split, count(lengths.examples), *means))
    train = statistics["train"]
    groups = Counter[str]()
    for length, targets in sorted(train.histogram.items()):
        groups[_GROUPS[bisect_left(_LARGEST, length)]] += targets
    shares = []
    for name, targets in groups.items():
        if targets:
            shares.append(f"{name}: {targets / train.examples:.0%}")
    note = f"train, by subsequences per target: {', '.join(shares) or 'none'}"
    return Sheet(
        "Targets, as in the paper's Table 1",
        ("examples", *_headings(LENGTHS)),
        one_section(rows),
        notes=(note,),
        corner="split",
    )


def _step_sheet(estimates: Sequence[Estimate], unit: str, examples: int) -> Sheet:
    """The decoder steps by delay, counted on so many `examples` of train, or on a sample of them."""
    rows = []
    for entry in estimates:
        steps = [cell for _, cell in cells(entry, _STEPS)]
        rows.append((str(entry.delay), *steps))
    targets = estimates[0].targets if estimates else 0
    counted = f"{targets:,}"
    if targets != examples:
        counted = f"a sample of {counted} of {examples:,}"
    note = f"counted on {counted} targets of train, as if both decoders wrote exactly these"
    return Sheet(
        f"Decoder steps on the grid, in {unit}",
        _headings(_STEPS),
        one_section(rows),
        notes=(note,),
        corner="Δt",
    )


def _key_sheet(fields: Sequence[Field]) -> Sheet:
    """The keys of a schema: kind, number of possible values, and how often each is filled in train."""
    rows = []
    for field in fields:
        values = str(len(field.enum) or "any")
        rows.append((field.name, field.kind, values, rate(field.share)))
    sections, notes = first_rows(rows)
    columns = ("kind", "values", "filled in train")
    return Sheet("Keys, a row each", columns, sections, notes=notes, corner="key")


def import_sheet(files: Sequence[ImportedFile], dataset: str) -> Sheet:
    """The sizes and lengths of imported files, a row each, beside the paper's row for this data set, if it has one."""
    rows = []
    for file in files:
        lengths = file.statistics
        means = ["no targets"] * len(LENGTHS)
        if lengths.examples:
            means = _means(lengths)
        rows.append((file.path, count(file.tally.examples), *means))
    paper = TARGET_LENGTHS.get(dataset)
    if paper is not None:
        name = f"the paper, {paper.table}"
        rows.append((name, f"train {paper.train_examples:,}", *_means(paper)))
        rows.append(("", f"test {paper.test_examples:,}", "", "", ""))
    columns = ("examples", *_headings(LENGTHS))
    return Sheet("", columns, one_section(rows), corner="targets")


def _means(lengths: object) -> list[str]:
    return [cell for _, cell in cells(lengths, LENGTHS)]


def _headings(lines: Sequence[Line]) -> tuple[str, ...]:
    return tuple(heading for heading, *_ in lines)
