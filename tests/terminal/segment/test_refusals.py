"""What cannot be segmented is one clear line, and nothing is written."""

from pathlib import Path

import pytest

from tests.terminal.segment.running import examples, refusal, run, write

WHOLE = {"source": "s", "target": "t"}


@pytest.mark.parametrize(
    ("item", "options", "expected"),
    [
        (
            WHOLE | {"target": 3},
            "",
            "data.jsonl:1: 'target' is a number, neither a string nor a list of string",
        ),
        (WHOLE | {"source": ""}, "", "data.jsonl:1: 'source' is empty"),
        ({"source": "s"}, "", "1: field 'target' is missing; its fields are: source; --target-field"),
        (WHOLE | {"steps": 1}, "", "data.jsonl:1: field 'steps' is one that `pipedec generate`"),
        (WHOLE, "--dev-fraction 0.6 --test-fraction 0.4", "nothing to train on"),
        (WHOLE, "--tokenizer no-such-folder/x/y", "no tokenizer can be loaded from"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(item, options, expected):
    assert expected in refusal(write("data.jsonl", item), *options.split())
    assert not Path("pipedec-workspace").exists()


def test_an_empty_file_and_a_missing_one_are_refused_and_the_input_is_never_written_over():
    assert "data.jsonl: is empty" in refusal(write("data.jsonl"))
    assert "nothing.jsonl: no such file" in refusal("nothing.jsonl")
    run(write("data.jsonl", *examples()))
    for over in ("pipedec-workspace/data/train.jsonl", "pipedec-workspace/data"):
        assert "would be written over" in refusal(over)
