"""llama.cpp's greedy decoding of a GGUF file, through llama-cpp-python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipedec_cli.evaluate.peers.process import Worker
from pipedec_cli.evaluate.timing import Clock, Source


class LlamaCpp(Worker):
    """llama.cpp on an exported file, with `places` for the tokens of prompt and answer. It keeps no prompt."""

    def __init__(self, *, file: str, dtype: str, device: str, threads: int, places: int, **more: Any) -> None:
        from llama_cpp import Llama

        super().__init__("llama-cpp-python", dtype=dtype, threads=threads, **more)
        path = _quantized(file) if dtype == "Q4_0" else file
        counts = {"n_threads": threads, "n_threads_batch": threads}
        self._model = Llama(path, n_ctx=places, **counts, verbose=False)

    def generate(self, batch: Sequence[Source], clock: Clock) -> tuple[list[list[int]], float]:
        """See `Worker.generate`."""
        (source,), model, ids, began = batch, self._model, list[int](), clock()
        model.reset()
        model.eval(source)
        ids.append(model.sample(temp=0.0))
        seconds = clock() - began
        while len(ids) < self.max_tokens and (self.exactly or ids[-1] != self.eos):
            model.eval(ids[-1:])
            ids.append(model.sample(temp=0.0))
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
