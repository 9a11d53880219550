"""Which rows a model that was trained writes, and by which method."""

import dataclasses
from functools import partial
from typing import Any, get_args

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import list_places
from pipedec_cli.model.checkpoint import PLAIN, Checkpoint
from pipedec_cli.model.choice import Choice
from pipedec_cli.objects.codec import FieldCodec
from pipedec_cli.pipeline.grid import (
    SEQUENTIAL_LIMITS,
    EmptyRows,
    ItemRows,
    Limits,
    Method,
    Opening,
    mask_of,
)
from pipedec_cli.pipeline.schedule import Fixed, Listed, Together, Waiting, Whole


class TextPlan:
    """Rows of text that start as a schedule says; of a sequential model one row."""

    def __init__(self, checkpoint: Checkpoint, fields: FieldCodec | None) -> None:
        """The object of a sequential model with `fields` is held to them."""
        self.checkpoint, self.settings, self.fields = (
            checkpoint,
            checkpoint.settings or PLAIN,
            fields,
        )
        #: Whether the model was trained to write several rows at a time.
        self.pipelined = self.settings.decoder == "pipelined"

    def method(self, choice: Choice) -> Method:
        """How to decode. Raises a UserError for a choice that does not apply."""
        usual, checkpoint = self.settings, self.checkpoint
        marks: Any = {
            "bos": checkpoint.bos,
            "eos": checkpoint.eos,
            "ends": frozenset(checkpoint.ends),
        }
        schedule, time_max, max_tokens = (
            choice.schedule(self.checkpoint),
            choice.time_max,
            choice.max_tokens,
        )
        # Where a row waits for the end of all rows before it, the rules for empty rows
        # are the same.
        rule = choice.empty_rows or (
            usual.empty_rows if isinstance(schedule, Fixed) else "retry"
        )
        if rule not in get_args(EmptyRows):
            todo = f"use one of {', '.join(get_args(EmptyRows))}"
            raise UserError(f"there is no rule {rule!r} for empty rows", todo=todo)
        if isinstance(schedule, Fixed):
            time_max = time_max or usual.time_max
        else:
            max_tokens = max_tokens or SEQUENTIAL_LIMITS.max_tokens
        if isinstance(schedule, Whole):
            made = Method(
                schedule, **marks, limits=Limits(time_max, choice.sub_max, max_tokens)
            )
            if (first := self.checkpoint.first) is not None:
                begins = Opening((), lambda tokens: b"" if tokens else mask_of([first]))
                return dataclasses.replace(made, free=begins)
            return (
                dataclasses.replace(made, free=self.fields.of_whole)
                if self.fields
                else made
            )
        repeats = (
            usual.stop_on_repeat
            if choice.stop_on_repeat is None
            else choice.stop_on_repeat
        )
        limits = Limits(
            time_max, choice.sub_max or usual.segmentation.sub_max, max_tokens
        )
        return Method(
            schedule, limits=limits, empty_rows=rule, stop_on_repeat=repeats, **marks
        )


class FieldPlan:
    """A row for each field, all at once, of a model that was trained for them."""

    pipelined = True

    def __init__(self, checkpoint: Checkpoint, fields: FieldCodec) -> None:
        self.checkpoint, self.fields = checkpoint, fields
        self.grounded = False  # whether values are parts of the source; see `is_free`

    def method(self, choice: Choice) -> Method:
        """See `TextPlan.method`. A delay applies to items of lists alone."""
        checkpoint, usual, fields = (
            self.checkpoint,
            self.checkpoint.settings or PLAIN,
            self.fields,
        )
        schedule, time_max, lists = (
            Together(),
            usual.time_max,
            list_places(fields.fields),
        )
        choice.refuse(checkpoint, listed=bool(lists))
        if lists:
            between = choice.schedule(checkpoint)
            assert isinstance(between, Fixed | Waiting), (
                "items of lists need a schedule"
            )
            schedule = Listed(between, usual.item_max)
            time_max *= usual.item_max if isinstance(between, Waiting) else 1
        made = Method(
            schedule,
            checkpoint.bos,
            checkpoint.eos,
            limits=Limits(choice.time_max or time_max, None, choice.max_tokens),
            ends=frozenset(checkpoint.ends),
            confident=self.grounded,
            of_source=self._with_rows if self.grounded else None,
        )
        return self._with_rows(made)

    def _with_rows(self, method: Method, source: str | None = None) -> Method:
        """The method with a row for each field, for a source if values are parts of it."""
        fields = self.fields
        openings = fields.openings(range(len(fields.fields)), source=source)
        lists = list[ItemRows]()
        for places in list_places(fields.fields):
            lists.append(
                ItemRows(places, partial(fields.openings, places, source=source))
            )
        return dataclasses.replace(
            method, openings=openings, lists=tuple(lists), source=source or ""
        )
