"""A decoder over tables, for Ray Data's `map_batches` and other tools that work by batches of columns."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.decoder import choose_batch_size, load

#: The columns that are added. All but the first and the last are fields of `Generated`.
_ADDED = pa.schema(
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
    """Generates for a column of sources. Make one in each worker: it loads the model once.

    A call takes a table, or a mapping of columns as numpy arrays, and gives the table with the columns ``prediction``,
    ``segments``, ``steps``, ``tokens``, ``truncated``, ``stopped_on_repeat`` and ``error`` added. Where a source is
    empty, null or no text, all of them are null but ``error``.
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
        """Load a model; see `load` for the arguments and errors.

        `source` names the column, `batch_size` is by default what fits the memory, `method` are arguments of
        `Decoder.method`, such as ``delay=2``.
        """
        self.decoder = load(model, dtype=dtype, device=device, max_source_tokens=max_source_tokens)
        self.method, self.source, self.batch_size = self.decoder.method(**method), source, batch_size

    def __call__(self, batch: pa.Table | Mapping[str, Any]) -> pa.Table:
        """The batch with the added columns; a UserError if it lacks the source's column, or has one of the added."""
        table = batch if isinstance(batch, pa.Table) else pa.table(dict(batch))
        if self.source not in table.column_names:
            todo = f"its columns are {', '.join(table.column_names)}; name one with source=…"
            raise UserError(f"there is no column {self.source!r}", todo=todo)
        for name in _ADDED.names:
            if name in table.column_names:
                raise UserError(f"column {name!r} is one that is generated", todo="rename it")
        sources = table.column(self.source).to_pylist()
        usable = [isinstance(text, str) and bool(text.strip()) for text in sources]
        texts = [text for text, good in zip(sources, usable, strict=True) if good]
        model, longest = self.decoder.checkpoint.model, self.decoder.text.max_source_tokens
        size = self.batch_size or choose_batch_size(model, longest, len(texts))
        results = self.decoder.texts(texts, self.method, size)
        rows: list[dict[str, Any]] = []
        for good in usable:
            if good:
                made = next(results)
                fields = {name: getattr(made, name) for name in _ADDED.names[1:-1]}
                rows.append({"prediction": made.text, **fields})
            else:
                rows.append({"error": "no source"})
        added = pa.Table.from_pylist(rows, schema=_ADDED)
        for name in _ADDED.names:
            table = table.append_column(_ADDED.field(name), added.column(name))
        return table
