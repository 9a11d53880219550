"""transformers' own greedy decoding as a contender, plain or with prompt lookup."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pipedec_cli.evaluate.timing import Clock, Output, Pass, Source
from pipedec_cli.evaluate.watch import watched

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint


class TransformersDecoder:
    """transformers' greedy `generate`, with its own cache, as it comes; with prompt lookup if wanted."""

    def __init__(
        self, checkpoint: Checkpoint, max_tokens: int, looked_up: int | None = None, *, exactly: bool = False
    ) -> None:
        """Take a checkpoint as it is.

        Args:
            checkpoint: a plain T5.
            max_tokens: the most tokens a text may have.
            looked_up: tokens that prompt lookup proposes at once; None for plain greedy decoding.
            exactly: make that many tokens, whatever the model says.
        """
        self.checkpoint = checkpoint
        self.max_tokens = max_tokens
        self.looked_up = looked_up
        self.exactly = exactly
        self.name = "transformers" if looked_up is None else "prompt-lookup"
        self.largest_batch = None if looked_up is None else 1

    @property
    def settings(self) -> Mapping[str, str]:
        """Version, how it decodes, and dtype."""
        how = "greedy, dynamic cache"
        if self.looked_up is not None:
            how += f", prompt_lookup_num_tokens={self.looked_up}"
        return {
            "version": f"transformers {version('transformers')}",
            "decoding": how,
            "max_tokens": str(self.max_tokens),
            "dtype": str(self.checkpoint.model.dtype).removeprefix("torch."),
        }

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Generate; see `TimedDecoder.run`. Batches are padded, and last as long as their longest text."""
        outputs: list[Output] = []
        model = self.checkpoint.model
        with watched(model.encoder, clock) as encoder, watched(model.decoder) as decoder:
            for first in range(0, len(sources), batch_size):
                before = decoder.calls
                rows = self._generate(sources[first : first + batch_size])
                for tokens, ended in map(self._without_specials, rows):
                    alone = decoder.calls - before if batch_size == 1 else len(tokens) + ended
                    outputs.append(Output(tokens, alone))
        return Pass(tuple(outputs), decoder.calls, encoder_seconds=encoder.seconds)

    def blueprint(self, sources: Sequence[Source], batch_size: int) -> tuple[str, dict[str, Any]]:
        """The factory and payload with which `memory.measure_peak` does the same in a child process."""
        import torch

        return "pipedec_cli.evaluate.transformers_peer:transformers_workload", {
            "checkpoint": self.checkpoint.name,
            "dtype": str(self.checkpoint.model.dtype).removeprefix("torch."),
            "device": str(self.checkpoint.device),
            "threads": torch.get_num_threads(),
            "max_tokens": self.max_tokens,
            "looked_up": self.looked_up,
            "exactly": self.exactly,
            "sources": [list(source) for source in sources],
            "batch_size": batch_size,
        }

    def _generate(self, sources: Sequence[Source]) -> list[list[int]]:
        import torch

        longest = max(map(len, sources))
        pad = self.checkpoint.model.config.pad_token_id
        ids = torch.tensor([[*source, *[pad] * (longest - len(source))] for source in sources])
        mask = torch.tensor([[1] * len(source) + [0] * (longest - len(source)) for source in sources])
        device = self.checkpoint.device
        looked_up = {} if self.looked_up is None else {"prompt_lookup_num_tokens": self.looked_up}
        with torch.inference_mode():
            made: list[list[int]] = self.checkpoint.model.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                do_sample=False,
                num_beams=1,
                max_new_tokens=self.max_tokens,
                min_new_tokens=self.max_tokens if self.exactly else None,
                **looked_up,
            ).tolist()
        return made

    def _without_specials(self, row: Sequence[int]) -> tuple[tuple[int, ...], bool]:
        """A row without its <bos> and what follows the <eos>, and whether there was one."""
        tokens, eos = tuple(row[1:]), self.checkpoint.eos
        return (tokens[: tokens.index(eos)], True) if eos in tokens else (tokens, False)


def transformers_workload(
    *,
    checkpoint: str,
    dtype: str,
    device: str,
    threads: int,
    max_tokens: int,
    looked_up: int | None,
    exactly: bool,
    sources: Sequence[Source],
    batch_size: int,
) -> Callable[[], object]:
    """The decoding of some sources as a piece of work; see `TransformersDecoder.blueprint`."""
    import torch

    from pipedec_cli.model.checkpoint import load_checkpoint

    torch.set_num_threads(threads)
    loaded = load_checkpoint(checkpoint, dtype=getattr(torch, dtype), device=device)
    decoder = TransformersDecoder(loaded, max_tokens, looked_up, exactly=exactly)
    return lambda: decoder.run(sources, batch_size, time.perf_counter)
