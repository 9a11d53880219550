"""Reads objects in finished grids."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from pipedec_cli.data.fields import Keys, path_name
from pipedec_cli.data.records import Generated
from pipedec_cli.objects.checking import Check
from pipedec_cli.objects.codec import Answers, FieldCodec
from pipedec_cli.pipeline.decode import Finished


def in_words(violations: Iterable[tuple[Keys, str]]) -> tuple[str, ...]:
    """What an object violates in its schema, each with the path to it."""
    return tuple(
        f"{path_name(keys)}: {what}".removeprefix(": ") for keys, what in violations
    )


@dataclass(frozen=True, slots=True)
class ObjectReader:
    """Reads objects in finished grids."""

    fields: FieldCodec
    answers: Answers
    keeps_text: bool = (
        False  # whether a text that holds no value of the object is kept as it is
    )
    check: Check = lambda _: ()  # what an object violates in its schema

    def read(self, end: Finished) -> Generated:
        """The object, as JSON too, without what it cost."""
        answered = self.answers(end.grid)
        texts = answered.texts
        values, lost = self.fields.object_of(texts)
        found = self.check(values)
        if wrong := {keys for keys, _ in found}:
            # A value that its own keywords do not allow is lost, unless there must be
            # one.
            values, lost = self.fields.object_of(texts, wrong)
            found = self.check(values)
        sure = forced = None
        if end.grid.method.confident:
            rows = {
                at: row for at, row in answered.rows.items() if texts[at] is not None
            }  # else it was cut
            sure = self.fields.of_rows(values, rows, attrgetter("value_confidence"))
            forced = self.fields.of_rows(values, rows, attrgetter("forced"))
        text = json.dumps(values, ensure_ascii=False)
        if self.keeps_text and not values:
            text = self.fields.whole(end.grid) or text
        return Generated(
            text=text,
            segments=tuple(filter(None, texts.values())),
            fields=values,
            confidence=sure,
            forced=forced,
            values_lost=lost,
            violations=in_words(found),
            missing=answered.missing,
        )
