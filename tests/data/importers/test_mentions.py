"""Named entities in CoNLL's layout: what comes of a sentence, and what is refused where."""

from pathlib import Path

import pytest

from pipedec_cli.data.importers.mentions import conll
from pipedec_cli.data.workspace import load_segmentation
from tests.data.importers.reading import check_files, check_refused
from tests.running import lines_of, run
from tests.words import same_words

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


@pytest.mark.parametrize(
    ("place", "splits", "examples"),
    [
        (".", ("train", "dev"), MENTIONED),
        ("valid.bio", (), [(None, "none", {})]),
    ],
)
def test_files_give_splits_and_examples(write_lines, place, splits, examples):
    check_files(write_lines, conll, CONLL, place, splits, examples)


@pytest.mark.parametrize(
    ("lines", "where"), [(["a O", "b"], "a.conll:2"), (["a X-PER"], "a.conll:1")]
)
def test_wrong_line_is_refused_at_its_place(write_lines, tmp_path, lines, where):
    check_refused(write_lines, tmp_path, conll, {"a.conll": lines}, where)


def test_tagged_tokens_become_objects_that_segment_takes(empty_folder):
    tagged = "Ann\tB-PER\nof\tO\nX{}\tB-ORG\nand\tO\nY\tB-ORG\n\n"
    Path("ner.conll").write_text("".join(map(tagged.format, range(9))))
    same_words(run("import", "conll", "ner.conll").stderr)
    assert lines_of("conll.jsonl")[0]["target"] == {"PER": ["Ann"], "ORG": ["X0", "Y"]}
    run("segment", "conll.jsonl", "--level", "field")
    fields = load_segmentation(Path("pipedec-workspace/data/segmentation.json")).fields
    assert [(field.name, field.kind) for field in fields] == [
        ("PER", "list"),
        ("ORG", "list"),
    ]
