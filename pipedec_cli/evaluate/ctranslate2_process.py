"""CTranslate2 in a process of its own: its threads and torch's, in one, would take the cores from each other.

With two OpenMP libraries in a process, transformers took half as long again on two cores, and CTranslate2 up to five
times as long. The two processes speak in JSON lines; a line costs a millisecond beside the second that it asks for.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipedec_cli.evaluate.ctranslate2_peer import CTranslate2Decoder, fastest_threads
from pipedec_cli.evaluate.memory import MeasuringError
from pipedec_cli.evaluate.timing import Clock, Output, Pass, Source


class CTranslate2Process:
    """CTranslate2's greedy decoding as a contender, in a child process that lives as long as this one or shorter."""

    name = CTranslate2Decoder.name
    largest_batch: int | None = None

    def __init__(
        self,
        folder: Path,
        *,
        device: str,
        compute_type: str,
        most_threads: int,
        max_tokens: int,
        exactly: bool = False,
    ) -> None:
        """Load a converted checkpoint, with the number of threads, 1 or all, with which it is fastest.

        Args:
            folder: what `convert` wrote.
            device: ``cpu``, ``cuda`` or ``cuda:N``.
            compute_type: as CTranslate2 names it, such as ``float32``.
            most_threads: how many threads there are.
            max_tokens: the most tokens a text may have.
            exactly: make that many tokens, whatever the model says.

        Raises:
            MeasuringError: it cannot be loaded.
        """
        self.device = device
        self._child = subprocess.Popen(
            [sys.executable, "-m", "pipedec_cli.evaluate.ctranslate2_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        weakref.finalize(self, self._child.communicate)  # an empty input is the child's end
        self._options = {
            "folder": str(folder),
            "device": device,
            "compute_type": compute_type,
            "max_tokens": max_tokens,
            "exactly": exactly,
        }
        loaded = self._ask({**self._options, "most_threads": most_threads})
        self._options["threads"] = loaded["threads"]
        self._settings: dict[str, str] = loaded["settings"]

    @property
    def settings(self) -> Mapping[str, str]:
        """Version, how it decodes, compute type and threads."""
        return {**self._settings, "process": "its own"}

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Translate; see `TimedDecoder.run`. It does not tell encoder and decoder apart.

        Raises:
            MeasuringError: it failed.
        """
        answer = self._ask({"sources": [list(source) for source in sources], "batch_size": batch_size})
        return Pass(
            tuple(Output(tuple(tokens), steps) for tokens, steps in answer["outputs"]), answer["calls"]
        )

    def blueprint(self, sources: Sequence[Source], batch_size: int) -> tuple[str, dict[str, Any]]:
        """The factory and payload with which `memory.measure_peak` does the same in a child process.

        Raises:
            MeasuringError: it runs on a GPU, where nothing counts what it takes.
        """
        if self.device != "cpu":
            raise MeasuringError("it has no counter of the GPU's memory")
        return "pipedec_cli.evaluate.ctranslate2_peer:ctranslate2_workload", {
            **self._options,
            "sources": [list(source) for source in sources],
            "batch_size": batch_size,
        }

    def _ask(self, request: Mapping[str, Any]) -> Any:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise MeasuringError(f"its process ended with {self._child.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise MeasuringError(answer["error"])
        return answer


def serve() -> None:
    """What the child does: load what the first line names, then answer every further line until there is none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, and with it the input
    decoder: CTranslate2Decoder | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if decoder is None:
                decoder = _load(request)
                answer: dict[str, Any] = {"threads": decoder.threads, "settings": dict(decoder.settings)}
            else:
                made = decoder.run(request["sources"], request["batch_size"], time.perf_counter)
                answer = {
                    "outputs": [(output.tokens, output.steps) for output in made.outputs],
                    "calls": made.calls,
                }
        except Exception as error:  # whatever it is, the parent says it
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _load(request: Mapping[str, Any]) -> CTranslate2Decoder:
    folder, most = Path(request["folder"]), request["most_threads"]
    device, compute_type = request["device"], request["compute_type"]
    return CTranslate2Decoder(
        folder,
        device=device,
        compute_type=compute_type,
        threads=fastest_threads(folder, device=device, compute_type=compute_type, most=most),
        max_tokens=request["max_tokens"],
        exactly=request["exactly"],
    )


if __name__ == "__main__":
    serve()
