"""`pipedec report`: decoders side by side, and which one to take."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from pipedec_cli.data.records import Delay
from pipedec_cli.evaluate.metrics import ProtocolName, Task
from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.settings import (
    ConfigOption,
    JsonOption,
    QuietOption,
    RecipeOption,
    WorkspaceOption,
    number_or,
    parse_device,
    typed,
)


class DtypeName(StrEnum):
    """Number formats."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


EXAMPLES = """
[bold]Examples[/bold]

  pipedec report --compare sequential            [dim]# at the checkpoint's own delay[/dim]

  pipedec report --delays 1,2,3 --explore both   [dim]# which delay to take on these data[/dim]

  pipedec report --compare sequential,transformers,prompt-lookup,ctranslate2

  pipedec report --batch-sizes 1,4,16 --dtype bfloat16 --limit 200

  pipedec report --recipe wikihowqa              [dim]# the paper's figures beside yours[/dim]
"""

SCHEDULE: Final = "sequential"
_SPEED = "Speed"
_QUALITY = "Quality"
_INPUT = "Input"
_GENERAL = "General"


class ExploreChoice(StrEnum):
    """The exploration rules, or both."""

    retry = "retry"
    once = "once"
    both = "both"


def parse_numbers(value: str | None) -> str | None:
    """Accept whole numbers from 1 up with commas between them."""
    if value is not None and not all(
        part.strip().isdecimal() and int(part) >= 1 for part in value.split(",")
    ):
        raise typer.BadParameter("give whole numbers from 1 up, such as 1,2,3")
    return value


def parse_delays(value: str | None) -> str | None:
    """Accept delays with commas between them, one of which may be ``sequential``."""
    if value is None:
        return None
    parse_numbers(",".join(part for part in value.split(",") if part.strip() != SCHEDULE) or None)
    return value


def report(
    context: typer.Context,
    compare: Annotated[
        str,
        typer.Option(
            help="With whom, commas between: sequential (always takes part), transformers, prompt-lookup, ctranslate2. "
            "The last three run the plain T5.",
            metavar="NAMES",
        ),
    ] = "sequential",
    delays: Annotated[
        str | None,
        typer.Option(
            help="Δt to try, commas between, and 'sequential' for the same checkpoint's sequential schedule "
            "\\[default: as trained, 2 for a model that serves any].",
            callback=parse_delays,
            metavar="N,N",
            show_default=False,
        ),
    ] = None,
    explore: Annotated[
        ExploreChoice, typer.Option(help="The exploration rule, or both of them side by side.")
    ] = ExploreChoice.retry,
    model: Annotated[
        str | None,
        typer.Option(
            help="The pipelined checkpoint \\[default: the workspace's].",
            show_default=False,
            rich_help_panel=_INPUT,
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="The plain T5 \\[default: the workspace's, else the same checkpoint's sequential schedule].",
            show_default=False,
            rich_help_panel=_INPUT,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="What to generate from and to score against \\[default: the workspace's test set].",
            show_default=False,
            rich_help_panel=_INPUT,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(help="The first N examples only.", min=1, show_default=False, rich_help_panel=_INPUT),
    ] = None,
    task: Annotated[
        Task | None,
        typer.Option(
            help="What is scored \\[default: what the data suggest].",
            show_default=False,
            rich_help_panel=_QUALITY,
        ),
    ] = None,
    protocol: Annotated[
        ProtocolName | None,
        typer.Option(
            help="How \\[default: the first of the task].", show_default=False, rich_help_panel=_QUALITY
        ),
    ] = None,
    resamples: Annotated[
        int, typer.Option(help="Bootstrap draws for the intervals.", min=99, rich_help_panel=_QUALITY)
    ] = 9999,
    seed: Annotated[int, typer.Option(help="Of these draws.", min=0, rich_help_panel=_QUALITY)] = 0,
    timing_examples: Annotated[
        int,
        typer.Option(
            help="How many examples are timed, evenly spread over all.", min=1, rich_help_panel=_SPEED
        ),
    ] = 32,
    repeats: Annotated[
        int, typer.Option(help="How often; the medians count.", min=1, rich_help_panel=_SPEED)
    ] = 3,
    batch_sizes: Annotated[
        str,
        typer.Option(
            help="Batch sizes that are timed, commas between.",
            callback=parse_numbers,
            metavar="N,N",
            rich_help_panel=_SPEED,
        ),
    ] = "1",
    memory: Annotated[
        bool,
        typer.Option(
            "--memory/--no-memory",
            help="Measure the peak memory of each decoder in a process of its own.",
            rich_help_panel=_SPEED,
        ),
    ] = True,
    batch_size: Annotated[
        str,
        typer.Option(
            help="Examples decoded at the same time while generating what is missing; it is not timed.",
            callback=number_or("auto"),
            metavar="N|auto",
            rich_help_panel=_SPEED,
        ),
    ] = "auto",
    dtype: Annotated[
        DtypeName, typer.Option(help="Of the weights; the peers take the same.", rich_help_panel=_SPEED)
    ] = DtypeName.float32,
    device: Annotated[
        str,
        typer.Option(
            help="auto takes a CUDA GPU where there is one.",
            callback=parse_device,
            metavar="auto|cpu|cuda",
            rich_help_panel=_SPEED,
        ),
    ] = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            help="The folder of report.json and report.md \\[default: report/ in the workspace].",
            show_default=False,
            rich_help_panel=_GENERAL,
        ),
    ] = None,
    workspace: WorkspaceOption = None,
    config: ConfigOption = None,  # read by its callback
    recipe: RecipeOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare decoders on your data and this machine: quality, speed, decoder steps, memory, and what goes wrong.

    Generates what is missing and scores all of it; times a fixed sample, the decoders in turn in one process. The baseline is the plain T5 that `pipedec train --decoder sequential` made, or without one the same checkpoint's sequential schedule; the report says which. It ends in advice: which delay to take, or that the method does not help here. report.json and report.md are saved in the workspace.
    """
    from pipedec_cli.evaluate.scoring import settle_metrics
    from pipedec_cli.terminal.runs.report import run_report
    from pipedec_cli.terminal.runs.report_lineup import ReportRequest, parse_contestants

    given = {name for name in ("task", "protocol") if typed(context, name)}
    task, protocol = settle_metrics(task, protocol, given)
    request = ReportRequest(
        peers=parse_contestants(compare),
        delays=_delays(delays),
        explore=explore.value,
        model=model,
        baseline=baseline,
        data=data,
        limit=limit,
        task=task,
        protocol=protocol,
        recipe=recipe,
        timed=timing_examples,
        repeats=repeats,
        batch_size="auto" if batch_size == "auto" else int(batch_size),
        batch_sizes=numbers(batch_sizes),
        dtype=dtype.value,
        device=device,
        memory=memory,
        resamples=resamples,
        seed=seed,
    )
    run_report(request, out=out, workspace=workspace, talk=Talk(quiet=quiet), as_json=as_json)


def _delays(value: str | None) -> tuple[Delay, ...]:
    """The delays of a list, rising, the sequential schedule last."""
    parts = [part.strip() for part in value.split(",")] if value else []
    given = ",".join(part for part in parts if part != SCHEDULE)
    last: tuple[Delay, ...] = (SCHEDULE,) if SCHEDULE in parts else ()
    return (*numbers(given), *last)


def numbers(value: str | None) -> tuple[int, ...]:
    """The numbers of a list, rising, each once."""
    return tuple(sorted({int(part) for part in value.split(",")})) if value else ()
