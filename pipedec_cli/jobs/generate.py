"""The job of `pipedec generate`: text from sources, with a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import PredictionsFile
from pipedec_cli.data.reading import keep_apart, real
from pipedec_cli.data.records import Delay, Draft, Generated
from pipedec_cli.data.trained import is_compared
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.jobs import settings as common
from pipedec_cli.jobs.commands import command_line, spelled
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.settings import Dtype, WorkflowSettings, argument, key, option
from pipedec_cli.jobs.tally import GenerateResult
from pipedec_cli.pipeline.grid import EmptyRows

_decoding, _data, _machine = (partial(option, panel=name) for name in ("Decoding", "Data", "Machine"))


@dataclass(frozen=True, kw_only=True)
class RunSettings(WorkflowSettings):
    """What a run of a decoder over records needs. None leaves a setting to the model, the workspace or the machine."""

    data: str | None = argument(
        "JSON lines, .json, .csv, .tsv, .parquet, - (standard input), a folder or a hub name."
    )
    model: str | None = option(None, "A folder, a hub name, pipelined or sequential [default: pipelined].")
    delay: Delay | None = _decoding(
        None,
        "Δt: a row starts every N time-steps [default: trained, or 2].",
        parser=common.number_or("wait"),
        metavar="N|wait",
    )
    empty_rows: EmptyRows | None = _decoding(None, "What to do after an empty row [default: trained].")
    stop_on_repeat: bool | None = _decoding(
        None, "End a text that repeats itself [default: trained].", "--stop-on-repeat/--no-stop-on-repeat"
    )
    min_start_prob: float | None = _decoding(
        None, "Start early only if the first token is this likely.", min=0, max=1, metavar="P"
    )
    exact: str | None = _decoding(None, "Write this sequential model's text in fewer calls.", metavar="MODEL")
    draft: Draft | None = _decoding(None, "What --exact checks [default: pipelined, else source].")
    unconstrained: bool = _decoding(False, "Let fields have values that the schema does not allow.")
    time_max: int | None = _decoding(None, "The last time-step [default: trained].", min=1)
    sub_max: int | None = key(
        None, "The most subsequences, with empty ones that stay; default: as segmented.", min=1
    )
    max_tokens: int | None = key(
        None, "The most tokens; default: 512 for wait, retract and sequential.", min=1
    )
    force: bool = key(False, "Allow a delay that the model was not trained for; it is likely to drop text.")
    plain: bool = _data(False, "DATA is plain text, a source a line.")
    split: Literal["test", "dev", "train"] | None = _data(None, "The split of DATA [default: test].")
    limit: int | None = _data(None, "The first N examples only.", min=1)
    source_field: str = _data("source", "The field to generate from.")
    target_field: str = key("target", "The field with the right answer, for `pipedec score`.")
    id_field: str = key("id", "The field with the identifier; without it the line number is the identifier.")
    source_prefix: str | None = _data(None, "Text before every source [default: as trained].")
    prompt_template: str | None = common.prompt_template_option("as trained", panel="Data")
    chat: bool | None = common.chat_option("as trained", panel="Data")
    max_source_tokens: int | None = _data(
        None, "Cut longer sources [default: as trained].", min=2, max=65_536
    )
    skip_invalid: bool = _data(False, "List invalid records in NAME.invalid.jsonl.")
    batch_size: int | Literal["auto"] = _machine("auto", "Examples decoded at the same time.")
    dtype: Dtype = _machine("float32", "float32, bfloat16, float16 (GPU) or int8 (CPU).", metavar="TYPE")
    device: str = common.device_option(panel="Machine")
    threads: int | None = common.threads_key()
    trace: bool | None = key(
        None, "Write the grid and the source's token ids, for the report; default: in the workspace's files."
    )
    out: str | None = common.general(
        None, "The file, or - for stdout [default: in the workspace].", metavar="FILE|-"
    )
    recipe: str | None = key(None, "A recipe as defaults: paper, a data set of the paper, or fields.")
    # Settings of `generate` alone.
    text: tuple[str, ...] = ()
    resume: bool = False
    live: bool = False
    live_speed: float | None = None


@dataclass(frozen=True, kw_only=True)
class GenerateSettings(RunSettings):
    """The settings of `pipedec generate`."""

    text: tuple[str, ...] = option((), "A source instead of DATA. May be given several times.")
    resume: bool = common.general(False, "Go on after a stop. Else an earlier file becomes FILE.bak.")
    live: bool = common.general(False, "Show the grid while it is decoded, on stderr.")
    live_speed: float | None = key(
        None, "Show the grid, at most X steps a second; default: 10 for a single text.", min=0.1
    )


def generate(
    settings: GenerateSettings,
    notify: Notify,
    emit: Callable[[Generated, Mapping[str, Any]], None] | None = None,
) -> GenerateResult | None:
    """Generate as the settings say. Returns None if the lines went to `emit`, because the output is standard output.

    `emit` takes each result and its line.
    """
    to_stdout = settings.out == "-" or (settings.out is None and bool(settings.text))
    check_settings(settings)
    if to_stdout and settings.resume:
        raise UserError("--resume goes on with a file, and this run writes none", todo="name one with --out")
    if settings.out is not None and not to_stdout:
        check_out(settings, Path(settings.out))

    from pipedec_cli.jobs.loading import load_model, read_inputs

    settings = usual_for_model(settings)
    inputs, decoder = read_inputs(settings, notify), load_model(settings, notify)

    from pipedec_cli.jobs.predicting import announce, stream, write
    from pipedec_cli.jobs.run import plan_run

    run = plan_run(settings, decoder, inputs)
    announce(run, notify)
    if to_stdout:
        assert emit is not None, "the caller takes what goes to standard output"
        stream(run, notify, emit)
        return None
    path, again = Path(settings.out) if settings.out else run.path, "the same command with --resume"
    return write(run, path, notify, resume=settings.resume, again=again)


S = TypeVar("S", bound=RunSettings)


def usual_for_model(settings: S) -> S:
    """The settings without those that a config file or a recipe gives for a pipelined decoder at a fixed delay."""
    dropped: set[str] = set()
    if settings.model == "sequential":
        dropped = {"delay", "time_max", "sub_max"}
    elif settings.delay == "wait":
        dropped = {"time_max", "sub_max"}
    changes: dict[str, Any] = dict.fromkeys(dropped - settings.typed)
    if settings.live_speed:
        changes["live"] = True
    return replace(settings, **changes)


def check_settings(settings: RunSettings) -> None:
    """A `UserError` if settings do not go together."""
    if settings.text and settings.data is not None:
        raise UserError("--text and DATA are both given", todo="give one of them")
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
    file, place = PredictionsFile(path), Workspace.find(settings.workspace)
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
    where, place = settings.some("workspace"), Workspace.find(settings.workspace)
    score = command_line("score", out if settings.out or settings.resume else None, **where)
    is_own_choice = any(settings.some("data", "model", "exact").values())
    if is_own_choice or not is_compared(place.model("pipelined"), place.model("sequential")):
        return score
    return f"{score}, or {command_line('report', compare='sequential', **where)}"
