from pipedec_cli.data.records import Record
from pipedec_cli.data.statistics import describe_targets


def record(*segments):
    return Record("1", "s", " ".join(segments), segments, (), "data.jsonl:1")


def test_averages_are_those_of_the_papers_first_table():
    statistics = describe_targets([record("a b c", "d"), record("e f g h"), record()])
    assert statistics.examples == 3
    assert statistics.words_per_target == 8 / 3
    assert statistics.subsequences_per_target == 1
    assert statistics.words_per_subsequence == 8 / 3
    assert statistics.histogram == {0: 1, 1: 1, 2: 1}


def test_no_records_are_no_error():
    statistics = describe_targets([Record("1", "s", "t", None, (), "data.jsonl:1")])
    assert statistics.to_json() == {
        "examples": 0,
        "words_per_target": 0.0,
        "subsequences_per_target": 0.0,
        "words_per_subsequence": 0.0,
        "histogram": {},
    }
