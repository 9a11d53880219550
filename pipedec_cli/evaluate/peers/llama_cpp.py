"""llama.cpp's greedy decoding of a GGUF file, through llama-cpp-python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipedec_cli.evaluate.peers.process import Worker
from pipedec_cli.evaluate.timing import Clock, Source


class LlamaCpp(Worker):
    """llama.cpp on an exported file, with `places` for the tokens of prompt and answer. It keeps no prompt.

    With a JSON `schema` its grammar holds the answer to it.
    """

    def __init__(
        self,
        *,
        file: str,
        dtype: str,
        device: str,
        threads: int,
        places: int,
        schema: str | None = None,
        **more: Any,
    ) -> None:
        from llama_cpp import Llama, LlamaGrammar, llama_vocab_is_eog

        super().__init__("llama-cpp-python", dtype=dtype, threads=threads, **more)
        path = _quantized(file) if dtype == "Q4_0" else file
        counts = {"n_threads": threads, "n_threads_batch": threads}
        self._model, self._ends_any = Llama(path, n_ctx=places, **counts, verbose=False), llama_vocab_is_eog
        self._grammar = LlamaGrammar.from_json_schema(schema, verbose=False) if schema else None
        if schema:
            self.settings["decoding"] += ", JSON grammar"

    def generate(self, batch: Sequence[Source], clock: Clock) -> tuple[list[list[int]], float]:
        """See `Worker.generate`."""
        (source,), model, ids, began, seconds = batch, self._model, list[int](), clock(), 0.0
        model.reset()
        for token in model.generate(list(source), temp=0.0, grammar=self._grammar):
            seconds = seconds or clock() - began
            # A grammar may end with any token that ends texts.
            is_over = self._grammar is not None and self._ends_any(model._model.vocab, token)
            ids.append(self.ends[0] if is_over else token)
            if len(ids) == self.max_tokens or (not self.exactly and ids[-1] in self.ends):
                break
        return [ids], seconds


def _quantized(file: str) -> str:
    """The file in Q4_0, as llama.cpp makes it: we write no 4 bits. It is made once."""
    import llama_cpp

    path = Path(file).with_name("q4_0.gguf")
    if not path.exists():
        how = llama_cpp.llama_model_quantize_default_params()
        how.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0
        if llama_cpp.llama_model_quantize(file.encode(), str(path).encode(), how):
            raise ValueError("llama.cpp cannot make Q4_0 of the weights")
    return str(path)
