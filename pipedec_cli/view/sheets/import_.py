"""What `import` counted in the targets of a data set, beside the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipedec_cli.data.paper import TARGET_LENGTHS
from pipedec_cli.view.tables import Section, Sheet


def import_sheet(files: Sequence[Any], dataset: str) -> Sheet:
    """A row for each file, and the paper's row."""
    columns, rows = ("examples", "words a target", "subseqs a target", "words a subseq"), []
    for path, _, tally, row in files:
        shown = (f"{mean:.1f}" if row.examples else "no targets" for mean in _means(row))
        rows.append((path, f"{tally.examples:,}", *shown))
    if (paper := TARGET_LENGTHS.get(dataset)) is not None:
        shown = (f"{mean:.1f}" for mean in _means(paper))
        rows.append((f"the paper, {paper.table}", f"train {paper.train_examples:,}", *shown))
        rows.append(("", f"test {paper.test_examples:,}", "", "", ""))
    return Sheet("", columns, (Section("", tuple(rows)),), corner="targets")


def _means(row: Any) -> tuple[float, float, float]:
    return row.words_per_target, row.subsequences_per_target, row.words_per_subsequence
