"""llama.cpp's greedy decoding of a GGUF file, through llama-cpp-python."""

from collections.abc import Sequence
from typing import Any

from pipedec_cli.compare.child import Worker
from pipedec_cli.compare.timing import Clock, Source


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
