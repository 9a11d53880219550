"""A decoder over columns, as Ray Data calls it."""

import numpy
import pyarrow as pa
import pytest

import pipedec_cli
from pipedec_cli.data.errors import UserError
from tests.checkpoints import TOLD, tiny_checkpoint


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    folder = tiny_checkpoint(tmp_path_factory.mktemp("batches") / "model")
    return pipedec_cli.BatchGenerator(str(folder), source="text", delay=1)


def test_a_table_keeps_its_columns_and_gets_what_was_generated_a_row_without_a_source_says_so(generator):
    texts = [TOLD[0][0], None, "  ", TOLD[2][0]]
    table = pa.table({"text": texts, "more": [[1], [2], None, []]})
    made = generator(table)
    assert made.select(["text", "more"]) == table
    rows = made.to_pylist()
    assert [row["segments"] for row in rows] == [list(TOLD[0][1]), None, None, list(TOLD[2][1])]
    assert [row["error"] for row in rows] == [None, "no source", "no source", None]
    alone = next(generator.decoder.texts([TOLD[0][0]], generator.decoder.method(1)))
    expected = {"prediction": alone.text, "steps": alone.steps, "tokens": alone.tokens, "truncated": None}
    assert (expected | {"stopped_on_repeat": False}).items() <= rows[0].items()
    nothing = generator({"text": numpy.array([None], dtype=object)})
    assert nothing.schema.field("segments") == made.schema.field("segments"), (
        "tables of one type, whatever is in them"
    )


def test_a_table_without_the_column_or_with_one_of_ours_is_refused(generator):
    with pytest.raises(UserError, match=r"there is no column 'text'; its columns are source; name one"):
        generator({"source": ["a"]})
    with pytest.raises(UserError, match=r"column 'steps' is one that is generated; rename it"):
        generator({"text": ["a"], "steps": [1]})
