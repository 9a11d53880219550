"""`pipedec import`: published data sets as JSON lines that `segment` takes."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipedec_cli.terminal.console import Talk, write_stdout
from pipedec_cli.terminal.settings import ConfigOption, JsonOption, QuietOption

EXAMPLES = """
[bold]Examples[/bold]

  pipedec import msqa MultiSpanQA_data                     [dim]# its folder: msqa/train.jsonl, msqa/dev.jsonl, …[/dim]

  pipedec import kp20k kp20k_testing.json --out test.jsonl

  pipedec import cnn_dailymail abisee/cnn_dailymail:3.0.0 --split test --limit 1000

  pipedec import parallel train_src.txt --targets train_trg.txt

  pipedec import kptimes taln/ && pipedec segment kptimes --recipe kptimes
"""


class DataSetName(StrEnum):
    """The data sets and layouts that can be imported."""

    msqa = "msqa"
    kp20k = "kp20k"
    kptimes = "kptimes"
    wikihowqa = "wikihowqa"
    cnn_dailymail = "cnn_dailymail"
    pubmed = "pubmed"
    keyphrases = "keyphrases"
    parallel = "parallel"


class Split(StrEnum):
    """The splits by their names here; ``dev`` is what others call validation."""

    train = "train"
    dev = "dev"
    test = "test"


def import_data(
    name: Annotated[
        DataSetName,
        typer.Argument(
            help="What it is: one of the paper's six data sets, any keyphrase set, or parallel text files.",
            show_default=False,
        ),
    ],
    location: Annotated[
        str,
        typer.Argument(
            help="Where it is: a file, gzipped or not, a folder with its splits, or a hub data set OWNER/NAME[:CONFIG].",
            show_default=False,
        ),
    ],
    *,
    split: Annotated[
        Split | None,
        typer.Option(
            help="One split of a folder or hub data set \\[default: all of them].", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file to write, - for stdout; the folder, if there are several splits \\[default: named after the data].",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Only the first N examples of each split.", min=1, show_default=False)
    ] = None,
    targets: Annotated[
        Path | None,
        typer.Option(
            help="parallel: the file of targets \\[default: the source's name with trg for src].",
            show_default=False,
        ),
    ] = None,
    separator: Annotated[
        str | None,
        typer.Option(
            help="parallel: what stands between two phrases of a target; '' if targets are plain text \\[default: ;].",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    config: ConfigOption = None,  # read by its callback
) -> None:
    """Turn a data set as it is published into JSON lines: id, source, and target as text or as a list of segments.

    A file in another layout is refused with the first place where it differs. No program of a data set is run.
    """
    from pipedec_cli.data.errors import UserError
    from pipedec_cli.data.importers import importer
    from pipedec_cli.data.paper import TARGET_LENGTHS
    from pipedec_cli.data.writing import to_json
    from pipedec_cli.terminal.runs.importing import STDOUT, ImportRequest, run_import
    from pipedec_cli.terminal.views.importing import target_table

    if as_json and str(out) == STDOUT:
        raise UserError("--json and --out - both want stdout", todo="leave one out")
    talk = Talk(quiet=quiet)
    request = ImportRequest(
        importer=importer(name.value),
        location=location,
        split=split.value if split else None,
        out=out,
        limit=limit,
        targets=targets,
        separator=separator,
    )
    files = run_import(request, talk)
    if not quiet:
        talk.console.print(target_table(files, name.value))
    if as_json:
        paper = TARGET_LENGTHS.get(name.value)
        result = {
            "dataset": name.value,
            "files": [file.as_json() for file in files],
            "paper": asdict(paper) if paper else None,
        }
        write_stdout(to_json(result, indent=2) + "\n")
