"""The machine that a speed was measured on, other work on it at the time."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipedec_cli.data.errors import many
from pipedec_cli.threads import processors


@dataclass(frozen=True, slots=True)
class Machine:
    """The properties of a machine that affect speed and memory."""

    processor: str
    cores: int | None  # physical; None if the system does not tell
    processors: int  # logical, that this process may use
    threads: int  # that compute a matrix product
    memory_bytes: int
    accelerator: str | None  # the GPU's model name and memory; None on a CPU
    system: str
    python: str

    @property
    def line(self) -> str:
        """The machine in one line."""
        threads = f"{many(self.threads, 'thread')} used"
        units = [many(self.processors, "processor"), threads]
        if self.cores is not None:
            units.insert(0, f"{self.cores} cores")
        parts = [
            self.processor,
            ", ".join(units),
            f"{self.memory_bytes / 2**30:.0f} GiB RAM",
            self.system,
            f"Python {self.python}",
        ]
        if self.accelerator is not None:
            parts.insert(0, self.accelerator)
        return "; ".join(parts)


def this_machine(device: str = "cpu") -> Machine:
    """This machine, and the device that decodes."""
    import psutil
    import torch

    accelerator = None
    if device.startswith("cuda"):
        properties = torch.cuda.get_device_properties(device)
        accelerator = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    return Machine(
        processor=processor_name(),
        cores=psutil.cpu_count(logical=False),
        processors=processors(),
        threads=torch.get_num_threads(),
        memory_bytes=psutil.virtual_memory().total,
        accelerator=accelerator,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
    )


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The CPU's model name as the system has it, or else its architecture."""
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return " ".join(value.split())
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            return answer.stdout.strip()
    return platform.processor() or platform.machine()


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Processor time up to a moment, in seconds."""

    wall: float  # the moment itself
    all: float  # of all work, time that was stolen by other virtual machines included
    own: float  # of this process with its living children

    @classmethod
    def now(cls) -> ProcessorTime:
        """The time up to now."""
        import psutil

        spent = psutil.cpu_times()._asdict()
        # The time of guests is in user and nice already.
        for name in ("idle", "iowait", "guest", "guest_nice"):
            spent.pop(name, None)
        own = time.process_time()
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # it has ended since
                own += sum(child.cpu_times()[:2])
        return cls(time.perf_counter(), sum(spent.values()), own)

    def others(self, since: ProcessorTime, processors: int) -> float:
        """The share, 0 to 1, of so many `processors` that other work took from the moment `since` to this one."""
        wall = self.wall - since.wall
        others = (self.all - since.all) - (self.own - since.own)
        return min(1.0, max(0.0, others / (wall * processors))) if wall > 0 else 0.0


def disturbance(others: float) -> str | None:
    """A warning that other work took this share of the processors during timing.

    None if it is small.
    """
    if others < 0.1:
        return None
    return (
        f"other work took {others:.0%} of the machine's processors while decoders were timed: these speeds are too low "
        "and vary; measure again on a quiet machine"
    )
