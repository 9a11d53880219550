"""Who takes part in a report: the baseline, and our decoders at the delays that were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.evaluate.competitor import Competitor, EngineRunner, Role
from pipedec_cli.evaluate.peers import PeerName
from pipedec_cli.model.decoder import Decoder
from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.generate import GenerateSettings
from pipedec_cli.terminal.loading import load_decoder, read_inputs
from pipedec_cli.terminal.predicting import Predictions

if TYPE_CHECKING:
    from pipedec_cli.terminal.report import ReportSettings


class Lineup(NamedTuple):
    """Who takes part.

    Attributes:
        ours: our decoders, the baseline first, and what they make of the data.
        baseline: what the baseline is, in words.
        called: the same in short.
    """

    ours: list[tuple[Competitor, Predictions]]
    baseline: str
    called: str


def line_up(settings: ReportSettings, peers: Sequence[PeerName], place: Workspace, talk: Talk) -> Lineup:
    """Read the data and load each checkpoint, once, and choose how it decodes.

    Raises:
        UserError: something is not there, is not what it must be, or a checkpoint was not trained for a delay.
    """
    common = GenerateSettings(
        model=settings.model,
        data=settings.data,
        limit=settings.limit,
        batch_size=settings.batch_size,
        dtype=settings.dtype,
        device=settings.device,
        workspace=settings.workspace,
    )
    pipelined = load_decoder(common, talk)
    trained = pipelined.settings
    if trained.decoder == "sequential":
        raise UserError(
            f"{pipelined.checkpoint.name} is an ordinary T5, not a pipelined decoder",
            todo="give it as --baseline, and as --model a checkpoint that `pipedec train` made",
        )
    plain = _load_plain(settings, common, peers, place, talk)
    inputs = read_inputs(common, talk)

    def one(name: str, role: Role, options: str, how: GenerateSettings) -> tuple[Competitor, Predictions]:
        decoder = plain if plain and name == "sequential" else pipelined
        runner = EngineRunner(decoder, {"delay": how.delay, "explore": how.explore})
        delay = how.delay if isinstance(how.delay, int) else None
        competitor = Competitor(name, role, runner, options=options, delay=delay)
        return competitor, Predictions(how, decoder, inputs, talk)

    asked = settings.delays or ()
    delays = [delay for delay in asked if isinstance(delay, int)] or [trained.usual_delay]
    ours = []
    for delay in delays:
        for rule in ("retry", "once") if settings.explore == "both" else (settings.explore,):
            name = f"Δt = {delay}" + (f", {rule}" if settings.explore != "retry" else "")
            options = f"--delay {delay}" + (" --explore once" if rule == "once" else "")
            ours.append(one(name, "pipelined", options, replace(common, delay=delay, explore=rule)))
    waiting = replace(common, delay="wait")  # the same checkpoint, each subsequence after the one before
    if plain is not None:
        if "wait" in asked:
            ours.append(one("waiting schedule", "pipelined", "--delay wait", waiting))
        options, how = "--decoder sequential", replace(common, model=None, decoder="sequential")
        if settings.baseline is not None:
            options, how = f"--model {settings.baseline}", replace(common, model=settings.baseline)
        words = f"the plain T5 ({plain.checkpoint.name}), the whole target as one string, on our engine"
        return Lineup([one("sequential", "baseline", options, how), *ours], words, "the plain T5")
    if trained.delay != "any":
        raise UserError(
            "there is nothing to compare with: no plain T5, and this checkpoint was not trained for its waiting schedule",
            where=pipelined.checkpoint.name,
            todo="run `pipedec train --decoder sequential` first, or give --baseline",
        )
    words = (
        f"the waiting schedule of the same checkpoint ({pipelined.checkpoint.name}): not the plain T5, which needs about "
        "one decoder call a subsequence less; `pipedec train --decoder sequential` makes one to compare with"
    )
    first = one("waiting schedule", "baseline", "--delay wait", waiting)
    return Lineup([first, *ours], words, "the same checkpoint's waiting schedule")


def _load_plain(
    settings: ReportSettings,
    common: GenerateSettings,
    peers: Sequence[PeerName],
    place: Workspace,
    talk: Talk,
) -> Decoder | None:
    """The plain T5 that was given, else the workspace's; None if there is none and nobody needs it."""
    folder = place.model("sequential")
    finished = (folder / "config.json").exists()
    if settings.baseline is None and not finished:
        if folder.exists():
            talk.warn(
                f"the training of {folder} has not come to its end: it is left out; the command that began it finishes "
                "it with --resume"
            )
        if peers:
            raise UserError(
                f"{', '.join(peers)} would run the plain T5, and there is none",
                todo="run `pipedec train --decoder sequential` first, give --baseline, or compare with sequential alone",
            )
        return None
    # transformers runs the model itself, which our own engine can do without
    consume = not {"transformers", "prompt-lookup"} & set(peers)
    plain = load_decoder(replace(common, model=settings.baseline or str(folder)), talk, consume=consume)
    if plain.settings.decoder != "sequential":
        raise UserError(
            f"{plain.checkpoint.name} is a pipelined decoder",
            todo="--baseline takes a plain T5; `pipedec train --decoder sequential` makes one",
        )
    return plain
