"""The published layouts: where rows are looked for, what comes out of each, what is refused where, and what is written."""

import json
import re
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.file_formats import RawRow
from pipedec_cli.data.importers import (
    CleaningCounts,
    Example,
    cleaned,
    layout,
    splits_at,
)
from pipedec_cli.data.importers.layout import rows_at, split_files
from pipedec_cli.data.importers.mentions import conll
from pipedec_cli.data.importers.phrases import (
    keyphrases,
    parallel,
    spans,
    split_phrases,
)
from pipedec_cli.data.importers.phrases import multispanqa as msqa
from pipedec_cli.data.importers.summaries import cnn_dailymail, pubmed, wikihowqa
from tests.data.importers.published import question, questions_file
from tests.words import refusing

PAPER = {"title": "On grids", "abstract": "We draw."}
SHORT = {"title": "T", "abstract": "B"}
RNC = [["Speeches"], ["Republican National Convention", "RNC"]]
COHAN = {"article_id": "PMC1", "article_text": ["first .", "second ."], "labels": None}
COHAN |= {"abstract_text": ["<S> we tried . </S>", "<S> it worked . </S>"]}
SUMPUBMED = {
    "text": "An article.",
    "shorter_abstract": "One. Two.",
    "abstract": "Long.",
    "filename_text": 12,
}
DRAWN, TWO, RNC_FIRST = (
    "On grids We draw.",
    ("grid", "time step"),
    (RNC[0][0], RNC[1][0]),
)
CNN = {"article": "It rained.", "highlights": "Rain fell .\nAll day .", "id": "abc"}
WIKIHOW = {"question": "how", "answer": "so .", "summary": "thus ."}
MIDAS = {
    "id": 1,
    "document": ["We", "draw", "grids", "."],
    "doc_bio_tags": ["O", "O", "B", "O"],
}
MIDAS |= {"extractive_keyphrases": ["grids"], "abstractive_keyphrases": ["decoding"]}
HIGHLIGHTS = ["@highlight", "", "Rain fell", "", "@highlight", "", "All day"]
STORY = ["(CNN) -- It rained.", "", "All day.", "", *HIGHLIGHTS]
FELL = ("Rain fell", "All day")
STORIES = [("a1", "(CNN) -- It rained. All day.", FELL), ("b2", "", FELL)]
TEXTS = {f"text/text_{n}.txt": ["an article", "", f"numbered {n}."] for n in (2, 10)}
TEXTS |= {f"shorter_abstract/abst_{n}.txt": ["one.", f"number {n}."] for n in (2, 10)}
NUMBERED = [
    (n, f"an article numbered {n}.", ("one.", f"number {n}.")) for n in ("2", "10")
]
PAIRS = [
    "how to cook\t1\t1",
    "how to cook\t2\t0",
    "how to boil\t0\t1",
    "how to heat\t0\t1",
]
RELEASED = {
    "summary.txt": [
        "0\tboil water first .\tboil it .",
        "1\tbuy a pan .\tget a pan .",
        "2\tno .\tno .",
    ],
    "train.txt": PAIRS,
    "test.txt": ["how to refuse\t2\t1"],
}
COOKING = [
    ("0", "question: how to boil context: boil water first .", "boil it ."),
    ("0", "question: how to heat context: boil water first .", "boil it ."),
    ("1", "question: how to cook context: buy a pan .", "get a pan ."),
]
ZIPPED = {"summary.txt.gz": ["5\tanswer\tsummary"], "valid.txt.gz": ["question\t5\t1"]}
LINES = {
    "a.src": ["title one <eos> body one", "two", "three"],
    "a.trg": ["a b;c;<peos>;d", "e", ""],
}
LINED = [
    (None, "title one body one", ("a b", "c", "d")),
    (None, "two", ("e",)),
    (None, "three", ()),
]
#: BIO without needless B and with it, and BILOU; a tab between columns lets a token
#: hold a space.
CONLL = {
    "train.conll": (
        "-DOCSTART- -X- O O||# a comment|EU NNP B-NP I-ORG|and x O O|Ann y x I-PER|Lee x y B-PER|||"
        "New\tB-LOC|York City\tI-LOC|\xa0\tO|York City\tI-ORG||Bo B-PER|and O|Bo U-PER|O O|Li B-PER|Wu L-PER|Xi I-PER"
    )
    .replace("|", "\n")
    .splitlines(),
    "valid.bio": ["none O"],
}
MENTIONED = [
    (None, "EU and Ann Lee", {"ORG": ["EU"], "PER": ["Ann", "Lee"]}),
    (
        None,
        "New York City \u00a0 York City",
        {"LOC": ["New York City"], "ORG": ["York City"]},
    ),
    (None, "Bo and Bo O Li Wu Xi", {"PER": ["Bo", "Li Wu", "Xi"]}),
]
TEXT_11 = "text/text_11.txt"


def sides(example):
    return example.id, example.source, example.target


#: What is given to be read where what is wrong stands in another file.
GIVEN = {"summary.txt": "valid.txt", "a.trg": "a.src", TEXT_11: "."}


@pytest.mark.parametrize(
    ("read", "row", "identifier", "source", "target"),
    [
        (
            keyphrases,
            PAPER | {"keyword": "grid;time step;x "},
            None,
            DRAWN,
            (*TWO, "x"),
        ),
        (
            keyphrases,
            PAPER | {"id": 7, "keywords": ["grid", "time  step"]},
            "7",
            DRAWN,
            TWO,
        ),
        # the first of each keyphrase's variants
        (
            keyphrases,
            PAPER | {"id": "02", "headline": "not read", "keyword": RNC},
            "02",
            DRAWN,
            RNC_FIRST,
        ),
        (keyphrases, MIDAS, "1", "We draw grids .", ("grids", "decoding")),
        (
            keyphrases,
            {"id": "14", "source": "A text", "keyphrases": ["a", "b"]},
            "14",
            "A text",
            ("a", "b"),
        ),
        *(
            (keyphrases, SHORT | {"keywords": empty}, None, "T B", ())
            for empty in ("", " ; ;", [], [" "])
        ),
        (keyphrases, SHORT | {"keywords": [[""], []]}, None, "T B", ()),
        (cnn_dailymail, CNN, "abc", "It rained.", ("Rain fell .", "All day .")),
        (pubmed, COHAN, "PMC1", "first . second .", ("we tried .", "it worked .")),
        (
            pubmed,
            {"article": " a .\n b .", "abstract": " c . d . "},
            None,
            "a .\n b .",
            "c . d .",
        ),
        # SumPubMed's line ends, a sentence a line, are lost on the hub
        (pubmed, SUMPUBMED, "12", "An article.", "One. Two."),
        (
            pubmed,
            SUMPUBMED | {"shorter_abstract": "One.\nTwo."},
            "12",
            "An article.",
            ("One.", "Two."),
        ),
        (wikihowqa, WIKIHOW, None, "question: how context: so .", "thus ."),
        (wikihowqa, {"text": "so .", "summary": "thus ."}, None, "so .", "thus ."),
    ],
)
def test_row_gives_its_identifier_source_and_target(
    write_lines, read, row, identifier, source, target
):
    (example,) = read(str(write_lines("test.jsonl", row)), None)
    assert sides(example) == (identifier, source, target)


BOTH = {f"{split}_src.txt": ["s"] for split in ("valid", "test")}
BOTH |= {f"{split}_trg.txt": [f"{split}_trg.txt"] for split in ("valid", "test")}


@pytest.mark.parametrize(
    ("read", "files", "place", "splits", "examples"),
    [
        (cnn_dailymail, {"b2.story": HIGHLIGHTS, "a1.story": STORY}, ".", (), STORIES),
        (
            cnn_dailymail,
            {"b2.story": HIGHLIGHTS, "a1.story": STORY},
            "a1.story",
            (),
            STORIES[:1],
        ),
        (pubmed, TEXTS, ".", (), NUMBERED),
        (wikihowqa, RELEASED, ".", ("train", "test"), COOKING),
        (
            wikihowqa,
            RELEASED,
            "test.txt",
            (),
            [("2", "question: how to refuse context: no .", "no .")],
        ),
        (
            wikihowqa,
            ZIPPED,
            "valid.txt.gz",
            (),
            [("5", "question: question context: answer", "summary")],
        ),
        (parallel, LINES, "a.src", (), LINED),
        (conll, CONLL, ".", ("train", "dev"), MENTIONED),
        (conll, CONLL, "valid.bio", (), [(None, "none", {})]),
        (parallel, BOTH, ".", ("dev", "test"), [(None, "s", ("valid_trg.txt",))]),
    ],
)
def test_files_of_their_own_kind_give_splits_and_examples(
    write_lines, read, files, place, splits, examples
):
    for name, lines in files.items():
        root = write_lines(name, *lines).parents[name.count("/")]
    assert splits_at(str(root / place)) == splits
    assert [
        sides(found) for found in read(str(root / place), splits[0] if splits else None)
    ] == examples


def test_further_fields_and_places_of_examples(write_lines):
    for variants in (RNC, [["x"], ["y"]]):
        (example,) = keyphrases(
            str(write_lines("a.jsonl", SHORT | {"keyword": variants})), None
        )
        assert example.extra == ({"keyphrase_variants": RNC} if variants is RNC else {})
    source = write_lines("articles.txt.gz", "one")
    targets = write_lines("summaries.txt.gz", "A summary; with a semicolon.")
    assert list(parallel(str(source), None, targets=targets, separator="")) == [
        Example(f"{source}:1", None, "one", "A summary; with a semicolon.")
    ]


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
        (example,) = msqa(str(write_lines(name, *lines)), None)
        source = "question: who met context: The well - known Ann met Bo ."
        answers = {} if target is None else {"answers": list(target)}
        assert (*sides(example), example.extra) == ("q1", source, target, answers)


def row(read, value):
    good = [SHORT | {"keywords": ["a"]}] if read is keyphrases else []
    return (
        read,
        {"train.jsonl": [*good, value]},
        f"train.jsonl:{len(good) + 1}",
    )


def asked(**changes):
    return (
        msqa,
        {"a.json": [questions_file(question(), question(**changes))]},
        "a.json question 2",
    )


def pairs(*lines, name="valid.txt"):
    files = RELEASED | {"valid.txt": PAIRS[:1], name: lines}
    return wikihowqa, files, f"{name}:{len(lines)}"


@pytest.mark.parametrize(
    ("read", "files", "where"),
    [
        row(keyphrases, SHORT),
        row(keyphrases, {"keywords": ["a"]}),
        row(
            keyphrases,
            SHORT | {"keywords": 3},
        ),
        row(
            keyphrases,
            SHORT | {"keywords": ["a", None]},
        ),
        row(
            keyphrases,
            SHORT | {"keyword": [["a"], [1]]},
        ),
        row(
            keyphrases,
            MIDAS | {"document": "a"},
        ),
        row(keyphrases, ["a"]),
        row(
            pubmed,
            {"title": "x"},
        ),
        row(
            pubmed,
            {"text": "a", "abstract": "b"},
        ),
        row(wikihowqa, {"question": "how", "answer": "."}),
        asked(label="BIO"),
        asked(
            label=LABELS[:-1],
        ),
        asked(label=["X", *LABELS[1:]]),
        asked(
            question=...,
        ),
        asked(id=[1]),
        (
            msqa,
            {"a.json": [{"data": {}}]},
            "a.json",
        ),
        (msqa, {"a.json": ['{"data": [']}, "a.json:2"),
        pairs(PAIRS[0], "how\t99\t1"),
        pairs("how 1"),
        pairs("how\t1\tyes"),
        pairs(
            "1\tb",
            name="summary.txt",
        ),
        (
            cnn_dailymail,
            {"a.story": ["x"]},
            "a.story",
        ),
        (
            pubmed,
            TEXTS | {TEXT_11: ["x"]},
            TEXT_11,
        ),
        (parallel, {"a.src": "sss", "a.trg": "tt"}, "a.src:3"),
        (parallel, {"a.src": "s", "a.trg": "tt"}, "a.trg:2"),
        (
            parallel,
            {"a.txt": "s"},
            "a.txt",
        ),
        (
            parallel,
            {"a.src": "s"},
            "a.src",
        ),
        (
            parallel,
            {"a.src": ["s", "t\udcff"], "a.trg": "tt"},
            "a.src:2",
        ),
        (parallel, {"a.src": "s"}, "b.src"),
        (
            conll,
            {"a.conll": ["a O", "b"]},
            "a.conll:2",
        ),
        (conll, {"a.conll": ["a X-PER"]}, "a.conll:1"),
    ],
)
def test_wrong_layout_is_refused_at_its_place(
    write_lines, tmp_path, read, files, where
):
    for name, lines in files.items():
        write_lines(name, *lines)
    name = re.split("[: ]", where)[0]
    with refusing(tmp_path / where):
        list(read(str(tmp_path / GIVEN.get(name, name)), None))


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


@given(
    st.lists(st.text().filter(lambda text: "<peos>" not in text)),
    st.sampled_from([";", "|", "<sep>"]),
)
def test_phrases_are_never_empty_and_hold_no_separator(parts, separator):
    phrases = split_phrases(separator.join(parts), separator)
    assert all(phrase.strip() == phrase != "" for phrase in phrases)
    assert not any(separator in phrase for phrase in phrases)
    assert (
        " ".join(phrases).split()
        == separator.join(parts).replace(separator, " ").split()
    )


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\n\r", codec="utf-8")),
        min_size=1,
        max_size=5,
    )
)
def test_only_a_line_feed_ends_a_line(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("parallel")
    source = folder / "a.src"
    source.write_bytes("".join(f"x{line}\n" for line in lines).encode())
    (folder / "a.trg").write_bytes(b"t\n" * len(lines))
    assert len(list(parallel(str(source), None))) == len(lines)


def test_split_is_told_by_a_word_of_the_files_name(tmp_path):
    for name in ("summary.txt", "constraint.jsonl", "testament.txt", "valid2k.json"):
        (tmp_path / name).touch()
    with refusing():
        split_files(tmp_path)
    told = {
        "train": ["kp20k_training.json", "train (2).json"],
        "dev": [
            "KPTimes.valid.jsonl.gz",
            "val.txt",
            "validation-00000-of-00001.parquet",
        ],
        "test": ["kp20k_testing.json", "test_JPTimes.jsonl"],
    }
    for name in chain.from_iterable(told.values()):
        (tmp_path / name).touch()
        assert splits_at(str(tmp_path / name)) == ()
    assert {
        split: [file.name for file in files]
        for split, files in split_files(tmp_path).items()
    } == told


def test_parquet_files_of_a_hub_copy_are_read_in_their_data_folder(tmp_path):
    import pyarrow
    from pyarrow import parquet

    (tmp_path / "data").mkdir()
    for part in range(2):
        rows = [{"title": "T", "abstract": f"B{part}", "keyphrases": ["a", "b"]}]
        path = tmp_path / f"data/test-0000{part}-of-00002.parquet"
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert splits_at(str(tmp_path)) == ("test",)
    examples = list(keyphrases(str(tmp_path), "test"))
    assert [example.source for example in examples] == ["T B0", "T B1"]


def test_hub_data_set_is_read_by_name_and_split_and_one_with_a_program_refused(
    monkeypatch,
):
    def rows(location, split):
        assert (location, split) == ("abisee/cnn_dailymail:3.0.0", "test")
        yield RawRow(1, "row 1", lambda: {"article": "A", "highlights": "H", "id": "1"})

    def refuse(name, config):
        raise RuntimeError(
            "Dataset scripts are no longer supported, but found kp20k.py"
        )

    monkeypatch.setattr("datasets.get_dataset_split_names", refuse)
    for look in (lambda name: list(rows_at(name, "train")), splits_at):
        with refusing():
            look("midas/kp20k:raw")

    def unreachable(name, config):
        raise ConnectionError(
            f"Couldn't reach '{name}' on the Hub (LocalEntryNotFoundError)"
        )

    monkeypatch.setattr("datasets.get_dataset_split_names", unreachable)
    with refusing():
        splits_at("me/transcripts")
    monkeypatch.setattr(layout, "read_rows", rows)
    (example,) = cnn_dailymail("abisee/cnn_dailymail:3.0.0", "test")
    assert example.target == ("H",)


def write(*examples):
    tally = CleaningCounts()
    usual = {"where": "f:1", "id": None, "source": "s", "target": "t"}
    return list(
        cleaned([Example(**(usual | changes)) for changes in examples], tally)
    ), tally


def test_targets_are_given_out_as_they_are_with_further_fields_and_counted():
    extra = {"keyphrase_variants": [["a", "b"]]}
    several = {"target": ("a", "b"), "extra": extra}
    objects, tally = write(
        {"target": None}, {"target": ()}, {"target": ""}, several, {"target": "a. b."}
    )
    assert objects[0] == {"id": "1", "source": "s"}
    assert [item["target"] for item in objects[1:]] == [[], "", ["a", "b"], "a. b."]
    assert objects[3].items() >= extra.items()
    counts = tally.as_json()
    assert [
        counts[name] for name in ("without_target", "empty_targets", "with_variants")
    ] == [1, 2, 1]


@given(st.lists(st.sampled_from([None, "1", "2", "1-2", "a"]), max_size=12))
def test_identifiers_are_unique_and_first_come_keeps_its_own(identifiers):
    objects, tally = write(*({"id": identifier} for identifier in identifiers))
    given_out = [item["id"] for item in objects]
    assert len(set(given_out)) == len(given_out) == len(identifiers)
    wanted = [
        identifier or str(number)
        for number, identifier in enumerate(identifiers, start=1)
    ]
    changed = sum(
        ours != theirs for ours, theirs in zip(given_out, wanted, strict=True)
    )
    assert changed == tally.times["renamed"]
    assert given_out[:1] == wanted[:1]
