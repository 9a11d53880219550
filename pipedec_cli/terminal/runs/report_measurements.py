"""Speed and memory for a report: contestants made ready, timed in this process, and each weighed in one of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pipedec_cli.evaluate.contenders import EngineDecoder
from pipedec_cli.evaluate.machine import ProcessorTime
from pipedec_cli.evaluate.memory import MeasuringError, Memory, Weighable, measure_peak
from pipedec_cli.evaluate.peers import MAX_TOKENS, Absent, PeerName, make_peer
from pipedec_cli.evaluate.timing import Contestant, Timing, device_clock, time_decoders
from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.runs.report_lineup import Lineup
from pipedec_cli.terminal.views.scores import LateBar

#: Share of all processors that others may use while decoders are timed.
_DISTURBED: Final = 0.1


@dataclass(slots=True)
class Measurements:
    """What was measured.

    Attributes:
        contestants: who was, in the order of the tables.
        timings: by name, then by batch size.
        memory: by name; those that could be measured.
        absent: peers that could not take part.
        disturbed: that other work got in the way, in words; None if it did not.
    """

    contestants: list[Contestant] = field(default_factory=list)
    timings: dict[str, dict[int, Timing]] = field(default_factory=dict)
    memory: dict[str, Memory] = field(default_factory=dict)
    absent: list[Absent] = field(default_factory=list)
    disturbed: str | None = None


@contextmanager
def contest(
    lineup: Lineup, peers: Sequence[PeerName], texts: Sequence[str], talk: Talk
) -> Iterator[Measurements]:
    """Make everyone ready: our decoders with weights laid out once for a checkpoint, and the peers.

    Args:
        lineup: ours.
        peers: theirs.
        texts: the sources that are timed.
        talk: where to say who is absent.

    Yields:
        Measurements with contestants and absent peers; what the peers keep on disk goes with the context.
    """
    made = Measurements()
    laid_out: dict[int, EngineDecoder] = {}
    ids: dict[int, list[list[int]]] = {}

    def sources(checkpoint: Checkpoint) -> list[list[int]]:
        if id(checkpoint) not in ids:
            encoder = checkpoint.encoder()
            ids[id(checkpoint)] = [encoder.source(text)[0] for text in texts]
        return ids[id(checkpoint)]

    for planned in lineup.planned:
        first = laid_out.get(id(planned.checkpoint))
        decoder = EngineDecoder(
            planned.name, planned.checkpoint, planned.choice, weights=first.weights if first else None
        )
        laid_out.setdefault(id(planned.checkpoint), decoder)
        made.contestants.append(Contestant(decoder, sources(planned.checkpoint)))
    with TemporaryDirectory(prefix="pipedec-peers-") as folder:
        for name in peers:
            assert lineup.plain is not None, "peers run the plain T5"
            peer = make_peer(name, lineup.plain, Path(folder) / name, _most_tokens(made.contestants[0]))
            if isinstance(peer, Absent):
                talk.warn(f"{peer.name} is absent: {peer.why}")
                made.absent.append(peer)
            else:
                made.contestants.append(Contestant(peer, sources(lineup.plain)))
        yield made


def time_all(made: Measurements, batch_sizes: Sequence[int], repeats: int, device: str, talk: Talk) -> None:
    """Fill in the timings, and say if other work disturbed them."""
    before = ProcessorTime.now()
    for size in batch_sizes:
        names = [contestant.decoder.name for contestant in made.contestants]
        talk.say(f"timing {', '.join(names)}: {repeats} repeats, batch size {size}")
        with LateBar(talk, f"timing, batch size {size}", len(names) * (1 + repeats)) as bar:
            timings = time_decoders(
                made.contestants,
                batch_size=size,
                repeats=repeats,
                clock=device_clock(device),
                on_pass=lambda _: bar.advance(),
            )
        for name, timing in timings.items():
            made.timings.setdefault(name, {})[size] = timing
    made.disturbed = disturbance(ProcessorTime.now().others(before, os.cpu_count() or 1))
    if made.disturbed:
        talk.warn(made.disturbed)


def disturbance(others: float) -> str | None:
    """Whether other work took the processors while decoders were timed, in words; None if not.

    Args:
        others: the share of all processors that went to others.
    """
    if others < _DISTURBED:
        return None
    return (
        f"other work took {others:.0%} of the machine's processors while decoders were timed: these speeds are too low "
        "and vary; repeat the report on a quiet machine"
    )


def weigh_all(made: Measurements, batch_size: int, talk: Talk) -> None:
    """Fill in the peak memory, a child process for each; whoever fails there goes without."""
    talk.say("measuring peak memory, each decoder in a process of its own")
    with LateBar(talk, "measuring memory", len(made.contestants)) as bar:
        for decoder, sources in made.contestants:
            if isinstance(decoder, Weighable):
                size = min(batch_size, decoder.largest_batch or batch_size)
                try:
                    made.memory[decoder.name] = measure_peak(*decoder.blueprint(sources, size))
                except MeasuringError as error:
                    talk.warn(f"the memory of {decoder.name} could not be measured: {error}")
            bar.advance()


def seconds_by_id(timing: Timing | None, ids: Sequence[str]) -> Mapping[str, float]:
    """Seconds of each timed example, where they were timed one at a time."""
    return dict(zip(ids, timing.example_seconds, strict=True)) if timing and timing.example_seconds else {}


def _most_tokens(baseline: Contestant) -> int:
    decoder = baseline.decoder
    bound = decoder.method.limits.max_tokens if isinstance(decoder, EngineDecoder) else None
    return bound or MAX_TOKENS
