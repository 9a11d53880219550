"""Objects, and lists of objects, from text on the command line: from a file of them to a report on both decoders."""

import json
import re
import shutil

import pytest

import pipedec_cli as pipedec
from tests.checkpoints import change, tiny_checkpoint
from tests.jobs.report.running import QUICK as REPORT
from tests.jobs.report.running import options_of
from tests.running import (
    generated,
    lines_of,
    read_json,
    refused,
    run,
    write_lines,
)
from tests.words import refusing

SCHEMA = {
    "properties": {
        "name": {"type": "string"},
        "food": {"enum": ["Thai", "Greek"]},
        "stars": {"type": "integer"},
        "open": {"type": "boolean"},
    }
}
QUICK = ("--max-steps", 2, "--device", "cpu")
FEW = ("--set", "time_max=6")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Both decoders after two updates, which have learnt next to nothing."""
    folder = tmp_path_factory.mktemp("fields")
    rows = []
    for stars in range(24):
        name = ("The Mill", "The Vaults", "Aromi")[stars % 3]
        source = f"{name} has Thai food and {stars} stars."
        target = {"name": name, "food": "Thai", "stars": stars}
        rows.append({"source": source, "target": target})
    data = write_lines(folder / "data.jsonl", *rows)
    schema = folder / "schema.json"
    schema.write_text(json.dumps(SCHEMA), encoding="utf-8")
    place = ("-w", folder / "work")
    run("segment", data, "--level", "field", "--schema", schema, *place)
    trained = run("train", *place, *QUICK).stderr
    assert "pipelined decoder, delay together, time_max 50" in trained
    run("train", *place, *QUICK, "--decoder", "sequential")
    return folder / "work"


def check_objects(lines, steps):
    """Each line has an object that SCHEMA allows, in at most `steps` steps."""
    for line in lines:
        fields = line["fields"]
        assert json.loads(line["prediction"]) == fields
        assert set(fields) <= set(SCHEMA["properties"])
        assert fields.get("food") in ("Thai", "Greek", None)
        assert isinstance(fields.get("open"), bool | None)
        assert isinstance(fields.get("stars"), int | None)
        assert line["steps"] <= steps


def test_every_line_has_an_object_that_the_schema_allows(workspace):
    told = run("generate", "-w", workspace, *FEW).stderr
    assert "4 fields at a time" in told and " keys took " in told
    assert "tokens a call" not in told
    assert re.search("[0-9] values of fields lost: cut short", told)
    path = generated(workspace, "pipelined-together")
    lines = lines_of(path)
    check_objects(lines, 6)
    assert not any(None in line["fields"].values() for line in lines)
    settings = read_json(path.with_suffix(".manifest.json"))["settings"]
    assert (settings["delay"], settings["empty_rows"]) == ("together", None)


def test_every_value_of_a_trained_model_has_a_confidence(workspace):
    text = ("--text", "Aromi has 3 stars.", "--json")
    asked = ("generate", "-w", workspace, *FEW, "--confidence", "--spans", *text)
    line = json.loads(run(*asked).stdout)
    keys = line["fields"].keys()
    assert keys == line["confidence"].keys() == line["spans"].keys()
    assert all(0 < sure <= 1 for sure in line["confidence"].values())
    shares = line["probabilities"]
    assert {*shares["food"]} == {"Thai", "Greek", ""}
    assert line["fields"].get("food", "") == max(shares["food"], key=shares["food"].get)


@pytest.mark.parametrize("begun", [(), ("--confidence",)])
def test_a_run_goes_on_with_confidences_if_it_was_begun_with_them(
    workspace, tmp_path, begun
):
    out = tmp_path / "out.jsonl"
    few = ("generate", "-w", workspace, *FEW, "--quiet", "--limit", 2, "--out", out)
    run(*few, *begun)
    before = [line.get("confidence") for line in lines_of(out)]
    write_lines(out, lines_of(out)[0])
    run(*few, "--resume")
    assert [line.get("confidence") for line in lines_of(out)] == before
    assert (before[1] is not None) == bool(begun)
    if not begun:
        refused(*few, "--resume", "--confidence")


def test_from_python_a_trained_model_gives_what_generate_writes(workspace):
    model = workspace / "models" / "pipelined"
    texts = ["Aromi has 3 stars.", "The Mill has Thai food."]
    for grounded, flag in ((None, ()), (True, ("--grounded",))):
        results = pipedec.extract(
            texts, SCHEMA, model=model, grounded=grounded, batch_size=2
        )
        for made, text in zip(results, texts, strict=True):
            asked = ("--model", model, "--text", text, "--confidence", *flag)
            line = json.loads(run("generate", *asked, "--json").stdout)
            assert (made.value, made.confidence) == (line["fields"], line["confidence"])
            told = pytest.approx(line["probabilities"]["food"], rel=1e-3)
            assert made.probabilities["food"] == told
            assert made.truncated == line.get("truncated")
    shown = workspace.parent / "data.jsonl"
    for schema, more in (("name, food", {}), (SCHEMA, {"shots": f"{shown}:1"})):
        with refusing():
            pipedec.extract(texts, schema, model=model, **more)


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
    for row in lines_of(tmp_path / "out.jsonl"):
        assert row["prediction"] and row["fields"] == {}


def test_the_live_view_calls_rows_by_their_keys(workspace):
    few = ("--set", "time_max=4", "--text", "Aromi", "--live")
    shown = run("generate", "-w", workspace, *few).stderr
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
    plain = ("-w", workspace, "--model", "sequential", "--limit", "1")
    said = refused("generate", *plain, *asked)
    assert said.startswith("--confidence is for a model that writes objects")


def test_the_plain_t5s_text_is_read_back_as_an_object(workspace):
    run("generate", "-w", workspace, "--model", "sequential", "--max-tokens", "8")
    for line in lines_of(generated(workspace, "sequential")):
        assert json.loads(line["prediction"]) == line["fields"]


def test_a_model_that_was_trained_for_dates_writes_dates_alone(tmp_path):
    rows = []
    for number in range(1, 25):
        day = f"2026-03-{number:02}"
        rows.append({"source": f"It came on {day}.", "target": {"the day": day}})
    data = write_lines(tmp_path / "data.jsonl", *rows)
    place = ("-w", tmp_path / "work")
    run("segment", data, "--level", "field", "--fields", '"the day" date', *place)
    run("train", *place, *QUICK)
    typed = ("--text", "It came on 2026-03-12.", "--json", "--set", "time_max=30")
    told = run("generate", *place, *typed).stdout
    fields = json.loads(told)["fields"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", fields.get("the day") or "2026-03-12")


@pytest.mark.slow
def test_the_report_compares_values_and_steps(workspace, tmp_path, page_of):
    # A model that has learnt enough to give values.
    workspace = shutil.copytree(workspace, tmp_path / "work")
    run("train", "-w", workspace, *QUICK, "--max-steps", 60, "--overwrite")
    run("report", "-w", workspace, "--compare", "sequential,exact-pipelined", *REPORT)
    content = read_json(workspace / "report" / "report.json")
    assert content["metric"] == "fields_f1"
    plain, pipelined, exact = content["entries"]
    names = [entry["name"] for entry in content["entries"]]
    assert names == ["sequential", "fields together", "exact-pipelined"]
    assert options_of(pipelined) == f"--workspace {workspace}"
    again = ("--limit", 1, "--out", workspace / "again.jsonl")
    options = options_of(exact).split()
    told = run("generate", "-w", workspace, *options, *again).stderr
    assert "exact, drafted by 4 fields at a time" in told
    steps = [entry["totals"]["steps_per_example"] for entry in (plain, pipelined)]
    assert steps[1] <= 50 <= steps[0]
    assert pipelined["settings"]["schedule"] == "together"
    assert "empty_rows" not in pipelined["settings"]
    sure = ["reliability" in entry["quality"] for entry in content["entries"]]
    assert exact["text_agreement"]["equal"] == exact["text_agreement"]["of"]
    assert sure == [False, True, False]
    shown = (workspace / "report" / "report.md").read_text(encoding="utf-8")
    assert "How sure, fields together" in shown and "area under the ROC curve" in shown
    assert "the same of 1 - forced: " in shown
    page = page_of(workspace / "report" / "report.html")
    # The plot is there where some values are right and some are wrong.
    has_both = pipelined["quality"]["reliability"]["auc"] is not None
    assert ("Confidence and truth" in page) == has_both


@pytest.mark.parametrize(
    "command",
    [
        "train --delay 2 --overwrite --max-steps 2",
        "generate --delay 1",
        "generate --set empty_rows=stop",
        "generate --set sub_max=3",
        "report --delays 1,2",
    ],
)
def test_what_does_not_go_with_fields_is_refused(workspace, command):
    refused(*command.split(), "-w", workspace)


# ---- lists of objects


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """Both decoders after two updates, which have learnt next to nothing."""
    folder = tmp_path_factory.mktemp("lists")
    rows = []
    for price in range(24):
        menu = [{"dish": "soup", "at": {"price": price}}, {"dish": "fish"}, {}]
        target = {"name": f"Mill {price}", "menu": menu[: price % 4]}
        rows.append({"source": target["name"], "target": target})
    data = write_lines(folder / "data.jsonl", *rows)
    place = ("-w", folder / "work")
    told = run("segment", data, "--level", "field", *place, "--json").stdout
    made = json.loads(told)
    names = [field["name"] for field in made["fields"]]
    assert names == ["name", "menu[].dish", "menu[].at.price"]
    assert [promise["delay"] for promise in made["promise"]] == [1, 2, 3]
    first = made["promise"][0]
    assert first["pipelined_steps"] < 5 < first["sequential_steps"]
    trained = run("train", *place, *QUICK).stderr
    assert "pipelined decoder, delay any, time_max 50" in trained
    run("train", *place, *QUICK, "--decoder", "sequential")
    return folder / "work"


@pytest.mark.slow
def test_items_are_written_scored_and_shown_by_their_names(listed):
    few = ("--delay", 3, "--set", "time_max=9", "--live")
    told = run("generate", "-w", listed, *few).stderr
    assert "3 fields at a time, items: Δt = 3" in told
    rows = re.findall(r"^ *(\S+) [✓∅✂] ", told, re.MULTILINE)
    assert {"name", "menu[1].dish", "menu[1].at.price"} <= {*rows}
    path = generated(listed, "pipelined-together-delay3")
    for line in lines_of(path):
        assert json.loads(line["prediction"]) == line["fields"]
        for item in line["fields"].get("menu", ()):
            assert isinstance(item.get("at", {}).get("price"), int | float | None)
    manifest = read_json(path.with_name(f"{path.stem}.manifest.json"))
    assert manifest["settings"]["delay"] == 3
    assert json.loads(run("score", path, "-w", listed, "--json").stdout)
    told = refused("generate", "-w", listed, "--set", "sub_max=3")
    assert "sub_max does not apply" in told


@pytest.mark.slow
def test_the_report_and_its_page_and_card_know_lists(listed, page_of):
    run("report", "-w", listed, *REPORT)
    content = read_json(listed / "report" / "report.json")
    names = [entry["name"] for entry in content["entries"]]
    assert names == ["sequential", "fields together"]
    card = (listed / "models" / "pipelined" / "README.md").read_text(encoding="utf-8")
    shown = card.replace('", "', '","').replace("\\", "")
    assert '["name","menu[].dish","menu[].at.price"]' in shown
    assert "menu[1].dish:" in page_of(listed / "report" / "report.html")
