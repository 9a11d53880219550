"""OpenVINO's greedy decoding of a GGUF file, through openvino-genai."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipedec_cli.evaluate.peers.process import Worker
from pipedec_cli.evaluate.timing import Clock, Source


class OpenVino(Worker):
    """openvino-genai on an exported file, with its defaults, but that it keeps no prompt for the next pass."""

    def __init__(self, *, file: str, dtype: str, device: str, threads: int, places: int, **more: Any) -> None:
        import openvino_genai

        super().__init__("openvino-genai", dtype=dtype, threads=threads, **more)
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        how = {"INFERENCE_NUM_THREADS": threads, "scheduler_config": scheduler}
        self._model = openvino_genai.LLMPipeline(file, device.upper(), **how)
        self._how = openvino_genai.GenerationConfig()
        self._how.max_new_tokens, self._how.ignore_eos = self.max_tokens, self.exactly
        self._how.do_sample = self._how.apply_chat_template = False
        self._how.eos_token_id, self._how.stop_token_ids = self.ends[0], {*self.ends}

    def generate(self, batch: Sequence[Source], clock: Clock) -> tuple[list[list[int]], float]:
        """See `Worker.generate`."""
        import numpy as np
        import openvino
        import openvino_genai

        longest = max(map(len, batch))
        short = [longest - len(source) for source in batch]
        rows = [[*[0] * less, *source] for less, source in zip(short, batch, strict=True)]
        masks = [[*[0] * less, *[1] * (longest - less)] for less in short]
        ids, mask = (openvino.Tensor(np.array(given, dtype=np.int64)) for given in (rows, masks))
        made = self._model.generate(openvino_genai.TokenizedInputs(ids, mask), self._how)
        return [list(tokens) for tokens in made.tokens], made.perf_metrics.get_ttft().mean / 1000
