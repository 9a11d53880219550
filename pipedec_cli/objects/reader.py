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
    words = [f"{path_name(keys)}: {what}" for keys, what in violations]
    return tuple(violation.removeprefix(": ") for violation in words)


@dataclass(frozen=True, slots=True)
class ObjectReader:
    """Reads objects in finished grids."""

    fields: FieldCodec
    answers: Answers
    #: Whether a text that holds no value of the object is kept as it is.
    keeps_text: bool = False
    #: What an object violates in its schema.
    check: Check = lambda _: ()

    def read(self, end: Finished) -> Generated:
        """The object, as JSON too, without what it cost."""
        answered = self.answers(end.grid)
        texts = answered.texts
        values, lost = self.fields.object_of(texts)
        violations = self.check(values)
        if violations:
            # A value that its own keywords do not allow is lost, unless there must be
            # one.
            wrong = {keys for keys, _ in violations}
            values, lost = self.fields.object_of(texts, wrong)
            violations = self.check(values)
        confidence = forced = None
        if end.grid.method.confident:
            whole = {
                at: row for at, row in answered.rows.items() if texts[at] is not None
            }
            of_rows = self.fields.of_rows
            confidence = of_rows(values, whole, attrgetter("value_confidence"))
            forced = of_rows(values, whole, attrgetter("forced"))
        text = json.dumps(values, ensure_ascii=False)
        if self.keeps_text and not values:
            text = self.fields.whole(end.grid) or text
        return Generated(
            text=text,
            segments=tuple(filter(None, texts.values())),
            fields=values,
            confidence=confidence,
            forced=forced,
            values_lost=lost,
            violations=in_words(violations),
            missing=answered.missing,
            probabilities=answered.probabilities,
        )
