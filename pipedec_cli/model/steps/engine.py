"""The decoding engine: a cached step of the pipelined decoder, for one example or many.

Only the rows of the plan go through the decoder; keys and values of source and grid are computed once. A step
equals the full pass of `teacher_forcing`; in float32 it gives the same tokens, near-ties apart. The engine encodes;
the steps are taken by compiled kernels where they can be had, else by torch's operators, on a GPU recorded as graphs.
"""

from __future__ import annotations

import copy
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from pipedec_cli.model.backbone import backbone_of
from pipedec_cli.model.native.build import BuildError
from pipedec_cli.model.native.encoder import NativeEncoder
from pipedec_cli.model.native.library import Library
from pipedec_cli.model.native.stepper import NativeStepper
from pipedec_cli.model.native.weights import NativeWeights, pack_native
from pipedec_cli.model.steps.operators import Matrices, TorchStepper
from pipedec_cli.pipeline.decode import Row


class Stepper(Protocol):
    """What takes the steps: decoder calls over sequences whose sources it remembers.

    A call may hold several rows of one subsequence, at successive times: each sees those before it.
    """

    @property
    def kernels(self) -> str:
        """What computes, for tables and logs."""

    def remember(self, memory: Tensor, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Keep the keys and values of encoded sources, in sequences that are then empty of tokens.

        `memory` holds the encoder's last states in the order of the newcomers, padded to the longest,
        [n, longest, d_model], in any dtype.
        """

    def step(self, rows: Sequence[Row]) -> list[int]:
        """One decoder call; see `StepModel.step`."""

    def step_with_probabilities(self, rows: Sequence[Row]) -> tuple[list[int], list[float]]:
        """One decoder call: the most probable next token of each row and its probability, softmax in float32."""

    def logits(self, rows: Sequence[Row]) -> Tensor:
        """One decoder call, before the choice: what `step` takes the arg max of, [rows, vocabulary]."""

    def take_back(self, sequence: int, count: int) -> None:
        """Forget the newest `count` rows of a sequence: their columns are free again, and nothing later sees them."""

    def release(self, sequence: int) -> None:
        """Forget an example; see `StepModel.release`."""


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All that decoding needs of a model, in the form that is fastest here; engines can share it.

    Attributes:
        stepping: the decoder's weights: packed for the compiled kernels, or torch's matrices.
        encoder: what encodes the sources; see `make_encoder`.
        kernels: what computes the steps, for tables and logs: which kernels, and why no faster ones.
    """

    stepping: NativeWeights | Matrices
    encoder: Any
    kernels: str
    dtype: torch.dtype
    device: torch.device


def lay_out(
    model: Any, *, prepack: bool | None = None, native: bool | None = None, consume: bool = False
) -> DecoderWeights:
    """Lay a model out for decoding.

    Args:
        model: the model, in the dtype and on the device to decode with.
        prepack: whether to pack the matrices for oneDNN; by default wherever that is possible.
        native: whether to pack them for the compiled step; by default wherever that is possible, unless `prepack`
            is given: it is about the other step.
        consume: let the compiled kernels empty the matrices that they have copied, so that they are not in memory
            twice. The model itself is of no use afterwards, but for its config.

    Raises:
        BuildError: the compiled step was asked for by name and cannot be had.
    """
    embedding = backbone_of(model.config).embedding(model).weight
    dtype, device = embedding.dtype, embedding.device
    reason = ""
    if native or (native is None and prepack is None):
        try:
            packed = pack_native(model, consume=consume)
            encoder = make_encoder(model, packed.library, consume=consume)
            return DecoderWeights(packed, encoder, packed.kernels, dtype, device)
        except BuildError as error:
            if native:
                raise
            reason = f"; not compiled: {error}" if device.type == "cpu" else ""
    matrices = Matrices(model, prepack=prepack)
    matrices.kernels += reason
    return DecoderWeights(matrices, make_encoder(model), matrices.kernels, dtype, device)


def has_slow_products() -> bool:
    """Whether torch leaves some of this CPU's speed in float32 unused: so on x86; on Arm the system's library does not."""
    return platform.machine().lower() in ("x86_64", "amd64")


def has_bfloat16_products() -> bool:
    """Whether this CPU multiplies matrices faster in bfloat16 than in float32: with AMX, or on Arm."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return True
    told: Callable[[], bool] | None = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return told is not None and told()


def make_encoder(model: Any, kernels: Library | None = None, *, consume: bool = False) -> Any:
    """The model's encoder, in the form and dtype that are fastest for it.

    An encoder is bound by arithmetic. On an x86 the compiled one comes closer to its limit than torch's operators. For
    bfloat16 there are matrix instructions on Arm and on an x86 with AMX, which torch uses; on any other x86 products in
    bfloat16 take half as long again as in float32, so the encoder is one in float32 there, with the very same weights.

    `kernels` are given where the decoder's step uses them too; `consume` as in `lay_out`. What comes back is called as
    transformers' encoder is.
    """
    encoder = backbone_of(model.config).encoder(model)
    if model.device.type != "cpu" or (model.dtype == torch.bfloat16 and has_bfloat16_products()):
        return encoder
    if kernels is not None and has_slow_products():
        return NativeEncoder(encoder, kernels, consume=consume)
    return copy.deepcopy(encoder).float() if model.dtype == torch.bfloat16 else encoder


class Engine:
    """A `StepModel`: a model with room for a number of examples."""

    def __init__(self, model: Any, sequences: int = 1, *, weights: DecoderWeights | None = None) -> None:
        """Lay the weights out and make the buffers.

        Args:
            model: a model of one of the families in `backbone`, in the dtype and on the device to decode with.
            sequences: how many examples can be in flight.
            weights: what `lay_out` made of this model before, so that engines can share it.
        """
        self.weights = weights or lay_out(model)
        self.encoder = self.weights.encoder
        self.sequences = sequences
        stepping = self.weights.stepping
        self.stepper: Stepper = (
            TorchStepper(stepping, sequences)
            if isinstance(stepping, Matrices)
            else NativeStepper(stepping, sequences)
        )

    @property
    def kernels(self) -> str:
        """What computes the steps, for tables and logs."""
        return self.stepper.kernels

    @torch.inference_mode()
    def admit(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Encode sources together and keep their keys and values; see `StepModel.admit`."""
        longest = max(len(source) for _, source in newcomers)
        ids = torch.zeros(2, len(newcomers), longest, dtype=torch.long)
        for row, (_, source) in enumerate(newcomers):
            ids[0, row, : len(source)] = torch.tensor(source)
            ids[1, row, : len(source)] = 1
        ids, mask = ids.to(self.weights.device)
        memory = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        self.stepper.remember(memory, newcomers)

    @torch.inference_mode()
    def step(self, rows: Sequence[Row]) -> list[int]:
        """One decoder call; see `StepModel.step`."""
        return self.stepper.step(rows)

    @torch.inference_mode()
    def step_with_probabilities(self, rows: Sequence[Row]) -> tuple[list[int], list[float]]:
        """One decoder call; see `Stepper.step_with_probabilities`."""
        return self.stepper.step_with_probabilities(rows)

    @torch.inference_mode()
    def logits(self, rows: Sequence[Row]) -> Tensor:
        """One decoder call, before the choice: [rows, vocabulary], in the dtype of the weights or in float32."""
        return self.stepper.logits(rows)

    @torch.inference_mode()
    def take_back(self, sequence: int, count: int) -> None:
        """Forget the newest rows of a sequence; see `Stepper.take_back`."""
        self.stepper.take_back(sequence, count)

    @torch.inference_mode()
    def release(self, sequence: int) -> None:
        """Forget an example; see `StepModel.release`."""
        self.stepper.release(sequence)
