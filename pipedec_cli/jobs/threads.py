"""How many threads compute, and how they wait for one another: told to OpenMP before torch loads it."""

from __future__ import annotations

import os
import sys
from math import ceil, inf
from typing import Final

from pipedec_cli.evaluate.machine import processor_quota, processors

#: How long a waiting thread looks for the others before it sleeps: where there are cores to spare, and where there are not.
#: There it holds the core that the one which it waits for needs; else to sleep and be woken costs more than to look.
#: GNU's library counts turns, 10,000 of which take some 0.1 to 0.5 ms, and itself takes 300,000; Intel's and LLVM's count
#: milliseconds, and take 200.
WAITING: Final = {"GOMP_SPINCOUNT": ("10000", "1000"), "KMP_BLOCKTIME": ("1", "0")}
COUNTS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
LOOK_SECONDS: Final = 0.1  # for which others are watched; processor time is counted in hundredths


def settle_threads(wanted: int | None = None) -> None:
    """Set how many threads there are, `wanted` or at most what a quota leaves, and how they wait, by what else runs now.

    What the environment says holds, but for the number where one is wanted. Without a quota torch takes every core that
    the process may use.
    """
    import psutil

    torch, environment = sys.modules.get("torch"), os.environ
    cores, quota = min(processors(), psutil.cpu_count(logical=False) or inf), processor_quota() or inf
    if torch is None and environment.keys().isdisjoint(("OMP_WAIT_POLICY", *WAITING)):
        idle = (psutil.cpu_count() or cores) * (1 - psutil.cpu_percent(LOOK_SECONDS) / 100)
        crowded = min(idle, quota) < cores - 0.5
        environment |= {name: choices[crowded] for name, choices in WAITING.items()}
    if wanted is None and quota < cores and environment.keys().isdisjoint(COUNTS):
        wanted = ceil(quota)
    if wanted is not None:
        environment |= dict.fromkeys(COUNTS, str(wanted))
        if torch:
            torch.set_num_threads(wanted)
