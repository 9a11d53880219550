"""`pipedec generate`: text from sources, with a checkpoint."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

import typer

from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.settings import (
    ConfigOption,
    JsonOption,
    QuietOption,
    RecipeOption,
    WorkspaceOption,
    typed,
)

EXAMPLES = """
[bold]Examples[/bold]

  pipedec generate                                [dim]# the workspace's test set with the workspace's model[/dim]

  pipedec generate --delay 2 --resume             [dim]# go on after an interruption[/dim]

  pipedec generate --text "name[The Mill], food[Chinese]" --live

  pipedec generate --decoder sequential           [dim]# the ordinary T5; --delay sequential is another thing[/dim]

  pipedec generate articles.csv --source-field body --model my-model --out summaries.jsonl --batch-size 16

  cat questions.jsonl | pipedec generate - --out - --quiet | jq -r .prediction
"""

_DECODING = "Decoding"
_DATA = "Data"
_MACHINE = "Machine"
_GENERAL = "General"


class DecoderName(StrEnum):
    """The two decoders."""

    pipelined = "pipelined"
    sequential = "sequential"


class ExploreRule(StrEnum):
    """Whether explorations go on after an empty one."""

    retry = "retry"
    once = "once"


class DtypeName(StrEnum):
    """Number formats."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class SplitChoice(StrEnum):
    """The splits of a data set."""

    test = "test"
    dev = "dev"
    train = "train"


def parse_delay(value: str | None) -> str | None:
    """Accept ``sequential`` or a whole number of time-steps."""
    if value is not None and value != "sequential" and not (value.isdecimal() and int(value) >= 1):
        raise typer.BadParameter("give a whole number of time-steps from 1 up, or 'sequential'")
    return value


def parse_batch_size(value: str) -> str:
    """Accept ``auto`` or a whole number of examples."""
    if value != "auto" and not (value.isdecimal() and int(value) >= 1):
        raise typer.BadParameter("give a whole number of examples from 1 up, or 'auto'")
    return value


def parse_device(value: str) -> str:
    """Accept the names of devices."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", value):
        raise typer.BadParameter("give auto, cpu, cuda or cuda:N")
    return value


def generate(
    context: typer.Context,
    data: Annotated[
        str | None,
        typer.Argument(
            help="What to generate from: JSON lines (a file, or - for standard input), .json, .csv, .tsv or .parquet, a "
            "folder or a hub data set; targets are not needed \\[default: the workspace's test set].",
            show_default=False,
        ),
    ] = None,
    *,
    text: Annotated[
        list[str] | None,
        typer.Option(
            help="A source instead of DATA; may be given several times. The text goes to stdout, a line each.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A folder that `pipedec train` made, another T5, or a hub name \\[default: the workspace's].",
            show_default=False,
        ),
    ] = None,
    decoder: Annotated[
        DecoderName | None,
        typer.Option(
            help="Which of the workspace's models: the pipelined one or the ordinary T5 \\[default: pipelined].",
            show_default=False,
        ),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(
            help="Δt: a new subsequence starts every N time-steps. 'sequential' starts one when the one before has "
            "ended, with the same model \\[default: as trained, 2 for a model that serves any].",
            callback=parse_delay,
            metavar="N|sequential",
            show_default=False,
            rich_help_panel=_DECODING,
        ),
    ] = None,
    untrained_delay: Annotated[
        bool,
        typer.Option(
            "--untrained-delay",
            help="Allow a delay that the model was not trained for; it is likely to drop text.",
            rich_help_panel=_DECODING,
        ),
    ] = False,
    explore: Annotated[
        ExploreRule,
        typer.Option(
            help="After a subsequence came out empty: try again at the next start, as the paper does, or never.",
            rich_help_panel=_DECODING,
        ),
    ] = ExploreRule.retry,
    time_max: Annotated[
        int | None,
        typer.Option(
            help="The last time-step \\[default: as trained, which is 50 unless you say otherwise; none for sequential].",
            min=1,
            show_default=False,
            rich_help_panel=_DECODING,
        ),
    ] = None,
    sub_max: Annotated[
        int | None,
        typer.Option(
            help="The most subsequences, empty ones included \\[default: as segmented, which is 20 unless you say "
            "otherwise; no bound for sequential].",
            min=1,
            show_default=False,
            rich_help_panel=_DECODING,
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            help="The most tokens \\[default: 512 for sequential, else no bound].",
            min=1,
            show_default=False,
            rich_help_panel=_DECODING,
        ),
    ] = None,
    split: Annotated[
        SplitChoice | None,
        typer.Option(
            help="Of the workspace, of a folder or of a hub data set \\[default: test].",
            show_default=False,
            rich_help_panel=_DATA,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(help="The first N examples only.", min=1, show_default=False, rich_help_panel=_DATA),
    ] = None,
    source_field: Annotated[
        str, typer.Option(help="The field that text is generated from.", rich_help_panel=_DATA)
    ] = "source",
    target_field: Annotated[
        str, typer.Option(help="The field with the right answer, for `pipedec score`.", rich_help_panel=_DATA)
    ] = "target",
    id_field: Annotated[
        str,
        typer.Option(
            help="The field with the identifier; else the line number is one.", rich_help_panel=_DATA
        ),
    ] = "id",
    max_source_tokens: Annotated[
        int | None,
        typer.Option(
            help="Cut longer sources to this many tokens, counted with a warning \\[default: as trained].",
            min=2,
            show_default=False,
            rich_help_panel=_DATA,
        ),
    ] = None,
    batch_size: Annotated[
        str,
        typer.Option(
            help="Examples decoded at the same time; more of them a second, the same text. 'auto' goes by the memory.",
            callback=parse_batch_size,
            metavar="N|auto",
            rich_help_panel=_MACHINE,
        ),
    ] = "auto",
    dtype: Annotated[
        DtypeName,
        typer.Option(
            help="bfloat16 is faster and may change a token; float16 is for GPUs.", rich_help_panel=_MACHINE
        ),
    ] = DtypeName.float32,
    device: Annotated[
        str,
        typer.Option(
            help="auto takes a CUDA GPU where there is one.",
            callback=parse_device,
            metavar="auto|cpu|cuda",
            rich_help_panel=_MACHINE,
        ),
    ] = "auto",
    out: Annotated[
        str | None,
        typer.Option(
            help="The file of predictions, or - for stdout \\[default: generations/NAME.jsonl in the workspace].",
            metavar="FILE|-",
            show_default=False,
            rich_help_panel=_GENERAL,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on where a stopped run has left off. Without it a new file is begun, and what stood there is "
            "kept as FILE.bak.",
            rich_help_panel=_GENERAL,
        ),
    ] = False,
    trace: Annotated[
        bool,
        typer.Option(
            "--trace",
            help="Write the grid (start time and token ids of every subsequence) and the source's ids, too.",
            rich_help_panel=_GENERAL,
        ),
    ] = False,
    live: Annotated[
        bool,
        typer.Option(
            "--live", help="Show the grid while it is being decoded, on stderr.", rich_help_panel=_GENERAL
        ),
    ] = False,
    workspace: WorkspaceOption = None,
    config: ConfigOption = None,
    recipe: RecipeOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Generate a text from each source, several subsequences of it at the same time.

    A line of the output is a JSON object: `id`, `prediction`, `segments`, `steps` (decoder calls), `tokens`, `truncated` (what cut the text short, or null), `seconds`, and every field of the input. Lines come in input order, each as soon as the order allows; a manifest beside the file says what it was made with. `--json` prints the summary on stdout, and with `--text` the JSON objects.

    Decoding is greedy: each token is the most probable one. There are no beams and there is no sampling.
    """
    from pipedec_cli.data.errors import UserError
    from pipedec_cli.data.records import FieldNames
    from pipedec_cli.data.writing import to_json
    from pipedec_cli.terminal.console import write_stdout
    from pipedec_cli.terminal.runs.generation import run_generation
    from pipedec_cli.terminal.runs.generation_request import GenerateRequest

    if text and data is not None:
        raise UserError("--text and DATA are both given", todo="give one of them")
    if decoder == DecoderName.sequential and not typed(context, "delay"):
        delay = None  # a config file or a recipe means the pipelined decoder
    paced = decoder != DecoderName.sequential and delay != "sequential"
    request = GenerateRequest(
        data=data,
        texts=tuple(text or ()),
        model=model,
        decoder=None if decoder is None else decoder.value,
        delay=None if delay is None else "sequential" if delay == "sequential" else int(delay),
        untrained_delay=untrained_delay,
        explore=explore.value,
        time_max=time_max if paced or typed(context, "time_max") else None,
        sub_max=sub_max if paced or typed(context, "sub_max") else None,
        max_tokens=max_tokens,
        max_source_tokens=max_source_tokens,
        batch_size="auto" if batch_size == "auto" else int(batch_size),
        dtype=dtype.value,
        device=device,
        split=None if split is None else split.value,
        limit=limit,
        names=FieldNames(source_field, target_field, id_field),
        trace=trace,
    )
    talk = Talk(quiet=quiet)
    done = run_generation(
        request,
        out=out,
        resume=resume,
        live=live,
        workspace=workspace,
        talk=talk,
        plain=not as_json,
    )
    if done is not None:
        talk.say("next: `pipedec score`, or `pipedec report --compare sequential`")
    if as_json and done is not None:
        write_stdout(to_json(done) + "\n")
