"""transformers' own greedy decoding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
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
        """Take a sequential model, to make at most, or `exactly`, `max_tokens` tokens a text."""
        from transformers import GenerationConfig

        self._prompted = checkpoint.backbone.prompted
        start = (
            None if self._prompted else checkpoint.model.config.decoder_start_token_id
        )
        checkpoint.model.generation_config = GenerationConfig(
            decoder_start_token_id=start
        )
        self.checkpoint = checkpoint
        self.options = {"max_tokens": max_tokens, "exactly": exactly}
        self._bounds = {
            "max_new_tokens": max_tokens,
            "min_new_tokens": max_tokens if exactly else None,
        }
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
        outputs: list[Output] = []
        model, ends = self.checkpoint.model, self.checkpoint.ends
        find, reading = self.checkpoint.backbone.encoder, 0.0
        # With an encoder the decoder's calls are only counted; without one, the first
        # call of each batch is timed.
        encoder, decoder_clock = (find(model), lambda: 0.0) if find else (None, clock)
        with (
            watched(encoder, clock) as encoding,
            watched(model.get_decoder(), decoder_clock) as decoding,
        ):
            for first in range(0, len(sources), batch_size):
                before = len(decoding)
                for row in self._generate(sources[first : first + batch_size]):
                    tokens = tuple(takewhile(lambda token: token not in ends, row))
                    steps = (
                        len(decoding) - before
                        if batch_size == 1
                        else min(len(tokens) + 1, len(row))
                    )
                    outputs.append(Output(tokens, steps))
                reading += decoding[before]
        return Pass(tuple(outputs), len(decoding), sum(encoding) + reading)

    def spec(self) -> tuple[str, dict[str, Any]]:
        """The same for a child process."""
        return f"{__name__}:from_spec", spec_of(
            self.checkpoint, self.settings["dtype"]
        ) | self.options

    def _generate(self, sources: Sequence[Source]) -> list[list[int]]:
        import torch

        model, device, eos = (
            self.checkpoint.model,
            self.checkpoint.device,
            self.checkpoint.eos,
        )
        filler = eos if model.config.pad_token_id is None else model.config.pad_token_id
        ends = {"eos_token_id": [*self.checkpoint.ends], "pad_token_id": filler}
        ragged = [torch.tensor(source) for source in sources]
        side = "left" if self._prompted else "right"
        pad = partial(
            torch.nn.utils.rnn.pad_sequence, batch_first=True, padding_side=side
        )
        ids = pad(ragged, padding_value=filler).to(device)
        mask = pad([torch.ones_like(row) for row in ragged]).to(device)
        with torch.inference_mode():
            greedy = {"do_sample": False, "num_beams": 1, **ends, **self._bounds}
            made = model.generate(ids, attention_mask=mask, **greedy)
        # The output begins with the prompt or, after an encoder, with <bos>.
        rows: list[list[int]] = made[
            :, ids.shape[1] if self._prompted else 1 :
        ].tolist()
        return rows


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
    """Load a checkpoint anew; see `Transformers.spec`."""
    import torch

    torch.set_num_threads(threads)
    return Transformers(load_again(name, eos, dtype, device), **more)
