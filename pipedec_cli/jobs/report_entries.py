"""Who takes part in `pipedec report`: the baseline, our decoders at their delays, and what each makes of the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.places import is_hub_name
from pipedec_cli.data.reading import real
from pipedec_cli.data.records import Draft, Teacher
from pipedec_cli.data.trained import is_model, taught_by
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.evaluate.competitor import Competitor, Role
from pipedec_cli.evaluate.exact import make_runner
from pipedec_cli.evaluate.peers import PeerName
from pipedec_cli.jobs.commands import quoted
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.generate import GenerateSettings
from pipedec_cli.jobs.loading import load_decoder, read_alike, read_as_asked, read_inputs

if TYPE_CHECKING:
    from pipedec_cli.jobs.predicting import Predictions
    from pipedec_cli.jobs.report import ReportSettings
    from pipedec_cli.model.decoder import Decoder
    from pipedec_cli.pipeline.grid import EmptyRows

    #: Decoders, each with its predictions for every split.
    LineUp = list[tuple[Competitor, list[Predictions]]]

#: What names the workspace's decoder where nothing else need be said; `generate` takes it with no --exact.
PIPELINED: Final = "--decoder pipelined"


def line_up(
    settings: ReportSettings,
    peers: Sequence[PeerName],
    drafts: Sequence[Draft],
    place: Workspace,
    notify: Notify,
) -> tuple[LineUp, str, str]:
    """Our decoders, the baseline first, with what they make of each split; and the baseline in words, and in short."""
    shared = ("model", "data", "limit", "batch_size", "dtype", "device", "workspace", "stop_on_repeat")
    usual = GenerateSettings(**settings.some(*shared))
    pipelined = load_decoder(usual, notify)

    from pipedec_cli.jobs.predicting import Predictions

    trained = pipelined.settings
    if trained.decoder == "sequential":
        todo = "give it as --baseline, and as --model a checkpoint that `pipedec train` made"
        raise UserError(
            f"{pipelined.checkpoint.name} is an ordinary model, not a pipelined decoder", todo=todo
        )
    settings, teacher = _with_teacher(settings, pipelined.checkpoint.name, place, notify)
    plain = _load_plain(settings.baseline, usual, [*map("exact-{}".format, drafts), *peers], place, notify)
    served = [] if pipelined.checkpoint.together else _serving(settings, usual, pipelined, place, notify)
    read_as_asked(settings, pipelined, *filter(None, [plain]), *(serving for _, serving in served))
    if plain is not None:
        read_alike(settings, plain, pipelined)
    inputs = {split: read_inputs(replace(usual, split=split), notify) for split in settings.split or (None,)}

    def one(
        name: str, role: Role, options: str, how: GenerateSettings, decoder: Decoder = pipelined
    ) -> tuple[Competitor, list[Predictions]]:
        runner = make_runner(decoder, how.some("delay", "empty_rows", "stop_on_repeat", "min_start_prob"))
        delay: int | Literal["together"] | None = how.delay if isinstance(how.delay, int) else None
        delay = "together" if decoder.checkpoint.together else delay
        competitor = Competitor(name, role, runner, options=_asked(options, how, decoder), delay=delay)
        splits = [(replace(how, split=split), found) for split, found in inputs.items()]
        return competitor, [Predictions(this, decoder, found, notify) for this, found in splits]

    asked, ours = settings.delays or (), []
    if pipelined.checkpoint.together:
        _refuse_others(settings)
        ours.append(one("fields together", "pipelined", "" if settings.model else PIPELINED, usual))
    for delay, serving in served:
        whose = usual if serving is pipelined else replace(usual, model=serving.checkpoint.name)
        for way in _ways(settings, trained.empty_rows, serving.settings.empty_rows):
            how = replace(whose, delay=delay, empty_rows=way.rule, min_start_prob=way.start)
            options = f"--delay {delay}{way.options}{_stops(settings, serving)}"
            name = f"Δt = {delay}{way.name}"
            ours.append(one(name, "pipelined", options, how, serving))
    waiting, wait = replace(usual, delay="wait"), f"--delay wait{_stops(settings, pipelined)}"
    if plain is not None:
        called = _called(plain, teacher, notify)
        if "wait" in asked:
            ours.append(one("waiting schedule", "pipelined", wait, waiting))
        options, how = "--decoder sequential", replace(usual, model=None, decoder="sequential")
        if settings.baseline is not None:
            options, how = "", replace(usual, model=settings.baseline)
        ours += [one(*made) for made in _exact(drafts, plain, usual, ours)]
        words = f"{called} ({plain.checkpoint.name}), the whole target as one string, on our engine"
        return [one("sequential", "baseline", options, how, plain), *ours], words, called
    if trained.delay != "any":
        lacking = "no plain model, and this checkpoint was not trained for its waiting schedule"
        what, where = f"there is nothing to compare with: {lacking}", pipelined.checkpoint.name
        todo = "run `pipedec train --decoder sequential` first, or give --baseline"
        raise UserError(what, where=where, todo=todo)
    baseline = one("waiting schedule", "baseline", wait, waiting)
    repeats = ", which ends a text that repeats itself" if baseline[1][0].method.stop_on_repeat else ""
    words = (
        f"the waiting schedule of the same checkpoint ({pipelined.checkpoint.name}){repeats}: not the plain model, which needs "
        "about one decoder call a subsequence less; `pipedec train --decoder sequential` makes one to compare with"
    )
    return [baseline, *ours], words, "the same checkpoint's waiting schedule"


def _refuse_others(settings: ReportSettings) -> None:
    """Other starts than all at once are none for fields; what only a recipe asks for is passed over."""
    if given := settings.typed & {"delays", "empty_rows", "stop_on_repeat", "min_start_probs"}:
        option = f"--{min(given).replace('_', '-')}"
        what = f"fields start all at once: {option} does not apply"
        raise UserError(what, todo=f"leave {option} out")


def _asked(options: str, how: GenerateSettings, decoder: Decoder) -> str:
    """Options of `generate` with the model that the settings name, and what sources take that are read otherwise than by it."""
    from pipedec_cli.model.text import usual_prompt

    if how.model and not how.exact:
        options = f"--model {quoted(how.model)} {options}".strip()
    own, text, where = decoder.settings, decoder.text, _where(how)
    if getattr(decoder, "drafter", None) is None:  # else `generate` has both read alike, too
        if text.prefix != own.source_prefix:
            options += f" --source-prefix {quoted(text.prefix)}"
        if text.max_source_tokens != decoder.checkpoint.codec().max_source_tokens:
            options += f" --max-source-tokens {text.max_source_tokens}"
    if (now := text.prompt) is None:
        return options + where
    usual = own.prompt == usual_prompt(chat=own.chat)
    known = usual_prompt(chat=now.chat) if usual else own.prompt
    chat = "" if now.chat == own.chat else " --chat" if now.chat else " --no-chat"
    more = chat + ("" if now.template == known else f" --prompt-template {quoted(now.template)}")
    return (
        options if options.endswith(more) else options + more
    ) + where  # a drafter's may stand there already


def _where(how: GenerateSettings) -> str:
    """Options of where models are found and in what they compute, if not as usual."""
    workspace = "" if how.workspace is None else f" --workspace {quoted(str(how.workspace))}"
    return workspace + ("" if how.dtype == "float32" else f" --dtype {how.dtype}")


def _is_own(one: tuple[Competitor, Sequence[Predictions]]) -> bool:
    """Whether it decodes at a delay, by the rule of its checkpoint."""
    competitor, (first, *_) = one
    method, own = first.method, first.decoder.settings
    as_trained = (method.empty_rows, method.stop_on_repeat) == (own.empty_rows, own.stop_on_repeat)
    return competitor.delay is not None and as_trained


class _Way(NamedTuple):
    """When a subsequence is tried again and may start, and how that is told behind a delay: in a name, and in options."""

    rule: EmptyRows
    start: float | None
    name: str
    options: str


def _ways(settings: ReportSettings, usual: EmptyRows, own: EmptyRows) -> list[_Way]:
    """Those that were asked for, else a checkpoint's `own` rule; the `usual` one, the first's, is named only beside others."""
    rules, starts = settings.empty_rows or (own,), settings.min_start_probs or ()
    alone = settings.empty_rows in (None, (usual,)) and not starts
    ways = [
        _Way(rule, None, "" if alone else f", {rule}", "" if rule == own else f" --empty-rows {rule}")
        for rule in rules
    ]
    return [
        *ways,
        *(_Way("retract", one, f", min start prob {one:g}", f" --min-start-prob {one:g}") for one in starts),
    ]


def _stops(settings: ReportSettings, decoder: Decoder) -> str:
    """The option that ends texts that repeat themselves, or does not, where it differs from the checkpoint's setting."""
    stops = settings.stop_on_repeat
    if stops in (None, decoder.settings.stop_on_repeat):
        return ""
    return " --stop-on-repeat" if stops else " --no-stop-on-repeat"


def _exact(
    drafts: Sequence[Draft],
    plain: Decoder,
    usual: GenerateSettings,
    ours: LineUp,
) -> Iterator[tuple[str, Role, str, GenerateSettings, Decoder]]:
    """The plain model in exact mode: name, role, options, settings and decoder; what drafts is the first of `ours` by its own rule."""
    from pipedec_cli.model.exact import ExactDecoder

    for draft in drafts:
        name = plain.checkpoint.name
        options = f"--exact {quoted(name)} --draft {draft}"
        if draft == "pipelined":
            drafting, (by, *_) = next(filter(_is_own, ours), ours[0])
            options += f" {str(drafting.options).removesuffix(_where(usual)).removeprefix(PIPELINED).strip()}"
            how, options, exact = by.settings, options.strip(), ExactDecoder(plain, by.decoder)
        else:
            how, exact = replace(usual, model=None), ExactDecoder(plain, draft)
        yield f"exact-{draft}", "exact", options, replace(how, exact=name), exact


def _serving(
    settings: ReportSettings, usual: GenerateSettings, pipelined: Decoder, place: Workspace, notify: Notify
) -> list[tuple[int, Decoder]]:
    """The delays to try, each with its checkpoint: the pipelined one, or the workspace's that was trained for it alone.

    A delay that only a recipe asks for, and no checkpoint was trained for, is left out.
    """
    trained, name, found, lacking = pipelined.settings, pipelined.checkpoint.name, [], list[int]()
    for delay in (delay for delay in settings.delays or () if isinstance(delay, int)):
        apart = place.model(f"pipelined-delay{delay}")
        if trained.delay in ("any", delay):
            found.append((delay, pipelined))
        elif settings.model is None and apart.exists():
            found.append((delay, load_decoder(replace(usual, model=str(apart)), notify)))
        elif settings.recipe and "delays" not in settings.typed:
            lacking.append(delay)
        else:
            found.append((delay, pipelined))  # which refuses it
    if lacking:
        notify.warn(
            f"Δt = {', '.join(map(str, lacking))}: left out, since {name} was trained for delay {trained.delay} only; "
            f"`pipedec train --delay any` makes one for all delays, `pipedec train --delay {lacking[0]} --out "
            f"{place.model(f'pipelined-delay{lacking[0]}')}` one beside it"
        )
    return found or [(trained.usual_delay, pipelined)]


def _with_teacher(
    settings: ReportSettings, checkpoint: str, place: Workspace, notify: Notify
) -> tuple[ReportSettings, Teacher | None]:
    """The settings with the model that taught a checkpoint as baseline, if it is still there and no other was given."""
    teacher = taught_by(checkpoint)
    if teacher is None or settings.baseline not in (None, teacher.name):
        return settings, None
    folder = len(teacher.sha256 or "") == 64  # a hub model's is a commit, of 40 digits
    if not is_model(Path(teacher.name)) and (folder or not is_hub_name(teacher.name)):
        notify.warn(
            f"the teacher of {checkpoint} is no longer at {teacher.name}: --baseline says where it is"
        )
        return settings, None
    own = real(teacher.name) == real(place.model("sequential"))
    return replace(settings, baseline=None if own else teacher.name), teacher


def _called(plain: Decoder, teacher: Teacher | None, notify: Notify) -> str:
    """The baseline in short; a teacher that is no longer what it was is warned of."""
    if teacher and teacher.sha256 not in (None, plain.sha256):
        notify.warn(f"{plain.checkpoint.name} is not the teacher that it was: it has been trained since")
    return "the teacher" if teacher else "the plain model"


def _load_plain(
    given: str | None,
    usual: GenerateSettings,
    others: Sequence[str],
    place: Workspace,
    notify: Notify,
) -> Decoder | None:
    """The plain model that was given, else the workspace's; None if there is none and nobody needs it."""
    folder = place.model("sequential")
    if given is None and not is_model(folder):
        if folder.exists():
            notify.warn(
                f"the training of {folder} has not come to its end: it is left out; the command that began it finishes "
                "it with --resume"
            )
        if others:
            what = f"{', '.join(others)} would run the plain model, and there is none"
            todo = "run `pipedec train --decoder sequential` first, give --baseline, or compare with sequential alone"
            raise UserError(what, todo=todo)
        return None
    # transformers runs the model itself, which our own engine can do without
    consume = not {"transformers", "prompt-lookup"} & set(others)
    plain = load_decoder(replace(usual, model=given or str(folder)), notify, consume=consume)
    if plain.settings.decoder != "sequential":
        todo = "--baseline takes a plain model; `pipedec train --decoder sequential` makes one"
        raise UserError(f"{plain.checkpoint.name} is a pipelined decoder", todo=todo)
    return plain
