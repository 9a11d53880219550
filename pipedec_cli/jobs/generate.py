"""`pipedec generate`: text from sources, with a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.locking import only_writer
from pipedec_cli.data.predictions import PredictionsFile
from pipedec_cli.data.reading import keep_apart, real
from pipedec_cli.data.records import DecoderKind, Delay, Draft, Generated
from pipedec_cli.data.shards import Shard
from pipedec_cli.data.trained import is_compared
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.data.writing import read_whole_lines
from pipedec_cli.jobs import settings as common
from pipedec_cli.jobs.commands import command_line
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.loading import load_any, read_inputs
from pipedec_cli.jobs.settings import Dtype, WorkflowSettings, argument, option
from pipedec_cli.pipeline.grid import EmptyRows

_decoding, _data, _machine, _shards = (
    partial(option, panel=name) for name in ("Decoding", "Data", "Machine", "Large corpora")
)


@dataclass(frozen=True, kw_only=True)
class GenerateSettings(WorkflowSettings):
    """The settings of one run; None leaves one to the checkpoint, the workspace or the machine."""

    data: str | None = argument(
        "What to generate from: JSON lines (a file, or - for standard input), .json, .csv, .tsv or .parquet, a "
        "folder or a hub data set; targets are not needed \\[default: the workspace's test set]."
    )
    text: tuple[str, ...] = option(
        (), "A source instead of DATA; may be given several times. The text goes to stdout, a line each."
    )
    model: str | None = option(
        None, "A folder that `pipedec train` made, another model, or a hub name \\[default: the workspace's]."
    )
    decoder: DecoderKind | None = option(
        None,
        "Which of the workspace's models: the pipelined one or the sequential model \\[default: pipelined].",
    )
    delay: Delay | None = _decoding(
        None,
        "Δt: a new subsequence starts every N time-steps. 'wait' starts one when the one before has "
        "ended, with the same model \\[default: as trained, 2 for a model that serves any].",
        parser=common.number_or("wait"),
        metavar="N|wait",
    )
    force: bool = _decoding(
        False, "Allow a delay that the model was not trained for; it is likely to drop text."
    )
    empty_rows: EmptyRows | None = _decoding(
        None,
        "What to do after a subsequence that came out empty: keep it and try again at the next start, as in the paper "
        "(retry); keep it and start no more (stop); or take it back and try the same subsequence again (retract) "
        "\\[default: as trained, which is stop for a model that a teacher taught, else retry; retract with --min-start-prob].",
    )
    stop_on_repeat: bool | None = _decoding(
        None,
        "End the text when it starts to repeat itself \\[default: as trained, which is yes for a model that a teacher taught "
        "on sentences].",
        "--stop-on-repeat/--no-stop-on-repeat",
    )
    min_start_prob: float | None = _decoding(
        None,
        "Start a subsequence early only if its first token has at least this probability, from 0 to 1.",
        min=0,
        max=1,
        metavar="P",
    )
    exact: str | None = _decoding(
        None,
        "Write the very text of this sequential model (a folder or a hub name), faster: its tokens are checked against a draft, "
        "several in a call.",
        metavar="MODEL",
    )
    draft: Draft | None = _decoding(
        None,
        "What the draft of --exact is: the pipelined decoder's text, n-grams of the source and of the text so far, or the "
        "model's own guesses \\[default: pipelined where there is such a model, else source].",
    )
    unconstrained: bool = _decoding(
        False, "Let the values of fields be any text, not only what the schema's types and enums allow."
    )
    time_max: int | None = _decoding(
        None,
        "The last time-step \\[default: as trained: what held nearly all targets at Δt up to 3, at least 50; none for "
        "wait, retract and sequential].",
        min=1,
    )
    sub_max: int | None = _decoding(
        None,
        "The most subsequences, empty ones included where they are not taken back \\[default: as segmented, which is "
        "20 unless you say otherwise; no bound for sequential].",
        min=1,
    )
    max_tokens: int | None = _decoding(
        None, "The most tokens \\[default: 512 for wait, retract and sequential, else no bound].", min=1
    )
    plain: bool = _data(
        False,
        "DATA is plain text, a source a line: a file, gzipped or not, or -. Blank lines are passed over; the "
        "line number is the identifier.",
    )
    split: Literal["test", "dev", "train"] | None = _data(
        None, "Of the workspace, of a folder or of a hub data set \\[default: test]."
    )
    limit: int | None = _data(None, "The first N examples only.", min=1)
    source_field: str = _data("source", "The field that text is generated from.")
    target_field: str = _data("target", "The field with the right answer, for `pipedec score`.")
    id_field: str = _data("id", "The field with the identifier; else the line number is one.")
    source_prefix: str | None = _data(
        None, "Put before every source, as in T5's task prefixes ('summarize: ') \\[default: as trained]."
    )
    prompt_template: str | None = common.prompt_template_option(
        "as trained; of a model from elsewhere the source and a blank line", panel="Data"
    )
    chat: bool | None = common.chat_option("as trained; --no-chat for a model from elsewhere", panel="Data")
    max_source_tokens: int | None = _data(
        None,
        "Cut longer sources to so many tokens; attention costs the square \\[default: as trained].",
        min=2,
        max=65_536,
    )
    set_aside: bool = _data(
        False,
        "Pass over records that cannot be used instead of refusing them all: what is wrong with each is written to "
        "NAME.invalid.jsonl; shards always do.",
    )
    shard: Shard | None = _shards(
        None,
        "Generate the Kth of N parts of the records, to a file of its own in the folder --out; the same command goes on after "
        "a stop.",
        parser=common.parse_shard,
        metavar="K/N",
    )
    engine: Literal["ray"] | None = _shards(
        None,
        "Generate all shards with Ray Data, on this machine or a cluster, to the folder --out, which all workers must have under "
        "this name; whole shards are left as they are. Needs `pip install '.\\[ray]'`.",
    )
    workers: int | None = _shards(
        None,
        "Of Ray, each with a decoder of its own, on a GPU or on --threads, 1 by default \\[default: what the machine or cluster "
        "has room for].",
        min=1,
        max=100_000,
    )
    address: str | None = _shards(
        None,
        "Of a Ray cluster \\[default: $RAY_ADDRESS, else one is started on this machine and ended].",
        metavar="HOST:PORT|auto",
    )
    merge: Path | None = _shards(
        None,
        "Put the shards in a folder together, in order, once all are there: to predictions.jsonl in it, or to --out. "
        "Nothing is generated.",
        metavar="FOLDER",
    )
    batch_size: int | Literal["auto"] = _machine(
        "auto",
        "Examples decoded at the same time; more of them a second, the same text. 'auto' goes by the memory.",
    )
    dtype: Dtype = _machine(
        "float32",
        "bfloat16 is faster and may change a token; on a CPU, int8 is fastest; float16 is for GPUs.",
    )
    device: str = common.device_option(panel="Machine")
    threads: int | None = common.threads_key()
    out: str | None = common.general(
        None,
        "The file of predictions, or - for stdout; with --shard their folder \\[default: generations/NAME.jsonl in the "
        "workspace].",
        metavar="FILE|-",
    )
    resume: bool = common.general(
        False,
        "Go on where a stopped run has left off. Without it a new file is begun, and what stood there is "
        "kept as FILE.bak.",
    )
    trace: bool | None = common.general(
        None,
        "Write the grid (start time and token ids of every subsequence) and the source's ids, too; the report replays "
        "them \\[default: in the workspace's files].",
        "--trace/--no-trace",
    )
    live: bool = common.general(False, "Show the grid while it is being decoded, on stderr.")
    live_speed: float | None = common.general(
        None,
        "Show the grid, on a terminal at no more than X steps a second; the `seconds` of the output leave the "
        "waiting out \\[default: 10 for a single text, else as they come].",
        min=0.1,
    )


def generate(
    settings: GenerateSettings,
    notify: Notify,
    emit: Callable[[Generated, Mapping[str, Any]], None] | None = None,
) -> dict[str, Any] | None:
    """Generate as the settings say. Gives what was done as plain values, or None if the lines went to `emit`.

    `emit` takes each result, and its line, where the output is standard output.
    """
    if settings.live_speed:
        settings = replace(settings, live=True)
    # A config file or a recipe means the pipelined decoder at a fixed delay.
    if settings.decoder == "sequential" and "delay" not in settings.typed:
        settings = replace(settings, delay=None)
    if settings.decoder == "sequential" or settings.delay == "wait":
        unbound = dict.fromkeys({"time_max", "sub_max"} - settings.typed)
        settings = replace(settings, **unbound)  # type: ignore[arg-type]
    if not settings.engine and (given := settings.typed & {"workers", "address"}):
        raise UserError(f"--{min(given)} is for --engine ray alone", todo="leave it out")
    if settings.merge:
        of_it = {"merge", "out", *(one.name for one in fields(WorkflowSettings))}
        if given := settings.typed - of_it - {"data", "text", "shard"}:
            what = f"--merge takes what was generated: --{min(given).replace('_', '-')} does not apply"
            raise UserError(what, todo="leave it out")

        from pipedec_cli.jobs.merging import merge

        done = merge(settings.merge, settings, notify, emit)
    elif settings.engine:
        from pipedec_cli.jobs.cluster import generate_on_ray

        done = generate_on_ray(settings, notify)
    else:
        done = run(settings, notify, emit)
    if done is not None and (then := _next(settings, Path(done["out"]))):
        notify.say(f"next: {then}")
    return done


def _next(settings: GenerateSettings, out: Path) -> str:
    """What can be done with a shard, or with predictions beside which right answers stand; nothing with others."""
    if settings.shard:
        return f"{command_line('generate', merge=settings.out)}, once all shards are there"
    if not out.is_file() or next(read_whole_lines(out), {}).get("target") is None:
        return ""
    where, own = (
        settings.some("workspace"),
        any(settings.some("data", "model", "exact", "decoder", "merge").values()),
    )
    place = Workspace.find(settings.workspace)
    own = own or not is_compared(place.model("pipelined"), place.model("sequential"))
    report = "" if own else f", or {command_line('report', compare='sequential', **where)}"
    return (
        command_line("score", out if settings.out or settings.resume or settings.merge else None, **where)
        + report
    )


def job_folder(settings: GenerateSettings) -> Path:
    """The folder that shards go to; a `UserError` if it cannot be that."""
    if settings.text or settings.out in (None, "-"):
        raise UserError("shards are of DATA, each a file in a folder", todo="name the folder with --out")
    assert settings.out is not None
    folder = Path(settings.out)
    if folder.exists() and not folder.is_dir():
        raise UserError("is a file", where=settings.out, todo="name a folder, in which each shard has a file")
    if settings.data is not None and real(folder) == real(settings.data):
        raise UserError("is the folder that is read from", where=settings.out, todo="give another --out")
    return folder


def run(
    settings: GenerateSettings,
    notify: Notify,
    emit: Callable[[Generated, Mapping[str, Any]], None] | None = None,
) -> dict[str, Any] | None:
    """Generate as the settings say; gives what was done as plain values, or None if the lines went to stdout."""
    out, texts = settings.out, settings.text
    if texts and settings.data is not None:
        raise UserError("--text and DATA are both given", todo="give one of them")
    to_stdout = out == "-" or (out is None and bool(texts))
    if settings.draft and not settings.exact:
        raise UserError("--draft is for --exact alone", todo="name the sequential model with --exact")
    if settings.exact and settings.decoder:
        todo = "leave out --decoder: --exact names the model"
        raise UserError("--exact and --decoder are both given", todo=todo)
    if to_stdout and settings.resume:
        raise UserError("--resume goes on with a file, and this run writes none", todo="name one with --out")
    if settings.shard:
        out = str(job_folder(settings) / settings.shard.file)
    if out is not None and not to_stdout:
        path = Path(out)
        if path.is_dir():
            raise UserError("is a folder", where=out, todo="name a file in it, or give --shard K/N")
        if path.suffix == ".gz":
            raise UserError("predictions are not compressed", where=out, todo="leave out .gz")
        if path.is_file() or not path.exists():
            files, place = PredictionsFile(path), Workspace.find(settings.workspace)
            usual = [] if texts else [place.split(settings.split or "test")]
            read = usual if settings.data is None else [settings.data]
            keep_apart(read, [path, files.manifest_path, files.invalid_path, *files.backups])
            if real(path.parent) in map(real, [place.data, *read]):  # which is looked through more than once
                raise UserError("is in a folder of data", where=out, todo="give another --out")
            with only_writer(path, todo="choose another --out"):
                pass  # else it would be refused once all is read and loaded

    inputs = read_inputs(settings, notify)
    decoder = load_any(settings, notify)

    from pipedec_cli.jobs.predicting import Predictions

    predictions = Predictions(settings, decoder, inputs, notify)
    predictions.announce()
    if not to_stdout:
        return predictions.write(Path(out) if out else predictions.path())

    assert emit is not None, "somebody takes what goes to standard output"
    predictions.generate(lambda generated: emit(generated, predictions.line(generated)))
    return None
