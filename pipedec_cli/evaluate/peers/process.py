"""A peer in a process of its own: the process, and what works in it, with the faster number of threads.

Two OpenMP libraries in one process take the cores from each other: on two cores, transformers took half as long again,
and CTranslate2 up to five times as long. So a child process holds a peer's package alone, without torch. It may run in
the Python of another environment, which then needs msgspec beside the package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, Final

from pipedec_cli.evaluate.child import Child, ChildError, find_factory
from pipedec_cli.evaluate.timing import Clock, Output, Pass, Source, combine_known, time_of

#: How often each number of threads is tried.
TRIALS: Final = 2


class PeerProcess(Child):
    """A peer in a child process, with the fastest number of threads."""

    def __init__(self, worker: str, options: Mapping[str, Any], largest_batch: int | None = None) -> None:
        """Load a worker, ``module:class``, with the options of a `Worker`; ``threads`` are the most that it may take.

        A ``python`` in them names the Python to run. A ChildError if it cannot load.
        """
        self.device, self.largest_batch = options["device"], largest_batch
        self._worker, self._options = worker, dict(options)
        super().__init__(f"{__name__}:Fastest", {"worker": worker, **options})

    def spec(self) -> tuple[str, dict[str, Any]]:
        """The same, with all threads, for another child process; a ChildError on a GPU, where nothing counts memory."""
        if self.device != "cpu":
            raise ChildError("it has no counter of the GPU's memory")
        return self._worker, self._options


class Worker:
    """A peer's greedy decoding in this process. A subclass loads the model, and generates."""

    def __init__(
        self, package: str, *, dtype: str, threads: int, max_tokens: int, exactly: bool, eos: int
    ) -> None:
        """Generate at most, or `exactly`, `max_tokens` tokens a text, which ends with `eos`."""
        self.max_tokens, self.exactly, self.eos = max_tokens, exactly, eos
        self.settings = {
            "version": f"{package} {version(package)}",
            "decoding": "greedy",
            "max_tokens": str(max_tokens),
            "dtype": dtype,
            "threads": str(threads),
        }

    def generate(self, batch: Sequence[Source], clock: Clock) -> tuple[list[list[int]], float | None]:
        """The answers in ids, each with its end if it was reached, and the seconds to the first tokens, if known."""
        raise NotImplementedError

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Generate; the first call of a batch reads the prompt and gives the first tokens as well."""
        outputs, calls, reading = list[Output](), 0, list[float | None]()
        for first in range(0, len(sources), batch_size):
            found, seconds = self.generate(sources[first : first + batch_size], clock)
            calls += max(map(len, found))
            reading.append(seconds)
            for ids in found:
                tokens = ids if self.exactly else [token for token in ids if token != self.eos]
                outputs.append(Output(tuple(tokens), len(ids)))
        return Pass(tuple(outputs), calls, combine_known(reading, sum))


class Fastest:
    """A worker with 1 thread or all, whichever is faster at each batch size.

    Both are tried on the first batch of the first pass at a size, which is there to warm up. On small models and shared
    machines more threads may lose more by waiting for one another than they gain.
    """

    def __init__(self, *, worker: str, device: str, threads: int, **options: Any) -> None:
        counts = {1, threads} if device == "cpu" else {threads}
        make = partial(find_factory(worker), device=device, **options)
        self._tried = [make(threads=count) for count in sorted(counts)]
        self._chosen: dict[int, Any] = {}

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the worker, with the threads chosen for each batch size."""
        chosen = {size: one.settings["threads"] for size, one in self._chosen.items()}
        each = [f"{threads} at batch size {size}" for size, threads in chosen.items()]
        different = {*chosen.values()} or {one.settings["threads"] for one in self._tried}
        threads = ", ".join(each if len({*chosen.values()}) > 1 else sorted(different))
        return {**self._tried[0].settings, "threads": threads}

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Generate; see `Worker.run`."""
        if batch_size not in self._chosen:
            seconds = [float("inf")] * len(self._tried)
            for _ in range(TRIALS if len(self._tried) > 1 else 0):
                for place, one in enumerate(self._tried):
                    work = partial(one.run, sources[:batch_size], batch_size, clock)
                    seconds[place] = min(seconds[place], time_of(clock, work))
            self._chosen[batch_size] = self._tried[seconds.index(min(seconds))]
        made: Pass = self._chosen[batch_size].run(sources, batch_size, clock)
        return made
