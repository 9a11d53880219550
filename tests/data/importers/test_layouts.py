"""The published layouts that have an object an example: what comes out of each, and what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers.phrases import keyphrases, spans, split_phrases
from pipedec_cli.data.importers.phrases import multispanqa as msqa
from pipedec_cli.data.importers.summaries import cnn_dailymail, pubmed, wikihowqa
from tests.data.importers.published import question, questions_file

PAPER = {"title": "On grids", "abstract": "We draw."}
SHORT = {"title": "T", "abstract": "B"}
RNC = [["Speeches"], ["Republican National Convention", "RNC"]]
COHAN = {
    "article_id": "PMC1",
    "article_text": ["first .", "second ."],
    "abstract_text": ["<S> we tried . </S>", "<S> it worked . </S>"],
    "labels": None,
    "section_names": ["intro"],
    "sections": [["first .", "second ."]],
}
SUMPUBMED = {"text": "An article.", "shorter_abstract": "One. Two.", "abstract": "Long.", "filename_text": 12}
PHRASES = "a list of strings, or one string with ';' between phrases"
DRAWN, RNC_FIRST = "On grids We draw.", ("Speeches", "Republican National Convention")
CNN = {"article": "It rained.", "highlights": "Rain fell .\nAll day .", "id": "abc"}
WIKIHOW = {"question": "how", "answer": "so .", "summary": "thus ."}
MIDAS = {
    "id": 1,
    "document": ["We", "draw", "grids", "."],
    "doc_bio_tags": ["O", "O", "B", "O"],
    "extractive_keyphrases": ["grids"],
    "abstractive_keyphrases": ["decoding"],
}


@pytest.mark.parametrize(
    ("read", "row", "identifier", "source", "target"),
    [
        (keyphrases, PAPER | {"keyword": "grid;time step;x "}, None, DRAWN, ("grid", "time step", "x")),
        (
            keyphrases,
            PAPER | {"id": 7, "keywords": ["grid", "time  step"]},
            "7",
            DRAWN,
            ("grid", "time step"),
        ),
        # the first of each keyphrase's variants
        (keyphrases, PAPER | {"id": "02", "headline": "not read", "keyword": RNC}, "02", DRAWN, RNC_FIRST),
        (keyphrases, MIDAS, "1", "We draw grids .", ("grids", "decoding")),
        (keyphrases, {"id": "14", "source": "A text", "keyphrases": ["a", "b"]}, "14", "A text", ("a", "b")),
        (cnn_dailymail, CNN, "abc", "It rained.", ("Rain fell .", "All day .")),
        (pubmed, COHAN, "PMC1", "first . second .", ("we tried .", "it worked .")),
        (pubmed, {"article": " a .\n b .", "abstract": " c . d . "}, None, "a .\n b .", "c . d ."),
        # SumPubMed's line ends, a sentence a line, are lost on the hub
        (pubmed, SUMPUBMED, "12", "An article.", "One. Two."),
        (pubmed, SUMPUBMED | {"shorter_abstract": "One.\nTwo."}, "12", "An article.", ("One.", "Two.")),
        (wikihowqa, WIKIHOW, None, "question: how context: so .", "thus ."),
        (wikihowqa, {"text": "so .", "summary": "thus ."}, None, "so .", "thus ."),
    ],
)
def test_row_gives_its_identifier_source_and_target(write_lines, read, row, identifier, source, target):
    (example,) = read(str(write_lines("test.jsonl", row)), None)
    assert (example.id, example.source, example.target) == (identifier, source, target)


@pytest.mark.parametrize("variants", [RNC, [["x"], ["y"]]])
def test_variants_of_keyphrases_are_kept_where_there_are_several(write_lines, variants):
    (example,) = keyphrases(str(write_lines("a.jsonl", SHORT | {"keyword": variants})), None)
    assert example.extra == ({"keyphrase_variants": RNC} if variants is RNC else {})


@pytest.mark.parametrize("empty", ["", " ; ;", [], [" "], [[""], []]])
def test_empty_keyphrase_is_no_phrase(write_lines, empty):
    (example,) = keyphrases(str(write_lines("a.jsonl", SHORT | {"keywords": empty})), None)
    assert example.target == ()


@given(st.lists(st.text().filter(lambda text: "<peos>" not in text)), st.sampled_from([";", "|", "<sep>"]))
def test_phrases_are_never_empty_and_hold_no_separator(parts, separator):
    phrases = split_phrases(separator.join(parts), separator)
    assert all(phrase.strip() == phrase != "" for phrase in phrases)
    assert not any(separator in phrase for phrase in phrases)
    assert " ".join(phrases).split() == separator.join(parts).replace(separator, " ").split()


@pytest.mark.parametrize(
    ("read", "row", "message"),
    [
        (keyphrases, SHORT, "expected a field 'keyphrases' or 'keywords' or 'keyword' or"),
        (keyphrases, {"title": "T", "keywords": ["a"]}, "expected a field 'abstract' or 'body' or 'text'"),
        (keyphrases, SHORT | {"keywords": 3}, f"'keywords': expected {PHRASES}, found the number 3"),
        (keyphrases, SHORT | {"keywords": ["a", None]}, f"'keywords', item 2: expected {PHRASES}"),
        (
            keyphrases,
            SHORT | {"keyword": [["a"], [1]]},
            "'keyword', item 2: expected a list of strings, the var",
        ),
        (keyphrases, {"abstract": ["B"], "keywords": []}, "'abstract': expected a string, found a list of 1"),
        (
            keyphrases,
            MIDAS | {"document": "a b"},
            "'document': expected a list of tokens, found the string 'a b'",
        ),
        (
            keyphrases,
            MIDAS | {"extractive_keyphrases": "a"},
            "expected a list of strings, found the string 'a'",
        ),
        (keyphrases, ["a"], "expected an object, found a list of 1"),
        (cnn_dailymail, CNN | {"highlights": ["H"]}, "'highlights': expected a string, found a list of 1"),
        (pubmed, {"title": "x"}, "a field 'article_text' or 'article' or 'text', found the fields title"),
        (pubmed, COHAN | {"abstract_text": "b"}, "expected a list of sentences, found the string 'b'"),
        (pubmed, COHAN | {"abstract_text": [3]}, "item 1: expected a list of sentences, found the number 3"),
        (pubmed, {"article": "a"}, "expected a field 'abstract', found the fields article"),
        (pubmed, {"text": "a", "abstract": "b"}, "expected a field 'shorter_abstract', found the fields"),
        (wikihowqa, {"question": "how", "answer": "so ."}, "expected a field 'summary', found the fields"),
    ],
)
def test_wrong_layout_is_refused_at_its_line(write_lines, read, row, message):
    path = write_lines("train.jsonl", *([SHORT | {"keywords": ["a"]}] if read is keyphrases else []), row)
    with pytest.raises(UserError) as caught:
        list(read(str(path), None))
    assert caught.value.where == f"{path}:{2 if read is keyphrases else 1}"
    assert message in caught.value.what


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
def test_spans_of_a_question_are_its_target_and_its_answers(write_lines, changes, target):
    (example,) = msqa(str(write_lines("valid.json", questions_file(question(**changes)))), None)
    assert (example.id, example.target) == ("q1", target)
    assert example.source == "question: who met context: The well - known Ann met Bo ."
    assert example.extra == ({} if target is None else {"answers": list(target)})


def test_questions_may_be_gzipped_indented_a_bare_list_or_json_lines(write_lines):
    for name, *lines in (
        ("a.json.gz", questions_file(question())),
        ("b.json", json.dumps(questions_file(question()), indent=2)),
        ("c.json", json.dumps([question()])),
        ("d.jsonl", question()),
    ):
        assert [example.id for example in msqa(str(write_lines(name, *lines)), None)] == ["q1"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": "BIO"}, "'label': expected a list of B, I and O, one a token, found the string 'BIO'"),
        ({"label": LABELS[:-1]}, "field 'label': expected 8 tags, one for each token of 'context', found 7"),
        ({"label": ["X", *LABELS[1:]]}, "field 'label', item 1: expected B, I or O, found the string 'X'"),
        ({"context": "The well-known Ann"}, "field 'context': expected a list of tokens, found the string"),
        ({"question": ["who", 3]}, "field 'question', item 2: expected a list of tokens, found the number 3"),
        ({"question": ...}, "expected a field 'question', found the fields id, type, context"),
        ({"id": [1]}, "field 'id': expected a string or a whole number, found a list of 1"),
    ],
)
def test_wrong_question_is_refused_with_its_number_field_and_what_is_there(write_lines, changes, message):
    path = write_lines("valid.json", questions_file(question(), question(**changes)))
    with pytest.raises(UserError) as caught:
        list(msqa(str(path), None))
    assert caught.value.where == f"{path} question 2"
    assert message in caught.value.what


def test_json_of_something_else_is_refused(write_lines):
    path = write_lines("squad.json", {"version": "1.1", "data": {"title": "x"}})
    with pytest.raises(UserError, match="field 'data': expected a list of questions, found an object"):
        list(msqa(str(path), None))
    torn = write_lines("torn.json", '{"data": [')
    with pytest.raises(UserError, match=r"torn\.json:2: not JSON"):
        list(msqa(str(torn), None))


def test_inside_tag_after_an_outside_one_opens_a_span_as_in_the_published_evaluation():
    assert spans(["I", "I", "O", "I", "B"], list("abcde")) == ("a b", "d", "e")


@given(st.lists(st.lists(st.sampled_from("xyz"), min_size=1, max_size=4), max_size=5), st.booleans())
def test_tagging_spans_and_reading_them_gives_them_back(wanted, apart):
    labels, tokens = [], []
    for span in wanted:
        labels += ["B", *["I"] * (len(span) - 1), *(["O"] if apart else [])]
        tokens += [*span, *(["|"] if apart else [])]
    assert spans(labels, tokens) == tuple(" ".join(span) for span in wanted)
