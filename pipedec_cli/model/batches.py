"""A decoder over tables: what Ray Data's `map_batches`, or any other tool that works by batches of columns, calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Generated
from pipedec_cli.model.batch_size import choose_batch_size
from pipedec_cli.model.decoder import load

_MADE = pa.schema(
    {
        "prediction": pa.string(),
        "segments": pa.list_(pa.string()),
        "steps": pa.int64(),
        "tokens": pa.int64(),
        "truncated": pa.string(),
        "stopped_on_repeat": pa.bool_(),
        "error": pa.string(),
    }
)


class BatchGenerator:
    """Generates for a column of sources; made once in each worker, it loads the model once.

    A call takes a table, or a mapping of columns as numpy has them, and gives the table with the columns of `generate`'s lines behind its own, all
    of them null but ``error`` where a source is empty, null or no text.
    """

    def __init__(
        self,
        model: str,
        *,
        source: str = "source",
        batch_size: int | None = None,
        dtype: str = "float32",
        device: str = "auto",
        max_source_tokens: int | None = None,
        **method: Any,
    ) -> None:
        """Load a model; the `source` is a column's name, `batch_size` by default what the memory has room for.

        What else is given is `Decoder.method`'s: ``delay=2``. A UserError as `load` and that raise it.
        """
        self.decoder = load(model, dtype=dtype, device=device, max_source_tokens=max_source_tokens)
        self.method, self.source, self.batch_size = self.decoder.method(**method), source, batch_size

    def __call__(self, batch: pa.Table | Mapping[str, Any]) -> pa.Table:
        """The batch with what was generated; a UserError if it has no such column, or one of ours."""
        table = batch if isinstance(batch, pa.Table) else pa.table(dict(batch))
        if self.source not in table.column_names:
            todo = f"its columns are {', '.join(table.column_names)}; name one with source=…"
            raise UserError(f"there is no column {self.source!r}", todo=todo)
        for name in filter(_MADE.names.__contains__, table.column_names):
            raise UserError(f"column {name!r} is one that is generated", todo="rename it")
        given = table.column(self.source).to_pylist()
        usable = [isinstance(text, str) and bool(text.strip()) for text in given]
        texts = [text for text, good in zip(given, usable, strict=True) if good]
        decoder = self.decoder
        size = self.batch_size or choose_batch_size(
            decoder.checkpoint.model, decoder.text.max_source_tokens, len(texts)
        )
        made = decoder.texts(texts, self.method, size)
        rows = [_row(next(made)) if good else {"error": "no source"} for good in usable]
        columns = pa.Table.from_pylist(rows, schema=_MADE)
        for name in _MADE.names:
            table = table.append_column(_MADE.field(name), columns.column(name))
        return table


def _row(made: Generated) -> dict[str, Any]:
    return {
        "prediction": made.text,
        "segments": made.segments,
        "steps": made.steps,
        "tokens": made.tokens,
        "truncated": made.truncated,
        "stopped_on_repeat": made.stopped_on_repeat,
    }
