"""llama.cpp's greedy decoding of a GGUF file, through llama-cpp-python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipedec_cli.compare.child import Worker
from pipedec_cli.compare.timing import Clock, Source
from pipedec_cli.data.errors import UserError

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint


class LlamaCpp(Worker):
    """llama.cpp on a file, with `places` for the tokens of prompt and answer.

    It keeps no prompt.
    """

    def __init__(
        self,
        *,
        file: str,
        dtype: str,
        device: str,
        threads: int,
        places: int,
        **more: Any,
    ) -> None:
        from llama_cpp import Llama

        super().__init__("llama-cpp-python", dtype=dtype, threads=threads, **more)
        self._model = Llama(
            file,
            n_ctx=places,
            n_threads=threads,
            n_threads_batch=threads,
            verbose=False,
        )

    def generate(
        self, batch: Sequence[Source], clock: Clock
    ) -> tuple[list[list[int]], float]:
        """The ids of the text for the one source of a batch, and the seconds to its first token, by the clock."""
        (source,) = batch
        ids = list[int]()
        seconds = 0.0  # to the first token
        began = clock()
        self._model.reset()
        for token in self._model.generate(list(source), temp=0.0):
            if not ids:
                seconds = clock() - began
            ids.append(token)
            has_ended = token in self.ends and not self.exactly
            if has_ended or len(ids) == self.max_tokens:
                break
        return [ids], seconds


def prepare(
    checkpoint: Checkpoint, *, places: int, file: Path | None, **_others: Any
) -> dict[str, Any]:
    """The options of its worker; a UserError if it cannot run the `file`, or the checkpoint's own if it is None."""
    if checkpoint.device.type != "cpu":
        raise UserError("it is compared on a CPU only")
    if not checkpoint.backbone.prompted:
        raise UserError("it is compared with decoder-only models only")
    from gguf import LlamaFileType

    from pipedec_cli.model.gguf import local_files, read_header

    path = file or local_files(checkpoint.name)[0]
    metadata = read_header(path).metadata
    vocabulary = checkpoint.model.config.vocab_size
    tokens = metadata.get("tokenizer.ggml.tokens")
    if tokens != vocabulary:
        many = f"{tokens or 0:,} tokens, and the model {vocabulary:,}"
        raise UserError(f"{path} has {many}")
    file_type = metadata.get("general.file_type")
    dtype = "as the file"
    if file_type in list(LlamaFileType):
        dtype = LlamaFileType(file_type).name
    dtype = dtype.removeprefix("ALL_").removeprefix("MOSTLY_")
    return {"file": str(path), "dtype": dtype, "places": places}
