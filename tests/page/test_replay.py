"""What a page holds of a report's examples: their grids to be played back, and their texts, as far as they fit."""

from dataclasses import replace

from msgspec import structs

from pipedec_cli.compare.entry import Quality
from pipedec_cli.page.examples import LENGTH, MOST, MOST_PARTS, examples, shortened
from pipedec_cli.page.page import block
from pipedec_cli.page.replay import replay
from pipedec_cli.pipeline.grid import Opening
from tests.page.reports import EXAMPLES, METHODS, objects_report, traced_report

LONG = "word " * 100_000


def test_every_decoders_grid_is_there_with_what_it_took_back_and_the_time_of_its_calls():
    data = replay(traced_report()).data
    roles = {decoder["name"]: decoder["role"] for decoder in data["decoders"]}
    assert roles == {
        "sequential": "baseline",
        "Δt = 1": "pipelined",
        "Δt = 2": "pipelined",
        "exact-source": "exact",
    }
    # 0.5 s and 1 s of ten examples, in 20 calls
    assert data["decoders"][1]["clock"] == [50.0, 50.0]
    _, ships, birds, _ = data["examples"]
    plain, own, _, exact = ships["runs"]
    assert plain == {
        "rows": [(0, True, "One\nis\nred\n.\nTwo\nare\nblue\n.\nGo\n!")],
        "steps": 11,
    }
    rows = [
        (0, True, "One\nis\nred\n."),
        (1, True, "One\nis\nred\n!"),
        (2, True, ""),
    ]
    assert own == {"rows": rows, "steps": 6}
    assert exact["steps"] == 3
    assert exact["calls"] == (3, 4, 11)
    assert exact["gone"][-1] == (3, 1, 11, "<eos>")
    assert birds["runs"][1]["cut"] == "time_max"


def test_predictions_without_a_grid_or_with_another_number_of_calls_are_not_played_back():
    report = traced_report(untraced=["Δt = 1"])
    made = report.first.quality.scored.run.predictions
    calls = tuple(range(1, made[2].steps + 1))
    odd = (
        {"steps": made[0].steps + 1},
        {"grid": ((10**9, (1,)),), "steps": 1},
        {"taken_back": ((1, 10**9, 0, 0),), "calls": calls},
        {"grid": ((0, ()),), "steps": 0},
    )
    for place, change in enumerate(odd):
        made[place] = structs.replace(made[place], **change)
    section = replay(report)
    assert "not Δt = 1: the predictions have no grid" in section.body
    names = [decoder["name"] for decoder in section.data["decoders"]]
    assert names == ["sequential", "Δt = 2", "exact-source"]
    assert {example["runs"][0] for example in section.data["examples"]} == {None}
    assert replay(traced_report(untraced=list(METHODS))) is None
    entries = [replace(entry, quality=Quality()) for entry in report.entries]
    unscored = replace(report, entries=tuple(entries))
    assert replay(unscored) is None
    assert examples(unscored) is None


def test_rows_that_are_known_to_come_begin_with_what_is_known():
    report = traced_report()
    runner = report.entries[1].runner
    vocabulary = runner.decoder.text.vocabulary
    ids = (vocabulary.index("One"), vocabulary.index("is"))
    openings = (Opening(ids), Opening(()))
    runner.method = replace(runner.method, openings=openings)
    ships = replay(report).data["examples"][1]
    first, second, third = ships["runs"][1]["rows"]
    assert first[3:] == ("One is",)
    assert second[3:] == ("",)
    assert third[3:] == ()


def test_texts_stand_beside_the_targets_with_scores_and_what_went_wrong():
    data = examples(traced_report()).data
    assert data["decoders"] == ["sequential", "Δt = 1", "Δt = 2"]
    assert data["metrics"][data["metric"]] == "ROUGE-L"
    _, ships, birds, _ = data["examples"]
    assert ships["gold"] == EXAMPLES[1][1]
    assert ships["count"] == 3
    plain, pipelined, _ = ships["runs"]
    wanted = {
        "rows": [0, 1],
        "again": [1],
        "duplicated": 1,
        "dropped": 1,
        "cut": None,
        "same": False,
    }
    assert pipelined.items() >= wanted.items()
    wanted = {
        "duplicated": 0,
        "dropped": 0,
        "same": True,
        "scores": [100.0] * 4,
    }
    assert plain.items() >= wanted.items()
    assert 0 < pipelined["scores"][data["metric"]] < 100
    wanted = {
        "cut": "time_max",
        "again": [2],
    }
    assert birds["runs"][1].items() >= wanted.items()


def test_the_pairs_of_objects_stand_beside_their_keys_though_rows_are_in_the_schemas_order():
    report = objects_report()
    section = examples(report)
    (example,) = section.data["examples"]
    _, run = example["runs"]
    wanted = {
        "rows": [0, 2, 1],
        "mistaken": [0],
        "wrong": 1,
    }
    assert run.items() >= wanted.items()
    for each in (section, replay(report)):
        assert each.data["part"] == "field"
        assert "subsequence" not in each.body


def test_a_text_in_other_words_than_the_target_is_not_called_wrong():
    for example in examples(traced_report()).data["examples"]:
        for run in example["runs"]:
            assert run["wrong"] == 0


def test_what_is_too_long_is_shortened_and_says_by_how_much():
    assert shortened("a b c", 5) == "a b c"
    assert shortened("x" * 2000, 10) == "x" * 10 + " … 1,990 more characters"
    target = ["w " * 900, *["v"] * 60]
    (told,) = examples(traced_report([(LONG, target, ["w"])])).data["examples"]
    assert told["source"].endswith(f"… {len(LONG) - LENGTH:,} more characters")
    assert told["gold"][0].endswith("more characters")
    assert (len(told["gold"]), told["count"]) == (MOST_PARTS, 61)
    plain = told["runs"][0]
    assert len(plain["texts"]) + plain["left"] == 61


def test_the_first_hundred_examples_are_shown():
    row = ("a source of some length " * 199, ["a b ."], ["a b ."])
    section = examples(traced_report([row] * (MOST + 1), ["sequential"]))
    assert f"The first {MOST} of {MOST + 1} examples." in section.body
    ids = [example["id"] for example in section.data["examples"]]
    assert ids == [f"e{number}" for number in range(MOST)]


def test_whatever_a_text_holds_an_example_has_a_bound():
    parts = ["x" * 9 * LENGTH] * MOST_PARTS
    section = examples(traced_report([(LONG, parts, parts)], ["sequential", "Δt = 1"]))
    assert len(block(section.data["examples"])) < 8 * LENGTH


def test_a_grid_that_is_too_long_is_not_replayed_and_that_is_said(monkeypatch):
    monkeypatch.setattr("pipedec_cli.page.replay.LONGEST", 10)
    section = replay(traced_report(names=["sequential"]))
    assert [example["at"] for example in section.data["examples"]] == [0, 2, 3]
    assert "3 examples of 4" in section.body and "more than 10 tokens" in section.body
