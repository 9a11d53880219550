"""MultiSpanQA: what comes of a question, and what is refused where."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.importers.spans import multispanqa, spans
from tests.data.importers.published import question, questions_file
from tests.data.importers.reading import check_refused, sides

CONTEXT, LABELS = question()["context"], question()["label"]


@pytest.mark.parametrize(
    ("changes", "target"),
    [
        ({}, ("well - known", "Ann", "Bo")),
        ({"label": ["O"] * len(CONTEXT), "num_span": 0}, ()),
        ({"type": ..., "num_span": ..., "label": ..., "structure": ...}, None),
    ],
    ids=["tokens as in the data, in order", "no answer", "the unlabelled test split"],
)
def test_spans_of_a_question_are_its_target_and_its_answers(
    write_lines, changes, target
):
    asked = question(**changes)
    for name, *lines in (
        ("a.json.gz", questions_file(asked)),
        ("b.json", json.dumps(questions_file(asked), indent=2)),
        ("c.json", json.dumps([asked])),
        ("d.jsonl", asked),
    ):
        (example,) = multispanqa(str(write_lines(name, *lines)), None)
        source = "question: who met context: The well - known Ann met Bo ."
        answers = {} if target is None else {"answers": list(target)}
        assert (*sides(example), example.extra) == ("q1", source, target, answers)


@pytest.mark.parametrize(
    "changes",
    [
        {"label": "BIO"},
        {"label": LABELS[:-1]},
        {"label": ["X", *LABELS[1:]]},
        {"question": ...},
        {"id": [1]},
    ],
)
def test_wrong_question_is_refused_at_its_place(write_lines, tmp_path, changes):
    files = {"a.json": [questions_file(question(), question(**changes))]}
    check_refused(write_lines, tmp_path, multispanqa, files, "a.json question 2")


@pytest.mark.parametrize(
    ("content", "where"), [({"data": {}}, "a.json"), ('{"data": [', "a.json:2")]
)
def test_wrong_file_is_refused_at_its_place(write_lines, tmp_path, content, where):
    check_refused(write_lines, tmp_path, multispanqa, {"a.json": [content]}, where)


def test_inside_tag_after_an_outside_one_opens_a_span_as_in_the_published_evaluation():
    assert spans(["I", "I", "O", "I", "B"], list("abcde")) == ("a b", "d", "e")


@given(
    st.lists(st.lists(st.sampled_from("xyz"), min_size=1, max_size=4), max_size=5),
    st.booleans(),
)
def test_tagging_spans_and_reading_them_gives_them_back(wanted, apart):
    labels, tokens = [], []
    for span in wanted:
        labels += ["B", *["I"] * (len(span) - 1), *(["O"] if apart else [])]
        tokens += [*span, *(["|"] if apart else [])]
    assert spans(labels, tokens) == tuple(" ".join(span) for span in wanted)
