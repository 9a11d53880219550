"""Speed and memory, as a report and a bench measure them: all in this process in turn, then each in one of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Draft
from pipedec_cli.data.wording import many
from pipedec_cli.data.writing import package_versions
from pipedec_cli.evaluate.child import Child, ChildError
from pipedec_cli.evaluate.competitor import Competitor
from pipedec_cli.evaluate.exact import EXACT
from pipedec_cli.evaluate.machine import ProcessorTime, disturbance, this_machine
from pipedec_cli.evaluate.peers import PEERS, Absent, PeerName, make_peer
from pipedec_cli.evaluate.timing import device_clock, pause, time_together
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.settings import listed

if TYPE_CHECKING:
    from pipedec_cli.jobs.bench import BenchSettings
    from pipedec_cli.jobs.report import ReportSettings
    from pipedec_cli.model.checkpoint import Checkpoint


def parse_compared(value: str) -> tuple[tuple[PeerName, ...], tuple[Draft, ...]]:
    """The peers in a list such as ``sequential,transformers``, and what drafts in exact mode; sequential always takes part."""
    names, known = list(filter(None, listed(value))), ("sequential", *EXACT, *PEERS)
    for name in names:
        if name not in (*known, "exact"):
            raise UserError(f"--compare: there is no {name!r}", todo=f"choose from {', '.join(known)}")
    drafts = (draft for name, draft in EXACT.items() if {name, "exact"} & set(names))
    return tuple(peer for peer in PEERS if peer in names), tuple(drafts)


def measure(
    settings: ReportSettings | BenchSettings,
    ours: Sequence[Competitor],
    peers: Sequence[PeerName],
    checkpoint: Checkpoint,
    max_tokens: int,
    notify: Notify,
    *,
    forced: bool = False,
    rest: Callable[[], None] = pause,
    then: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Time and weigh our decoders and the peers; returns the fields of a `Comparison`.

    The peers run the checkpoint, a plain model, on the sources of the first of ours, and make at most `max_tokens` a text;
    where lengths are forced, exactly so many, and as many sources are timed as are in flight. `then` is called when all
    were timed, while other work on the machine is still watched for.
    """
    device = str(checkpoint.device)
    entries, absent = list(ours), []
    with TemporaryDirectory(prefix="pipedec-peers-") as folder:
        for name in peers:
            place = Path(folder) / name.partition(":")[0]
            made = make_peer(name, checkpoint, place, max_tokens, exactly=forced)
            if isinstance(made, Absent):
                notify.warn(f"{name} is absent: {made.why}")
                absent.append(made)
            else:
                entries.append(Competitor(name, "peer", made, sources=ours[0].sources))
        before = ProcessorTime.now()
        for size in settings.batch_sizes:
            contest = {one.name: (one.runner, one.sources[: size if forced else None]) for one in entries}
            notify.say(f"timing {', '.join(contest)}: {many(settings.repeats, 'repeat')}, batch size {size}")
            with notify.stage(f"timing, batch size {size}", len(entries) * (1 + settings.repeats)) as advance:
                timings = time_together(
                    contest,
                    batch_size=size,
                    repeats=settings.repeats,
                    clock=device_clock(device),
                    rest=rest,
                    on_pass=lambda _: advance(),
                )
            for one in entries:
                one.timings.update({size: timings[one.name]} if one.name in timings else {})
        then()
        disturbed = disturbance(ProcessorTime.now().others(before, os.cpu_count() or 1))
        if disturbed:
            notify.warn(disturbed)
        if settings.memory:
            _weigh(entries, settings.batch_sizes[0], forced, notify)
    return {
        "entries": tuple(entries),
        "absent": tuple(absent),
        "device": device,
        "machine": this_machine(device),
        "versions": package_versions("ctranslate2"),
        "disturbed": disturbed,
        "prompted": checkpoint.backbone.prompted,
    }


def _weigh(entries: Sequence[Competitor], batch_size: int, forced: bool, notify: Notify) -> None:
    """Peak memory, a child process for each; whoever fails there goes without."""
    notify.say("measuring peak memory, each decoder in a process of its own")
    with notify.stage("measuring memory", len(entries)) as advance:
        for one in entries:
            size = min(batch_size, one.runner.largest_batch or batch_size)
            try:
                with Child(*one.runner.spec()) as child:
                    one.memory = child.peak(one.sources[: size if forced else None], size)
            except ChildError as error:
                notify.warn(f"the memory of {one.name} could not be measured: {error}")
            advance()
