"""The job of `pipedec generate`: text from sources, with a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import PredictionsFile
from pipedec_cli.data.reading import keep_apart, real
from pipedec_cli.data.records import Generated
from pipedec_cli.data.trained import is_compared
from pipedec_cli.jobs.blind import show_prompt
from pipedec_cli.jobs.commands import command_line, spelled
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.generate_settings import GenerateSettings, RunSettings
from pipedec_cli.jobs.loading import load_model, read_inputs
from pipedec_cli.jobs.report_settings import ReportSettings
from pipedec_cli.jobs.score import ScoreSettings
from pipedec_cli.jobs.tally import GenerateResult


def generate(
    settings: GenerateSettings,
    notify: Notify,
    emit: Callable[[Generated, Mapping[str, Any]], None] | None = None,
) -> GenerateResult | str | None:
    """Generate as the settings say. Returns None if the lines went to `emit`, because the output is standard output.

    With `show_prompt` nothing is generated, and the result is the prompt.

    `emit` takes each result and its line.
    """
    check_settings(settings)
    if settings.to_stdout and settings.resume:
        raise UserError("--resume goes on with a file, and this run writes none", todo="name one with --out")
    if settings.out is not None and not settings.to_stdout:
        check_out(settings, Path(settings.out))

    inputs, decoder = read_inputs(settings, notify), load_model(settings, notify)

    if settings.show_prompt:
        from pipedec_cli.model.chunks import Chunks

        source = next(iter(inputs.read())).source
        first = Chunks(decoder, settings.chunk).cut(source)[0] if settings.chunk else source
        return show_prompt(decoder, first)  # type: ignore[arg-type]

    from pipedec_cli.jobs.predicting import announce, list_invalid, stream, write
    from pipedec_cli.jobs.run import plan_run

    run = plan_run(settings, decoder, inputs)
    announce(run, notify)
    if settings.to_stdout:
        assert emit is not None, "the caller takes what goes to standard output"
        stream(run, notify, emit)
        list_invalid(run, None, notify)
        return None
    path, again = Path(settings.out) if settings.out else run.path, "the same command with --resume"
    return write(run, path, notify, resume=settings.resume, again=again)


def check_settings(settings: RunSettings) -> None:
    """A `UserError` if settings do not go together."""
    if settings.text and settings.data is not None:
        raise UserError("--text and DATA are both given", todo="give one of them")
    if settings.is_blind and (settings.exact or settings.model in (None, "pipelined")):
        what = "--schema, --fields, --shots and --ask are for an ordinary decoder-only model"
        raise UserError(what, todo="name it with --model, and leave --exact out")
    if settings.schema and settings.fields:
        raise UserError("--fields and --schema both say which keys there are", todo="leave one out")
    if settings.one_row and (settings.ask or settings.questions or settings.calibrate):
        what = "one_row writes an object: --ask, questions and --calibrate do not apply"
        raise UserError(what, todo="leave one_row out")
    if (given := settings.typed & {"show_prompt", "calibrate", "one_row"}) and not settings.is_blind:
        what = f"{spelled(min(given), settings)} is for --schema, --fields, --shots and --ask"
        raise UserError(what, todo="leave it out")
    if settings.draft and not settings.exact:
        raise UserError("--draft is for --exact alone", todo="name the sequential model with --exact")
    of_data = {"plain", "source_field", "target_field", "id_field"}
    if settings.text:
        of_data |= {"split", "skip_invalid"}
    if settings.data is None and (given := settings.typed & of_data):
        what = f"{spelled(min(given), settings)} says what DATA is, and there is none"
        raise UserError(what, todo="give a file, or -")


def check_out(settings: RunSettings, path: Path) -> None:
    """A `UserError` unless predictions can be written to a file, whose input is elsewhere."""
    if path.is_dir():
        raise UserError("is a folder", where=str(path), todo="name a file in it")
    if path.suffix == ".gz":
        raise UserError("predictions are not compressed", where=str(path), todo="leave out .gz")
    if path.exists() and not path.is_file():  # such as /dev/null
        return
    file, place = PredictionsFile(path), settings.place
    read: list[Path | str] = (
        [] if settings.text else [settings.data or str(place.split(settings.split or "test"))]
    )
    keep_apart(read, [path, file.manifest_path, file.invalid_path, *file.backups])
    if real(path.parent) in {
        real(folder) for folder in (place.data, *read)
    }:  # a folder of data is read more than once
        raise UserError("is in a folder of data", where=str(path), todo="give another --out")
    with file.lock():
        pass  # refused now, and not when all is read and loaded


def next_commands(settings: GenerateSettings, out: Path) -> str:
    """The commands to go on with, if there are targets beside the predictions in `out`."""
    if not out.is_file() or next(PredictionsFile(out).lines(), {}).get("target") is None:
        return ""
    where, place = settings.workspace, settings.place
    written = out if settings.out or settings.resume else None
    score = f"`{command_line('score', ScoreSettings(predictions=written, workspace=where))}`"
    is_own_choice = any(settings.some("data", "model", "exact").values())
    if is_own_choice or not is_compared(place.model("pipelined"), place.model("sequential")):
        return score
    return f"{score}, or `{command_line('report', ReportSettings(workspace=where))}`"
