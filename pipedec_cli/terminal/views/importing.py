"""How an import looks: the row of the paper's Table 1 for what was read, next to the paper's own."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from pipedec_cli.data.paper import TARGET_LENGTHS
from pipedec_cli.terminal.console import visible
from pipedec_cli.terminal.runs.importing import ImportedFile

_STDOUT_TITLE = "stdout"


def target_table(files: Sequence[ImportedFile], dataset: str) -> Table:
    """Examples, words a target, subsequences a target and words a subsequence, of each file and of the paper."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("targets", overflow="fold")
    for heading in ("examples", "words a\ntarget", "subseqs a\ntarget", "words a\nsubseq"):
        table.add_column(heading, justify="right")
    for file in files:
        name = Text(visible(str(file.path)) if file.path else _STDOUT_TITLE)
        figures = file.statistics
        if not figures.examples:
            table.add_row(name, f"{file.tally.examples:,}", *["no targets"] * 3)
            continue
        averages = (figures.words_per_target, figures.subsequences_per_target, figures.words_per_subsequence)
        table.add_row(name, f"{file.tally.examples:,}", *(f"{average:.1f}" for average in averages))
    paper = TARGET_LENGTHS.get(dataset)
    if paper is not None:
        examples = f"train {paper.train_examples:,}\ntest {paper.test_examples:,}"
        averages = (paper.words_per_target, paper.subsequences_per_target, paper.words_per_subsequence)
        title = Text(f"the paper, {paper.table}")
        table.add_row(title, examples, *(f"{average:.1f}" for average in averages), style="dim")
    return table
