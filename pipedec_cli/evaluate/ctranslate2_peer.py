"""CTranslate2's greedy decoding, from a checkpoint that is converted on the spot; it runs in child processes.

torch is not imported here, so that such a process holds CTranslate2 alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from pipedec_cli.evaluate.timing import Clock, Output, Pass, Source

#: What the number of threads is tried on: source tokens, tokens made, and how often.
TRIAL_SOURCE: Final = 64
TRIAL_TOKENS: Final = 12
TRIALS: Final = 3


class CTranslate2Decoder:
    """CTranslate2's greedy decoding of a converted checkpoint."""

    name = "ctranslate2"
    largest_batch: int | None = None

    def __init__(
        self,
        folder: Path,
        *,
        device: str,
        compute_type: str,
        threads: int,
        max_tokens: int,
        exactly: bool = False,
    ) -> None:
        """Load a converted checkpoint.

        Args:
            folder: what `convert` wrote.
            device: ``cpu``, ``cuda`` or ``cuda:N``.
            compute_type: as CTranslate2 names it, such as ``float32``.
            threads: threads of one translation.
            max_tokens: the most tokens a text may have.
            exactly: make that many tokens, whatever the model says.
        """
        import ctranslate2

        kind, _, index = device.partition(":")
        self.folder = folder
        self.device = device
        self.compute_type = compute_type
        self.threads = threads
        self.max_tokens = max_tokens
        self.exactly = exactly
        self._translator = ctranslate2.Translator(
            str(folder),
            device=kind,
            device_index=int(index or 0),
            compute_type=compute_type,
            inter_threads=1,
            intra_threads=threads,
        )
        words = json.loads((folder / "shared_vocabulary.json").read_text(encoding="utf-8"))
        self._words: list[str] = words
        self._ids = {word: place for place, word in enumerate(words)}
        self._eos = json.loads((folder / "config.json").read_text(encoding="utf-8"))["eos_token"]

    @property
    def eos(self) -> int:
        """The id that ends a source."""
        return self._ids[self._eos]

    @property
    def settings(self) -> Mapping[str, str]:
        """Version, how it decodes, compute type and threads."""
        return {
            "version": f"ctranslate2 {version('ctranslate2')}",
            "decoding": "greedy",
            "max_tokens": str(self.max_tokens),
            "dtype": self.compute_type,
            "threads": str(self.threads),
        }

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Translate; see `TimedDecoder.run`. It does not tell encoder and decoder apart."""
        outputs: list[Output] = []
        calls = 0
        for first in range(0, len(sources), batch_size):
            batch = [
                [self._words[token] for token in source] for source in sources[first : first + batch_size]
            ]
            results = self._translator.translate_batch(
                batch,
                beam_size=1,
                max_input_length=0,  # its default cuts sources at 1024 tokens
                max_decoding_length=self.max_tokens,
                min_decoding_length=self.max_tokens
                if self.exactly
                else 0,  # its default forbids an empty text
                return_end_token=True,
            )
            steps = [len(result.hypotheses[0]) for result in results]
            calls += max(steps)
            for result, count in zip(results, steps, strict=True):
                words = [word for word in result.hypotheses[0] if word != self._eos]
                outputs.append(Output(tuple(self._ids[word] for word in words), count))
        return Pass(tuple(outputs), calls)


def ctranslate2_workload(
    *,
    folder: str,
    device: str,
    compute_type: str,
    threads: int,
    max_tokens: int,
    exactly: bool,
    sources: Sequence[Source],
    batch_size: int,
) -> Callable[[], object]:
    """The decoding of some sources as a piece of work; see `CTranslate2Process.blueprint`."""
    decoder = CTranslate2Decoder(
        Path(folder),
        device=device,
        compute_type=compute_type,
        threads=threads,
        max_tokens=max_tokens,
        exactly=exactly,
    )
    return lambda: decoder.run(sources, batch_size, time.perf_counter)


def convert(checkpoint: str, folder: Path) -> None:
    """Write a checkpoint in CTranslate2's format, in float32.

    Args:
        checkpoint: a folder or hub name of a plain T5.
        folder: where to; what is there is replaced.

    Raises:
        ValueError: CTranslate2 knows no such model.
    """
    from ctranslate2.converters import TransformersConverter
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        TransformersConverter(checkpoint).convert(str(folder), quantization="float32", force=True)
    finally:
        if bars:
            logging.enable_progress_bar()


def fastest_threads(
    folder: Path, *, device: str, compute_type: str, most: int, clock: Clock = time.perf_counter
) -> int:
    """The number of threads, 1 or all, with which a short text is made fastest.

    On small models and on machines that are shared, its threads may lose more by waiting for one another than they
    gain; whoever uses it there would find that out and take one.

    Args:
        folder: what `convert` wrote.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        compute_type: as CTranslate2 names it.
        most: how many there are.
        clock: seconds.
    """
    if most == 1 or device != "cpu":
        return most
    seconds: dict[int, float] = {}
    for threads in (1, most):
        tried = CTranslate2Decoder(
            folder,
            device=device,
            compute_type=compute_type,
            threads=threads,
            max_tokens=TRIAL_TOKENS,
            exactly=True,
        )
        source = [tried.eos] * TRIAL_SOURCE  # any token will do
        passes = []
        for _ in range(TRIALS):
            began = clock()
            tried.run([source], 1, clock)
            passes.append(clock() - began)
        seconds[threads] = min(passes)
    return min(seconds, key=lambda threads: seconds[threads])


def compute_type(dtype: str, device: str) -> str:
    """CTranslate2's compute type for a dtype: the same, or float32 where this device has no such.

    Args:
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
    """
    import ctranslate2

    kind, _, index = device.partition(":")
    supported = ctranslate2.get_supported_compute_types(kind, int(index or 0))
    return dtype if dtype in supported else "float32"
