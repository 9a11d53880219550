"""The decoding engine: a model's weights laid out for decoding, and a cached step for one example or many.

Only the rows of the plan go through the decoder; keys and values of source and grid are computed once. A step
equals the full pass of `training.loss`; in float32 it gives the same tokens, near-ties apart. The engine encodes;
the steps are taken by compiled kernels where they can be had, else by torch's operators, on a GPU recorded as graphs.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.engine.native.library import BuildError
from pipedec_cli.model.engine.native.packing import NativeWeights
from pipedec_cli.model.engine.native.stepper import NativeStepper
from pipedec_cli.model.engine.native.weights import (
    NativeEncoder,
    encoder_dtype,
    has_bfloat16_products,
    pack_native,
)
from pipedec_cli.model.engine.torch.block import Blocks
from pipedec_cli.model.engine.torch.block_layers import BlockLayers
from pipedec_cli.model.engine.torch.module_layers import ModuleLayers
from pipedec_cli.model.engine.torch.operators import TorchStepper
from pipedec_cli.model.families import backbone_of
from pipedec_cli.pipeline.decode import Row

#: Rows that a call computes at once: memory grows with their number times that of the columns.
MOST_ROWS: Final = 1024


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All that decoding needs of a model: an encoder, and the decoder packed for the compiled kernels or for torch's."""

    stepping: NativeWeights | BlockLayers | ModuleLayers
    encoder: PaddingEncoder | NativeEncoder | None  # None where the decoder itself reads its source, a prompt
    vocabulary: int  # rows of the embedding
    kernels: str  # which compute the steps, for tables and logs, and why no faster ones
    dtype: torch.dtype
    device: torch.device


def lay_out(
    model: Any,
    *,
    prepack: bool | None = None,
    native: bool | None = None,
    consume: bool = False,
    quantize: bool = False,
) -> DecoderWeights:
    """Lay out a model of one of the families in `backbone`, in its dtype, or in int8 (`quantize`), and on its device.

    Its matrices are packed for the compiled step (`native`), or else for oneDNN (`prepack`), wherever that is possible
    unless told otherwise; `prepack` is about the step that is not compiled, and so asks for that one. A BuildError if
    the compiled step was asked for and cannot be had, a UserError where there is none for int8. With `consume` the
    compiled kernels empty the matrices that they have copied, so that they are not in memory twice; of the model only its
    config is of use afterwards.
    """
    backbone = backbone_of(model.config)
    embedding = backbone.embedding(model).weight
    dtype, device = torch.int8 if quantize else embedding.dtype, embedding.device
    vocabulary, reason = len(embedding), ""
    if native or (native is None and prepack is None):
        try:
            packed = pack_native(model, dtype, consume=consume)
            encoder = None if backbone.prompted else make_encoder(model, packed, consume=consume)
            return DecoderWeights(packed, encoder, vocabulary, packed.kernels, dtype, device)
        except BuildError as error:
            if quantize:
                todo = "use --dtype bfloat16 or float32"
                raise UserError(f"int8 cannot be had here: {error}", todo=todo) from error
            if native:
                raise
            reason = f"; not compiled: {error}" if device.type == "cpu" else ""
    blocks = isinstance(backbone.parts, Blocks)
    layers = BlockLayers(model, prepack=prepack) if blocks else ModuleLayers(model)
    layers.kernels += reason
    encoder = None if backbone.prompted else make_encoder(model)
    return DecoderWeights(layers, encoder, vocabulary, layers.kernels, dtype, device)


def require_ids(what: str, ids: Sequence[int], vocabulary: int) -> None:
    """Refuse ids that are none of a vocabulary's, or no id at all, in a UserError."""
    if not ids or min(ids) < 0 or max(ids) >= vocabulary:
        found = f"ids from {min(ids)} to {max(ids)}" if ids else "no token"
        raise UserError(f"{what} has {found}, the model's vocabulary goes from 0 to {vocabulary - 1}")


def make_encoder(
    model: Any, packed: NativeWeights | None = None, *, consume: bool = False
) -> PaddingEncoder | NativeEncoder:
    """The model's encoder, in the form and dtype that are fastest for it: from sources as ids to [sources, longest, d_model].

    An encoder is bound by arithmetic. On an x86 the compiled one, if the decoder is `packed` for compiled kernels, comes
    closer to its limit than torch's operators: in int8 if the decoder is, in bfloat16 where it is multiplied in pairs or
    tiles, else in float32, with the very same weights. For bfloat16 there are matrix instructions on Arm, and on an x86
    whose AMX the compiler does not know, which torch uses.
    """
    backbone = backbone_of(model.config)
    assert backbone.encoder is not None, f"{backbone.name} has no encoder"
    encoder = backbone.encoder(model)
    if packed is not None and (dtype := encoder_dtype(packed.library, packed.dtype)):
        return NativeEncoder(encoder, packed, dtype, consume=consume)
    if model.device.type == "cpu" and model.dtype == torch.bfloat16 and not has_bfloat16_products():
        encoder = copy.deepcopy(encoder).float()
    return PaddingEncoder(encoder)


class PaddingEncoder(torch.nn.Module):
    """An encoder of transformers', which takes sources of equal length, for sources as they are."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder

    @torch.inference_mode()
    def forward(self, sources: Sequence[Sequence[int]]) -> Tensor:
        """Encode sources of token ids, none of them empty: [sources, longest, d_model], without meaning beyond a source's end."""
        longest, device = max(map(len, sources)), self.encoder.device
        ids = torch.tensor([[*source, *[0] * (longest - len(source))] for source in sources], device=device)
        lengths = torch.tensor([[len(source)] for source in sources], device=device)
        mask = (torch.arange(longest, device=device) < lengths).long()
        states: Tensor = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        return states


class Engine:
    """A `StepModel`: a model with room for a number of examples. A stepper of either kind has its methods, but `admit`.

    A call may hold several rows of one subsequence, at successive times: each sees those before it. One with more than
    `MOST_ROWS` is taken in parts, to the same effect: no row sees those that come behind it.
    """

    def __init__(self, model: Any, sequences: int = 1, *, weights: DecoderWeights | None = None) -> None:
        """Lay the model out as it stands, unless `lay_out` has done so before: engines can share the weights."""
        self.weights = weights or lay_out(model)
        self.encoder, self.sequences, stepping = self.weights.encoder, sequences, self.weights.stepping
        self.stepper: TorchStepper | NativeStepper = (
            NativeStepper(stepping, sequences)
            if isinstance(stepping, NativeWeights)
            else TorchStepper(stepping, sequences)
        )

    @property
    def kernels(self) -> str:
        """What computes the steps, for tables and logs."""
        return self.stepper.kernels

    def admit(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Encode sources together, each with an id at least; the stepper makes keys and values of the states.

        Without an encoder they are prompts, which may be empty, and which the stepper reads.
        """
        for _, source in newcomers:
            if source or self.encoder is not None:
                require_ids("a source", source, self.weights.vocabulary)
        if self.encoder is None:
            self.stepper.read(newcomers)
            return
        self.stepper.remember(self.encoder([source for _, source in newcomers]), newcomers)

    def step(self, rows: Sequence[Row]) -> list[int]:
        """One decoder call: the most probable next token of each row; see `StepModel.step`. A UserError where there is none."""
        if len(rows) <= MOST_ROWS:
            return self._numbers(self.stepper.step(rows))
        self.stepper.prompts.settle(rows)  # by all of a call, not by its first part
        parts = (rows[first : first + MOST_ROWS] for first in range(0, len(rows), MOST_ROWS))
        return self._numbers([answer for part in parts for answer in self.stepper.step(part)])

    def step_with_probabilities(self, rows: Sequence[Row]) -> tuple[list[int], list[float]]:
        """One decoder call: the most probable next token of each row and its probability, softmax in float32."""
        answers, probabilities = self.stepper.step_with_probabilities(rows)
        return self._numbers(answers), probabilities

    def logits(self, rows: Sequence[Row]) -> Tensor:
        """One decoder call, before the choice: [rows, vocabulary], in the dtype of the weights or in float32."""
        return self.stepper.logits(rows)

    def take_back(self, sequence: int, count: int) -> None:
        """Forget the newest `count` rows of a sequence: their columns are free again, and nothing later sees them."""
        self.stepper.take_back(sequence, count)

    def _numbers(self, answers: list[int]) -> list[int]:
        """Answers as they are; a UserError where a stepper says with a -1 that no logit was a number."""
        if -1 in answers:
            what = "what the model computes is no number (NaN)"
            todo = "take weights that are whole, or --dtype float32 where another one is too narrow for them"
            raise UserError(what, todo=todo)
        return answers

    def release(self, sequence: int) -> None:
        """Forget an example; see `StepModel.release`."""
        self.stepper.release(sequence)
