"""`pipedec train`: a checkpoint from segmented data."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipedec_cli.data.errors import UserError
from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.settings import ConfigOption, JsonOption, QuietOption, RecipeOption, WorkspaceOption

EXAMPLES = """
[bold]Examples[/bold]

  pipedec train                                   [dim]# a small T5 from scratch, every delay, on the workspace's data[/dim]

  pipedec train --model google-t5/t5-base --recipe paper

  pipedec train --decoder sequential              [dim]# the ordinary T5, the baseline that a report compares with[/dim]

  pipedec train --resume                          [dim]# go on after an interruption, with the same options[/dim]

  torchrun --nproc-per-node 2 -m pipedec_cli train --model google-t5/t5-large --bf16
"""


class DecoderName(StrEnum):
    """The two decoders that can be trained."""

    pipelined = "pipelined"
    sequential = "sequential"


class OptimizerName(StrEnum):
    """What makes updates of gradients."""

    adafactor = "adafactor"
    adamw = "adamw"


class RateSchedule(StrEnum):
    """How the learning rate goes on after its warm-up."""

    linear = "linear"
    constant = "constant"


def parse_delay(value: str) -> str:
    """Accept ``any`` or a whole number of time-steps."""
    if value != "any" and not (value.isdigit() and int(value) >= 1):
        raise typer.BadParameter("give a whole number of time-steps from 1 up, or 'any'")
    return value


def train(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="A folder that `pipedec segment` wrote \\[default: the workspace's].", show_default=False
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="Where to start: scratch-tiny, -small, -base or -large (fresh weights, a tokenizer trained on your "
            "data, no network), a local T5, Flan-T5, mT5 or UMT5 folder, or a hub name such as google-t5/t5-base."
        ),
    ] = "scratch-tiny",
    decoder: Annotated[
        DecoderName,
        typer.Option(help="pipelined, or sequential for the ordinary T5 that a report compares with."),
    ] = DecoderName.pipelined,
    delay: Annotated[
        str,
        typer.Option(
            help="Δt that the checkpoint is for: 'any' draws schedules at random for each batch, so that one "
            "checkpoint serves every delay and the sequential schedule; the paper trains for 1.",
            callback=parse_delay,
            metavar="N|any",
        ),
    ] = "any",
    epochs: Annotated[float, typer.Option(help="Passes over the training examples.", min=0.0)] = 10.0,
    max_steps: Annotated[
        int | None, typer.Option(help="Stop after this many updates instead.", min=1, show_default=False)
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Examples a device and step \\[default: 8 from scratch, else the paper's 24].", min=1
        ),
    ] = None,
    accumulation: Annotated[int, typer.Option(help="Steps whose gradients make one update.", min=1)] = 1,
    optimizer: Annotated[
        OptimizerName | None,
        typer.Option(
            help="adafactor, whose rate is relative to the size of each matrix, or adamw "
            "\\[default: adafactor from scratch, else adamw].",
            show_default=False,
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Its peak \\[default: adafactor 3e-2 from scratch, else 1e-3; adamw 1e-3 from scratch, else 1e-4].",
            min=0.0,
        ),
    ] = None,
    rate_schedule: Annotated[
        RateSchedule, typer.Option(help="Whether the rate falls to zero or stays.")
    ] = RateSchedule.linear,
    warmup: Annotated[
        float, typer.Option(help="Share of the updates over which it rises.", min=0.0, max=1.0)
    ] = 0.05,
    bf16: Annotated[bool, typer.Option("--bf16", help="Mixed precision in bfloat16.")] = False,
    source_prefix: Annotated[
        str, typer.Option(help="Put before every source, as in T5's task prefixes ('summarize: ').")
    ] = "",
    max_source_tokens: Annotated[
        int, typer.Option(help="Cut longer sources to this many tokens.", min=2)
    ] = 2048,
    time_max: Annotated[
        int, typer.Option(help="The last time-step of decoding; saved with the model.", min=1)
    ] = 50,
    evaluations: Annotated[int, typer.Option(help="How often the dev set is looked at.", min=1)] = 10,
    dev_examples: Annotated[
        int, typer.Option(help="Dev examples used for the loss; 32 for the score.", min=0)
    ] = 200,
    limit: Annotated[int | None, typer.Option(help="Train on the first N examples only.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Of weights, order, dropout and drawn schedules.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", metavar="auto|cpu|cuda")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint-N.")] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Give up the model, or the unfinished training, in the folder."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="The checkpoint's folder \\[default: models/DECODER in the workspace]."),
    ] = None,
    workspace: WorkspaceOption = None,
    config: ConfigOption = None,
    recipe: RecipeOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train a pipelined decoder, or the ordinary sequential one, on what `pipedec segment` wrote.

    The parameters and the architecture are those of the ordinary T5: any T5 checkpoint is a starting point, and what
    comes out loads in plain transformers. Only train.jsonl is trained on; dev.jsonl is looked at, test.jsonl is not
    touched.
    """
    from pipedec_cli.model.scratch import SHAPES
    from pipedec_cli.model.train_settings import usual_settings
    from pipedec_cli.terminal.runs.training import TrainRequest, is_main_process, run_training

    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"--device {device!r} is not known", todo="use auto, cpu or cuda")
    usual = usual_settings(fresh=model in SHAPES, optimizer=None if optimizer is None else optimizer.value)
    settings = replace(
        usual,
        epochs=epochs,
        batch_size=usual.batch_size if batch_size is None else batch_size,
        accumulation=accumulation,
        learning_rate=usual.learning_rate if learning_rate is None else learning_rate,
        warmup=warmup,
        schedule=rate_schedule.value,
        bf16=bf16,
        seed=seed,
        evaluations=evaluations,
        max_steps=max_steps,
        cpu=device == "cpu",
    )
    request = TrainRequest(
        model=model,
        decoder=decoder.value,
        delay="any" if delay == "any" else int(delay),
        source_prefix=source_prefix,
        max_source_tokens=max_source_tokens,
        time_max=time_max,
        dev_examples=dev_examples,
        limit=limit,
        resume=resume,
        overwrite=overwrite,
        training=settings,
    )
    talk = Talk(quiet=quiet)
    run_training(request, data=data, out=out, workspace=workspace, talk=talk, as_json=json)
    if is_main_process():
        talk.say("next: `pipedec generate`, or `pipedec report --compare sequential`")
