"""Which rows a model that was trained writes, and by which method."""

from dataclasses import replace
from functools import partial
from typing import get_args

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
from pipedec_cli.pipeline.schedule import (
    Fixed,
    Listed,
    Schedule,
    Together,
    Waiting,
    Whole,
)


class TextPlan:
    """Rows of text that start as a schedule says; of a sequential model one row."""

    def __init__(self, checkpoint: Checkpoint, fields: FieldCodec | None) -> None:
        """Take a checkpoint, and the fields that a sequential model's object is held to; None if it writes no objects."""
        self.checkpoint = checkpoint
        self.settings = checkpoint.settings or PLAIN
        self.fields = fields
        #: Whether the model was trained to write several rows at a time.
        self.pipelined = self.settings.decoder == "pipelined"

    def method(self, choice: Choice) -> Method:
        """How to decode, given what the user has chosen. Raises a UserError for a choice that does not apply."""
        checkpoint = self.checkpoint
        schedule = choice.schedule(checkpoint)
        empty_rows = self._empty_rows(choice, schedule)
        method = Method(
            schedule,
            checkpoint.bos,
            checkpoint.eos,
            limits=self._limits(choice, schedule),
            ends=frozenset(checkpoint.ends),
        )
        if isinstance(schedule, Whole):
            return replace(method, free=self._whole)
        repeats = choice.stop_on_repeat
        if repeats is None:
            repeats = self.settings.stop_on_repeat
        return replace(method, empty_rows=empty_rows, stop_on_repeat=repeats)

    def _empty_rows(self, choice: Choice, schedule: Schedule) -> EmptyRows:
        """What happens after an empty row: what the user has chosen, else as the checkpoint was trained.

        Where rows wait for the end of all rows before them, all rules do the same, and
        it is ``retry``.
        """
        usual = self.settings.empty_rows if isinstance(schedule, Fixed) else "retry"
        rule = choice.empty_rows or usual
        if rule not in get_args(EmptyRows):
            todo = f"use one of {', '.join(get_args(EmptyRows))}"
            raise UserError(f"there is no rule {rule!r} for empty rows", todo=todo)
        return rule

    def _limits(self, choice: Choice, schedule: Schedule) -> Limits:
        """What bounds the text: time where rows start at fixed distances, else tokens."""
        time_max = choice.time_max
        sub_max = choice.sub_max
        max_tokens = choice.max_tokens
        if isinstance(schedule, Fixed):
            time_max = time_max or self.settings.time_max
        else:
            max_tokens = max_tokens or SEQUENTIAL_LIMITS.max_tokens
        if not isinstance(schedule, Whole):
            sub_max = sub_max or self.settings.segmentation.sub_max
        return Limits(time_max, sub_max, max_tokens)

    @property
    def _whole(self) -> Opening:
        """How the row of a sequential model begins, and what it may say."""
        first = self.checkpoint.first
        if first is not None:
            begun = mask_of([first])
            return Opening((), lambda tokens: b"" if tokens else begun)
        return self.fields.of_whole if self.fields else Opening(())


class FieldPlan:
    """A row for each field, all at once, of a model that was trained for them."""

    pipelined = True

    def __init__(self, checkpoint: Checkpoint, fields: FieldCodec) -> None:
        self.checkpoint = checkpoint
        self.fields = fields
        self.lists = list_places(fields.fields)
        self.grounded = False  # whether values are parts of the source; see `is_free`

    def method(self, choice: Choice) -> Method:
        """How to decode, given what the user has chosen. A delay applies to items of lists alone.

        Raises a UserError for a choice that does not apply.
        """
        checkpoint = self.checkpoint
        usual = checkpoint.settings or PLAIN
        choice.refuse(checkpoint, listed=bool(self.lists))
        schedule = Together()
        time_max = usual.time_max
        if self.lists:
            between = choice.schedule(checkpoint)
            assert isinstance(between, Fixed | Waiting), "items need a schedule"
            schedule = Listed(between, usual.item_max)
            if isinstance(between, Waiting):
                time_max *= usual.item_max
        method = Method(
            schedule,
            checkpoint.bos,
            checkpoint.eos,
            limits=Limits(choice.time_max or time_max, None, choice.max_tokens),
            ends=frozenset(checkpoint.ends),
            confident=self.grounded,
            of_source=self._with_rows if self.grounded else None,
        )
        return self._with_rows(method)

    def _with_rows(self, method: Method, source: str | None = None) -> Method:
        """The method with a row for each field.

        If values are parts of the source, it is given, and the rows are held to it.
        """
        openings_of = partial(self.fields.openings, source=source)
        lists = [
            ItemRows(places, partial(openings_of, places)) for places in self.lists
        ]
        return replace(
            method,
            openings=openings_of(range(len(self.fields.fields))),
            lists=tuple(lists),
            source=source or "",
        )
