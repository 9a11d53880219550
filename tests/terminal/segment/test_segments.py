"""How targets are cut, merged and split at each level."""

from pathlib import Path

from pipedec_cli.data.workspace import load_segmenter
from tests.terminal.segment.running import data_of, examples, run, segmentation, write


def test_phrases_come_from_strings_and_lists():
    items = [{"source": f"s{i}", "keyphrases": ["a", "b c"] if i % 2 else "a; b c;"} for i in range(12)]
    result = run(write("data.jsonl", *items), "--level", "phrase", "--target-field", "keyphrases")
    for record in data_of()["train"]:
        assert record.target_segments == ("a", "b c")
        assert record.target in ("a; b c", "a; b c;")
        assert "keyphrases" in record.fields
    assert segmentation().joiner == "; "
    assert "6 targets came segmented" in result.stderr


def test_separators_may_be_several_and_escaped():
    data = write("data.jsonl", *({"source": str(i), "target": "a|b\nc"} for i in range(9)))
    run(data, "--level", "phrase", "--separator", "|", "--separator", r"\n")
    assert data_of()["train"][0].target_segments == ("a", "b", "c")
    assert load_segmenter(Path("pipedec-workspace/data")).separators == ("|", "\n")


def test_clauses_and_an_own_joiner():
    run(write("data.jsonl", *examples()), "--level", "clause", "--joiner", "\\n")
    assert segmentation().joiner == "\n"
    longest = max((record.target_segments for record in data_of()["train"]), key=len)
    assert longest[-3:] == ("The valve is open,", "too.", "It is late.")


def test_too_many_segments_are_merged_and_said():
    items = [{"source": str(i), "target": "; ".join("abcdefgh")} for i in range(10)]
    result = run(write("data.jsonl", *items), "--level", "phrase", "--sub-max", "5")
    assert data_of()["train"][0].target_segments == ("a; b", "c; d", "e; f", "g; h")
    assert "10 targets had too many segments: neighbours were merged to 4" in result.stderr


def test_long_segments_are_warned_of_or_split():
    items = [{"source": str(i), "target": "word " * 8 + "end, " + "more " * 5} for i in range(10)]
    write("data.jsonl", *items)
    result = run("data.jsonl", "--time-max", "12", "-q")
    warning = "warning: 10 subsequences in 10 of 10 targets do not fit into 12 time-steps"
    assert warning in result.stderr.replace("\n", " ")
    assert "the longest has 14 words" in result.stderr
    result = run("data.jsonl", "--time-max", "12", "--split-long")
    assert data_of()["train"][0].target_segments == (("word " * 8 + "end,"), ("more " * 5).strip())
    assert "do not fit" not in result.stderr
