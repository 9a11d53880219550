"""`pipedec report`: plan the entries, write and score their texts, measure them, and say which one to take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pipedec_cli.compare.comparison import (
    IN_ONE_GO,
    UNTRAINED,
    WAITING,
    Report,
    Sample,
    assemble,
    choose_sample,
)
from pipedec_cli.compare.entry import Entry, Quality, Role, TextAgreement
from pipedec_cli.compare.peers import MAX_TOKENS, require_gguf
from pipedec_cli.compare.runners import EngineRunner, make_runner
from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.inputs import Inputs, is_hub_name
from pipedec_cli.data.paper import PaperFigures, paper_figures
from pipedec_cli.data.reading import real, require_place, require_writable
from pipedec_cli.data.records import Draft, Record, SplitName, Teacher
from pipedec_cli.data.trained import (
    curve_of,
    examples_seen,
    is_gguf,
    is_model,
    taught_by,
    trained_as,
)
from pipedec_cli.data.workspace import segmented_with
from pipedec_cli.data.writing import (
    manifest,
    require_own_together,
    to_json,
    write_together,
)
from pipedec_cli.events import Listen, silent
from pipedec_cli.jobs.command_lines import command_line, sequential_training
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.jobs.loading import (
    find_model,
    inherit_prompt,
    load_decoder,
    load_model,
    read_inputs,
)
from pipedec_cli.jobs.measuring import measure, parse_compared
from pipedec_cli.jobs.pages import page_at
from pipedec_cli.jobs.report_settings import REPEATS, ReportSettings
from pipedec_cli.jobs.report_taught import (
    asked_settings,
    check_taught,
    in_one_go,
    is_taught,
    untrained,
)
from pipedec_cli.jobs.score import ScoreSettings, score_runs
from pipedec_cli.jobs.settings import StoredDtype
from pipedec_cli.metrics import TASK_OF
from pipedec_cli.metrics.differences import method
from pipedec_cli.metrics.measure import Measure, record_beside
from pipedec_cli.metrics.scoring import Scored, compare_runs, load_runs, unscored_run

if TYPE_CHECKING:
    from pipedec_cli.decoding.decoder import Decoder

#: The most bytes of sources that entries with the same weights share.
KEPT_BYTES: Final = 512 << 20
#: A training with so many times the examples of another is no fair comparison.
UNLIKE: Final = 1.5
#: The settings of a report that are settings of `generate`.
_SAME: Final = (
    "data",
    "limit",
    "max_tokens",
    "batch_size",
    "device",
    "model",
    "dtype",
    "workspace",
)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to decode: the settings of `generate`, and the decoder that they load."""

    name: str
    role: Role
    settings: GenerateSettings
    decoder: Decoder


def _entry(way: Way, inputs: Mapping[SplitName | None, Inputs]) -> Entry:
    """The entry of a way to decode, with a run over the `inputs` of each split.

    Its command writes the texts of the last split, on which everything is timed.
    """
    from pipedec_cli.jobs.run import plan_run  # late: it imports torch

    settings = way.settings
    decoder = way.decoder
    runs = []
    for split, records in inputs.items():
        runs.append(plan_run(replace(settings, split=split), decoder, records))
    printed = replace(
        settings,
        confidence=False,
        limit=None,
        split=list(inputs)[-1],
        batch_size="auto",
        device="auto",
        dtype=_told_dtype(settings),
        **_reading(decoder),
    )
    delay: int | Literal["together"] | None = None
    if decoder.checkpoint.together and way.role != "baseline":
        delay = "together"
    elif isinstance(settings.delay, int):
        delay = settings.delay
    choice = settings.some("delay", "empty_rows", "stop_on_repeat", "max_tokens")
    return Entry(
        name=way.name,
        role=way.role,
        runner=make_runner(decoder, choice),
        command=command_line("generate", printed),
        delay=delay,
        runs=tuple(runs),
    )


def _told_dtype(settings: GenerateSettings) -> StoredDtype | None:
    """The dtype that a command has to say; None if it is what the command takes by itself.

    That is float32, but for a GGUF file, whose weights have a type of their own.
    """
    is_stored = is_gguf(settings.model or "") or is_gguf(settings.exact or "")
    if settings.dtype == "float32" and not is_stored:
        return None
    return settings.dtype


def _reading(decoder: Decoder) -> dict[str, Any]:
    """The settings that make `generate` read sources as this decoder does: prompt, chat, and the longest source."""
    from pipedec_cli.model.text import SOURCE, usual_prompt

    trained = decoder.settings
    text = decoder.text
    reading = dict[str, Any]()
    if decoder.blind:  # its settings say how it reads
        return reading
    drafter = decoder.drafter
    # With a pipelined drafter, `generate` lets both read alike by itself.
    if drafter is None or drafter.decoder is None:
        if text.prompt is None and text.prefix != trained.source_prefix:
            reading["prompt_template"] = text.prefix + SOURCE
        if text.max_source_tokens != decoder.checkpoint.codec().max_source_tokens:
            reading["max_source_tokens"] = text.max_source_tokens
    if text.prompt is None:
        return reading
    template = trained.prompt
    if template == usual_prompt(chat=trained.chat):
        template = usual_prompt(chat=text.prompt.chat)
    if text.prompt.chat != trained.chat:
        reading["chat"] = text.prompt.chat
    if text.prompt.template != template:
        reading["prompt_template"] = text.prompt.template
    return reading


def plan_entries(
    settings: ReportSettings, peers: Sequence[str], drafts: Sequence[Draft]
) -> tuple[list[Entry], str]:
    """Load the models and plan an entry for each way to decode, the baseline first.

    The `peers`, decoders of other libraries, get their entries later, but what they run
    must be there. `drafts` are the drafters of exact mode, an entry each. Returns also
    what the baseline is in a few words.
    """
    usual = GenerateSettings(**settings.some(*_SAME))
    if is_taught(settings):
        return _plan_taught(settings, asked_settings(settings, usual))
    pipelined = load_decoder(usual)
    settings, teacher = _with_teacher(settings, pipelined.checkpoint.name)
    others = [*(f"exact-{draft}" for draft in drafts), *peers]
    sequential = _load_sequential(settings.baseline, usual, others)
    if pipelined.checkpoint.together:
        ways = [_together(settings, usual, pipelined)]
    else:
        ways = _delayed(settings, usual, pipelined)
    if sequential is not None:
        inherit_prompt(None, None, sequential, pipelined)
    waiting = replace(usual, delay="wait")
    if sequential is None:
        trains = sequential_training(pipelined.checkpoint.name, settings.workspace)
        instead = "the waiting schedule takes its place"
        log.warning(f"no sequential model: {instead}; `{trains}` makes one")
        baseline = Way(WAITING, "baseline", waiting, pipelined)
        called = "the same checkpoint's waiting schedule"
    else:
        if "wait" in (settings.delays or ()):
            ways.append(Way(WAITING, "pipelined", waiting, pipelined))
        ways += _exact(drafts, sequential, usual, ways)
        plain = replace(usual, model=settings.baseline or "sequential")
        baseline = Way("sequential", "baseline", plain, sequential)
        called = "the teacher" if teacher else "the sequential model"
        _warn_unlike(pipelined, sequential, teacher)
    return _entries(settings, (baseline, *ways)), called


def _entries(settings: ReportSettings, ways: Sequence[Way]) -> list[Entry]:
    """An entry for each way, with runs over the splits of the settings."""
    inputs = {}
    for split in settings.split or (None,):
        inputs[split] = read_inputs(replace(ways[0].settings, split=split))
    return [_entry(way, inputs) for way in ways]


def _plan_taught(
    settings: ReportSettings, asked: GenerateSettings
) -> tuple[list[Entry], str]:
    """Entries for the model that a taught one was, for the taught one, and for the ordinary way without a training.

    The first two are asked the same questions, in the way of the taught model.
    """
    from pipedec_cli.decoding.blind import plan_of

    taught = load_model(asked)
    before = untrained(settings)
    chat = plan_of(taught).chat
    asked_alike = replace(asked, model=before, chat=chat)
    untaught = load_model(asked_alike)
    ways = [
        Way(UNTRAINED, "baseline", asked_alike, untaught),
        Way("taught", "pipelined", asked, taught),
    ]
    ordinary = in_one_go(untaught, chat=chat)
    if ordinary is not None:
        at_once = replace(asked_alike, whole=True, confidence=False)
        ways.append(Way(IN_ONE_GO, "ordinary", at_once, ordinary))
    return _entries(settings, ways), "the same model untrained"


def _together(
    settings: ReportSettings, usual: GenerateSettings, pipelined: Decoder
) -> Way:
    """The way of a model for fields: all rows together."""
    if settings.delays is not None:
        what = "fields start all at once: --delays does not apply"
        raise UserError(what, todo="leave --delays out")
    sure = replace(usual, confidence=True)
    return Way("fields together", "pipelined", sure, pipelined)


def _delayed(
    settings: ReportSettings, usual: GenerateSettings, pipelined: Decoder
) -> list[Way]:
    """A way for each delay."""
    ways = []
    for delay, decoder in _serving(settings, usual, pipelined):
        at_delay = replace(usual, delay=delay)
        if decoder is not pipelined:
            at_delay = replace(at_delay, model=decoder.checkpoint.name)
        ways.append(Way(f"Δt = {delay}", "pipelined", at_delay, decoder))
    return ways


def _warn_unlike(
    pipelined: Decoder, sequential: Decoder, teacher: Teacher | None
) -> None:
    """Warn where the two models differ in more than how they decode: in their training, or from the teacher as it was.

    `teacher` is what the pipelined model's training.json says of the sequential one; None
    if it had another teacher or none.
    """
    if teacher and teacher.sha256 not in (None, sequential.sha256):
        name = sequential.checkpoint.name
        what = "is not the teacher that it was: it has been trained since"
        log.warning(f"{name} {what}")
    if teacher:
        return
    ours = examples_seen(pipelined.checkpoint.name) or 0
    theirs = examples_seen(sequential.checkpoint.name) or 0
    if max(ours, theirs) > UNLIKE * min(ours, theirs) > 0:
        counts = f"{ours:,} examples, the sequential one {theirs:,}"
        what = f"the pipelined model was trained on {counts}"
        log.warning(f"{what}: quality differs for that reason, too")


def check_comparable(settings: ReportSettings, others: Sequence[str]) -> None:
    """Refuse, before torch is imported, a comparison without a model that it needs.

    `others` are the names of entries that run the sequential model: exact mode, peers.
    """
    name = find_model(settings.model, settings.place)
    if settings.baseline is not None:
        find_model(settings.baseline, settings.place)  # it refuses what is not there
    trained = trained_as(name)
    if trained.get("questions"):
        check_taught(settings, others)
        return
    if trained.get("decoder") == "sequential":
        raise UserError(
            f"{name} is a sequential model, not a pipelined decoder",
            todo="give it as --baseline, and as --model a checkpoint that `pipedec train` made",
        )
    teacher = taught_by(name)
    own = settings.place.model("sequential")
    if settings.baseline or teacher or is_model(own):
        sequential = settings.baseline or (teacher.name if teacher else str(own))
        require_gguf(others, sequential, "--baseline", settings.peer_gguf)
        return
    trains = sequential_training(name, settings.workspace)
    todo = f"run `{trains}` first, or give --baseline"
    if others:
        what = f"{', '.join(others)} would run the sequential model, and there is none"
        raise UserError(what, todo=f"{todo}, or compare with sequential alone")
    if trained.get("delay", "any") != "any":
        waiting = "this checkpoint was not trained for its waiting schedule"
        what = f"there is nothing to compare with: no sequential model, and {waiting}"
        raise UserError(what, where=name, todo=todo)


def _exact(
    drafts: Sequence[Draft],
    sequential: Decoder,
    usual: GenerateSettings,
    ours: Sequence[Way],
) -> Iterator[Way]:
    """A way for each of the `drafts`: the sequential model in exact mode, which checks what a drafter guesses.

    A pipelined drafter is that of the first way among `ours` that has a delay.
    """
    from pipedec_cli.decoding.exact import exact_decoder

    name = sequential.checkpoint.name
    for draft in drafts:
        if draft == "pipelined":
            drafting = _drafting(ours)
            settings = drafting.settings
            decoder = exact_decoder(sequential, drafting.decoder)
        else:
            settings = replace(usual, model=None)
            decoder = exact_decoder(sequential, draft)
        settings = replace(settings, exact=name, draft=draft, confidence=False)
        yield Way(f"exact-{draft}", "exact", settings, decoder)


def _drafting(ways: Sequence[Way]) -> Way:
    """The first way at a delay, else the first."""
    for way in ways:
        if isinstance(way.settings.delay, int):
            return way
    return ways[0]


def _serving(
    settings: ReportSettings, usual: GenerateSettings, pipelined: Decoder
) -> list[tuple[int, Decoder]]:
    """The delays to try, each with the model that was trained for it.

    A workspace may have models of their own for some delays. Where no model was trained
    for a delay, the pipelined one stands, which refuses it.
    """
    trained = pipelined.settings
    serving = []
    for delay in settings.delays or ():
        if delay == "wait":
            continue
        apart = settings.place.model(f"pipelined-delay{delay}")
        if trained.delay in ("any", delay):
            serving.append((delay, pipelined))
        elif settings.model is None and apart.exists():
            serving.append((delay, load_decoder(replace(usual, model=str(apart)))))
        else:
            serving.append((delay, pipelined))
    return serving or [(trained.usual_delay, pipelined)]


def _with_teacher(
    settings: ReportSettings, checkpoint: str
) -> tuple[ReportSettings, Teacher | None]:
    """The settings with the teacher of a checkpoint as baseline, and the teacher.

    None, and the settings as they were, if it had none, if it is no longer there, or if
    the user gave another baseline.
    """
    teacher = taught_by(checkpoint)
    if teacher is None or settings.baseline not in (None, teacher.name):
        return settings, None
    # Of a folder it is a hash of 64 digits, of a hub model a commit of 40.
    was_folder = len(teacher.sha256 or "") == 64
    may_be_hub = is_hub_name(teacher.name) and not was_folder
    if not is_model(Path(teacher.name)) and not may_be_hub:
        gone = f"the teacher of {checkpoint} is no longer at {teacher.name}"
        log.warning(f"{gone}: --baseline says where it is")
        return settings, None
    own = real(teacher.name) == real(settings.place.model("sequential"))
    return replace(settings, baseline=None if own else teacher.name), teacher


def _load_sequential(
    given: str | None, usual: GenerateSettings, others: Sequence[str]
) -> Decoder | None:
    """The sequential model that was `given`, or the workspace's; None if neither is there.

    `usual` are the settings by which it is loaded, `others` the names of the entries
    that run it in other ways.
    """
    folder = usual.place.model("sequential")
    if given is None and not is_model(folder):
        if folder.exists():
            left_out = (
                f"the training of {folder} has not come to its end: it is left out"
            )
            resumes = "the command that began it finishes it with --resume"
            log.warning(f"{left_out}; {resumes}")
        return None
    # Our engine may empty the model's matrices, unless transformers runs the loaded
    # model itself.
    consume = "transformers" not in others
    settings = replace(usual, model=given or str(folder))
    sequential = load_decoder(settings, consume=consume)
    if sequential.settings.decoder != "sequential":
        raise UserError(
            f"{sequential.checkpoint.name} is a pipelined decoder",
            todo="--baseline takes a sequential model; `pipedec train --decoder sequential` makes one",
        )
    return sequential


def compare(
    settings: ReportSettings,
    peers: Sequence[str],
    drafts: Sequence[Draft],
    listen: Listen,
) -> tuple[list[Path], Report]:
    """Plan an entry for each way to decode, generate what is missing, score and measure.

    Returns the files of predictions and the comparison. `peers` and `drafts` are as in
    `plan_entries`.
    """
    planned, called = plan_entries(settings, peers, drafts)
    files, qualities = _write_and_score(settings, planned, listen)
    scored = list(qualities[planned[0].name].values())[-1].scored
    assert scored is not None
    records = _to_time(settings, scored)
    entries = _with_sources(planned, records)
    baseline = planned[0].runs[0]
    most = baseline.method.limits.max_tokens or MAX_TOKENS
    checkpoint = baseline.decoder.checkpoint
    try:
        filled, conditions = measure(
            settings,
            entries,
            peers,
            checkpoint,
            most,
            listen,
            qualities=qualities,
            keys=_key_count(planned),
        )
    except KeyboardInterrupt:
        again = "the same command times again, and takes the predictions as they are"
        log.warning(f"stopped while timing: {again}")
        raise
    report = assemble(
        filled,
        conditions,
        [record.id for record in records],
        called=called,
        metric=scored.scores.measure.primary,
        baseline=_in_words(planned[0], called),
        sample=Sample(len(records), len(scored.items), REPEATS),
        split=settings.split[-1] if settings.split else None,
        dtype=settings.dtype,
        significance=f"decoder minus baseline, {method()}",
        paper=_paper(settings),
    )
    return files, report


def _with_sources(entries: Sequence[Entry], records: Sequence[Record]) -> list[Entry]:
    """The entries with the sources that are timed. Entries of one decoder share its ids."""
    read: dict[Decoder, list[list[int]]] = {}
    filled = []
    for entry in entries:
        assert isinstance(entry.runner, EngineRunner), "it is one of ours"
        decoder = entry.runs[0].decoder
        if decoder not in read:
            read[decoder] = [entry.runner.read(record.source) for record in records]
        filled.append(replace(entry, sources=read[decoder]))
    return filled


def _paper(settings: ReportSettings) -> PaperFigures | None:
    """The paper's figures of the recipe, or of that which segmented the data."""
    recipe = settings.recipe
    if not recipe and settings.data is None:
        recipe = segmented_with(settings.place.segmentation, "recipe")
    return paper_figures(recipe) if recipe else None


def _key_count(entries: Sequence[Entry]) -> int:
    """The number of keys of an object that the entries write; 0 for texts."""
    most = 0
    for entry in entries:
        for run in entry.runs:
            most = max(most, len(run.method.openings))
    return most


def _to_time(settings: ReportSettings, scored: Scored) -> list[Record]:
    """The records that are timed."""
    records = [record_beside(item) for item in scored.items]
    wanted = settings.timing_examples
    if wanted == "all":
        wanted = len(records)
    return [records[place] for place in choose_sample(len(records), wanted)]


def _in_words(baseline: Entry, called: str) -> str:
    """What the baseline is."""
    run = baseline.runs[0]
    name = run.decoder.checkpoint.name
    if baseline.name == UNTRAINED:
        return f"{name}, which was not taught, asked the same questions"
    if baseline.name == "sequential":
        return f"{called} ({name}), the whole target as one string, on our engine"
    repeats = ""
    if run.method.stop_on_repeat:
        repeats = ", which ends a text that repeats itself"
    return (
        f"the waiting schedule of the same checkpoint ({name}){repeats}: not the sequential model, which needs about "
        "one decoder call a subsequence less; `pipedec train --decoder sequential` makes one to compare with"
    )


def _write_and_score(
    settings: ReportSettings, entries: Sequence[Entry], listen: Listen
) -> tuple[list[Path], dict[str, dict[str, Quality]]]:
    """Generate what is missing, and score it, on each split.

    Returns the files of predictions, and the qualities by the entry's name and split. A
    split without right answers is described by agreement with the baseline alone.
    """
    from pipedec_cli.jobs.run import complete  # late: it imports torch

    by = ScoreSettings(workspace=settings.workspace)
    splits: Sequence[SplitName] = settings.split or ("test",)
    files = []
    scored = {}
    measure = None
    _keep_sources(entries, KEPT_BYTES)
    for number, split in enumerate(splits):
        on_split = f", {split}" if len(splits) > 1 else ""
        written = []
        for entry in entries:
            result = complete(entry.runs[number], entry.name + on_split, listen)
            written.append(Path(result.out))
        files += written
        loaded = load_runs(written)
        unscored = [run for run in map(unscored_run, loaded) if run is not None]
        if unscored:
            lacking = f"no right answers{on_split}"
            log.warning(f"{lacking}: nothing is scored but agreement with the baseline")
            scored[split] = unscored
            continue
        runs = score_runs(by, loaded, listen, settings.limit)
        scored[split] = runs
        measure = runs[0].scores.measure
        by = replace(by, task=TASK_OF[measure.name])
    _keep_sources(entries, 0)  # timed passes read each source
    qualities: dict[str, dict[str, Quality]] = {entry.name: {} for entry in entries}
    for split, runs in scored.items():
        described = _described(runs, measure)
        for entry, quality in zip(entries, described, strict=True):
            qualities[entry.name][split] = quality
    return files, qualities


def _described(runs: Sequence[Scored], measure: Measure | None) -> Iterator[Quality]:
    """The qualities of the entries on one split, from their scored runs, the baseline's first.

    A split without right answers is described by the `measure` of the others, if there
    are others.
    """
    if measure is not None and runs[0].is_unscored:
        runs = [
            replace(run, scores=replace(run.scores, measure=measure)) for run in runs
        ]
    first, *others = runs
    yield Quality(first)
    for run in others:
        agreement = TextAgreement.between(run.run.predictions, first.run.predictions)
        yield Quality(run, compare_runs(run, first), agreement)


def _keep_sources(entries: Sequence[Entry], most: int) -> None:
    """Let engines keep what they have computed of each source, for other entries, up to `most` bytes; 0 forgets it."""
    for entry in entries:
        for run in entry.runs:
            engine = run.decoder.engine(run.batch_size)
            engine.stepper.kept.most = most
            if not most:
                engine.forget()


@dataclass(frozen=True)
class Compared:
    """A report: the comparison, its plain values with a manifest, and the training curves.

    The curves are by the names of the models' folders. The report is to be saved in the
    `folder`.
    """

    report: Report
    content: dict[str, Any]
    curves: dict[str, list[dict[str, float]]]
    folder: Path


def report(settings: ReportSettings, listen: Listen = silent) -> Compared:
    """Compare decoders: generate what is missing, score everything, and time a sample."""
    require_place(settings.out, folder=True)
    folder = settings.out or settings.place.report
    require_writable(folder)
    require_own_together(
        (folder / "report.md", folder / "report.html"),
        folder / "report.json",
        {"entries", "advice"},
        "pipedec report",
    )
    peers, drafts = parse_compared(settings)
    check_comparable(settings, [*(f"exact-{draft}" for draft in drafts), *peers])
    if is_taught(settings):
        settings = replace(settings, memory=False)
    files, comparison = compare(settings, peers, drafts, listen)
    resolved = {"peers": peers, "exact": drafts, **settings.recorded}
    content = comparison.values()
    content["manifest"] = manifest(resolved, inputs=files)
    compared = Compared(comparison, content, _curves(comparison), folder)
    save_report(compared)
    return compared


def save_report(compared: Compared) -> None:
    """Write a report as JSON, as Markdown, and as a page for a browser."""
    from pipedec_cli.view.results import report_markdown

    saved = compared.folder / "report.json"
    texts = {
        saved: [to_json(compared.content, indent=2) + "\n"],
        compared.folder / "report.md": [report_markdown(compared.report)],
    }
    texts |= page_at(compared.folder / "report.html", compared.report, compared.curves)
    write_together(texts, last=saved)
    log.info(f"saved {saved}, report.md and report.html, to be looked at in a browser")


def _curves(comparison: Report) -> dict[str, list[dict[str, float]]]:
    """The training curves of our models, by the names of their folders."""
    curves = {}
    for entry in comparison.entries:
        runner = entry.runner
        if entry.role in ("baseline", "pipelined") and isinstance(runner, EngineRunner):
            name = runner.decoder.checkpoint.name
            curve = curve_of(name)
            if curve:
                curves[Path(name).name] = curve
    return curves
