"""Peak memory of a piece of work, measured in a child process of its own.

A process never gives back all that it has used, and a peak counts from its beginning: only a fresh process for each
decoder can tell them apart. This module imports neither torch nor a model, so that the child holds just what its work
needs; run as ``python -m pipedec_cli.evaluate.memory RESULT`` it is that child.
"""

from __future__ import annotations

import gc
import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

#: What a factory returns: the work whose memory is measured, made ready.
Work = Callable[[], object]

_STATUS: Final = Path("/proc/self/status")
_CLEAR_PEAK: Final = Path("/proc/self/clear_refs")


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a piece of work.

    Attributes:
        ready_bytes: in use once everything was loaded, before the work.
        peak_bytes: the most in use during the work.
        counter: what counted: resident memory of the process, or the GPU's allocator.
    """

    ready_bytes: int
    peak_bytes: int
    counter: str

    @property
    def added_bytes(self) -> int:
        """What the work took on top."""
        return self.peak_bytes - self.ready_bytes

    def as_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)


@runtime_checkable
class Weighable(Protocol):
    """A decoder that a child process can make anew."""

    def blueprint(self, sources: Sequence[Sequence[int]], batch_size: int) -> tuple[str, dict[str, Any]]:
        """Factory and payload with which `measure_peak` decodes these sources in a child process."""


class MeasuringError(RuntimeError):
    """The child process did not come to an end; the message is its last word."""


def measure_peak(factory: str, payload: Mapping[str, Any]) -> Memory:
    """Do a piece of work in a child process and say what memory it took.

    Args:
        factory: ``module:function``; called in the child with the payload's values by name, it makes everything
            ready and returns the work. Its loading is no part of the peak, where the system can tell.
        payload: its arguments, as JSON can carry them. ``device``, if there is one, says where to look.

    Raises:
        MeasuringError: the child failed or was killed, for lack of memory for instance.
    """
    with tempfile.TemporaryDirectory(prefix="pipedec-memory-") as folder:
        result = Path(folder) / "result.json"
        child = subprocess.run(
            [sys.executable, "-m", "pipedec_cli.evaluate.memory", str(result)],
            input=json.dumps({"factory": factory, "payload": dict(payload)}),
            capture_output=True,
            text=True,
            check=False,
        )
        if child.returncode != 0 or not result.is_file():
            last = child.stderr.strip().splitlines()
            raise MeasuringError(last[-1] if last else f"the child process ended with {child.returncode}")
        return Memory(**json.loads(result.read_text(encoding="utf-8")))


def measure_here(work: Work, device: str = "cpu") -> Memory:
    """Do a piece of work in this process and say what memory it took; of use in a process of its own.

    Args:
        work: everything it needs is loaded.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
    """
    gc.collect()
    return _on_gpu(work, device) if device.startswith("cuda") else _in_process(work)


def _on_gpu(work: Work, device: str) -> Memory:
    import torch

    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    ready = torch.cuda.memory_allocated(device)
    work()
    torch.cuda.synchronize(device)
    return Memory(ready, torch.cuda.max_memory_allocated(device), "the GPU's allocator")


def _in_process(work: Work) -> Memory:
    """Resident memory; on Linux the peak is set back first, so that loading is no part of it."""
    import psutil

    process = psutil.Process()
    _give_back()
    reset = False
    with suppress(OSError):
        _CLEAR_PEAK.write_text("5", encoding="ascii")
        reset = True
    ready = process.memory_info().rss
    work()
    peak = _peak_of_status() if reset else None
    if peak is not None:
        return Memory(ready, max(peak, ready), "resident memory of the process")
    return Memory(ready, _peak_of_life(), "resident memory of the process, loading included")


def _peak_of_status() -> int | None:
    """Linux's high-water mark of this process in bytes."""
    with suppress(OSError):
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def _peak_of_life() -> int:
    """The largest resident memory since the process began, in bytes."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB


def _give_back() -> None:
    """Let glibc return what loading has freed, so that the work cannot hide in it."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _main() -> None:
    request = json.load(sys.stdin)
    module, _, name = request["factory"].partition(":")
    payload = request["payload"]
    work: Work = getattr(importlib.import_module(module), name)(**payload)
    memory = measure_here(work, str(payload.get("device", "cpu")))
    Path(sys.argv[1]).write_text(json.dumps(memory.as_json()), encoding="utf-8")


if __name__ == "__main__":
    _main()
