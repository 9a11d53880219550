"""transformers' own greedy decoding."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from pipedec_cli.compare.child import spec_of
from pipedec_cli.compare.timing import Clock, Output, Pass, Source, watched

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint


class Transformers:
    """transformers' greedy `generate` with its own cache.

    Other generation settings of a checkpoint, such as a repetition penalty, are left
    out: the others do not have them.
    """

    largest_batch: int | None = None

    def __init__(
        self, checkpoint: Checkpoint, max_tokens: int, *, exactly: bool = False
    ) -> None:
        """Take a sequential model, to generate at most or, with `exactly`, always `max_tokens` tokens a text."""
        from transformers import GenerationConfig

        self.checkpoint = checkpoint
        self._prompted = checkpoint.backbone.prompted
        config = GenerationConfig(
            do_sample=False,
            num_beams=1,
            max_new_tokens=max_tokens,
            min_new_tokens=max_tokens if exactly else None,
            eos_token_id=list(checkpoint.ends),
        )
        self._filler = checkpoint.eos
        if checkpoint.model.config.pad_token_id is not None:
            self._filler = checkpoint.model.config.pad_token_id
        config.pad_token_id = self._filler
        if not self._prompted:
            start = checkpoint.model.config.decoder_start_token_id
            config.decoder_start_token_id = start
        checkpoint.model.generation_config = config
        self.options = {"max_tokens": max_tokens, "exactly": exactly}
        self.settings = {
            "version": f"transformers {version('transformers')}",
            "decoding": "greedy, dynamic cache",
            "max_tokens": str(max_tokens),
            "dtype": str(checkpoint.model.dtype).removeprefix("torch."),
        }

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Generate. Batches are padded and last as long as their longest text.

        The first call reads the prompt, if there is one, and gives the first token as
        well.
        """
        model = self.checkpoint.model
        find_encoder = self.checkpoint.backbone.encoder
        encoder = find_encoder(model) if find_encoder else None
        # With an encoder the decoder's calls are only counted; without one, the first
        # call of each batch is timed.
        decoder_clock = _no_clock if find_encoder else clock
        outputs = []
        reading = 0.0  # seconds to read the prompts
        with (
            watched(encoder, clock) as encoding,
            watched(model.get_decoder(), decoder_clock) as decoding,
        ):
            for first in range(0, len(sources), batch_size):
                before = len(decoding)
                rows = self._generate(sources[first : first + batch_size])
                calls = len(decoding) - before if batch_size == 1 else None
                outputs += [self._output(row, calls) for row in rows]
                reading += decoding[before]
        return Pass(tuple(outputs), len(decoding), sum(encoding) + reading)

    def _output(self, row: Sequence[int], calls: int | None) -> Output:
        """The output of a row; its steps are the calls, if it was generated alone."""
        ends = self.checkpoint.ends
        tokens = tuple(takewhile(lambda token: token not in ends, row))
        if calls is None:
            calls = min(len(tokens) + 1, len(row))
        return Output(tokens, calls)

    def spec(self) -> tuple[str, dict[str, Any]]:
        """What makes the same peer in a child process: ``module:function``, and its arguments."""
        loaded = spec_of(self.checkpoint, self.settings["dtype"])
        return f"{__name__}:from_spec", loaded | self.options

    def _generate(self, sources: Sequence[Source]) -> list[list[int]]:
        """The tokens of the text of each source, filled up behind its end to the length of the longest."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        device = self.checkpoint.device
        ragged = [torch.tensor(source) for source in sources]
        side = "left" if self._prompted else "right"
        ids = pad_sequence(
            ragged, batch_first=True, padding_side=side, padding_value=self._filler
        ).to(device)
        ones = [torch.ones_like(row) for row in ragged]
        mask = pad_sequence(ones, batch_first=True, padding_side=side).to(device)
        with torch.inference_mode():
            generated = self.checkpoint.model.generate(ids, attention_mask=mask)
        # The output begins with the prompt or, after an encoder, with <bos>.
        start = ids.shape[1] if self._prompted else 1
        rows: list[list[int]] = generated[:, start:].tolist()
        return rows


def _no_clock() -> float:
    return 0.0


def load_again(name: str, eos: int, dtype: str, device: str) -> Checkpoint:
    """Load a checkpoint anew, whose texts end with `eos`: in a chat it differs from the id that the checkpoint names."""
    import torch

    from pipedec_cli.model.checkpoint import load_checkpoint

    loaded = load_checkpoint(name, dtype=getattr(torch, dtype), device=device)
    loaded.eos = eos
    return loaded


def from_spec(
    *, name: str, eos: int, dtype: str, device: str, threads: int, **more: Any
) -> Transformers:
    """The peer that `Transformers.spec` describes, made in a child process: its checkpoint is loaded anew.

    Texts end with the id `eos`; `more` are the arguments of `Transformers`.
    """
    import torch

    torch.set_num_threads(threads)
    return Transformers(load_again(name, eos, dtype, device), **more)
