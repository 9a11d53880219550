"""`pipedec bench`: what the method can give on this machine, without training."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipedec_cli.data.errors import UserError
from pipedec_cli.terminal.commands.report import DtypeName, numbers, parse_numbers
from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.settings import ConfigOption, JsonOption, QuietOption, parse_device

EXAMPLES = """
[bold]Examples[/bold]

  pipedec bench                                  [dim]# T5-Base's shape, the lengths of WikiHowQA, against the sequential decoder[/dim]

  pipedec bench --compare sequential,transformers,ctranslate2 --dtypes float32,bfloat16

  pipedec bench --shape pubmed --delays 1,2,3 --batch-sizes 1,16

  pipedec bench --subsequences 8 --tokens 12 --source 512

  pipedec bench --model google-t5/t5-large --device cuda --json > bench.json
"""

_LENGTHS = "Lengths"
_SPEED = "Speed"
DEFAULT_SHAPE = "wikihowqa"


class ShapeName(StrEnum):
    """The paper's data sets, whose lengths can be taken."""

    wikihowqa = "wikihowqa"
    cnn_dailymail = "cnn_dailymail"
    pubmed = "pubmed"
    msqa = "msqa"
    kp20k = "kp20k"
    kptimes = "kptimes"


def parse_dtypes(value: str) -> str:
    """Accept names of dtypes with commas between them."""
    known = [dtype.value for dtype in DtypeName]
    if not all(part.strip() in known for part in value.split(",")):
        raise typer.BadParameter(f"give one or more of {', '.join(known)}, commas between")
    return value


def bench(
    shape: Annotated[
        ShapeName | None,
        typer.Option(
            help="Lengths of one of the paper's data sets, by its Table 1 \\[default: wikihowqa].",
            show_default=False,
            rich_help_panel=_LENGTHS,
        ),
    ] = None,
    subsequences: Annotated[
        int | None,
        typer.Option(
            help="Or: this many subsequences …", min=1, show_default=False, rich_help_panel=_LENGTHS
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(help="… of so many tokens each.", min=1, show_default=False, rich_help_panel=_LENGTHS),
    ] = None,
    source: Annotated[int, typer.Option(help="Tokens of the source.", min=2, rich_help_panel=_LENGTHS)] = 512,
    model: Annotated[
        str,
        typer.Option(
            help="scratch-tiny, -small, -base or -large (fresh weights in a T5's shape), a folder or a hub name; no "
            "training is needed."
        ),
    ] = "scratch-base",
    compare: Annotated[
        str,
        typer.Option(
            help="With whom, commas between: sequential (always takes part), transformers, ctranslate2.",
            metavar="NAMES",
        ),
    ] = "sequential,transformers",
    delays: Annotated[
        str, typer.Option(help="Δt to try, commas between.", callback=parse_numbers, metavar="N,N")
    ] = "1",
    dtypes: Annotated[
        str,
        typer.Option(
            help="Of our weights, commas between; the others take the first.",
            callback=parse_dtypes,
            metavar="NAMES",
            rich_help_panel=_SPEED,
        ),
    ] = "float32",
    batch_sizes: Annotated[
        str,
        typer.Option(
            help="Examples in flight, commas between.",
            callback=parse_numbers,
            metavar="N,N",
            rich_help_panel=_SPEED,
        ),
    ] = "1",
    rows: Annotated[
        str,
        typer.Option(
            help="Rows of the single steps that are timed beside their limit, commas between.",
            callback=parse_numbers,
            metavar="N,N",
            rich_help_panel=_SPEED,
        ),
    ] = "1,4,8,16",
    repeats: Annotated[
        int, typer.Option(help="How often; the medians count.", min=1, rich_help_panel=_SPEED)
    ] = 3,
    memory: Annotated[
        bool,
        typer.Option(
            "--memory/--no-memory",
            help="Measure the peak memory of each decoder in a process of its own.",
            rich_help_panel=_SPEED,
        ),
    ] = False,
    device: Annotated[
        str,
        typer.Option(
            help="auto takes a CUDA GPU where there is one.",
            callback=parse_device,
            metavar="auto|cpu|cuda",
            rich_help_panel=_SPEED,
        ),
    ] = "auto",
    seed: Annotated[
        int, typer.Option(help="Of fresh weights and random sources.", rich_help_panel=_SPEED)
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Keep the measurements in this JSON file.", show_default=False)
    ] = None,
    config: ConfigOption = None,  # read by its callback
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """See in a minute what the method can give on this machine: speed without training, on forced lengths.

    The model computes every step in earnest and is told when to end each subsequence; so are the others. Times are split into encoder, set-up and decoding, gains into fewer calls (the schedule) and faster calls (kernels); single steps stand beside the limit that the machine's memory sets.
    """
    from pipedec_cli.evaluate.forced import Lengths
    from pipedec_cli.terminal.runs.bench import BenchRequest, run_bench
    from pipedec_cli.terminal.runs.report_lineup import parse_contestants

    peers = parse_contestants(compare)
    if "prompt-lookup" in peers:
        raise UserError(
            "--compare: what prompt lookup gives depends on the text, and here texts mean nothing",
            todo="compare with it on a trained model: `pipedec report --compare prompt-lookup`",
        )
    if (subsequences is None) != (tokens is None) or (shape is not None and subsequences is not None):
        raise UserError(
            "lengths are given either as --shape, or as --subsequences and --tokens",
            todo="for example `--shape pubmed`, or `--subsequences 8 --tokens 12`",
        )
    if subsequences is None or tokens is None:
        lengths = Lengths.of_dataset((shape or ShapeName(DEFAULT_SHAPE)).value, source)
    else:
        lengths = Lengths.even(source, subsequences, subsequences * tokens)
    request = BenchRequest(
        lengths=lengths,
        model=model,
        peers=peers,
        delays=numbers(delays),
        dtypes=tuple(dict.fromkeys(part.strip() for part in dtypes.split(","))),
        batch_sizes=numbers(batch_sizes),
        rows=numbers(rows),
        repeats=repeats,
        device=device,
        memory=memory,
        seed=seed,
    )
    run_bench(request, out=out, talk=Talk(quiet=quiet), as_json=as_json)
