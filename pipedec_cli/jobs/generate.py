"""The job of `pipedec generate`: text from sources, with a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import PredictionsFile, lines_path
from pipedec_cli.data.records import Generated
from pipedec_cli.data.trained import is_compared
from pipedec_cli.events import Listen, silent
from pipedec_cli.jobs.command_lines import all_sources, command_line
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.jobs.loading import check_out, load_model, read_inputs
from pipedec_cli.jobs.report_settings import ReportSettings
from pipedec_cli.jobs.score import ScoreSettings
from pipedec_cli.jobs.tally import GenerateResult

if TYPE_CHECKING:
    from pipedec_cli.data.inputs import Inputs
    from pipedec_cli.decoding.decoder import Decoder


def generate(
    settings: GenerateSettings,
    listen: Listen = silent,
    emit: Callable[[Generated, Mapping[str, Any]], None] | None = None,
) -> GenerateResult | str | None:
    """Generate as the settings say.

    With their `part` or `ray` the folder of a job is filled. With `show_prompt` nothing
    is generated.

    Args:
        settings: what to generate, and how.
        listen: takes the events.
        emit: takes each result and its line, where the output is standard output.

    Returns:
        What was done; the prompt with `show_prompt`; None if the lines went to `emit`.
    """
    check_settings(settings)
    if settings.in_parts:
        from pipedec_cli.jobs import shard

        return shard.run(settings, listen)
    if settings.to_stdout and settings.resume:
        what = "--resume goes on with a file, and this run writes none"
        raise UserError(what, todo="name one with --out")
    if settings.out is not None and not settings.to_stdout:
        check_out(settings, Path(settings.out))

    inputs = read_inputs(settings)
    decoder = load_model(settings, listen)

    if settings.show_prompt:
        return _prompt(settings, decoder, inputs)

    from pipedec_cli.jobs.run import announce, list_invalid, plan_run, stream, write
    from pipedec_cli.jobs.tables import write_with_table

    run = plan_run(settings, decoder, inputs)
    announce(run)
    if settings.to_stdout:
        assert emit is not None, "the caller takes what goes to standard output"
        stream(run, listen, emit)
        list_invalid(run, None)
        return None
    path = Path(settings.out) if settings.out else run.path
    again = "the same command with --resume"
    if lines_path(path) != path:
        return write_with_table(run, path, listen, resume=settings.resume, again=again)
    return write(run, path, listen, resume=settings.resume, again=again)


def _prompt(settings: GenerateSettings, decoder: Decoder, inputs: Inputs) -> str:
    """The prompt of the first record, and what each row adds to it."""
    source = next(iter(inputs.read())).source
    if settings.chunk:
        source = decoder.chunks(settings.chunk).cut(source)[0].text
    text = decoder.text
    parts = [text.written(text.source(source)[0])]
    rows = decoder.blind.known if decoder.blind else ()
    for number, row in enumerate(rows, start=1):
        parts.append(f"--- row {number}\n{text.written(row)}")
    return "\n".join(parts)


def check_settings(settings: GenerateSettings) -> None:
    """A `UserError` if settings do not go together."""
    if settings.text and settings.data is not None:
        raise UserError("--text and DATA are both given", todo="give one of them")
    _check_blind(settings)
    if settings.draft and not settings.exact:
        todo = "name the sequential model with --exact"
        raise UserError("--draft is for --exact alone", todo=todo)
    if settings.data is None:
        of_data = ["plain", "source_field", "target_field"]
        if settings.text:
            of_data += ["skip_invalid", "split"]
        what = "says what DATA is, and there is none"
        settings.refuse(*of_data, what=what, todo="give a file, or -")


def _check_blind(settings: GenerateSettings) -> None:
    """A `UserError` if settings do not go with questions to a model that was not trained for them, or are for these alone."""
    if settings.is_blind and (settings.exact or settings.model in (None, "pipelined")):
        what = "--schema, --fields, --shots and --ask are for an ordinary decoder-only model"
        more = "and leave --exact out" if settings.exact else "or leave them out"
        raise UserError(what, todo=f"name it with --model, {more}")
    if settings.shots and settings.chat:
        todo = "leave --chat or --shots out"
        raise UserError("examples do not go into a chat", todo=todo)
    if not settings.is_blind:
        what = "is for --schema, --fields, --shots and --ask"
        settings.refuse("calibrate", "prior", "show_prompt", "whole", what=what)
    if settings.whole:
        what = "is for rows of their own, and JSON in one go (`whole`) is a single row"
        settings.refuse(
            *("shots", "ask", "calibrate", "prior", "grounded", "confidence", "chunk"),
            what=what,
        )
        if settings.schema is None:
            what = "JSON in one go (`whole`) is held to a JSON Schema"
            raise UserError(what, todo="give its file with --schema")


def next_commands(settings: GenerateSettings, out: Path) -> str:
    """The commands to go on with: to score the predictions in `out`, if they have targets, or to generate from all sources.

    "" if there is none to name.
    """
    where = settings.workspace
    place = settings.place
    out = lines_path(out)
    if not out.is_file():
        return ""
    if next(PredictionsFile(out).lines(), {}).get("target") is None:
        if settings.data or settings.text:
            return ""
        every = all_sources(place.data, settings.model, where)
        if every is None:
            return ""
        alone = f"these are the sources of {settings.split or 'test'} alone"
        scores = "`pipedec segment` with --test FILE, whose records have right answers, allows to score"
        return f"`{every}` writes all texts, {alone}; {scores}"
    written = out if settings.out or settings.resume else None
    score = f"`{command_line('score', ScoreSettings(predictions=written, workspace=where))}`"
    is_own_choice = any(settings.some("data", "model", "exact").values())
    if is_own_choice or not is_compared(
        place.model("pipelined"), place.model("sequential")
    ):
        return score
    return f"{score}, or `{command_line('report', ReportSettings(workspace=where))}`"
