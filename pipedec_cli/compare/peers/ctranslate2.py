"""CTranslate2's greedy decoding of a checkpoint that is converted for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipedec_cli.compare.child import Worker
from pipedec_cli.compare.timing import Clock, Source
from pipedec_cli.data.errors import UserError

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint

_LLAMA3_LENGTH: Final = 8192


class CTranslate2(Worker):
    """CTranslate2 on what `convert` wrote.

    Where sources are prompts (`prompted`), the text continues them.
    """

    def __init__(
        self,
        *,
        folder: str,
        device: str,
        dtype: str,
        threads: int,
        prompted: bool,
        **more: Any,
    ) -> None:
        import ctranslate2

        super().__init__("ctranslate2", dtype=dtype, threads=threads, **more)
        self.prompted = prompted
        family, index = _kind_and_index(device)
        make = ctranslate2.Generator if prompted else ctranslate2.Translator
        self._model = make(
            folder,
            device=family,
            device_index=index,
            compute_type=dtype,
            inter_threads=1,
            intra_threads=threads,
        )
        file = Path(folder, "vocabulary.json" if prompted else "shared_vocabulary.json")
        self._words = json.loads(file.read_text(encoding="utf-8"))
        self._ids = {word: place for place, word in enumerate(self._words)}

    def generate(
        self, batch: Sequence[Source], clock: Clock
    ) -> tuple[list[list[int]], None]:
        """The ids of a text for each source of a batch; None: the seconds to read the sources are not known."""
        words = list(map(self._in_words, batch))
        # Its default forbids an empty text.
        least = self.max_tokens if self.exactly else 0
        if self.prompted:
            results = self._model.generate_batch(
                words,
                beam_size=1,
                return_end_token=True,
                end_token=self._in_words(self.ends),
                max_length=self.max_tokens,
                min_length=least,
                include_prompt_in_result=False,
            )
            return [result.sequences_ids[0] for result in results], None
        results = self._model.translate_batch(
            words,
            beam_size=1,
            return_end_token=True,
            end_token=self._in_words(self.ends),
            max_decoding_length=self.max_tokens,
            min_decoding_length=least,
            max_input_length=0,  # by default it would cut sources at 1024 tokens
        )
        return [self._in_ids(result.hypotheses[0]) for result in results], None

    def _in_words(self, ids: Source) -> list[str]:
        return [self._words[token] for token in ids]

    def _in_ids(self, words: Sequence[str]) -> list[int]:
        return [self._ids[word] for word in words]


def prepare(
    checkpoint: Checkpoint, *, folder: Path, dtype: str, **_others: Any
) -> dict[str, Any]:
    """Convert the checkpoint, if it is not in the folder yet. Returns the options of its worker.

    The worker computes in `dtype`; with "" in the checkpoint's, or in float32 where the
    device does not have that. A UserError if it cannot be converted.
    """
    from pipedec_cli.model.gguf import loadable

    device = str(checkpoint.device)
    if dtype and compute_type(dtype, device) != dtype:
        raise UserError(f"CTranslate2 has no {dtype} on this device")
    ignored = unsupported(checkpoint.model.config)
    if ignored:
        raise UserError(f"CTranslate2 does not know {ignored}")
    if not (folder / "model.bin").exists():
        convert(loadable(checkpoint.name), folder)
    own = str(checkpoint.model.dtype).removeprefix("torch.")
    return {
        "folder": str(folder),
        "dtype": compute_type(dtype or own, device),
        "prompted": checkpoint.backbone.prompted,
    }


def convert(checkpoint: str, folder: Path) -> None:
    """Write a sequential model (a folder or a hub name) in CTranslate2's format, in float32; a ValueError if it cannot."""
    from ctranslate2.converters import TransformersConverter
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        TransformersConverter(checkpoint).convert(
            str(folder), quantization="float32", force=True
        )
    finally:
        if bars:
            logging.enable_progress_bar()


def unsupported(config: Any) -> str | None:
    """The part of a decoder-only model that CTranslate2 would ignore without a word.

    It would then write other tokens.
    """
    family = config.model_type
    if family == "llama":
        if config.head_dim * config.num_attention_heads != config.hidden_size:
            return "a Llama whose heads together are not as wide as the model"
        rope = getattr(config, "rope_parameters", None) or {}
        length = rope.get("original_max_position_embeddings", _LLAMA3_LENGTH)
        if length != _LLAMA3_LENGTH:
            made_for = f"made for {_LLAMA3_LENGTH:,} tokens"
            return f"frequencies of a Llama that were not {made_for}"
    if family in ("qwen2", "qwen3") and "sliding_attention" in config.layer_types:
        return "a Qwen with windows"
    if family == "gemma3_text" and config.query_pre_attn_scalar != config.head_dim:
        return "a Gemma 3 whose queries are not scaled by the heads' width"
    return None


def compute_type(dtype: str, device: str) -> str:
    """CTranslate2's compute type for a dtype; float32 where the device lacks it."""
    import ctranslate2

    supported = ctranslate2.get_supported_compute_types(*_kind_and_index(device))
    return dtype if dtype in supported else "float32"


def _kind_and_index(device: str) -> tuple[str, int]:
    """A device as CTranslate2 has it: ("cuda", 1) for ``cuda:1``."""
    family, _, index = device.partition(":")
    return family, int(index or 0)
