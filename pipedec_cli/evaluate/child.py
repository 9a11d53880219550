"""A decoder in a child process: to weigh it alone, or to keep its threads away from torch's.

A process never gives back all that it has used, and a peak counts from its beginning: only a fresh process for each
decoder can tell their memory apart. This module imports neither torch nor a model, so that the child holds just what
its decoder needs. Run as ``python -m pipedec_cli.evaluate.child`` it is that child; the two speak in JSON lines.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from pipedec_cli.evaluate.timing import Clock, Output, Pass, Source


class Memory(NamedTuple):
    """Bytes in use once everything was loaded, the most in use during the work, and what counted them."""

    ready_bytes: int
    peak_bytes: int
    counter: str


class ChildError(RuntimeError):
    """The child process could not do what it was asked, or ended; the message says why."""


class Child:
    """A `Runner` in a process of its own, which lives as long as this object or shorter."""

    largest_batch: int | None = None

    def __init__(self, factory: str, payload: Mapping[str, Any]) -> None:
        """Start the process and make there what a `Runner.spec` says, on the ``device`` in it; a ChildError on failure."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pipedec_cli.evaluate.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        self.close = weakref.finalize(self, _end, self._process)
        self._settings: dict[str, str] = {}
        self._ask({"factory": factory, "payload": dict(payload)})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def settings(self) -> Mapping[str, str]:
        """Those of the decoder, as they were when it last answered, and that it has a process."""
        return {**self._settings, "process": "its own"}

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Generate there; the answer costs a millisecond beside the second that a run takes."""
        outputs, *rest = self._ask({"sources": list(map(list, sources)), "batch_size": batch_size})
        made = Pass(tuple(Output(tuple(tokens), *more) for tokens, *more in outputs), *rest)
        return made._replace(seconds=())

    def peak(self, sources: Sequence[Source], batch_size: int) -> Memory:
        """The memory that generating takes, without loading where the system can tell; a ChildError if it was killed for it."""
        asked = {"sources": list(map(list, sources)), "batch_size": batch_size, "weigh": True}
        return Memory(*self._ask(asked))

    def _ask(self, request: Mapping[str, Any]) -> Any:
        writing, reading = self._process.stdin, self._process.stdout
        assert writing is not None and reading is not None
        line = ""
        with suppress(BrokenPipeError):
            writing.write(json.dumps(request) + "\n")
            writing.flush()
            line = reading.readline()
        if not line:
            raise ChildError(f"its process ended with {self._process.wait()}")
        answer = json.loads(line)
        self._settings = answer.get("settings", {})
        if "error" in answer:
            raise ChildError(answer["error"])
        return answer["answer"]


def _end(process: subprocess.Popen[str]) -> None:
    """The child has nothing to save: whatever it does, it ends now."""
    process.kill()
    with suppress(BrokenPipeError):  # the half of a request that it has not read
        process.communicate()


def serve() -> None:
    """What the child does: make what the first line names, then answer every further line until there is none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, and with it the input
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    runner: Any = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if runner is None:
                module, _, name = asked["factory"].partition(":")
                payload = asked["payload"]
                runner = getattr(importlib.import_module(module), name)(**payload)
                said: dict[str, object] = {"answer": None}
            else:
                work = partial(runner.run, asked["sources"], asked["batch_size"], time.perf_counter)
                weighed = measure_here(work, payload.get("device", "cpu")) if "weigh" in asked else work()
                said = {"answer": weighed}
        except Exception as error:  # whatever it is, the parent says it
            said = {"error": f"{type(error).__name__}: {error}"}
        said["settings"] = dict(runner.settings) if runner else {}
        answers.write(json.dumps(said) + "\n")
        answers.flush()


def measure_here(work: Callable[[], object], device: str = "cpu") -> Memory:
    """Do a piece of work in this process, all that it needs being loaded, and say what memory it took."""
    gc.collect()
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        ready = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return Memory(ready, torch.cuda.max_memory_allocated(device), "the GPU's allocator")
    import resource

    import psutil

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc returns what loading has freed: the work cannot hide in it
    resets = False
    with suppress(OSError):  # on Linux the peak is set back, so that loading is no part of it
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        resets = True
    ready = psutil.Process().memory_info().rss
    work()
    with suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        if resets and (peak := re.search(r"^VmHWM:\s*(\d+)", status, re.MULTILINE)):
            return Memory(ready, max(int(peak[1]) * 1024, ready), "resident memory of the process")
    scale = 1 if sys.platform == "darwin" else 1024  # Linux counts in KiB
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    return Memory(ready, most, "resident memory of the process, loading included")


if __name__ == "__main__":
    serve()
