"""Speed and memory for a report: contestants made ready, timed in this process, and each weighed in one of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pipedec_cli.evaluate.contenders import EngineDecoder
from pipedec_cli.evaluate.machine import ProcessorTime
from pipedec_cli.evaluate.memory import MeasuringError, Memory, Weighable, measure_peak
from pipedec_cli.evaluate.peers import MAX_TOKENS, Absent, PeerName, make_peer
from pipedec_cli.evaluate.timing import Contestant, Timing, device_clock, pause, time_decoders
from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.model.decoder import Decoder
from pipedec_cli.terminal.console import Talk, many
from pipedec_cli.terminal.predicting import announce_compiling
from pipedec_cli.terminal.progress import stage
from pipedec_cli.terminal.runs.report_lineup import Lineup

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
    loaded: dict[int, Decoder] = {}
    ids: dict[int, list[list[int]]] = {}

    def sources(checkpoint: Checkpoint) -> list[list[int]]:
        if id(checkpoint) not in ids:
            codec = checkpoint.codec()
            ids[id(checkpoint)] = [codec.source(text)[0] for text in texts]
        return ids[id(checkpoint)]

    announce_compiling(lineup.planned[0].checkpoint.device.type, talk)
    for planned in lineup.planned:
        decoder = EngineDecoder(
            planned.name,
            loaded.setdefault(id(planned.checkpoint), Decoder(planned.checkpoint)),
            planned.choice,
        )
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


def time_all(
    contestants: Callable[[int], Sequence[Contestant]],
    batch_sizes: Sequence[int],
    repeats: int,
    device: str,
    talk: Talk,
    rest: Callable[[], None] = pause,
) -> dict[str, dict[int, Timing]]:
    """Time decoders at several batch sizes.

    Args:
        contestants: who takes part at a batch size, and with which sources.
        batch_sizes: those that are timed.
        repeats: how often.
        device: what they run on.
        talk: where to say what happens.
        rest: called before each pass that counts.

    Returns:
        Timings by name, then by batch size.
    """
    timings: dict[str, dict[int, Timing]] = {}
    for size in batch_sizes:
        given = contestants(size)
        names = [contestant.decoder.name for contestant in given]
        talk.say(f"timing {', '.join(names)}: {many(repeats, 'repeat')}, batch size {size}")
        with stage(talk, f"timing, batch size {size}", len(names) * (1 + repeats)) as advance:
            timed = time_decoders(
                given,
                batch_size=size,
                repeats=repeats,
                clock=device_clock(device),
                rest=rest,
                on_pass=lambda _: advance(),
            )
        for name, timing in timed.items():
            timings.setdefault(name, {})[size] = timing
    return timings


@dataclass(slots=True)
class Watch:
    """Whether other work got in the way of a measurement.

    Attributes:
        words: that it did; None if it did not, or as long as the measurement lasts.
    """

    words: str | None = None


@contextmanager
def watched_for_others(talk: Talk) -> Iterator[Watch]:
    """Look at the processors before and after, and warn if others used them in between."""
    before, watch = ProcessorTime.now(), Watch()
    yield watch
    watch.words = disturbance(ProcessorTime.now().others(before, os.cpu_count() or 1))
    if watch.words:
        talk.warn(watch.words)


def disturbance(others: float) -> str | None:
    """Whether other work took the processors while decoders were timed, in words; None if not.

    Args:
        others: the share of all processors that went to others.
    """
    if others < _DISTURBED:
        return None
    return (
        f"other work took {others:.0%} of the machine's processors while decoders were timed: these speeds are too low "
        "and vary; measure again on a quiet machine"
    )


def weigh_all(contestants: Sequence[Contestant], batch_size: int, talk: Talk) -> dict[str, Memory]:
    """Peak memory by name, a child process for each; whoever fails there goes without."""
    talk.say("measuring peak memory, each decoder in a process of its own")
    weighed: dict[str, Memory] = {}
    with stage(talk, "measuring memory", len(contestants)) as advance:
        for decoder, sources in contestants:
            if isinstance(decoder, Weighable):
                size = min(batch_size, decoder.largest_batch or batch_size)
                try:
                    weighed[decoder.name] = measure_peak(*decoder.blueprint(sources, size))
                except MeasuringError as error:
                    talk.warn(f"the memory of {decoder.name} could not be measured: {error}")
            advance()
    return weighed


def seconds_by_id(timing: Timing | None, ids: Sequence[str]) -> Mapping[str, float]:
    """Seconds of each timed example, where they were timed one at a time."""
    return dict(zip(ids, timing.example_seconds, strict=True)) if timing and timing.example_seconds else {}


def _most_tokens(baseline: Contestant) -> int:
    decoder = baseline.decoder
    bound = decoder.method.limits.max_tokens if isinstance(decoder, EngineDecoder) else None
    return bound or MAX_TOKENS
