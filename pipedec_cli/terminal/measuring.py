"""Speed and memory, as a report and a bench measure them: all in this process in turn, then each in one of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pipedec_cli.data.errors import UserError
from pipedec_cli.evaluate.child import Child, ChildError
from pipedec_cli.evaluate.competitor import Competitor
from pipedec_cli.evaluate.machine import ProcessorTime, disturbance
from pipedec_cli.evaluate.peers import PEERS, Absent, PeerName, make_peer
from pipedec_cli.evaluate.timing import device_clock, pause, time_together
from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.terminal.console import Talk, many
from pipedec_cli.terminal.progress import stage

SEQUENTIAL: Final = "sequential"


def parse_peers(value: str) -> tuple[PeerName, ...]:
    """The peers in a list such as ``sequential,transformers``; the sequential decoder always takes part.

    Raises:
        UserError: one of them is not known.
    """
    names = [name.strip() for name in value.split(",") if name.strip()]
    for name in names:
        if name not in (SEQUENTIAL, *PEERS):
            raise UserError(
                f"--compare: there is no {name!r}", todo=f"choose from {', '.join((SEQUENTIAL, *PEERS))}"
            )
    return tuple(peer for peer in PEERS if peer in names)


def invite(
    names: Sequence[PeerName],
    checkpoint: Checkpoint,
    folder: Path,
    max_tokens: int,
    talk: Talk,
    *,
    exactly: bool = False,
) -> tuple[list[Competitor], list[Absent]]:
    """The peers that can take part, and those that cannot, of which is said why; see `make_peer`."""
    present, absent = [], []
    for name in names:
        made = make_peer(name, checkpoint, folder / name, max_tokens, exactly=exactly)
        if isinstance(made, Absent):
            talk.warn(f"{name} is absent: {made.why}")
            absent.append(made)
        else:
            present.append(Competitor(name, "peer", made))
    return present, absent


def time_all(
    competitors: Sequence[Competitor],
    batch_sizes: Sequence[int],
    repeats: int,
    device: str,
    talk: Talk,
    *,
    rest: Callable[[], None] = pause,
    one_batch: bool = False,
) -> None:
    """Time everyone at several batch sizes.

    Args:
        competitors: get their timings, each at the batch sizes that it can have.
        batch_sizes: those that are timed.
        repeats: how often.
        device: what they run on.
        talk: where to say what happens.
        rest: called before each pass that counts.
        one_batch: of their sources, time as many as are in flight at once.
    """
    names = [one.name for one in competitors]
    for size in batch_sizes:
        talk.say(f"timing {', '.join(names)}: {many(repeats, 'repeat')}, batch size {size}")
        with stage(talk, f"timing, batch size {size}", len(names) * (1 + repeats)) as advance:
            timings = time_together(
                {one.name: (one.runner, one.sources[: size if one_batch else None]) for one in competitors},
                batch_size=size,
                repeats=repeats,
                clock=device_clock(device),
                rest=rest,
                on_pass=lambda _: advance(),
            )
        for one in competitors:
            if one.name in timings:
                one.timings[size] = timings[one.name]


def weigh_all(
    competitors: Sequence[Competitor], batch_size: int, talk: Talk, *, one_batch: bool = False
) -> None:
    """Peak memory, a child process for each; whoever fails there goes without."""
    talk.say("measuring peak memory, each decoder in a process of its own")
    with stage(talk, "measuring memory", len(competitors)) as advance:
        for one in competitors:
            size = min(batch_size, one.runner.largest_batch or batch_size)
            try:
                with Child(*one.runner.blueprint()) as child:
                    one.memory = child.peak(one.sources[: size if one_batch else None], size)
            except ChildError as error:
                talk.warn(f"the memory of {one.name} could not be measured: {error}")
            advance()


@contextmanager
def watched_for_others(talk: Talk) -> Iterator[list[str]]:
    """Look at the processors before and after; if others used them in between, warn and put that into the list."""
    before, found = ProcessorTime.now(), list[str]()
    yield found
    words = disturbance(ProcessorTime.now().others(before, os.cpu_count() or 1))
    if words:
        found.append(words)
        talk.warn(words)
