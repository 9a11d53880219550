"""CTranslate2's greedy decoding of a checkpoint that is converted for it, in a process of its own.

Two OpenMP libraries in one process take the cores from each other: on two cores, transformers took half as long again,
and CTranslate2 up to five times as long. So the child process holds CTranslate2 alone, without torch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipedec_cli.evaluate.child import Child, ChildError
from pipedec_cli.evaluate.timing import Clock, Output, Pass, Source, time_of

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint

#: How often each number of threads is tried.
TRIALS = 2
_LLAMA3_LENGTH: Final = 8192


class CTranslate2:
    """CTranslate2's greedy decoding of what `convert` wrote, in this process, with `threads` threads a text.

    A text ends with the id `eos`. Where sources are prompts (`prompted`), the text continues them.
    """

    def __init__(
        self,
        *,
        folder: str,
        device: str,
        compute_type: str,
        threads: int,
        max_tokens: int,
        exactly: bool,
        prompted: bool,
        eos: int,
    ) -> None:
        import ctranslate2

        self.max_tokens, self.exactly, self.prompted, self.eos = max_tokens, exactly, prompted, eos
        self.settings = {
            "version": f"ctranslate2 {version('ctranslate2')}",
            "decoding": "greedy",
            "max_tokens": str(max_tokens),
            "dtype": compute_type,
            "threads": str(threads),
        }
        kind, index = _place(device)
        how = {"compute_type": compute_type, "inter_threads": 1, "intra_threads": threads}
        model = ctranslate2.Generator if prompted else ctranslate2.Translator
        self._model = model(folder, device=kind, device_index=index, **how)
        file = Path(folder, "vocabulary.json" if prompted else "shared_vocabulary.json")
        self._words = json.loads(file.read_text(encoding="utf-8"))
        self._ids = {word: place for place, word in enumerate(self._words)}

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Generate; the time to read the source is not measured apart."""
        outputs, calls = list[Output](), 0
        words = [[self._words[token] for token in source] for source in sources]
        for first in range(0, len(sources), batch_size):
            found = self._generate(words[first : first + batch_size])
            calls += max(map(len, found))
            for ids in found:
                outputs.append(Output(tuple(token for token in ids if token != self.eos), len(ids)))
        return Pass(tuple(outputs), calls)

    def _generate(self, batch: Sequence[Sequence[str]]) -> list[list[int]]:
        """The ids of the answers to sources in words, each with its <eos> if it was reached."""
        least = self.max_tokens if self.exactly else 0  # its default forbids an empty text
        how = {"beam_size": 1, "return_end_token": True, "end_token": [self._words[self.eos]]}
        if self.prompted:
            results = self._model.generate_batch(
                batch, max_length=self.max_tokens, min_length=least, include_prompt_in_result=False, **how
            )
            return [result.sequences_ids[0] for result in results]
        lengths = {"max_decoding_length": self.max_tokens, "min_decoding_length": least}
        # By default it would cut sources at 1024 tokens.
        results = self._model.translate_batch(batch, max_input_length=0, **lengths, **how)
        return [[self._ids[word] for word in result.hypotheses[0]] for result in results]


class Fastest:
    """CTranslate2 with 1 thread or all, whichever is faster at each batch size.

    Both are tried on the first batch of the first pass at a size, which is there to warm up. On small models and shared
    machines more threads may lose more by waiting for one another than they gain.
    """

    largest_batch: int | None = None

    def __init__(self, *, device: str, most_threads: int, **options: Any) -> None:
        counts = {1, most_threads} if device == "cpu" else {most_threads}
        self._tried = [CTranslate2(device=device, threads=threads, **options) for threads in sorted(counts)]
        self._chosen: dict[int, CTranslate2] = {}

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the decoder, with the threads chosen for each batch size."""
        chosen = {size: one.settings["threads"] for size, one in self._chosen.items()}
        each = [f"{threads} at batch size {size}" for size, threads in chosen.items()]
        different = {*chosen.values()} or {one.settings["threads"] for one in self._tried}
        threads = ", ".join(each if len({*chosen.values()}) > 1 else sorted(different))
        return {**self._tried[0].settings, "threads": threads}

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Generate; see `CTranslate2.run`."""
        if batch_size not in self._chosen:
            seconds = [float("inf")] * len(self._tried)
            for _ in range(TRIALS if len(self._tried) > 1 else 0):
                for place, one in enumerate(self._tried):
                    work = partial(one.run, sources[:batch_size], batch_size, clock)
                    seconds[place] = min(seconds[place], time_of(clock, work))
            self._chosen[batch_size] = self._tried[seconds.index(min(seconds))]
        return self._chosen[batch_size].run(sources, batch_size, clock)


class CTranslate2Process(Child):
    """CTranslate2 in a child process, with the fastest number of threads."""

    def __init__(
        self, checkpoint: Checkpoint, folder: Path, max_tokens: int, *, exactly: bool = False, dtype: str = ""
    ) -> None:
        """Load what `convert` wrote of the checkpoint; a ChildError if it cannot.

        Without a dtype it is the checkpoint's, or float32 where the device does not have that.
        """
        import torch

        self.device, self._threads = str(checkpoint.device), torch.get_num_threads()
        dtype = dtype or str(checkpoint.model.dtype).removeprefix("torch.")
        self._options = {
            "folder": str(folder),
            "device": self.device,
            "compute_type": compute_type(dtype, self.device),
            "max_tokens": max_tokens,
            "exactly": exactly,
            "prompted": checkpoint.backbone.prompted,
            "eos": checkpoint.eos,
        }
        factory = "pipedec_cli.evaluate.peers.ctranslate2:Fastest"
        super().__init__(factory, self._options | {"most_threads": self._threads})

    def spec(self) -> tuple[str, dict[str, Any]]:
        """The same, with all threads, for another child process; a ChildError on a GPU, where nothing counts memory."""
        if self.device != "cpu":
            raise ChildError("it has no counter of the GPU's memory")
        options = self._options | {"threads": self._threads}
        return "pipedec_cli.evaluate.peers.ctranslate2:CTranslate2", options


def convert(checkpoint: str, folder: Path) -> None:
    """Write a sequential model (a folder or a hub name) in CTranslate2's format, in float32; a ValueError if it cannot."""
    from ctranslate2.converters import TransformersConverter
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        TransformersConverter(checkpoint).convert(str(folder), quantization="float32", force=True)
    finally:
        if bars:
            logging.enable_progress_bar()


def unsupported(config: Any) -> str | None:
    """The part of a decoder-only model that CTranslate2 would ignore without a word, and then write other tokens."""
    kind, rope = config.model_type, getattr(config, "rope_parameters", None) or {}
    if kind == "llama" and config.head_dim * config.num_attention_heads != config.hidden_size:
        return "a Llama whose heads together are not as wide as the model"
    if kind == "llama" and rope.get("original_max_position_embeddings", _LLAMA3_LENGTH) != _LLAMA3_LENGTH:
        return f"frequencies of a Llama that were not made for {_LLAMA3_LENGTH:,} tokens"
    if kind in ("qwen2", "qwen3") and "sliding_attention" in config.layer_types:
        return "a Qwen with windows"
    if kind == "gemma3_text" and config.query_pre_attn_scalar != config.head_dim:
        return "a Gemma 3 whose queries are not scaled by the heads' width"
    return None


def compute_type(dtype: str, device: str) -> str:
    """CTranslate2's compute type for ``float32``, ``bfloat16``, ``float16`` or ``int8``; float32 where the device lacks it."""
    import ctranslate2

    return dtype if dtype in ctranslate2.get_supported_compute_types(*_place(device)) else "float32"


def _place(device: str) -> tuple[str, int]:
    kind, _, index = device.partition(":")
    return kind, int(index or 0)
