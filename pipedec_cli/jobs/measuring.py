"""Speed and memory of entries: all in this process in turns, then each in a process of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pipedec_cli.compare.child import Child, ChildError, Memory
from pipedec_cli.compare.comparison import Conditions
from pipedec_cli.compare.entry import Entry, Quality
from pipedec_cli.compare.machine import ProcessorTime, disturbance, this_machine
from pipedec_cli.compare.peers import PEERS, Absent, make_peer, require_peer
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
from pipedec_cli.events import Listen, stage, track
from pipedec_cli.jobs.report_settings import REPEATS, BenchSettings, ReportSettings
from pipedec_cli.jobs.settings import listed

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint


def parse_compared(
    settings: ReportSettings | BenchSettings, refused: Collection[str] = ()
) -> tuple[tuple[str, ...], tuple[Draft, ...]]:
    """What --compare names: the peers, decoders of other libraries, which must be installed, and the drafts of exact mode.

    A UserError for another name. It does not offer the `refused` ones, which the caller
    refuses with a reason of its own.
    """
    names = list(filter(None, listed(settings.compare)))
    choices = ["sequential", *EXACT, *PEERS]
    for name in names:
        if name not in choices and name != "exact":
            offered = [other for other in choices if other not in refused]
            what = f"--compare: there is no {name!r}"
            raise UserError(what, todo=f"choose from {', '.join(offered)}")
        if name not in refused:
            require_peer(name)
    peers = [peer for peer in PEERS if peer in names]
    exact = EXACT if "exact" in names else [name for name in EXACT if name in names]
    return tuple(peers), tuple(EXACT[name] for name in exact)


def measure(
    settings: ReportSettings | BenchSettings,
    entries: Sequence[Entry],
    peers: Sequence[str],
    checkpoint: Checkpoint,
    max_tokens: int,
    listen: Listen,
    *,
    forced: bool = False,
    qualities: Mapping[str, Mapping[str, Quality]] | None = None,
    keys: int = 0,
) -> tuple[list[Entry], Conditions]:
    """Measure the speed and, if the settings say so, the memory of ours and the peers.

    Args:
        settings: batch sizes, memory, and the file that llama.cpp runs.
        entries: ours, the baseline first.
        peers: the names of decoders of other libraries. They run the checkpoint on the
            sources of the first entry.
        checkpoint: a sequential model.
        max_tokens: the most tokens of a peer's text.
        listen: takes the events.
        forced: the lengths are given: peers make exactly `max_tokens`, and as many
            sources are timed as the batch size.
        qualities: those of the entries, by name and split; None: nothing is scored.
        keys: the number of keys of an object; 0 for texts.

    Returns:
        The entries that took part, filled in with what was measured, and under which
        conditions.
    """
    _end_writing()
    contest = _Contest(settings, listen, forced, list(entries))
    device = str(checkpoint.device)
    timings = {}
    memory: Mapping[str, Memory] = {}
    with TemporaryDirectory(prefix="pipedec-peers-") as folder:
        for name in peers:
            contest.add(name, checkpoint, Path(folder), max_tokens)
        before = ProcessorTime.now()
        for size in settings.batch_sizes:
            if not contest.stopped:
                timings[size] = contest.time(size, device)
        rows = contest.row_costs()
        disturbed = _disturbed_since(before)
        if settings.memory and not contest.stopped:
            memory = contest.peaks()
    conditions = Conditions(
        device=device,
        machine=this_machine(device),
        versions=package_versions("ctranslate2"),
        absent=tuple(contest.absent),
        disturbed=disturbed,
        stopped=contest.stopped,
        prompted=checkpoint.backbone.prompted,
        rows=rows,
    )
    filled = list[Entry]()
    for entry in contest.entries:
        results = entry.filled(
            filled[0] if filled else None,
            timings=_by_size(timings, entry.name),
            memory=memory.get(entry.name),
            qualities=(qualities or {}).get(entry.name),
            keys=keys,
            forced=forced,
        )
        filled.append(results)
    return filled, conditions


def _disturbed_since(before: ProcessorTime) -> str | None:
    """What to say of other work on the machine since the moment `before`; None if there was not much."""
    others = ProcessorTime.now().others(before, os.cpu_count() or 1)
    disturbed = disturbance(others)
    if disturbed:
        log.warning(disturbed)
    return disturbed


def _by_size(
    timings: Mapping[int, Mapping[str, Timing]], name: str
) -> dict[int, Timing]:
    """The timings of one entry, by the batch sizes at which it was timed."""
    by_size = {}
    for size, by_name in timings.items():
        if name in by_name:
            by_size[size] = by_name[name]
    return by_size


def _end_writing() -> None:
    """Wait until the packed weights of all models are in the cache: writing them would cost the first passes time."""
    from pipedec_cli.model.engine.native import store  # it needs torch

    store.settle()


@dataclass
class _Contest:
    """The entries that are measured together.

    A decoder that cannot take part is `absent`, with the reason. `stopped` is what to
    say of a comparison on forced lengths that an interrupt has cut.
    """

    settings: ReportSettings | BenchSettings
    listen: Listen
    forced: bool
    entries: list[Entry]
    absent: list[Absent] = field(default_factory=list)
    stopped: str | None = None

    def add(
        self, name: str, checkpoint: Checkpoint, folder: Path, max_tokens: int
    ) -> None:
        """Let a peer take part that runs the checkpoint; it may write files to the folder. One that cannot is left out."""
        sources = self.entries[0].sources
        peer = make_peer(
            name,
            checkpoint,
            folder,
            max_tokens,
            exactly=self.forced,
            places=max(map(len, sources)) + max_tokens,
            gguf=self.settings.peer_gguf,
        )
        if isinstance(peer, Absent):
            self.leave_out(name, peer.why)
            return
        entry = Entry(name=name, role="peer", runner=peer, sources=sources)
        self.entries.append(entry)

    def leave_out(self, name: str, why: object) -> None:
        """Go on without an entry."""
        log.warning(f"{name} is absent: {why}")
        self.absent.append(Absent(name, str(why)))
        self.entries = [entry for entry in self.entries if entry.name != name]

    def time(self, size: int, device: str) -> Mapping[str, Timing]:
        """Time all entries in turns at a batch `size`; the timings by name."""
        contest = {}
        for entry in self.entries:
            contest[entry.name] = (entry.runner, self.timed(entry, size))
        examples = many(len(self.timed(self.entries[0], size)), "example")
        passes = f"{many(REPEATS, 'repeat')} and a warm-up of each over {examples}"
        log.info(f"timing {', '.join(contest)}: {passes}, batch size {size}")
        began = time.monotonic()
        passed = count(1)

        def on_pass(_: str) -> None:
            advance()
            if next(passed) == len(contest):  # all have warmed up
                more = REPEATS * (time.monotonic() - began)
                stop = "; Ctrl-C shows what is measured by then"
                if not self.forced:
                    stop = "; fewer with `--set timing_examples=N` take less"
                log.info(f"about {duration(more)} more at batch size {size}{stop}")

        def on_interrupt(_: KeyboardInterrupt) -> None:
            lacking = "not all repeats were made, nor what was to follow"
            self.stopped = f"stopped at batch size {size}: {lacking}"
            log.warning(self.stopped)

        total = len(contest) * (1 + REPEATS)
        label = f"passes over {examples}, batch size {size}"
        with stage(self.listen, label, total) as advance:
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
        """How many times as long a call with 8 rows takes as one with 1, by our dtypes."""
        from pipedec_cli.decoding.exact import measured  # late: it imports torch

        costs = dict[str, float]()
        if self.stopped:
            return costs
        for entry in self.entries:
            runner = entry.runner
            if isinstance(runner, EngineRunner):
                dtype = runner.settings["dtype"]
                if dtype not in costs:
                    costs[dtype] = measured(runner.decoder, 1)[7]
        return costs

    def peaks(self) -> dict[str, Memory]:
        """The memory of each entry by name, where it can be measured."""
        log.info("measuring peak memory, each decoder in a process of its own")
        peaks = {}
        count = len(self.entries)
        for entry in track(self.listen, self.entries, count, "measuring memory"):
            size = self.settings.batch_sizes[0]
            if entry.runner.largest_batch is not None:
                size = min(size, entry.runner.largest_batch)
            try:
                with Child(*entry.runner.spec()) as child:
                    peaks[entry.name] = child.peak(self.timed(entry, size), size)
            except ChildError as error:
                what = f"the memory of {entry.name} could not be measured"
                log.warning(f"{what}: {error}")
        return peaks

    def timed(self, entry: Entry, size: int) -> Sequence[Source]:
        """The sources of an entry that are timed at a batch `size`."""
        return entry.sources[:size] if self.forced else entry.sources
