"""The formats of the field: answers by id, phrases by line, and the right answers that belong to them."""

import pytest

from pipedec_cli.data.answers import load_predictions
from tests.words import refusing

QUESTION = {
    "id": "q1",
    "type": "ENTY",
    "question": ["which", "animals"],
    "context": ["A", "well", "-", "known", "cat", "and", "dogs"],
    "num_span": 2,
    "label": ["O", "B", "I", "I", "I", "O", "B"],
}
GOLD = {"version": 1, "data": [QUESTION, {**QUESTION, "id": "q2"}]}
BARE = {"data": [{key: QUESTION[key] for key in ("id", "question", "context")}]}
LINE = {"prediction": "x", "target": "y"}
CAT = {"q1": ["cat"]}
KEYPHRASES = {"id": "d7", "source": "s", "keyphrases": ["a"]}


@pytest.fixture
def load(write_lines, tmp_path):
    """The predictions and their format, of files given as (name, lines…); a name alone is of a file that is not there."""

    def of(*files):
        names = ("path", "gold", "sources")
        places = {
            key: write_lines(name, *lines) if lines else tmp_path / name
            for key, (name, *lines) in zip(names, files, strict=False)
        }
        return load_predictions(**places)

    return of


def test_multispanqa_predictions_and_gold_are_joined_by_id_with_spans_as_tokenised(
    load,
):
    predictions, form = load(
        ("answers.json", {"q2": [], "q1": ["dogs", "cat; x"]}), ("valid.json", GOLD)
    )
    assert form == "answers"
    assert [(found.id, found.segments) for found in predictions] == [
        ("q2", ()),
        ("q1", ("dogs", "cat; x")),
    ]
    assert predictions[1].record.fields["target"] == ["well - known cat", "dogs"]


def test_lines_of_phrases_go_with_source_and_target_lines(load):
    predictions, form = load(
        ("out.txt", "big data;<peos>;deep nets", ""),
        ("test_trg.txt", "data;trees", "nets"),
        ("test_src.txt", "on data <eos> of trees", "nets <eos> nets"),
    )
    assert form == "lines"
    assert [found.segments for found in predictions] == [("big data", "deep nets"), ()]
    assert [found.record.fields["target"] for found in predictions] == [
        ["data", "trees"],
        ["nets"],
    ]
    assert predictions[0].record.source == "on data of trees"


def test_gold_records_go_with_lines_in_their_order_and_replace_what_predictions_hold(
    load,
):
    predictions, _ = load(("out.txt", "a; b"), ("test.jsonl", KEYPHRASES))
    assert [(found.id, found.segments) for found in predictions] == [("d7", ("a", "b"))]
    gold = {"id": "a", "source": "s", "target": "new"}
    (found,), form = load(("out.jsonl", LINE | {"id": "a"}), ("gold.jsonl", gold))
    assert (form, found.record.target) == ("records", "new")
    two = [LINE | {"id": id_, "source": source} for id_, source in ("ab", "ba")]
    swapped = [{"id": one["id"], "source": one["id"], "target": "t"} for one in two]
    with refusing():
        load(("out.jsonl", *two), ("gold.jsonl", *swapped))


def test_json_lines_in_a_file_called_json_are_told_from_answers(load):
    assert load(("one.json", LINE))[1] == load(("two.json", LINE, LINE))[1] == "records"


@pytest.mark.parametrize(
    "files",
    [
        [("a.json", {"q1": ["cat", 1]}), ("b.json", GOLD)],
        [("a.json", {"q1": None}), ("b.json", GOLD)],
        [("a.json", '{"q1": ["a"], "q1": ["b"]}')],
        [("a.json", CAT), ("gold.jsonl", KEYPHRASES, KEYPHRASES)],
        [("few.json", CAT), ("valid.json", GOLD)],
        [("a.json", {"q1": [], "q2": [], "q3": []}), ("b.json", GOLD)],
        [("a.json", CAT)],
        [("out.txt", "a"), ("trg.txt", "a")],
        [("a.json", CAT), ("test.json", BARE)],
        [("none.txt",)],
        [(".",)],
        [("a.json", CAT), ("none.json",)],
        [("out.txt", "a", "b"), ("test.jsonl", KEYPHRASES)],
        [("wrong.json", '{"q1": ["a"],', ' "q2": }')],
    ],
)
def test_what_cannot_be_scored_is_refused_by_its_place(load, files):
    with refusing():
        load(*files)
