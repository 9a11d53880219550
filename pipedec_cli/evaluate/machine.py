"""The machine that a speed was measured on, other work on it at the time, and how many threads compute."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path
from typing import Final

from pipedec_cli.data.errors import many


def processors() -> int:
    """The number of logical processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def processor_quota(root: Path = Path("/")) -> float | None:
    """The processors' time that Linux control groups (version 1 or 2) allow this process; None without a bound."""
    quotas = []
    with suppress(OSError):
        for line in (
            (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        ):
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            mount = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
            group = mount / path.lstrip(
                "/"
            )  # in a container often missing, but not its parents
            folders = [group, *group.parents]
            for folder in folders[: folders.index(mount) + 1]:
                with suppress(
                    OSError, ValueError, ZeroDivisionError
                ):  # ValueError: the quota is "max"
                    if (both := folder / "cpu.max").exists():
                        quota, period = map(
                            int, both.read_text(encoding="ascii").split()
                        )
                    else:
                        files = (
                            folder / f"cpu.cfs_{name}_us"
                            for name in ("quota", "period")
                        )
                        quota, period = (int(file.read_text()) for file in files)
                    if quota > 0:
                        quotas.append(quota / period)
    return min(quotas, default=None)


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
        gpu = "" if self.accelerator is None else f"{self.accelerator}; "
        cores = "" if self.cores is None else f"{self.cores} cores, "
        processors, threads = (
            many(self.processors, "processor"),
            f"{many(self.threads, 'thread')} used",
        )
        memory = f"{self.memory_bytes / 2**30:.0f} GiB RAM"
        return f"{gpu}{self.processor}; {cores}{processors}, {threads}; {memory}; {self.system}; Python {self.python}"


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
        asked = ["sysctl", "-n", "machdep.cpu.brand_string"]
        found = subprocess.run(asked, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.strip()
    return platform.processor() or platform.machine()


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Processor time up to a moment: for all work (stolen time included), and for this process with its living children."""

    wall: float
    all: float
    own: float

    @classmethod
    def now(cls) -> ProcessorTime:
        """The time up to now."""
        import psutil

        spent = psutil.cpu_times()._asdict()
        idle = (
            "idle",
            "iowait",
            "guest",
            "guest_nice",
        )  # the time of guests is in user and nice already
        busy = sum(seconds for kind, seconds in spent.items() if kind not in idle)
        own = time.process_time()
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # it has ended since
                own += sum(child.cpu_times()[:2])
        return cls(time.perf_counter(), busy, own)

    def others(self, since: ProcessorTime, processors: int) -> float:
        """The share of all processors that other work took between two moments, 0 to 1."""
        wall = self.wall - since.wall
        others = (self.all - since.all) - (self.own - since.own)
        return min(1.0, max(0.0, others / (wall * processors))) if wall > 0 else 0.0


def disturbance(others: float) -> str | None:
    """A warning that other work took this share of the processors during timing; None if it is small."""
    if others < 0.1:
        return None
    return (
        f"other work took {others:.0%} of the machine's processors while decoders were timed: these speeds are too low "
        "and vary; measure again on a quiet machine"
    )


#: How long a waiting thread looks for the others before it sleeps, on an idle machine
#: and on a busy machine. On a busy machine a thread that looks holds a core that
#: another thread needs. On an idle machine sleeping costs more than looking. GNU's
#: library counts turns (10,000 take 0.1 to 0.5 ms; its default is 300,000). Intel's and
#: LLVM's count milliseconds (their default is 200).
WAITING: Final = {"GOMP_SPINCOUNT": ("10000", "1000"), "KMP_BLOCKTIME": ("1", "0")}
COUNTS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
LOOK_SECONDS: Final = (
    0.1  # for which others are watched; processor time is counted in hundredths
)


def settle_threads(wanted: int | None = None) -> None:
    """Set how many threads there are, `wanted` or at most what a quota leaves, and how they wait, by what else runs now.

    What the environment says holds, but for the number where one is wanted. Without a
    quota torch takes every core that the process may use.
    """
    import psutil

    torch, environment = sys.modules.get("torch"), os.environ
    cores, quota = (
        min(processors(), psutil.cpu_count(logical=False) or inf),
        processor_quota() or inf,
    )
    if torch is None and environment.keys().isdisjoint(("OMP_WAIT_POLICY", *WAITING)):
        idle = (psutil.cpu_count() or cores) * (
            1 - psutil.cpu_percent(LOOK_SECONDS) / 100
        )
        crowded = min(idle, quota) < cores - 0.5
        environment |= {name: choices[crowded] for name, choices in WAITING.items()}
    if wanted is None and quota < cores and environment.keys().isdisjoint(COUNTS):
        wanted = ceil(quota)
    if wanted is not None:
        environment |= dict.fromkeys(COUNTS, str(wanted))
        if torch:
            torch.set_num_threads(wanted)
