"""Speed and memory of entries: all in this process in turns, then each in a process of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pipedec_cli.compare.child import Child, ChildError, Memory
from pipedec_cli.compare.comparison import Conditions
from pipedec_cli.compare.entry import Entry
from pipedec_cli.compare.machine import ProcessorTime, disturbance, this_machine
from pipedec_cli.compare.peers import PEERS, Absent, PeerName, make_peer, require_peer
from pipedec_cli.compare.runners import EXACT, EngineRunner
from pipedec_cli.compare.timing import (
    Source,
    Timing,
    device_clock,
    pause,
    time_together,
)
from pipedec_cli.data.errors import UserError, duration, log, many
from pipedec_cli.data.records import Draft
from pipedec_cli.data.writing import package_versions
from pipedec_cli.jobs.events import Listen, stage, track
from pipedec_cli.jobs.report_settings import REPEATS, BenchSettings, ReportSettings
from pipedec_cli.jobs.settings import listed

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint


def parse_compared(
    settings: ReportSettings | BenchSettings, refused: Collection[str] = ()
) -> tuple[tuple[PeerName, ...], tuple[Draft, ...]]:
    """The installed peers and the drafts of exact mode in --compare; an error does not offer the `refused` ones."""
    names, known = (
        list(filter(None, listed(settings.compare))),
        ("sequential", *EXACT, *PEERS),
    )
    offered = [name for name in known if name not in refused]
    for name in names:
        if name not in (*known, "exact"):
            raise UserError(
                f"--compare: there is no {name!r}",
                todo=f"choose from {', '.join(offered)}",
            )
        if name not in refused:
            require_peer(name)
    drafts = (draft for name, draft in EXACT.items() if {name, "exact"} & set(names))
    return tuple(peer for peer in PEERS if peer in names), tuple(drafts)


def measure(
    settings: ReportSettings | BenchSettings,
    entries: Sequence[Entry],
    peers: Sequence[PeerName],
    checkpoint: Checkpoint,
    max_tokens: int,
    listen: Listen,
    *,
    forced: bool = False,
) -> tuple[list[Entry], Conditions]:
    """Measure the speed and, if the settings say so, the memory of our decoders and the peers.

    The peers run the checkpoint, a sequential model, on the sources of the first entry,
    to at most `max_tokens` a text. With `forced` lengths they make exactly as many, and
    as many sources are timed as the batch size.
    """
    contest, device = (
        _Contest(settings, listen, forced, list(entries)),
        str(checkpoint.device),
    )
    with TemporaryDirectory(prefix="pipedec-peers-") as folder:
        for name in peers:
            sources = entries[0].sources
            peer = make_peer(
                name,
                checkpoint,
                Path(folder),  # to which it may write files
                max_tokens,
                exactly=forced,
                places=max(map(len, sources)) + max_tokens,
                gguf=settings.peer_gguf,
            )
            if isinstance(peer, Absent):
                contest.leave_out(name, peer.why)
            else:
                contest.entries.append(
                    Entry(name=name, role="peer", runner=peer, sources=sources)
                )
        before = ProcessorTime.now()
        timings = {
            size: contest.time(size, device)
            for size in settings.batch_sizes
            if not contest.stopped
        }
        rows = contest.row_costs()
        disturbed = disturbance(ProcessorTime.now().others(before, os.cpu_count() or 1))
        if disturbed:
            log.warning(disturbed)
        memory = dict[str, Memory]()
        if settings.memory and not contest.stopped:
            log.info("measuring peak memory, each decoder in a process of its own")
            for one in track(
                listen, contest.entries, len(contest.entries), "measuring memory"
            ):
                size = min(
                    settings.batch_sizes[0],
                    one.runner.largest_batch or settings.batch_sizes[0],
                )
                try:
                    with Child(*one.runner.spec()) as child:
                        memory[one.name] = child.peak(contest.timed(one, size), size)
                except ChildError as error:
                    log.warning(
                        f"the memory of {one.name} could not be measured: {error}"
                    )
    measured = list[Entry]()
    for one in contest.entries:
        own = {
            size: by_name[one.name]
            for size, by_name in timings.items()
            if one.name in by_name
        }
        entry = replace(one, timings=own, memory=memory.get(one.name))
        measured.append(entry.beside(measured[0], forced=forced) if measured else entry)
    return measured, Conditions(
        device=device,
        machine=this_machine(device),
        versions=package_versions("ctranslate2"),
        absent=tuple(contest.absent),
        disturbed=disturbed,
        stopped=contest.stopped,
        prompted=checkpoint.backbone.prompted,
        rows=rows,
    )


@dataclass
class _Contest:
    """The entries that are measured together. A decoder that cannot take part is `absent`, with the reason."""

    settings: ReportSettings | BenchSettings
    listen: Listen
    forced: bool
    entries: list[Entry]
    absent: list[Absent] = field(default_factory=list)
    stopped: str | None = (
        None  # what to say of a comparison on forced lengths that an interrupt has cut
    )

    def leave_out(self, name: str, why: object) -> None:
        """Go on without an entry."""
        log.warning(f"{name} is absent: {why}")
        self.absent.append(Absent(name, str(why)))
        self.entries = [one for one in self.entries if one.name != name]

    def time(self, size: int, device: str) -> Mapping[str, Timing]:
        """Time all entries in turns at a batch size: the timings by name."""
        contest = {
            one.name: (one.runner, self.timed(one, size)) for one in self.entries
        }
        number = many(len(self.timed(self.entries[0], size)), "example")
        passes = f"{many(REPEATS, 'repeat')} and a warm-up of each over {number}"
        log.info(f"timing {', '.join(contest)}: {passes}, batch size {size}")
        total, began, passed = (
            len(self.entries) * (1 + REPEATS),
            time.monotonic(),
            count(1),
        )

        def on_pass(_: str) -> None:
            advance()
            if next(passed) == len(contest):  # all have warmed up
                more = REPEATS * (time.monotonic() - began)
                stop = "; Ctrl-C shows what is measured by then" if self.forced else ""
                log.info(f"about {duration(more)} more at batch size {size}{stop}")

        def on_interrupt(_: KeyboardInterrupt) -> None:
            self.stopped = f"stopped at batch size {size}: not all repeats were made, nor what was to follow"
            log.warning(self.stopped)

        with stage(
            self.listen, f"passes over {number}, batch size {size}", total
        ) as advance:
            return time_together(
                contest,
                batch_size=size,
                repeats=REPEATS,
                clock=device_clock(device),
                rest=pause,
                on_pass=on_pass,
                on_failure=self.leave_out,
                on_interrupt=on_interrupt if self.forced else None,
            )

    def row_costs(self) -> dict[str, float]:
        """How many times as long a call with 8 rows takes as a call with 1 row, by dtype, once for each of our dtypes."""
        from pipedec_cli.decoding.exact import measured  # late: it imports torch

        found = dict[str, float]()
        for one in self.entries if not self.stopped else ():
            if (
                isinstance(one.runner, EngineRunner)
                and (dtype := one.runner.settings["dtype"]) not in found
            ):
                found[dtype] = measured(one.runner.decoder, 1)[7]
        return found

    def timed(self, entry: Entry, size: int) -> Sequence[Source]:
        return entry.sources[:size] if self.forced else entry.sources
