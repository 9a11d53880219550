"""The decoding engine: a model's weights laid out for decoding, and cached decoder calls for one example or many.

A call computes the rows of the plan alone; keys and values of source and grid are
computed once. A step equals the full pass of `training.loss`: in float32 it gives the
same tokens, except at near-ties.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.arguments import name_of
from pipedec_cli.model.engine.native import kinds
from pipedec_cli.model.engine.native.library import BuildError
from pipedec_cli.model.engine.native.packing import NativeWeights, pack_native
from pipedec_cli.model.engine.native.stepper import NativeEncoder, NativeStepper
from pipedec_cli.model.engine.prompt_cache import Kept
from pipedec_cli.model.engine.torch.stepper import TorchStepper, odds_of, wants_graphs
from pipedec_cli.model.families import backbone_of
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Odds

if TYPE_CHECKING:
    from pipedec_cli.model.engine.torch.layers import StepLayers

#: Rows that are computed at once: memory grows with their number times the number of
#: columns.
MOST_ROWS: Final = 1024


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All that decoding needs of a model."""

    stepping: NativeWeights | StepLayers
    #: None: the decoder itself reads its source, a prompt.
    encoder: PaddingEncoder | NativeEncoder | None
    vocabulary: int  # rows of the embedding
    #: What computes the steps, and why nothing faster does, for tables and logs.
    kernels: str
    dtype: torch.dtype


def lay_out(
    model: Any, *, consume: bool = False, quantize: torch.dtype | None = None
) -> DecoderWeights:
    """Prepare a model's weights for decoding on its device: for the compiled kernels if they can be used, else for torch.

    With `consume` the kernels empty each matrix that they have copied: only the model's
    config is of use afterwards. `quantize` rounds matrices to int8 or int4, which only
    the kernels compute; a UserError if they cannot be used.
    """
    backbone = backbone_of(model.config)
    embedding = backbone.embedding(model).weight
    dtype = quantize or model.dtype
    vocabulary = len(embedding)
    encoder: PaddingEncoder | NativeEncoder | None = None
    try:
        packed = pack_native(model, dtype, consume=consume)
        if not backbone.prompted:
            encoder = make_encoder(model, packed, consume=consume)
        kernels = f"native ({packed.library.features})"
        return DecoderWeights(packed, encoder, vocabulary, kernels, dtype)
    except BuildError as error:
        if quantize:
            what = f"{name_of(quantize)} cannot be had here: {error}"
            raise UserError(what, todo="use --dtype bfloat16 or float32") from error
        reason = f"; not compiled: {error}" if embedding.device.type == "cpu" else ""
    # Imported late: it imports model code of transformers.
    from pipedec_cli.model.engine.torch.layers import StepLayers

    layers = StepLayers(model)
    if not backbone.prompted:
        encoder = make_encoder(model)
    kernels = f"transformers' modules{reason}"
    if wants_graphs(layers.device):
        kernels = "CUDA graphs"
    return DecoderWeights(layers, encoder, vocabulary, kernels, dtype)


def require_ids(what: str, ids: Sequence[int], vocabulary: int) -> None:
    """Raise a UserError if there are no ids, or ids that are not in a vocabulary of that size.

    `what` is what the message calls the text that has them.
    """
    if not ids or min(ids) < 0 or max(ids) >= vocabulary:
        given = f"ids from {min(ids)} to {max(ids)}" if ids else "no token"
        raise UserError(
            f"{what} has {given}, the model's vocabulary goes from 0 to {vocabulary - 1}"
        )


def make_encoder(
    model: Any, packed: NativeWeights | None = None, *, consume: bool = False
) -> PaddingEncoder | NativeEncoder:
    """The model's encoder, with the same weights, in the form and dtype that is fastest on this CPU.

    On x86 that is the compiled encoder, for a decoder that is `packed` for the compiled
    kernels. Torch's encoder takes bfloat16 where the CPU multiplies it faster, on Arm
    and with tile registers; else float32. With `consume` the compiled encoder empties
    the matrices that it has copied.
    """
    backbone = backbone_of(model.config)
    assert backbone.encoder is not None, f"{backbone.name} has no encoder"
    encoder = backbone.encoder(model)
    if packed is not None:
        dtype = kinds.encoder_dtype(packed.library, packed.dtype)
        if dtype:
            return NativeEncoder(encoder, packed, dtype, consume=consume)
    is_narrow = model.device.type == "cpu" and model.dtype == torch.bfloat16
    if is_narrow and not kinds.has_bfloat16_products():
        encoder = copy.deepcopy(encoder).float()
    return PaddingEncoder(encoder)


class PaddingEncoder(torch.nn.Module):
    """An encoder of transformers with sources of different lengths, which are padded."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder

    @torch.inference_mode()
    def forward(self, sources: Sequence[Sequence[int]]) -> Tensor:
        """Encode sources of token ids, none of them empty: [sources, longest, d_model], anything behind a source's end."""
        longest = max(map(len, sources))
        device = self.encoder.device
        padded = [[*source, *[0] * (longest - len(source))] for source in sources]
        ids = torch.tensor(padded, device=device)
        lengths = torch.tensor([[len(source)] for source in sources], device=device)
        mask = (torch.arange(longest, device=device) < lengths).long()
        output = self.encoder(input_ids=ids, attention_mask=mask)
        states: Tensor = output.last_hidden_state
        return states


class Engine:
    """A `StepModel`: a model with room for a number of examples, each in a sequence of its own.

    A call may have several rows of one subsequence, at successive times: each sees
    those before it.
    """

    def __init__(self, weights: DecoderWeights, sequences: int = 1) -> None:
        """Make room for so many examples. Engines can share weights."""
        self.weights = weights
        self.sequences = sequences
        self.stepper: TorchStepper | NativeStepper
        if isinstance(weights.stepping, NativeWeights):
            self.stepper = NativeStepper(weights.stepping, sequences)
        else:
            self.stepper = TorchStepper(weights.stepping, sequences)

    def admit(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> Sequence[int]:
        """Encode sources, given as (sequence, token ids), together. Without an encoder, read prompts, which may be empty.

        Returns how many tokens of each were known from before, and not computed again.
        """
        encoder = self.weights.encoder
        for _, source in newcomers:
            if source or encoder is not None:
                require_ids("a source", source, self.weights.vocabulary)
        return self.stepper.admit(newcomers, encoder)

    def forget(self) -> None:
        """Forget all prompts and sources that were read: no later one takes their keys and values over."""
        self.stepper.there = [()] * self.sequences
        self.stepper.kept = Kept(self.stepper.kept.most)

    def step(self, rows: Sequence[Row]) -> list[int]:
        """One decoder call: add the rows' tokens to their sequences, and give each row's most probable next token.

        It is one of those that the row's slot allows. A UserError if a logit is NaN.
        """
        answers = list[int]()
        for part in self._parts(rows):
            answers += self.stepper.step(part)
        return _checked(answers)

    def step_with_odds(
        self, rows: Sequence[Row], top: int = 0
    ) -> tuple[list[int], list[Odds]]:
        """One decoder call: what `step` gives, and the `Odds` of each row.

        Their probabilities are a softmax over the tokens that the slot allows. With
        `top`, the odds also have so many of the most probable tokens of all.
        """
        answers = list[int]()
        odds = list[Odds]()
        for part in self._parts(rows):
            if top:
                more_answers, more_odds = odds_of(self.stepper.logits(part), part, top)
            else:
                more_answers, more_odds = self.stepper.step_with_odds(part)
            answers += more_answers
            odds += more_odds
        return _checked(answers), odds

    def _parts(self, rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
        """The rows in parts of `MOST_ROWS`. The result is the same, since no row sees the rows behind it."""
        self.stepper.settle(rows)  # by all rows, not by those of the first part
        for first in range(0, len(rows), MOST_ROWS):
            yield rows[first : first + MOST_ROWS]

    def take_back(self, sequence: int, count: int) -> None:
        """Forget the newest `count` rows of a sequence; see `StepModel.take_back`."""
        self.stepper.take_back(sequence, count)

    def release(self, sequence: int) -> None:
        """Forget an example; see `StepModel.release`."""
        self.stepper.release(sequence)


def _checked(answers: list[int]) -> list[int]:
    """The answers; a UserError if one of them is −1, by which a stepper says that a logit is NaN."""
    if -1 in answers:
        todo = "take weights that are whole, or --dtype float32 where another one is too narrow for them"
        raise UserError("what the model computes is no number (NaN)", todo=todo)
    return answers
