"""A whole object as JSON in one row, as the model writes it without pipedec: what blind rows are compared with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from pipedec_cli.data.fields import Field, kind_of, read_values, texts_of, value_texts
from pipedec_cli.data.objects import mapped
from pipedec_cli.data.records import Record
from pipedec_cli.model.decoder import Decoder
from pipedec_cli.model.fields import FieldCodec
from pipedec_cli.model.rows import ASK_PROMPT, Asked, BlindDecoder, Choice, Rows
from pipedec_cli.pipeline.decode import Finished
from pipedec_cli.pipeline.grid import SEQUENTIAL_LIMITS
from pipedec_cli.pipeline.schedule import Subsequence

#: The name of the row; in a line behind examples it is the beginning.
_ROW = Field("JSON")


class OneRow(BlindDecoder):
    """A `BlindDecoder` with one row for all keys. The row is free text, and each value is as sure as all of it."""

    longest = SEQUENTIAL_LIMITS.max_tokens or 0
    keys_prompt = ASK_PROMPT

    def _questions(self) -> list[Asked]:
        return [_Whole(self.rows.fields)]

    def _shot(self, shot: Record, template: str) -> str:
        texts = value_texts(shot.target_fields or {}, self.rows.fields, shot.where)
        return self._shown(shot, template, f"{_ROW.opening} {_json(read_values(texts, self.rows.fields)[0])}")

    def _choices(self) -> Mapping[str, Choice]:
        return {_ROW.name: lambda _: ()}

    def _answers(
        self, event: Finished, fields: FieldCodec | None = None
    ) -> tuple[Sequence[Subsequence], Sequence[str | None]]:
        row = event.grid.subsequences[0]
        texts = texts_in(self._text(row, 0.0, _ROW.name) or "", self.rows.fields)
        return [row] * len(texts), texts


class _Whole(Asked):
    """What the row asks for."""

    def __init__(self, fields: Sequence[Field]) -> None:
        super().__init__([_ROW])
        self.names = [
            field.name + (f" ({field.description})" if field.description else "") for field in fields
        ]

    def question(self) -> str:
        keys = ", ".join(self.names)
        return f"Write a JSON object with these keys, in the words of the text: {keys}. Leave out what the text does not say."


def texts_in(text: str, fields: Sequence[Field]) -> Sequence[str | None]:
    """The texts of all rows of the first JSON object in a text, "" without a value; all None if there is no object."""
    try:
        found, _ = json.JSONDecoder().raw_decode(text, max(0, text.find("{")))
        values = mapped(found, lambda _, value: None if kind_of(value) == "other" else value)
    except (ValueError, RecursionError, AttributeError):  # no JSON, one that is too deep, or no object
        return [None] * len(fields)
    return texts_of(values, fields)


def make_blind(
    plain: Decoder,
    rows: Rows,
    *,
    one_row: bool = False,
    template: str | None = None,
    chat: bool | None = None,
) -> BlindDecoder:
    """A decoder of blind rows, or of all keys in one row; see `BlindDecoder`."""
    return (OneRow if one_row else BlindDecoder)(plain, rows, template=template, chat=chat)


def blind_spec(decoder: Decoder) -> dict[str, Any] | None:
    """What `make_blind` makes a decoder of again, as plain values; None for another decoder."""
    if not isinstance(decoder, BlindDecoder):
        return None
    how = {"one_row": isinstance(decoder, OneRow), "template": decoder.template, "chat": decoder.chat}
    return {"rows": to_builtins(decoder.rows), **how}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
