"""How many threads compute, and how they wait for each other."""

import os
import sys
from contextlib import suppress
from math import ceil, inf
from pathlib import Path
from typing import Final

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
