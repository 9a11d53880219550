"""Who takes part in a report: the baseline, our decoders at the delays that were asked for, the peers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Delay
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.evaluate.comparison import Role
from pipedec_cli.evaluate.contenders import DecodingChoice
from pipedec_cli.evaluate.metrics import ProtocolName, Task
from pipedec_cli.evaluate.peers import PEERS, PeerName
from pipedec_cli.model.checkpoint import Checkpoint, load_checkpoint
from pipedec_cli.model.decoder import Decoder
from pipedec_cli.model.device import choose_device, choose_dtype
from pipedec_cli.pipeline.grid import Explore
from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.generate import GenerateSettings
from pipedec_cli.terminal.settings import Dtype

BASELINE = "sequential"


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What was asked for: the settings of one report; None leaves a setting to the checkpoint or the workspace.

    Attributes:
        peers: who is compared with, beside the sequential decoder.
        delays: Δt to try, and ``sequential`` for the checkpoint's sequential schedule; () for the checkpoint's own.
        explore: the exploration rule, or ``both``.
        model: the pipelined checkpoint; None for the workspace's.
        baseline: the plain T5; None for the workspace's.
        data: what to generate from; None for the workspace's test set.
        limit: the first examples only.
        task: what is scored.
        protocol: how.
        recipe: whose figures the paper's column shows.
        timed: examples that are timed.
        repeats: how often.
        batch_size: examples in flight while generating what is missing.
        batch_sizes: those that are timed.
        dtype: of the weights.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        memory: whether to measure it.
        resamples: draws for the intervals.
        seed: of these draws.
    """

    peers: tuple[PeerName, ...] = ()
    delays: tuple[Delay, ...] = ()
    explore: Explore | Literal["both"] = "retry"
    model: str | None = None
    baseline: str | None = None
    data: str | None = None
    limit: int | None = None
    task: Task | None = None
    protocol: ProtocolName | None = None
    recipe: str | None = None
    timed: int = 32
    repeats: int = 3
    batch_size: int | Literal["auto"] = "auto"
    batch_sizes: tuple[int, ...] = (1,)
    dtype: str = "float32"
    device: str = "auto"
    memory: bool = True
    resamples: int = 9999
    seed: int = 0

    def generation(self, **more: Any) -> GenerateSettings:
        """What `pipedec generate` is asked for, for one of the decoders."""
        return GenerateSettings(
            data=self.data,
            limit=self.limit,
            batch_size=self.batch_size,
            dtype=cast(Dtype, self.dtype),
            device=self.device,
            **more,
        )


@dataclass(frozen=True, slots=True)
class Planned:
    """One of our decoders, as it is to be run.

    Attributes:
        name: what tables call it.
        role: the baseline or a pipelined one.
        options: the options of `pipedec generate` that give it.
        checkpoint: the model.
        choice: how it decodes.
        generation: what `pipedec generate` is asked for.
    """

    name: str
    role: Role
    options: str
    checkpoint: Checkpoint
    choice: DecodingChoice
    generation: GenerateSettings


@dataclass(frozen=True, slots=True)
class Lineup:
    """Who takes part.

    Attributes:
        planned: ours, the baseline first.
        baseline: what it is, in words.
        plain: the plain T5, on which the peers run too; None if there is none.
    """

    planned: tuple[Planned, ...]
    baseline: str
    plain: Checkpoint | None


def parse_contestants(value: str) -> tuple[PeerName, ...]:
    """The peers in a list such as ``sequential,transformers``; the sequential decoder always takes part.

    Raises:
        UserError: one of them is not known.
    """
    names = [name.strip() for name in value.split(",") if name.strip()]
    for name in names:
        if name not in (BASELINE, *PEERS):
            raise UserError(
                f"--compare: there is no {name!r}", todo=f"choose from {', '.join((BASELINE, *PEERS))}"
            )
    return tuple(peer for peer in PEERS if peer in names)


def line_up(request: ReportRequest, place: Workspace, talk: Talk) -> Lineup:
    """Load the checkpoints and plan the decoders.

    Raises:
        UserError: a checkpoint is not there, is not what it must be, or was not trained for a delay.
    """
    device = choose_device(request.device)
    load = partial(load_checkpoint, dtype=choose_dtype(request.dtype, device), device=str(device))
    pipelined = load(_pipelined_name(request, place))
    settings = pipelined.settings
    if settings is None or settings.decoder == "sequential":
        raise UserError(
            f"{pipelined.name} is an ordinary T5, not a pipelined decoder",
            todo="give it as --baseline, and as --model a checkpoint that `pipedec train` made",
        )
    delays = (
        request.delays
        if any(delay != "sequential" for delay in request.delays)
        else (settings.usual_delay, *request.delays)
    )
    rules: tuple[Explore, ...] = ("retry", "once") if request.explore == "both" else (request.explore,)
    ours = [
        _pipelined(request, pipelined, delay, rule)
        for delay in delays
        if isinstance(delay, int)
        for rule in rules
    ]
    if "sequential" in delays:
        ours.append(_schedule(request, pipelined, "pipelined"))
    for planned in ours:  # an untrained delay is refused before anything is generated
        Decoder(pipelined).method(planned.choice.delay, explore=planned.choice.explore)
    plain_name = _plain_name(request, place, talk)
    if plain_name is None:
        if request.peers:
            raise UserError(
                f"{', '.join(request.peers)} would run the plain T5, and there is none",
                todo="run `pipedec train --decoder sequential` first, give --baseline, or compare with sequential alone",
            )
        first, words = _baseline_without_plain(request, pipelined)
        return Lineup((first, *(planned for planned in ours if planned.name != first.name)), words, None)
    plain = load(plain_name)
    if plain.settings is not None and plain.settings.decoder != "sequential":
        raise UserError(
            f"{plain.name} is a pipelined decoder",
            todo="--baseline takes a plain T5; `pipedec train --decoder sequential` makes one",
        )
    first, words = _plain(request, plain)
    return Lineup((first, *ours), words, plain)


def _pipelined_name(request: ReportRequest, place: Workspace) -> str:
    if request.model is not None:
        return request.model
    return str(_finished(place.require(place.model("pipelined"), "pipedec train"), "pipedec train"))


def _plain_name(request: ReportRequest, place: Workspace, talk: Talk) -> str | None:
    """The plain T5 that was given, else the workspace's; None if there is none."""
    if request.baseline is not None:
        return request.baseline
    folder = place.model("sequential")
    if not folder.exists():
        return None
    if not (folder / "config.json").exists():
        talk.warn(
            f"the training of {folder} has not come to its end: it is left out; the command that began it finishes it "
            "with --resume"
        )
        return None
    return str(folder)


def _finished(folder: Path, maker: str) -> Path:
    if not (folder / "config.json").exists():
        raise UserError(
            "the training has not come to its end", where=str(folder), todo=f"run `{maker} --resume` first"
        )
    return folder


def _pipelined(request: ReportRequest, checkpoint: Checkpoint, delay: int, rule: Explore) -> Planned:
    named = request.explore != "retry"
    return Planned(
        name=f"Δt = {delay}" + (f", {rule}" if named else ""),
        role="pipelined",
        options=f"--delay {delay}" + (" --explore once" if rule == "once" else ""),
        checkpoint=checkpoint,
        choice=DecodingChoice(delay=delay, explore=rule),
        generation=request.generation(model=request.model, delay=delay, explore=rule),
    )


def _plain(request: ReportRequest, checkpoint: Checkpoint) -> tuple[Planned, str]:
    given = {"decoder": "sequential"} if request.baseline is None else {"model": request.baseline}
    planned = Planned(
        name="sequential",
        role="baseline",
        options="--decoder sequential" if request.baseline is None else f"--model {request.baseline}",
        checkpoint=checkpoint,
        choice=DecodingChoice(),
        generation=request.generation(**given),
    )
    return planned, f"the plain T5 ({checkpoint.name}), the whole target as one string, on our engine"


def _schedule(request: ReportRequest, checkpoint: Checkpoint, role: Role) -> Planned:
    """The same checkpoint, each subsequence after the one before."""
    return Planned(
        name="sequential schedule",
        role=role,
        options="--delay sequential",
        checkpoint=checkpoint,
        choice=DecodingChoice(delay="sequential"),
        generation=request.generation(model=request.model, delay="sequential"),
    )


def _baseline_without_plain(request: ReportRequest, checkpoint: Checkpoint) -> tuple[Planned, str]:
    """The sequential schedule as the baseline; refused where the checkpoint was not trained for it."""
    settings = checkpoint.settings
    if settings is None or settings.delay != "any":
        raise UserError(
            "there is nothing to compare with: no plain T5, and this checkpoint was not trained for its sequential "
            "schedule",
            where=checkpoint.name,
            todo="run `pipedec train --decoder sequential` first, or give --baseline",
        )
    words = (
        f"the sequential schedule of the same checkpoint ({checkpoint.name}): not the plain T5, which needs about one "
        "decoder call a subsequence less; `pipedec train --decoder sequential` makes one to compare with"
    )
    return _schedule(request, checkpoint, "baseline"), words
