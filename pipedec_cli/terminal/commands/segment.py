"""`pipedec segment`: the data that the other commands work on."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.settings import ConfigOption, JsonOption, QuietOption, RecipeOption, WorkspaceOption

EXAMPLES = """
[bold]Examples[/bold]

  pipedec segment data.jsonl --level sentence     [dim]# {"source": "…", "target": "…"} a line; splits it, too[/dim]

  pipedec segment train.csv --dev dev.csv --test test.csv --source-field article --target-field highlights

  pipedec segment keyphrases.jsonl --level phrase --target-field keyphrases    [dim]# a list, or "a; b; c"[/dim]

  pipedec segment data.jsonl --tokenizer google-t5/t5-base --split-long        [dim]# counts tokens instead of words[/dim]

  zcat big.jsonl.gz | pipedec segment - --limit 1000 --out try --json | jq .promise
"""

_FIELDS = "Fields of the input"
_SPLITS = "Splits"
_GRID = "Fitting the grid"


class LevelName(StrEnum):
    """What a subsequence is."""

    sentence = "sentence"
    phrase = "phrase"
    clause = "clause"


def segment(
    data: Annotated[
        str,
        typer.Argument(
            help="JSON lines (.jsonl, .jsonl.gz or - for standard input), .json, .csv, .tsv or .parquet; a folder with "
            "train, dev and test files; or a hub data set, OWNER/NAME or OWNER/NAME:CONFIG.",
            show_default=False,
        ),
    ],
    *,
    level: Annotated[
        LevelName,
        typer.Option(
            help="What a subsequence is: a sentence (the ends are learnt from your text); a phrase, between separators; "
            "or a clause, up to any punctuation."
        ),
    ] = LevelName.sentence,
    separator: Annotated[
        list[str] | None,
        typer.Option(
            help=r"What stands between two phrases; may be given several times, \n and \t are understood. "
            "The first is put back when phrases are joined \\[default: ;].",
            show_default=False,
        ),
    ] = None,
    joiner: Annotated[
        str | None,
        typer.Option(
            help="What stands between two segments when a prediction is put together \\[default: a space; '; ' for "
            "phrases; nothing for scripts without spaces].",
            show_default=False,
        ),
    ] = None,
    source_field: Annotated[
        str, typer.Option(help="The field that text is generated from.", rich_help_panel=_FIELDS)
    ] = "source",
    target_field: Annotated[
        str,
        typer.Option(
            help="The field with the right answer: a string, or a list that is segmented already.",
            rich_help_panel=_FIELDS,
        ),
    ] = "target",
    id_field: Annotated[
        str,
        typer.Option(
            help="The field with the identifier; else the line number is one.", rich_help_panel=_FIELDS
        ),
    ] = "id",
    dev: Annotated[
        str | None,
        typer.Option(
            help="A file of its own for dev \\[default: split off].",
            show_default=False,
            rich_help_panel=_SPLITS,
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            help="A file of its own for test \\[default: split off].",
            show_default=False,
            rich_help_panel=_SPLITS,
        ),
    ] = None,
    dev_fraction: Annotated[
        float,
        typer.Option(help="The share that is split off for dev.", min=0.0, max=1.0, rich_help_panel=_SPLITS),
    ] = 0.1,
    test_fraction: Annotated[
        float,
        typer.Option(help="The share that is split off for test.", min=0.0, max=1.0, rich_help_panel=_SPLITS),
    ] = 0.1,
    seed: Annotated[
        int, typer.Option(help="Of the split; equal sources always stay together.", rich_help_panel=_SPLITS)
    ] = 0,
    sub_max: Annotated[
        int,
        typer.Option(
            help="Most subsequences in decoding; targets with more segments than one less are merged.",
            min=2,
            rich_help_panel=_GRID,
        ),
    ] = 20,
    time_max: Annotated[
        int,
        typer.Option(
            help="The last time-step in decoding; longer segments are reported.", min=2, rich_help_panel=_GRID
        ),
    ] = 50,
    split_long: Annotated[
        bool,
        typer.Option(
            "--split-long",
            help="Split segments that are too long for it, at a clause or a word.",
            rich_help_panel=_GRID,
        ),
    ] = False,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Count the tokens of this checkpoint folder or hub model \\[default: count words].",
            show_default=False,
            rich_help_panel=_GRID,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(help="Read the first N records only, of each file.", min=1, show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder to write to \\[default: data in the workspace].", show_default=False),
    ] = None,
    recipe: RecipeOption = None,
    workspace: WorkspaceOption = None,
    config: ConfigOption = None,  # read by its callback
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Cut every target into its subsequences, and the data into train, dev and test.

    A pipelined decoder writes the subsequences of a text at the same time. This command says what they are, and shows what that can save before anything is trained: the decoder steps of the sequential and of the pipelined decoder, if a new subsequence starts every Δt = 1, 2 or 3 time-steps.

    Every field of the input is kept; train.jsonl, dev.jsonl and test.jsonl get `target_segments` besides. Nothing of a target is lost but white space: too many segments are merged, too long ones reported, empty phrases counted.
    """
    from pipedec_cli.data.gathering import SplitRules
    from pipedec_cli.data.records import FieldNames
    from pipedec_cli.terminal.runs.segmentation import SegmentRequest, run_segment

    request = SegmentRequest(
        data=data,
        level=level.value,
        separators=tuple(map(unescape, separator or ())),
        joiner=None if joiner is None else unescape(joiner),
        names=FieldNames(source_field, target_field, id_field),
        dev=dev,
        test=test,
        rules=SplitRules(dev_fraction, test_fraction, seed),
        sub_max=sub_max,
        time_max=time_max,
        split_long=split_long,
        tokenizer=tokenizer,
        limit=limit,
        recipe=recipe,
    )
    run_segment(request, out=out, workspace=workspace, talk=Talk(quiet), as_json=as_json)


def unescape(text: str) -> str:
    r"""A line feed and a tab for ``\n`` and ``\t``, which are hard to type in a shell."""
    return text.replace(r"\n", "\n").replace(r"\t", "\t")
