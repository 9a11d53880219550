"""The object of a grid that is still being written: what nothing can change any more.

A row has said all when it has ended and the rows that it opens stand in the grid. A
value is final when its row has said all, when the object around it is sure to be there,
and when no check can still drop it.
"""

import json
import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from pipedec_cli.data.fields import Keys, RowAddress
from pipedec_cli.objects.checking import Checker
from pipedec_cli.objects.reader import ObjectReader
from pipedec_cli.objects.rows import Placed
from pipedec_cli.objects.tree import PENDING, ObjectOf
from pipedec_cli.pipeline.grid import Grid, Opening

#: Seconds of a processor that a check may take; after a slower one nothing more is
#: read before the end.
_SLOW: Final = 0.1


class ObjectSoFar:
    """The object of a grid, as far as it is final. What stands here once never changes.

    `values` has all values that are final. `text` is the beginning of the object as
    JSON: its keys come in the order of the schema, so a value waits for all before it.
    An object that is written in one row is read at its end alone.
    """

    def __init__(self, reader: ObjectReader, grid: Grid) -> None:
        self.values: dict[str, Any] = {}
        self.text = ""
        self._reader = reader
        self._grid = grid
        self._texts: dict[RowAddress, str | None] = {}
        self._read: set[int] = set()  # the rows that have said all, from 1
        self._is_slow = False  # whether no more is read before the end

    def update(self) -> bool:
        """Read the rows that have said all since the last time. Returns whether there are any."""
        grid = self._grid
        if self._is_slow:
            return False
        new = []
        for number in range(1, len(grid.openings) + 1):
            if number not in self._read and grid.has_said_all(number):
                new.append(number)
        if not new:
            return False
        self._read.update(new)
        self._texts |= self._reader.answers(grid.only(new)).texts
        check = self._reader.check
        # What a class says of a value may depend on the values before it.
        needs_order = isinstance(check, Checker) and check.of_class is not None
        reading = replace(self._reading(), in_order=needs_order)
        values = reading.said().value
        if values is not PENDING:
            sure = replace(reading, held=self._held(values))
            self.values = sure.said().value
            said = replace(sure, in_order=True).said()
            text = json.dumps(said.value, ensure_ascii=False)
            self.text = text[: len(text) - said.open]
        return True

    def _reading(self) -> ObjectOf:
        """What reads the texts of all rows, in the order of the rows."""
        texts: dict[RowAddress, Any] = {}
        for number, opening in enumerate(self._grid.openings, start=1):
            at = _address(opening)
            texts[at] = self._texts[at] if number in self._read else PENDING
        for at, text in self._texts.items():
            texts.setdefault(at, text)
        fields = self._reader.fields
        growing = _growing_lists(self._grid)
        return ObjectOf(fields.tree, texts, fields.forms, growing=growing)

    def _held(self, values: Any) -> Collection[Keys] | None:
        """The places of values that the check may drop; None: of any value."""
        check = self._reader.check
        if not isinstance(check, Checker):
            return ()  # it asks for keys alone
        if not check.is_local:
            return None
        began = time.thread_time()
        wrong = check.wrong(values)
        self._is_slow = time.thread_time() - began > _SLOW
        return wrong


def _address(opening: Opening) -> RowAddress:
    """Where the answer of a row belongs."""
    place = opening.place
    return place.asked.at if isinstance(place, Placed) else RowAddress(place)


def _growing_lists(grid: Grid) -> set[Keys]:
    """The places of lists that no row names and that may get more items."""
    places = set()
    for number, listed in enumerate(grid.method.lists):
        if not grid.has_all_items(number):
            path = grid.method.openings[listed.places[0]].place
            is_number = [isinstance(step, int) for step in path]
            places.add(path[: is_number.index(True)])
    return places
