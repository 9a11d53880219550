"""Speed without training, put together: decoders on forced lengths, and steps beside their limit. Pure: it runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal

from pipedec_cli.evaluate.forced import Lengths
from pipedec_cli.evaluate.gain import Gain, gain
from pipedec_cli.evaluate.machine import Machine
from pipedec_cli.evaluate.memory import Memory
from pipedec_cli.evaluate.peers import Absent
from pipedec_cli.evaluate.step_speed import StepSpeed
from pipedec_cli.evaluate.timing import Timing

Kind = Literal["sequential", "pipelined", "peer"]


@dataclass(frozen=True, slots=True)
class BenchEntry:
    """One decoder.

    Attributes:
        name: what tables call it.
        kind: our sequential decoder, our pipelined one, or a peer.
        dtype: of its weights.
        settings: version and settings that bear on its speed.
        timings: by batch size.
        memory: None where it was not measured.
    """

    name: str
    kind: Kind
    dtype: str
    settings: Mapping[str, str]
    timings: Mapping[int, Timing] = field(default_factory=dict)
    memory: Memory | None = None


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast one decoder is as another at one batch size."""

    name: str
    over: str
    batch_size: int
    gain: Gain

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "decoder": self.name,
            "over": self.over,
            "batch_size": self.batch_size,
            **self.gain.as_json(),
        }


@dataclass(frozen=True, slots=True)
class Bench:
    """What `pipedec bench` measured.

    Attributes:
        model: which, in words.
        lengths: what was forced.
        entries: our sequential decoder and the pipelined ones for each dtype, then the peers.
        steps: steps by dtype and rows.
        bandwidth: what the probes read, bytes a second, in their order.
        reader: what the probe reads with.
        absent: peers that could not be timed.
        repeats: how often each was timed.
        device: what everything ran on.
        machine: where.
        versions: of what was timed.
        disturbed: that other work got in the way, in words; None if it did not.
    """

    model: str
    lengths: Lengths
    entries: tuple[BenchEntry, ...]
    steps: tuple[StepSpeed, ...]
    bandwidth: tuple[float, ...]
    reader: str
    absent: tuple[Absent, ...]
    repeats: int
    device: str
    machine: Machine
    versions: Mapping[str, str | None]
    disturbed: str | None = None

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Those that were timed."""
        return tuple(self.entries[0].timings)

    @property
    def ratios(self) -> list[Ratio]:
        """Each of ours over our sequential decoder of the same dtype and over every peer, by batch size."""
        made = []
        for size in self.batch_sizes:
            for entry in self.entries:
                if entry.kind != "peer":
                    made += [self._ratio(entry, other, size) for other in self._rivals(entry, size)]
        return made

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "model": self.model,
            "lengths": self.lengths.as_json() | {"forced": True, "line": self.lengths.line},
            "decoders": [
                {
                    "name": entry.name,
                    "kind": entry.kind,
                    "dtype": entry.dtype,
                    "settings": dict(entry.settings),
                    "speed": [timing.as_json() for timing in entry.timings.values()],
                    "memory": entry.memory.as_json() if entry.memory else None,
                }
                for entry in self.entries
            ],
            "ratios": [ratio.as_json() for ratio in self.ratios],
            "steps": [step.as_json() for step in self.steps],
            "bandwidth": {
                "reader": self.reader,
                "bytes_per_second": list(self.bandwidth),
                "median": median(self.bandwidth) if self.bandwidth else None,
            },
            "absent": [asdict(peer) for peer in self.absent],
            "repeats": self.repeats,
            "device": self.device,
            "machine": self.machine.as_json(),
            "versions": dict(self.versions),
            "disturbed": self.disturbed,
        }

    def _rivals(self, entry: BenchEntry, size: int) -> list[BenchEntry]:
        return [
            other
            for other in self.entries
            if size in other.timings
            and (
                other.kind == "peer"
                or (other.kind == "sequential" and entry.kind == "pipelined" and other.dtype == entry.dtype)
            )
        ]

    def _ratio(self, entry: BenchEntry, other: BenchEntry, size: int) -> Ratio:
        return Ratio(entry.name, other.name, size, gain(entry.timings[size], other.timings[size]))
