"""`pipedec demo`: all of it in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.settings import ConfigOption, QuietOption

EXAMPLES = """
[bold]Examples[/bold]

  pipedec demo                                    [dim]# about three minutes on two cores, no network[/dim]

  pipedec demo --updates 3000 --out longer-demo   [dim]# better texts[/dim]
"""


def demo(
    examples: Annotated[int, typer.Option(help="Examples that are made.", min=100)] = 6000,
    updates: Annotated[
        int, typer.Option(help="Training updates of each decoder, of 8 examples.", min=1)
    ] = 600,
    test: Annotated[int, typer.Option(help="Test examples that are generated from.", min=2)] = 100,
    seed: Annotated[int, typer.Option(help="Of data and training.")] = 0,
    out: Annotated[
        Path, typer.Option(help="The folder to work in; an earlier demo there is replaced.")
    ] = Path("pipedec-demo"),
    config: ConfigOption = None,
    quiet: QuietOption = False,
) -> None:
    """Run the whole workflow on built-in data: segment, train, generate, report.

    The data are facts about made-up ships, birds, planets and stations, each of which the target states in a sentence of its
    own, so that what is right can be counted. Two small models are trained from scratch: a pipelined decoder and the
    ordinary T5 that it is compared with.
    """
    from pipedec_cli.terminal.runs.demo import DemoRequest, run_demo

    request = DemoRequest(examples=examples, updates=updates, test=test, seed=seed)
    run_demo(request, out=out, talk=Talk(quiet=quiet))
