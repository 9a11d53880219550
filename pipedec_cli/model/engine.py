"""The decoding engine: a cached step of the pipelined decoder, for one example or many.

Only the rows of the plan go through the decoder; keys and values of source and grid are computed once. A step
equals the full pass of `teacher_forcing`; in float32 it gives the same tokens, near-ties apart. The engine encodes;
the steps are taken by compiled kernels where they can be had, on a GPU by recorded graphs, else by torch's operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from pipedec_cli.model.native.stepper import NativeStepper
from pipedec_cli.model.operator_step import OperatorStepper
from pipedec_cli.model.static_step import StaticStepper, wants_graphs
from pipedec_cli.model.weights import DecoderWeights, lay_out
from pipedec_cli.pipeline.decode import Row


class Stepper(Protocol):
    """What takes the steps: decoder calls over sequences whose sources it remembers."""

    @property
    def kernels(self) -> str:
        """What computes, for tables and logs."""

    def remember(self, memory: Tensor, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Keep the keys and values of encoded sources, in sequences that are then empty of tokens.

        Args:
            memory: the encoder's last states, padded to the longest, [n, longest, d_model], in any dtype.
            newcomers: (sequence, source token ids), in the same order.
        """

    def step(self, rows: Sequence[Row]) -> list[int]:
        """One decoder call; see `StepModel.step`."""

    def logits(self, rows: Sequence[Row]) -> Tensor:
        """One decoder call, before the choice; see `Engine.logits`."""

    def release(self, sequence: int) -> None:
        """Forget what is in a sequence."""


class Engine:
    """A `StepModel`: a T5 with room for a number of examples."""

    def __init__(self, model: Any, sequences: int = 1, *, weights: DecoderWeights | None = None) -> None:
        """Lay the weights out and make the buffers.

        Args:
            model: a T5ForConditionalGeneration (or mT5, UMT5), in the dtype and on the device to decode with.
            sequences: how many examples can be in flight.
            weights: what `weights.lay_out` made of this model before, so that engines can share it.
        """
        self.weights = weights or lay_out(model)
        self.encoder = self.weights.encoder
        self.sequences = sequences
        self.stepper: Stepper
        if self.weights.native is not None:
            self.stepper = NativeStepper(self.weights.native, sequences)
        elif wants_graphs(self.weights.device):
            self.stepper = StaticStepper(self.weights, sequences, model.config.d_kv)
        else:
            self.stepper = OperatorStepper(self.weights, sequences, model.config.d_kv)

    @property
    def kernels(self) -> str:
        """What computes the steps, for tables and logs."""
        return self.stepper.kernels

    @torch.inference_mode()
    def admit(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Encode sources together and keep their keys and values; see `StepModel.admit`."""
        longest = max(len(source) for _, source in newcomers)
        ids = torch.zeros(len(newcomers), longest, dtype=torch.long)
        mask = torch.zeros(len(newcomers), longest, dtype=torch.long)
        for row, (_, source) in enumerate(newcomers):
            ids[row, : len(source)] = torch.tensor(source)
            mask[row, : len(source)] = 1
        device = self.weights.device
        memory = self.encoder(input_ids=ids.to(device), attention_mask=mask.to(device)).last_hidden_state
        self.stepper.remember(memory, newcomers)

    @torch.inference_mode()
    def step(self, rows: Sequence[Row]) -> list[int]:
        """One decoder call; see `StepModel.step`."""
        return self.stepper.step(rows)

    @torch.inference_mode()
    def logits(self, rows: Sequence[Row]) -> Tensor:
        """One decoder call, before the choice: what `step` takes the arg max of.

        Returns:
            Scores of shape [rows, vocabulary], in the dtype of the weights or in float32.
        """
        return self.stepper.logits(rows)

    @torch.inference_mode()
    def release(self, sequence: int) -> None:
        """Forget what is in a sequence; see `StepModel.release`."""
        self.stepper.release(sequence)
