"""The machine that a figure was measured on, and what else it did: without them a speed says nothing."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


def processors() -> int:
    """The logical processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def processor_quota(root: Path = Path("/")) -> float | None:
    """How many processors' time the control groups of Linux, version 1 or 2, leave this process; None if all of it."""
    quotas = []
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            mount = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
            group = mount / path.lstrip("/")  # in a container often not there, but what is above it
            folders = [group, *group.parents]
            quotas += [_quota(folder) for folder in folders[: folders.index(mount) + 1]]
    return min(filter(None, quotas), default=None)


def _quota(group: Path) -> float | None:
    """Processors' time, over the period that it is counted in; None where a control group sets no bound."""
    with suppress(OSError, ValueError, ZeroDivisionError):  # ValueError: the quota is "max"
        if (both := group / "cpu.max").exists():
            quota, period = map(int, both.read_text(encoding="ascii").split())
        else:
            quota, period = (int((group / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return quota / period if quota > 0 else None
    return None


@dataclass(frozen=True, slots=True)
class Machine:
    """What bears on speed and memory."""

    processor: str
    cores: int | None  # physical ones; None where the system does not tell
    processors: int  # logical ones that this process may use
    threads: int  # those that a matrix product runs on
    memory_bytes: int
    accelerator: str | None  # the GPU's model name and memory; None on a CPU
    system: str
    python: str

    @property
    def line(self) -> str:
        """All of it in one line for a person."""
        gpu = "" if self.accelerator is None else f"{self.accelerator}; "
        cores = "" if self.cores is None else f"{self.cores} cores, "
        processors, threads = (
            f"{count} {noun}{'' if count == 1 else 's'}"
            for count, noun in ((self.processors, "processor"), (self.threads, "thread"))
        )
        return (
            f"{gpu}{self.processor}; {cores}{processors}, {threads} used; "
            f"{self.memory_bytes / 2**30:.0f} GiB RAM; {self.system}; Python {self.python}"
        )


def this_machine(device: str = "cpu") -> Machine:
    """Look at the machine that runs this, and at the device that is decoded on."""
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
    """The CPU's model name as the system has it, else its architecture."""
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return " ".join(value.split())
    if sys.platform == "darwin":
        asked = ["sysctl", "-n", "machdep.cpu.brand_string"]
        found = subprocess.run(asked, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.strip()
    return platform.processor() or platform.machine()


class ProcessorTime(NamedTuple):
    """How much the processors have worked up to a moment: in all, stolen time included, and for this process.

    Its children that live are counted with it: a peer may have one.
    """

    wall: float
    all: float
    own: float

    @classmethod
    def now(cls) -> ProcessorTime:
        """Up to now."""
        import psutil

        spent = psutil.cpu_times()._asdict()
        idle = ("idle", "iowait", "guest", "guest_nice")  # what guests use is in user and nice already
        busy = sum(seconds for kind, seconds in spent.items() if kind not in idle)
        own = time.process_time()
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # it has ended since
                own += sum(child.cpu_times()[:2])
        return cls(time.perf_counter(), busy, own)

    def others(self, since: ProcessorTime, processors: int) -> float:
        """The share of all processors that went to others between two moments, 0 to 1."""
        wall, everyone, own = (now - then for now, then in zip(self, since, strict=True))
        return min(1.0, max(0.0, (everyone - own) / (wall * processors))) if wall > 0 else 0.0


def disturbance(others: float) -> str | None:
    """That others took this share of the processors while decoders were timed, in words; None if it is no matter."""
    if others < 0.1:
        return None
    return (
        f"other work took {others:.0%} of the machine's processors while decoders were timed: these speeds are too low "
        "and vary; measure again on a quiet machine"
    )
