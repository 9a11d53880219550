"""`pipedec report`: plan the entries, write and score their texts, measure them, and say which one to take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pipedec_cli.compare.comparison import (
    WAITING,
    Report,
    Sample,
    assemble,
    choose_sample,
    with_quality,
)
from pipedec_cli.compare.entry import Entry, Quality, Role, TextAgreement
from pipedec_cli.compare.peers import MAX_TOKENS, PeerName, require_gguf
from pipedec_cli.compare.runners import EngineRunner, make_runner, source_ids
from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.inputs import Inputs, is_hub_name
from pipedec_cli.data.paper import paper_figures
from pipedec_cli.data.reading import read_json, real, require_place, require_writable
from pipedec_cli.data.records import Draft, Manifest, SplitName, Teacher
from pipedec_cli.data.trained import curve_of, examples_seen, is_model, taught_by
from pipedec_cli.data.workspace import segmented_with
from pipedec_cli.data.writing import (
    manifest,
    require_own_together,
    to_json,
    write_together,
)
from pipedec_cli.jobs.commands import command_line, sequential_training
from pipedec_cli.jobs.events import Listen, silent
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.jobs.loading import (
    find_model,
    inherit_prompt,
    load_decoder,
    read_inputs,
)
from pipedec_cli.jobs.measuring import measure, parse_compared
from pipedec_cli.jobs.report_settings import REPEATS, ReportSettings
from pipedec_cli.jobs.score import ScoreSettings, score_runs
from pipedec_cli.metrics import TASK_OF
from pipedec_cli.metrics.scoring import (
    ScoredRun,
    compare_runs,
    load_runs,
    method,
    unscored_run,
)

if TYPE_CHECKING:
    from pipedec_cli.decoding.decoder import Decoder

#: The most bytes of sources that entries with the same weights share.
KEPT_BYTES: Final = 512 << 20
#: A training with so many times the examples of another is no fair comparison.
UNLIKE: Final = 1.5


@dataclass(frozen=True, slots=True)
class Way:
    """A way to decode: the settings of `generate`, and the decoder that they load."""

    name: str
    role: Role
    settings: GenerateSettings
    decoder: Decoder


def _entry(way: Way, inputs: Mapping[SplitName | None, Inputs]) -> Entry:
    """The entry of a way to decode. Its command writes the texts of the split that everything is measured on."""
    from pipedec_cli.jobs.run import plan_run  # late: it imports torch
    from pipedec_cli.model.text import SOURCE, usual_prompt

    how, decoder = way.settings, way.decoder
    runs = [
        plan_run(replace(how, split=split), decoder, read)
        for split, read in inputs.items()
    ]
    delay: int | Literal["together"] | None = (
        how.delay if isinstance(how.delay, int) else None
    )
    split = [*inputs][-1]
    printed = replace(
        how, confidence=False, limit=None, split=split, batch_size="auto", device="auto"
    )
    # What makes `generate` read sources as this decoder does.
    own, text, read = decoder.settings, decoder.text, dict[str, Any]()
    if (
        decoder.drafter is None or decoder.drafter.decoder is None
    ):  # else `generate` lets both read alike
        if text.prompt is None and text.prefix != own.source_prefix:
            read["prompt_template"] = text.prefix + SOURCE
        if text.max_source_tokens != decoder.checkpoint.codec().max_source_tokens:
            read["max_source_tokens"] = text.max_source_tokens
    if text.prompt is not None:
        usual = own.prompt == usual_prompt(chat=own.chat)
        known = usual_prompt(chat=text.prompt.chat) if usual else own.prompt
        if text.prompt.chat != own.chat:
            read["chat"] = text.prompt.chat
        if text.prompt.template != known:
            read["prompt_template"] = text.prompt.template
    return Entry(
        name=way.name,
        role=way.role,
        runner=make_runner(decoder, how.some("delay", "empty_rows", "stop_on_repeat")),
        command=command_line("generate", replace(printed, **read)),
        delay="together"
        if decoder.checkpoint.together and way.role != "baseline"
        else delay,
        runs=tuple(runs),
    )


def plan_entries(
    settings: ReportSettings, peers: Sequence[PeerName], drafts: Sequence[Draft]
) -> tuple[list[Entry], str]:
    """Load the models and plan the entries, the baseline first and peers left out; and the baseline in a few words."""
    same = (
        "data",
        "limit",
        "max_tokens",
        "batch_size",
        "device",
        "model",
        "dtype",
        "workspace",
    )
    usual = GenerateSettings(**settings.some(*same))
    pipelined = load_decoder(usual)
    settings, teacher = _with_teacher(settings, pipelined.checkpoint.name)
    others = [*(f"exact-{draft}" for draft in drafts), *peers]
    sequential = _load_sequential(settings.baseline, usual, others)
    served = (
        [] if pipelined.checkpoint.together else _serving(settings, usual, pipelined)
    )
    if sequential is not None:
        inherit_prompt(None, None, sequential, pipelined)
    inputs = {
        split: read_inputs(replace(usual, split=split))
        for split in settings.split or (None,)
    }
    ways = list[Way]()
    if pipelined.checkpoint.together:
        if settings.delays is not None:
            raise UserError(
                "fields start all at once: --delays does not apply",
                todo="leave --delays out",
            )
        ways.append(
            Way(
                "fields together",
                "pipelined",
                replace(usual, confidence=True),
                pipelined,
            )
        )
    for delay, serving in served:
        how = replace(usual, delay=delay)
        if serving is not pipelined:
            how = replace(how, model=serving.checkpoint.name)
        ways.append(Way(f"Δt = {delay}", "pipelined", how, serving))
    waiting = replace(usual, delay="wait")
    if sequential is None:
        trains = sequential_training(pipelined.checkpoint.name, settings.workspace)
        log.warning(
            f"no sequential model: the waiting schedule takes its place; `{trains}` makes one"
        )
        baseline = Way(WAITING, "baseline", waiting, pipelined)
        called = "the same checkpoint's waiting schedule"
    else:
        if "wait" in (settings.delays or ()):
            ways.append(Way(WAITING, "pipelined", waiting, pipelined))
        ways += _exact(drafts, sequential, usual, ways)
        how = replace(usual, model=settings.baseline or "sequential")
        baseline = Way("sequential", "baseline", how, sequential)
        called = "the teacher" if teacher else "the sequential model"
        if teacher and teacher.sha256 not in (None, sequential.sha256):
            name = sequential.checkpoint.name
            log.warning(
                f"{name} is not the teacher that it was: it has been trained since"
            )
        seen = [
            examples_seen(decoder.checkpoint.name) or 0
            for decoder in (pipelined, sequential)
        ]
        if not teacher and max(seen) > UNLIKE * min(seen) > 0:
            counts = f"{seen[0]:,} examples, the sequential one {seen[1]:,}"
            log.warning(
                f"the pipelined model was trained on {counts}: quality differs for that reason, too"
            )
    return [_entry(way, inputs) for way in (baseline, *ways)], called


def check_comparable(settings: ReportSettings, others: Sequence[str]) -> None:
    """Refuse, before torch is imported, a comparison without the model or the sequential model that it needs."""
    names = (settings.model, settings.baseline or settings.model)
    name, _ = (find_model(name, settings.place) for name in names)
    config = Path(name, "config.json")
    found = (
        read_json(config, Manifest, "pipedec train").get("pipedec")
        if config.is_file()
        else None
    )
    trained = found if isinstance(found, dict) else {}
    if trained.get("decoder") == "sequential":
        todo = "give it as --baseline, and as --model a checkpoint that `pipedec train` made"
        raise UserError(
            f"{name} is a sequential model, not a pipelined decoder", todo=todo
        )
    teacher, own = taught_by(name), settings.place.model("sequential")
    if settings.baseline or teacher or is_model(own):
        sequential = settings.baseline or (teacher.name if teacher else str(own))
        require_gguf(others, sequential, "--baseline", settings.peer_gguf)
        return
    todo = f"run `{sequential_training(name, settings.workspace)}` first, or give --baseline"
    if others:
        what = f"{', '.join(others)} would run the sequential model, and there is none"
        raise UserError(what, todo=f"{todo}, or compare with sequential alone")
    if trained.get("delay", "any") != "any":
        lacking = "no sequential model, and this checkpoint was not trained for its waiting schedule"
        raise UserError(
            f"there is nothing to compare with: {lacking}", where=name, todo=todo
        )


def _exact(
    drafts: Sequence[Draft],
    sequential: Decoder,
    usual: GenerateSettings,
    ours: Sequence[Way],
) -> Iterator[Way]:
    """The sequential model in exact mode. The drafter is the first pipelined way that has a delay."""
    from pipedec_cli.decoding.exact import exact_decoder

    name = sequential.checkpoint.name
    for draft in drafts:
        if draft == "pipelined":
            fixed = [way for way in ours if isinstance(way.settings.delay, int)]
            drafting = (fixed or list(ours))[0]
            how, exact = drafting.settings, exact_decoder(sequential, drafting.decoder)
        else:
            how, exact = replace(usual, model=None), exact_decoder(sequential, draft)
        yield Way(
            f"exact-{draft}",
            "exact",
            replace(how, exact=name, draft=draft, confidence=False),
            exact,
        )


def _serving(
    settings: ReportSettings, usual: GenerateSettings, pipelined: Decoder
) -> list[tuple[int, Decoder]]:
    """The delays to try, each with the checkpoint that serves it."""
    trained, found = pipelined.settings, []
    for delay in (delay for delay in settings.delays or () if isinstance(delay, int)):
        apart = settings.place.model(f"pipelined-delay{delay}")
        if trained.delay in ("any", delay):
            found.append((delay, pipelined))
        elif settings.model is None and apart.exists():
            found.append((delay, load_decoder(replace(usual, model=str(apart)))))
        else:
            found.append((delay, pipelined))  # it refuses the delay
    return found or [(trained.usual_delay, pipelined)]


def _with_teacher(
    settings: ReportSettings, checkpoint: str
) -> tuple[ReportSettings, Teacher | None]:
    """The settings with the teacher of a checkpoint as baseline, if it is still there and no other was given."""
    teacher = taught_by(checkpoint)
    if teacher is None or settings.baseline not in (None, teacher.name):
        return settings, None
    folder = (
        len(teacher.sha256 or "") == 64
    )  # of a hub model it is a commit, of 40 digits
    if not is_model(Path(teacher.name)) and (folder or not is_hub_name(teacher.name)):
        todo = "--baseline says where it is"
        log.warning(
            f"the teacher of {checkpoint} is no longer at {teacher.name}: {todo}"
        )
        return settings, None
    own = real(teacher.name) == real(settings.place.model("sequential"))
    return replace(settings, baseline=None if own else teacher.name), teacher


def _load_sequential(
    given: str | None, usual: GenerateSettings, others: Sequence[str]
) -> Decoder | None:
    """The sequential model that was given, or the workspace's; None if there is none and no entry needs it."""
    folder = usual.place.model("sequential")
    if given is None and not is_model(folder):
        if folder.exists():
            left_out = (
                f"the training of {folder} has not come to its end: it is left out"
            )
            log.warning(
                f"{left_out}; the command that began it finishes it with --resume"
            )
        return None
    # Our engine may empty the model's matrices, unless transformers runs the loaded
    # model itself.
    usual, consume = (
        replace(usual, model=given or str(folder)),
        "transformers" not in others,
    )
    sequential = load_decoder(usual, consume=consume)
    if sequential.settings.decoder != "sequential":
        todo = "--baseline takes a sequential model; `pipedec train --decoder sequential` makes one"
        raise UserError(
            f"{sequential.checkpoint.name} is a pipelined decoder", todo=todo
        )
    return sequential


def compare(
    settings: ReportSettings,
    peers: Sequence[PeerName],
    drafts: Sequence[Draft],
    listen: Listen,
) -> tuple[list[Path], Report]:
    """Plan, generate, score and measure. Returns the files of predictions and the comparison."""
    planned, called = plan_entries(settings, peers, drafts)
    files, entries = _write_and_score(settings, planned, listen)
    first = entries[0].quality.scored
    assert first is not None
    records = [prediction.record for prediction in first.run.predictions]
    wanted = (
        len(records) if settings.timing_examples == "all" else settings.timing_examples
    )
    chosen = choose_sample(len(records), wanted)
    timed = [record for at in chosen if (record := records[at])]
    encode = cache(
        lambda decoder: [source_ids(decoder, record.source) for record in timed]
    )
    entries = [replace(one, sources=encode(one.runs[0].decoder)) for one in entries]
    baseline = entries[0].runs[0]
    name, repeats = baseline.decoder.checkpoint.name, ""
    if baseline.method.stop_on_repeat:
        repeats = ", which ends a text that repeats itself"
    in_words = (
        f"the waiting schedule of the same checkpoint ({name}){repeats}: not the sequential model, which needs about "
        "one decoder call a subsequence less; `pipedec train --decoder sequential` makes one to compare with"
    )
    if entries[0].name == "sequential":
        in_words = f"{called} ({name}), the whole target as one string, on our engine"
    most = baseline.method.limits.max_tokens or MAX_TOKENS
    try:
        measured, conditions = measure(
            settings, entries, peers, baseline.decoder.checkpoint, most, listen
        )
    except KeyboardInterrupt:
        again = "the same command times again, and takes the predictions as they are"
        log.warning(f"stopped while timing: {again}")
        raise
    recipe = settings.recipe
    if not recipe and settings.data is None:
        recipe = segmented_with(settings.place.segmentation, "recipe")
    return files, assemble(
        measured,
        conditions,
        [record.id for record in timed],
        called=called,
        metric=first.scores.measure.primary,
        baseline=in_words,
        sample=Sample(len(chosen), len(records), REPEATS),
        split=settings.split[-1] if settings.split else None,
        dtype=settings.dtype,
        significance=f"decoder minus baseline, {method()}",
        paper=paper_figures(recipe) if recipe else None,
    )


def _write_and_score(
    settings: ReportSettings, entries: Sequence[Entry], listen: Listen
) -> tuple[list[Path], list[Entry]]:
    """Generate what is missing, and score it: the files, and the entries with their quality on each split."""
    from pipedec_cli.jobs.run import complete  # late: it imports torch

    by = ScoreSettings(workspace=settings.workspace)
    files: list[Path] = []
    scored: list[dict[SplitName, ScoredRun]] = [{} for _ in entries]
    splits: Sequence[SplitName] = settings.split or ("test",)
    measure = None
    _keep_sources(entries, KEPT_BYTES)
    for at, split in enumerate(splits):
        some = f", {split}" if len(splits) > 1 else ""
        written = [
            Path(complete(one.runs[at], one.name + some, listen).out) for one in entries
        ]
        files += written
        loaded = load_runs(written)
        runs = [run for run in map(unscored_run, loaded) if run is not None]
        if runs:
            log.warning(
                f"no right answers{some}: nothing is scored but agreement with the baseline"
            )
        else:
            runs = score_runs(by, loaded, listen, settings.limit)
            measure = runs[0].scores.measure
            by = replace(by, task=TASK_OF[measure.name])
        for of_entry, run in zip(scored, runs, strict=True):
            of_entry[split] = run
    _keep_sources(entries, 0)  # timed passes read each source
    if (
        measure is not None
    ):  # a split without right answers is described by the metric of the others
        for of_entry in scored:
            for split, run in of_entry.items():
                if run.is_unscored:
                    of_entry[split] = replace(
                        run, scores=replace(run.scores, measure=measure)
                    )
    keys = max(len(run.method.openings) for one in entries for run in one.runs)
    described = []
    for entry, by_split in zip(entries, scored, strict=True):
        qualities = {split: Quality(run) for split, run in by_split.items()}
        for split, run in by_split.items() if by_split is not scored[0] else ():
            usual = scored[0][split]
            agreement = TextAgreement.between(
                run.run.predictions, usual.run.predictions
            )
            qualities[split] = Quality(run, compare_runs(run, usual), agreement)
        described.append(with_quality(entry, qualities, keys))
    return files, described


def _keep_sources(entries: Sequence[Entry], most: int) -> None:
    """Let engines keep sources for the entries that use them as well, up to so many bytes; 0 forgets them."""
    for run in (run for one in entries for run in one.runs):
        engine = run.decoder.engine(run.batch_size)
        engine.stepper.kept.most = most
        if not most:
            engine.forget()


@dataclass(frozen=True)
class Compared:
    """A report: the comparison, its plain values with a manifest, the models' training curves, and the folder to save it in.

    The curves are by the names of the models' folders.
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
    files, made = compare(settings, peers, drafts, listen)
    resolved = {"peers": peers, "exact": drafts, **settings.recorded}
    content = made.values() | {"manifest": manifest(resolved, inputs=files)}
    runners = [
        one.runner for one in made.entries if one.role in ("baseline", "pipelined")
    ]
    names = dict.fromkeys(
        one.decoder.checkpoint.name for one in runners if isinstance(one, EngineRunner)
    )
    curves = {Path(name).name: curve for name in names if (curve := curve_of(name))}
    compared = Compared(made, content, curves, folder)
    save_report(compared)
    return compared


def save_report(compared: Compared) -> None:
    """Write a report as JSON, as Markdown, and as a page for a browser."""
    from pipedec_cli.page.report import report_page
    from pipedec_cli.view.results import report_markdown

    saved = compared.folder / "report.json"
    texts = {
        saved: [to_json(compared.content, indent=2) + "\n"],
        compared.folder / "report.md": [report_markdown(compared.report)],
        compared.folder / "report.html": [
            report_page(compared.report, compared.curves)
        ],
    }
    write_together(texts, last=saved)
    log.info(f"saved {saved}, report.md and report.html, to be looked at in a browser")
