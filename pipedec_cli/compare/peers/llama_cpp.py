"""llama.cpp's greedy decoding of a GGUF file, through llama-cpp-python."""

from collections.abc import Sequence
from typing import Any

from pipedec_cli.compare.child import Worker
from pipedec_cli.compare.timing import Clock, Source


class LlamaCpp(Worker):
    """llama.cpp on a file, with `places` for the tokens of prompt and answer. It keeps no prompt."""

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
        counts = {"n_threads": threads, "n_threads_batch": threads}
        self._model = Llama(file, n_ctx=places, **counts, verbose=False)

    def generate(
        self, batch: Sequence[Source], clock: Clock
    ) -> tuple[list[list[int]], float]:
        """See `Worker.generate`."""
        (source,), model, ids, began, seconds = (
            batch,
            self._model,
            list[int](),
            clock(),
            0.0,
        )
        model.reset()
        for token in model.generate(list(source), temp=0.0):
            seconds = seconds or clock() - began
            ids.append(token)
            if len(ids) == self.max_tokens or (not self.exactly and token in self.ends):
                break
        return [ids], seconds
