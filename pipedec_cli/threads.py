"""How many threads compute, and how they wait for each other."""

import os
import sys
from contextlib import suppress
from math import ceil, inf
from pathlib import Path
from typing import Final

#: How long a waiting thread looks for the others before it sleeps, as variables of the
#: environment, on an idle machine and on a busy machine. On a busy machine a thread that looks holds a core that
#: another thread needs. On an idle machine sleeping costs more than looking. GNU's
#: library counts turns (10,000 take 0.1 to 0.5 ms; its default is 300,000). Intel's and
#: LLVM's count milliseconds (their default is 200).
IDLE: Final = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}
BUSY: Final = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "0"}
COUNTS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
#: For so long others are watched; processor time is counted in hundredths of seconds.
LOOK_SECONDS: Final = 0.1


def processors() -> int:
    """The number of logical processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def processor_quota(root: Path = Path("/")) -> float | None:
    """The processors' time that Linux control groups (version 1 or 2) allow this process, in processors.

    None without a bound. `root` is where the files of the system are.
    """
    quotas = []
    with suppress(OSError):
        groups = (root / "proc/self/cgroup").read_text(encoding="utf-8")
        for line in groups.splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            mount = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
            # In a container the group is often missing, but not its parents.
            group = mount / path.lstrip("/")
            folders = [group, *group.parents]
            for folder in folders[: folders.index(mount) + 1]:
                # ValueError: the quota is "max".
                with suppress(OSError, ValueError, ZeroDivisionError):
                    quota, period = _quota_in(folder)
                    if quota > 0:
                        quotas.append(quota / period)
    return min(quotas, default=None)


def _quota_in(group: Path) -> tuple[int, int]:
    """The microseconds of processor time that a control group allows in a period, and those of the period."""
    file = group / "cpu.max"  # version 2
    if file.exists():
        quota, period = file.read_text(encoding="ascii").split()
    else:
        quota = (group / "cpu.cfs_quota_us").read_text()
        period = (group / "cpu.cfs_period_us").read_text()
    return int(quota), int(period)


def settle_threads(wanted: int | None = None) -> None:
    """Set how many threads compute, and how they wait for each other, by what else runs now.

    There are `wanted` threads; with None at most what a quota leaves, or what the
    environment says, and without either torch takes every core that the process may
    use. The environment also holds for how they wait. That cannot be set once torch is
    imported.
    """
    import psutil

    torch = sys.modules.get("torch")
    environment = os.environ
    cores = min(processors(), psutil.cpu_count(logical=False) or inf)
    quota = processor_quota() or inf
    if torch is None and environment.keys().isdisjoint(("OMP_WAIT_POLICY", *IDLE)):
        share = 1 - psutil.cpu_percent(LOOK_SECONDS) / 100
        idle = (psutil.cpu_count() or cores) * share
        is_busy = min(idle, quota) < cores - 0.5
        environment |= BUSY if is_busy else IDLE
    if wanted is None and quota < cores and environment.keys().isdisjoint(COUNTS):
        wanted = ceil(quota)
    if wanted is not None:
        environment |= dict.fromkeys(COUNTS, str(wanted))
        if torch:
            torch.set_num_threads(wanted)
