"""MultiSpanQA's JSON with BIO labels."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers.multispanqa import read, spans
from tests.data.importers.published import question
from tests.data.importers.published import questions_file as as_published

CONTEXT, LABELS = question()["context"], question()["label"]


def test_spans_stay_tokenised_as_in_the_data_and_in_order(write_lines):
    path = write_lines("valid.json", as_published(question()))
    (example,) = read(str(path), None)
    assert example.target == ("well - known", "Ann", "Bo")
    assert example.extra == {"answers": ["well - known", "Ann", "Bo"]}
    assert example.source == "question: who met context: The well - known Ann met Bo ."
    assert example.id == "q1"


def test_test_split_without_labels_has_no_target(write_lines):
    path = write_lines("test.json", as_published(question(type=..., num_span=..., label=..., structure=...)))
    (example,) = read(str(path), None)
    assert (example.target, example.extra) == (None, {})


def test_question_without_an_answer_has_an_empty_target(write_lines):
    path = write_lines("expand.json", as_published(question(label=["O"] * len(CONTEXT), num_span=0)))
    (example,) = read(str(path), None)
    assert (example.target, example.extra) == ((), {"answers": []})


def test_splits_are_found_in_the_published_folder(write_lines):
    write_lines("train.json", as_published(question(id="a"), question(id="b")))
    folder = write_lines("valid.json", as_published(question(id="c"))).parent
    assert [example.id for example in read(str(folder), "train")] == ["a", "b"]
    assert [example.id for example in read(str(folder), "dev")] == ["c"]
    with pytest.raises(UserError, match=r"has no split test; it has train, dev"):
        list(read(str(folder), "test"))


def test_file_may_be_gzipped_indented_a_bare_list_or_json_lines(write_lines, tmp_path):
    zipped = write_lines("a.json.gz", as_published(question()))
    indented = tmp_path / "b.json"
    indented.write_text(json.dumps(as_published(question()), indent=2), encoding="utf-8")
    bare = write_lines("c.json", json.dumps([question()]))
    lines = write_lines("d.jsonl", question(), question(id="q2"))
    assert all(len(list(read(str(path), None))) == 1 for path in (zipped, indented, bare))
    assert [example.id for example in read(str(lines), None)] == ["q1", "q2"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"label": "BIO"},
            "field 'label': expected a list of B, I and O, one a token, found the string 'BIO'",
        ),
        ({"label": LABELS[:-1]}, "field 'label': expected 8 tags, one for each token of 'context', found 7"),
        ({"label": ["X", *LABELS[1:]]}, "field 'label', item 1: expected B, I or O, found the string 'X'"),
        ({"context": "The well-known Ann"}, "field 'context': expected a list of tokens, found the string"),
        ({"question": ["who", 3]}, "field 'question', item 2: expected a list of tokens, found the number 3"),
        ({"question": ...}, "expected a field 'question', found the fields id, type, context"),
        ({"id": [1]}, "field 'id': expected a string or a whole number, found a list of 1"),
    ],
)
def test_wrong_layout_is_refused_with_the_question_the_field_and_what_stands_there(
    write_lines, changes, message
):
    path = write_lines("valid.json", as_published(question(), question(**changes)))
    with pytest.raises(UserError) as caught:
        list(read(str(path), None))
    assert caught.value.where == f"{path} question 2"
    assert message in caught.value.what


def test_file_of_something_else_is_refused(write_lines):
    path = write_lines("squad.json", {"version": "1.1", "data": {"title": "x"}})
    with pytest.raises(UserError, match="field 'data': expected a list of questions, found an object"):
        list(read(str(path), None))
    torn = write_lines("torn.json", '{"data": [')
    with pytest.raises(UserError, match=r"torn\.json:2: not JSON"):
        list(read(str(torn), None))


def test_inside_tag_after_an_outside_one_opens_a_span_as_in_the_published_evaluation():
    assert spans(["I", "I", "O", "I", "B"], list("abcde")) == ("a b", "d", "e")


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.lists(st.sampled_from("xyz"), min_size=1, max_size=4), max_size=5), st.booleans())
def test_tagging_spans_and_reading_them_gives_them_back(wanted, apart):
    labels, tokens = [], []
    for span in wanted:
        labels += ["B", *["I"] * (len(span) - 1)]
        tokens += span
        if apart:
            labels.append("O")
            tokens.append("|")
    assert spans(labels, tokens) == tuple(" ".join(span) for span in wanted)
