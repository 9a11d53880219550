"""Speed and memory of planned entries: all in this process in turns, then each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Draft
from pipedec_cli.data.wording import many
from pipedec_cli.data.writing import package_versions
from pipedec_cli.evaluate.child import Child, ChildError, Memory
from pipedec_cli.evaluate.comparison import Conditions
from pipedec_cli.evaluate.entry import MeasuredEntry, PlannedEntry, TokenAgreement, promoted
from pipedec_cli.evaluate.machine import ProcessorTime, disturbance, this_machine
from pipedec_cli.evaluate.peers import PEERS, Absent, PeerName, make_peer, require_peer
from pipedec_cli.evaluate.runners import EXACT
from pipedec_cli.evaluate.timing import Timing, device_clock, pause, time_together
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.report_settings import BenchSettings, ReportSettings
from pipedec_cli.jobs.settings import listed

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint


def parse_compared(
    settings: ReportSettings | BenchSettings, refused: Collection[str] = ()
) -> tuple[tuple[PeerName, ...], tuple[Draft, ...]]:
    """The installed peers and the drafts of exact mode in --compare; an error does not offer the `refused` ones."""
    names, known = list(filter(None, listed(settings.compare))), ("sequential", *EXACT, *PEERS)
    offered = [name for name in known if name not in refused]
    for name in names:
        if name not in (*known, "exact"):
            raise UserError(f"--compare: there is no {name!r}", todo=f"choose from {', '.join(offered)}")
        if name not in refused:
            require_peer(name, settings.peer_python)
    drafts = (draft for name, draft in EXACT.items() if {name, "exact"} & set(names))
    return tuple(peer for peer in PEERS if peer in names), tuple(drafts)


def measure(
    settings: ReportSettings | BenchSettings,
    planned: Sequence[PlannedEntry],
    peers: Sequence[PeerName],
    checkpoint: Checkpoint,
    max_tokens: int,
    notify: Notify,
    *,
    forced: bool = False,
) -> tuple[list[MeasuredEntry], Conditions]:
    """Measure the speed and, if the settings say so, the memory of our decoders and the peers.

    The peers run the checkpoint, a sequential model, on the sources of the first entry, to at most `max_tokens` a text. With
    `forced` lengths they make exactly as many, and as many sources are timed as the batch size.
    """
    device, entries, absent = str(checkpoint.device), list(planned), list[Absent]()
    timings: dict[int, Mapping[str, Timing]] = {}

    def leave_out(name: str, why: object) -> None:
        notify.warn(f"{name} is absent: {why}")
        absent.append(Absent(name, str(why)))
        entries[:] = [one for one in entries if one.name != name]

    with TemporaryDirectory(prefix="pipedec-peers-") as folder:
        for name in peers:
            peer = make_peer(
                name,
                checkpoint,
                Path(folder),
                max_tokens,
                exactly=forced,
                places=max(map(len, planned[0].sources)) + max_tokens,
                pythons=settings.peer_python,
                gguf=settings.peer_gguf,
            )
            if isinstance(peer, Absent):
                leave_out(name, peer.why)
                continue
            entries.append(PlannedEntry(name=name, role="peer", runner=peer, sources=planned[0].sources))
        before = ProcessorTime.now()
        for size in settings.batch_sizes:
            contest = {one.name: (one.runner, one.sources[: size if forced else None]) for one in entries}
            number = many(len(contest[entries[0].name][1]), "example")
            how = f"{many(settings.repeats, 'repeat')} and a warm-up of each over {number}"
            notify.say(f"timing {', '.join(contest)}: {how}, batch size {size}")
            total = len(entries) * (1 + settings.repeats)
            with notify.stage(f"passes over {number}, batch size {size}", total) as advance:
                timings[size] = time_together(
                    contest,
                    batch_size=size,
                    repeats=settings.repeats,
                    clock=device_clock(device),
                    rest=pause,
                    on_pass=lambda _: advance(),
                    on_failure=leave_out,
                )
        disturbed = disturbance(ProcessorTime.now().others(before, os.cpu_count() or 1))
        if disturbed:
            notify.warn(disturbed)
        memory = {}
        if settings.memory:
            memory = _measure_memory(entries, settings.batch_sizes[0], forced, notify)
    measured = list[MeasuredEntry]()
    for one in entries:
        timed = {size: found[one.name] for size, found in timings.items() if one.name in found}
        agreement = None
        if timed and not forced and one.role in ("peer", "exact"):
            size = min(timed)
            agreement = TokenAgreement.between(timed[size].outputs, timings[size][entries[0].name].outputs)
        figures: Any = {"timings": timed, "memory": memory.get(one.name), "agreement": agreement}
        entry = MeasuredEntry(**promoted(one), **figures)
        measured.append(replace(entry, gains=entry.gains_over(measured[0])) if measured else entry)
    conditions = Conditions(
        device=device,
        machine=this_machine(device),
        versions=package_versions("ctranslate2"),
        absent=tuple(absent),
        disturbed=disturbed,
        prompted=checkpoint.backbone.prompted,
    )
    return measured, conditions


def _measure_memory(
    entries: Sequence[PlannedEntry], batch_size: int, forced: bool, notify: Notify
) -> dict[str, Memory]:
    """Peak memory by name, each in a child process; an entry that fails there is left out."""
    notify.say("measuring peak memory, each decoder in a process of its own")
    found = {}
    for one in notify.track(entries, len(entries), "measuring memory"):
        size = min(batch_size, one.runner.largest_batch or batch_size)
        try:
            with Child(*one.runner.spec()) as child:
                found[one.name] = child.peak(one.sources[: size if forced else None], size)
        except ChildError as error:
            notify.warn(f"the memory of {one.name} could not be measured: {error}")
    return found
