"""The counts of an imported data set as a sheet, beside the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence

from pipedec_cli.data.paper import TARGET_LENGTHS
from pipedec_cli.jobs.import_ import ImportedFile
from pipedec_cli.view.formats import count
from pipedec_cli.view.sheet import Section, Sheet, cells
from pipedec_cli.view.sheets.segment import LENGTHS


def import_sheet(files: Sequence[ImportedFile], dataset: str) -> Sheet:
    """A row for each file, and the paper's row."""
    rows = []
    for file in files:
        lengths = file.statistics
        means = [cell if lengths.examples else "no targets" for _, cell in cells(lengths, LENGTHS)]
        rows.append((file.path, count(file.tally.examples), *means))
    paper = TARGET_LENGTHS.get(dataset)
    if paper is not None:
        means = [cell for _, cell in cells(paper, LENGTHS)]
        rows.append((f"the paper, {paper.table}", f"train {paper.train_examples:,}", *means))
        rows.append(("", f"test {paper.test_examples:,}", "", "", ""))
    columns = ("examples", *(heading for heading, *_ in LENGTHS))
    return Sheet("", columns, (Section("", tuple(rows)),), corner="targets")
