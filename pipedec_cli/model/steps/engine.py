"""The decoding engine: a cached step of the pipelined decoder, for one example or many.

Only the rows of the plan go through the decoder; keys and values of source and grid are computed once. A step
equals the full pass of `teacher_forcing`; in float32 it gives the same tokens, near-ties apart. The engine encodes;
the steps are taken by compiled kernels where they can be had, else by torch's operators, on a GPU recorded as graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from pipedec_cli.model.native.stepper import NativeStepper
from pipedec_cli.model.steps.operators import TorchStepper
from pipedec_cli.model.steps.weights import DecoderWeights, Matrices, lay_out
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


class Engine:
    """A `StepModel`: a model with room for a number of examples."""

    def __init__(self, model: Any, sequences: int = 1, *, weights: DecoderWeights | None = None) -> None:
        """Lay the model out as it stands, unless `lay_out` has done so before: engines can share the weights."""
        self.weights = weights or lay_out(model)
        self.encoder = self.weights.encoder
        self.sequences = sequences
        self.stepper: Stepper
        if isinstance(self.weights.stepping, Matrices):
            self.stepper = TorchStepper(self.weights.stepping, sequences)
        else:
            self.stepper = NativeStepper(self.weights.stepping, sequences)

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
