"""A decoder in a child process: to measure its memory alone, or to keep its threads away from torch's.

A process never gives back all the memory that it has used, and its peak counts from its
start. So the memory of several decoders can be told apart only in a fresh process for
each. This module imports neither torch nor a model: the child holds just what its
decoder needs. Both sides speak JSON lines.

Two OpenMP libraries in one process take the cores from each other: on two cores,
transformers took half as long again, and CTranslate2 up to five times as long. So a
peer's process holds the peer's package alone, without torch. It may run in the Python
of another environment, which then needs msgspec beside the package.
"""

import ctypes
import gc
import importlib
import os
import re
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final, Self, TypeVar

from msgspec import Raw, Struct, json, structs

from pipedec_cli.compare.timing import (
    Clock,
    Output,
    Pass,
    RunnerError,
    Source,
    sum_known,
)

T = TypeVar("T")
#: Starts the child with this package alone: another Python must not see what else is
#: installed beside it.
_START: Final = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
found = spec_from_file_location("pipedec_cli", sys.argv[1])
sys.modules["pipedec_cli"] = package = module_from_spec(found)
found.loader.exec_module(package)
from pipedec_cli.compare.child import serve
serve()
"""


class Memory(Struct, frozen=True):
    """Bytes in use after loading, the most bytes in use during the work, and the counter that measured them."""

    ready_bytes: int
    peak_bytes: int
    counter: str


class _Make(Struct):
    factory: str  # module:function
    payload: dict[str, Any]


class _Work(Struct):
    sources: Sequence[Source]
    batch_size: int
    measure_memory: bool = False


class _Answer(Struct):
    settings: Mapping[str, str]
    value: Raw = Raw(b"null")
    error: str | None = None


class ChildError(RunnerError):
    """The child process failed at its work, or ended; the message says why."""


class Child:
    """A `Runner` in a process of its own, which lives no longer than this object."""

    largest_batch: int | None = None

    def __init__(self, factory: str, payload: Mapping[str, Any]) -> None:
        """Start the process. It makes the runner of a `Runner.spec`, on the spec's ``device``. A ChildError on failure."""
        self._errors = TemporaryFile()  # noqa: SIM115  # as long as the child
        package = Path(__file__).parents[1] / "__init__.py"
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, str(package)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self.close = weakref.finalize(self, _end, self._process, self._errors)
        self._settings: Mapping[str, str] = {}
        self._ask(_Make(factory, dict(payload)), type(None))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def settings(self) -> Mapping[str, str]:
        """The decoder's settings when it last answered, and that it has its own process."""
        return {**self._settings, "process": "its own"}

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Generate in the child; the answer costs a millisecond beside the second of a run."""
        return structs.replace(self._ask(_Work(sources, batch_size), Pass), seconds=())

    def peak(self, sources: Sequence[Source], batch_size: int) -> Memory:
        """The memory that generating takes, without loading where the system can tell.

        A ChildError if it was killed.
        """
        return self._ask(_Work(sources, batch_size, measure_memory=True), Memory)

    def _ask(self, request: _Make | _Work, kind: type[T]) -> T:
        """The child's answer, of type `kind`, to a request; a ChildError if it failed or has ended."""
        writing = self._process.stdin
        reading = self._process.stdout
        assert writing is not None and reading is not None
        line = b""
        with suppress(BrokenPipeError):
            writing.write(json.encode(request) + b"\n")
            writing.flush()
            line = reading.readline()
        if not line:
            raise ChildError(self._end_in_words())
        answer = json.decode(line, type=_Answer)
        self._settings = answer.settings
        if answer.error is not None:
            raise ChildError(answer.error)
        return json.decode(answer.value, type=kind)

    def _end_in_words(self) -> str:
        """How the process ended, with the last line that it wrote."""
        code = self._process.wait()
        ending = signal.Signals(-code).name if code < 0 else str(code)
        said = f"its process ended with {ending}"
        self._errors.seek(0)
        written = self._errors.read().decode(errors="replace").split("\n")
        lines = [line.strip() for line in written if line.strip()]
        return f"{said}: {lines[-1]}" if lines else said


def _end(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    """End the child at once: it has nothing to save."""
    errors.close()
    process.kill()
    with suppress(BrokenPipeError):  # the half of a request that it has not read
        process.communicate()


def serve() -> None:
    """What the child does: make the runner that the first line of its input names, then answer each other line.

    A line is a request, and an answer is a line on standard output.
    """
    # Ctrl-C ends the parent, and then the input ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    runner: Any = None
    device = "cpu"
    settings = {}
    for line in sys.stdin.buffer:
        value = None
        error = None
        try:
            if runner is None:
                make = json.decode(line, type=_Make)
                runner = find_factory(make.factory)(**make.payload)
                device = make.payload.get("device", device)
            else:
                value = _work(runner, json.decode(line, type=_Work), device)
            settings = dict(runner.settings)
        except Exception as failure:  # the parent says it, whatever it is
            error = f"{type(failure).__name__}: {failure}"
        answer = _Answer(settings, Raw(json.encode(value)), error)
        answers.write(json.encode(answer) + b"\n")
        answers.flush()


def _work(runner: Any, work: _Work, device: str) -> object:
    """Let the runner generate; return its pass, or the memory that it took."""

    def generate() -> object:
        return runner.run(work.sources, work.batch_size, time.perf_counter)

    return measure_here(generate, device) if work.measure_memory else generate()


def spec_of(checkpoint: Any, dtype: str) -> dict[str, Any]:
    """The arguments with which a child process loads a checkpoint anew, and computes with as many threads."""
    import torch

    return {
        "name": checkpoint.name,
        "eos": checkpoint.eos,
        "dtype": dtype,
        "device": str(checkpoint.device),
        "threads": torch.get_num_threads(),
    }


def find_factory(name: str) -> Callable[..., Any]:
    """The function or class that ``module:function`` names."""
    module, _, function = name.partition(":")
    factory: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return factory


def measure_here(work: Callable[[], object], device: str = "cpu") -> Memory:
    """Do a piece of work in this process, in which everything is loaded. Returns the memory that it took.

    On the CPU it is the memory of the process, on a GPU that of torch's allocator.
    """
    gc.collect()
    if device.startswith("cuda"):
        return _measure_gpu(work, device)
    import psutil

    # glibc returns what loading has freed, so the work cannot hide in it.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    resets = False
    # Linux can set the peak back, so that loading is no part of it.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        resets = True
    ready = psutil.Process().memory_info().rss
    work()
    peak = _peak_since_reset() if resets else None
    if peak is not None:
        return Memory(ready, max(peak, ready), "resident memory of the process")
    import resource

    scale = 1 if sys.platform == "darwin" else 1024  # Linux counts in KiB
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    return Memory(ready, most, "resident memory of the process, loading included")


def _measure_gpu(work: Callable[[], object], device: str) -> Memory:
    """Do a piece of work, and return the memory of a GPU that torch has allocated for it."""
    import torch

    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    ready = torch.cuda.memory_allocated(device)
    work()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    return Memory(ready, peak, "the GPU's allocator")


def _peak_since_reset() -> int | None:
    """The most resident bytes of this process, where the system tells.

    `os.wait4` does not: the peak that it has of a child begins with its parent's, which
    holds the models.
    """
    with suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        peak = re.search(r"^VmHWM:\s*(\d+)", status, re.MULTILINE)
        if peak:
            return int(peak[1]) * 1024
    return None


class PeerProcess(Child):
    """A peer in a child process."""

    def __init__(
        self, worker: str, options: Mapping[str, Any], largest_batch: int | None = None
    ) -> None:
        """Load a worker, ``module:class``, with the options of a `Worker`.

        A ChildError if it cannot load.
        """
        self.device = options["device"]
        self.largest_batch = largest_batch
        self._worker = worker
        self._options = dict(options)
        super().__init__(worker, options)

    def spec(self) -> tuple[str, dict[str, Any]]:
        """What makes the same peer in another child process: ``module:class``, and its arguments.

        A ChildError on a GPU, where nothing counts its memory.
        """
        if self.device != "cpu":
            raise ChildError("it has no counter of the GPU's memory")
        return self._worker, self._options


class Worker:
    """A peer's greedy decoding in this process.

    A subclass loads the model, and generates.
    """

    def __init__(
        self,
        package: str,
        *,
        dtype: str,
        threads: int,
        max_tokens: int,
        exactly: bool,
        ends: Sequence[int],
    ) -> None:
        """Prepare to generate.

        Args:
            package: the name of the peer's package, whose version is noted.
            dtype: of the weights.
            threads: that compute.
            max_tokens: the most tokens of a text.
            exactly: each text has so many tokens, whatever the model answers.
            ends: ids each of which ends a text.
        """
        self.max_tokens = max_tokens
        self.exactly = exactly
        self.ends = ends
        self.settings = {
            "version": f"{package} {version(package)}",
            "decoding": "greedy",
            "max_tokens": str(max_tokens),
            "dtype": dtype,
            "threads": str(threads),
        }

    def generate(
        self, batch: Sequence[Source], clock: Clock
    ) -> tuple[list[list[int]], float | None]:
        """The answers in ids, and the seconds to the first tokens, if known.

        Each answer has its end if it was reached.
        """
        raise NotImplementedError

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Generate from the sources, `batch_size` at a time, and time the reading of the prompts by the clock.

        The first call of a batch reads the prompt and gives the first tokens as well.
        """
        outputs = list[Output]()
        calls = 0
        reading = []  # seconds to the first tokens of each batch
        for first in range(0, len(sources), batch_size):
            batch = sources[first : first + batch_size]
            answers, seconds = self.generate(batch, clock)
            calls += max(map(len, answers))
            reading.append(seconds)
            outputs += map(self._output, answers)
        return Pass(tuple(outputs), calls, sum_known(reading))

    def _output(self, ids: Sequence[int]) -> Output:
        tokens = ids
        if not self.exactly:
            tokens = [token for token in ids if token not in self.ends]
        return Output(tuple(tokens), len(ids))
