"""Objects, and lists of objects, from text on the command line: from a file of them to a report on both decoders."""

import json
import re

import pytest

from tests.checkpoints import change, tiny_checkpoint
from tests.jobs.report.running import QUICK as REPORT
from tests.jobs.report.running import options_of
from tests.running import generated, lines_of, read_json, refused, run, write_lines

FOOD = {"enum": ["Thai", "Greek"]}
KEYS = {
    "name": {"type": "string"},
    "food": FOOD,
    "stars": {"type": "integer"},
    "open": {"type": "boolean"},
}
SCHEMA = {"properties": KEYS}
QUICK = ("--max-steps", 2, "--device", "cpu")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Both decoders after two updates, which have learnt next to nothing."""
    folder = tmp_path_factory.mktemp("fields")
    names = ("The Mill", "The Vaults", "Aromi")
    rows = [{"name": names[n % 3], "food": "Thai", "stars": n} for n in range(24)]
    texts = [f"{row['name']} has Thai food and {row['stars']} stars." for row in rows]
    pairs = zip(texts, rows, strict=True)
    write_lines(
        folder / "data.jsonl", *({"source": text, "target": row} for text, row in pairs)
    )
    (folder / "schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    place = ("-w", folder / "work")
    run(
        "segment",
        folder / "data.jsonl",
        "--level",
        "field",
        "--schema",
        folder / "schema.json",
        *place,
    )
    trained = run("train", *place, *QUICK).stderr
    assert "pipelined decoder, delay together, time_max 50" in trained
    run("train", *place, *QUICK, "--decoder", "sequential")
    return folder / "work"


def check_objects(lines, steps):
    """Each line has an object that SCHEMA allows, in at most `steps` steps."""
    for line in lines:
        assert json.loads(line["prediction"]) == line["fields"]
        assert set(line["fields"]) <= set(SCHEMA["properties"])
        assert line["fields"].get("food") in ("Thai", "Greek", None)
        assert isinstance(line["fields"].get("open"), bool | None)
        assert isinstance(line["fields"].get("stars"), int | None)
        assert line["steps"] <= steps


def test_every_line_has_an_object_that_the_schema_allows(workspace):
    told = run("generate", "-w", workspace, "--set", "time_max=6").stderr
    assert (
        "4 fields at a time" in told
        and " keys took " in told
        and "tokens a call" not in told
    )
    path = generated(workspace, "pipelined-together")
    check_objects(lines_of(path), 6)
    settings = read_json(path.with_suffix(".manifest.json"))["settings"]
    assert (settings["delay"], settings["empty_rows"]) == ("together", None)
    assert None not in [
        value for line in lines_of(path) for value in line["fields"].values()
    ]
    assert re.search("[0-9] values of fields lost: cut short", told)
    free = run(
        "generate", "-w", workspace, "--set", "time_max=6", "--text", "Aromi", "--json"
    )
    assert isinstance(json.loads(free.stdout)["fields"], dict)


def test_every_value_of_a_trained_model_has_a_confidence(workspace):
    asked = (
        "--set",
        "time_max=6",
        "--confidence",
        "--spans",
        "--text",
        "Aromi has 3 stars.",
        "--json",
    )
    line = json.loads(run("generate", "-w", workspace, *asked).stdout)
    assert line["confidence"].keys() == line["fields"].keys() == line["spans"].keys()
    assert all(0 < sure <= 1 for sure in line["confidence"].values())


def test_a_run_goes_on_with_confidences_if_it_was_begun_with_them(workspace, tmp_path):
    few = ("generate", "-w", workspace, "--set", "time_max=6", "--quiet")
    for begun in ((), ("--confidence",)):
        out = tmp_path / f"{len(begun)}.jsonl"
        run(*few, "--limit", 2, "--out", out, *begun)
        whole = lines_of(out)
        write_lines(out, whole[0])
        run(*few, "--limit", 2, "--out", out, "--resume")
        before, after = (
            [line.get("confidence") for line in lines]
            for lines in (whole, lines_of(out))
        )
        assert after == before
        assert ("confidence" in whole[1]) == bool(begun)
    asked = ("--limit", 2, "--out", tmp_path / "0.jsonl", "--resume", "--confidence")
    assert "--confidence was not given and is now true" in refused(*few, *asked)


def test_the_text_of_a_model_from_elsewhere_is_kept_where_it_is_no_object(
    workspace, tmp_path
):
    model = tiny_checkpoint(tmp_path / "elsewhere", decoder="sequential")
    change(model / "config.json", "pipedec")
    given = ("generate", "-w", workspace, "--model", model, "--quiet")
    typed = json.loads(run(*given, "--text", "Say hello.", "--json").stdout)
    assert "fields" not in typed and typed["prediction"]
    said = run(*given, "--limit", 2, "--out", tmp_path / "out.jsonl").stderr
    assert "warning: 2 of 2 texts hold no key of the schema: kept as they are" in said
    assert all(
        row["prediction"] and row["fields"] == {}
        for row in lines_of(tmp_path / "out.jsonl")
    )


def test_the_live_view_calls_rows_by_their_keys(workspace):
    shown = run(
        "generate", "-w", workspace, "--text", "Aromi", "--live", "--set", "time_max=4"
    ).stderr
    rows = re.findall(r"^ *(\w+) [✓∅✂] ", shown, re.MULTILINE)
    assert rows == ["name", "food", "stars", "open"]
    assert re.search(r"^time +1 ", shown, re.MULTILINE)
    assert "<bos>" not in shown


@pytest.mark.parametrize("place", ["typed", "in a file"])
def test_how_sure_values_are_is_refused_of_a_model_without_rows_wherever_it_is_asked_for(
    workspace, place
):
    config = workspace / "c.toml"
    config.write_text("[generate]\nconfidence = true\n", encoding="utf-8")
    asked = ("--confidence",) if place == "typed" else ("--config", config)
    said = refused(
        "generate", "-w", workspace, "--model", "sequential", "--limit", "1", *asked
    )
    assert said.startswith(
        "--confidence is for a model that writes objects, a row for each value"
    )


def test_the_plain_t5s_text_is_read_back_as_an_object(workspace):
    run("generate", "-w", workspace, "--model", "sequential", "--max-tokens", "8")
    path = generated(workspace, "sequential")
    assert all(
        json.loads(line["prediction"]) == line["fields"] for line in lines_of(path)
    )


def test_a_model_that_was_trained_for_dates_writes_dates_alone(tmp_path):
    days = [f"2026-03-{number:02}" for number in range(1, 25)]
    rows = [
        {"source": f"It came on {day}.", "target": {"the day": day}} for day in days
    ]
    place = ("-w", tmp_path / "work")
    write_lines(tmp_path / "data.jsonl", *rows)
    run(
        "segment",
        tmp_path / "data.jsonl",
        "--level",
        "field",
        "--fields",
        '"the day" date',
        *place,
    )
    run("train", *place, *QUICK)
    typed = ("--text", "It came on 2026-03-12.", "--json", "--set", "time_max=30")
    (day,) = json.loads(run("generate", *place, *typed).stdout)["fields"].values() or [
        None
    ]
    assert day is None or re.fullmatch(r"\d{4}-\d\d-\d\d", day)


@pytest.mark.slow
def test_the_report_compares_values_and_steps(workspace):
    run("report", "-w", workspace, "--compare", "sequential,exact-pipelined", *REPORT)
    content = read_json(workspace / "report" / "report.json")
    assert content["metric"] == "fields_f1"
    assert [one["name"] for one in content["entries"]] == [
        "sequential",
        "fields together",
        "exact-pipelined",
    ]
    alone, drafted = (options_of(one) for one in content["entries"][1:])
    assert alone == f"--workspace {workspace}"
    again = ("--limit", 1, "--out", workspace / "again.jsonl")
    made = run("generate", "-w", workspace, *drafted.split(), *again)
    assert "exact, drafted by 4 fields at a time" in made.stderr
    plain, pipelined, exact = (
        one["totals"]["steps_per_example"] for one in content["entries"]
    )
    assert pipelined <= 50 <= plain
    assert content["entries"][1]["settings"]["schedule"] == "together"
    assert "empty_rows" not in content["entries"][1]["settings"]
    assert [
        one["quality"].get("reliability") is None for one in content["entries"]
    ] == [True, False, True]
    shown = (workspace / "report" / "report.md").read_text(encoding="utf-8")
    assert "How sure, fields together" in shown and "area under the ROC curve" in shown
    assert "the same of 1 - forced: " in shown
    page = (workspace / "report" / "report.html").read_text(encoding="utf-8")
    assert "Confidence and truth" not in page  # all values are right
    assert (
        content["entries"][2]["text_agreement"]["equal"]
        == content["entries"][2]["text_agreement"]["of"]
    )
    assert exact


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("train", "--delay", 2, *QUICK, "--overwrite"), "--delay 2 does not apply"),
        (("generate", "--delay", 1), "delay does not apply"),
        (("generate", "--set", "empty_rows=stop"), "empty_rows does not apply"),
        (("generate", "--set", "sub_max=3"), "sub_max does not apply"),
        (("report", "--delays", "1,2"), "--delays does not apply"),
    ],
)
def test_what_does_not_go_with_fields_is_refused(workspace, command, told):
    assert told in refused(*command, "-w", workspace)


# ---- lists of objects
# -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """Both decoders after two updates, which have learnt next to nothing."""
    folder = tmp_path_factory.mktemp("lists")
    dishes = [
        [{"dish": "soup", "at": {"price": n}}, {"dish": "fish"}, {}][: n % 4]
        for n in range(24)
    ]
    rows = [{"name": f"Mill {n}", "menu": menu} for n, menu in enumerate(dishes)]
    write_lines(
        folder / "data.jsonl", *({"source": row["name"], "target": row} for row in rows)
    )
    told = run(
        "segment",
        folder / "data.jsonl",
        "--level",
        "field",
        "-w",
        folder / "work",
        "--json",
    )
    made = json.loads(told.stdout)
    assert [field["name"] for field in made["fields"]] == [
        "name",
        "menu[].dish",
        "menu[].at.price",
    ]
    assert [one["delay"] for one in made["promise"]] == [1, 2, 3]
    assert (
        made["promise"][0]["pipelined_steps"]
        < 5
        < made["promise"][0]["sequential_steps"]
    )
    trained = run("train", "-w", folder / "work", *QUICK).stderr
    assert "pipelined decoder, delay any, time_max 50" in trained
    run("train", "-w", folder / "work", *QUICK, "--decoder", "sequential")
    return folder / "work"


@pytest.mark.slow
def test_items_are_written_scored_and_shown_by_their_names(listed):
    told = run(
        "generate", "-w", listed, "--delay", 3, "--set", "time_max=9", "--live"
    ).stderr
    assert "3 fields at a time, items: Δt = 3" in told
    rows = re.findall(r"^ *(\S+) [✓∅✂] ", told, re.MULTILINE)
    assert {"name", "menu[1].dish", "menu[1].at.price"} <= {*rows}
    path = generated(listed, "pipelined-together-delay3")
    for line in lines_of(path):
        assert json.loads(line["prediction"]) == line["fields"]
        prices = [
            one.get("at", {}).get("price", 0) for one in line["fields"].get("menu", ())
        ]
        assert all(isinstance(price, int | float | None) for price in prices)
    assert (
        read_json(path.with_name(f"{path.stem}.manifest.json"))["settings"]["delay"]
        == 3
    )
    assert json.loads(run("score", path, "-w", listed, "--json").stdout)
    assert "sub_max does not apply" in refused(
        "generate", "-w", listed, "--set", "sub_max=3"
    )


@pytest.mark.slow
def test_the_report_and_its_page_and_card_know_lists(listed):
    run("report", "-w", listed, *REPORT)
    content = read_json(listed / "report" / "report.json")
    assert [one["name"] for one in content["entries"]] == [
        "sequential",
        "fields together",
    ]
    page = (listed / "report" / "report.html").read_text(encoding="utf-8")
    assert "menu[1].dish:" in page
    card = (listed / "models" / "pipelined" / "README.md").read_text(encoding="utf-8")
    assert '["name","menu[].dish","menu[].at.price"]' in card.replace(
        '", "', '","'
    ).replace("\\", "")
