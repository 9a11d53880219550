"""Lists of objects on the command line: read off the targets, trained, written, scored, shown and reported."""

import json
import re

import pytest

from tests.running import lines_of, read_json, refused, run, write_lines

QUICK = ("--max-steps", 2, "--set", "evaluations=1", "--device", "cpu")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Both decoders after two updates, which have learnt next to nothing."""
    folder = tmp_path_factory.mktemp("lists")
    rows = [
        {
            "source": f"{n} dishes",
            "target": {
                "name": f"Mill {n}",
                "menu": [{"dish": "soup", "at": {"price": n}}, {"dish": "fish"}, {}][: n % 4],
            },
        }
        for n in range(24)
    ]
    write_lines(folder / "data.jsonl", *rows)
    told = run("segment", folder / "data.jsonl", "--level", "field", "-w", folder / "work", "--json")
    made = json.loads(told.stdout)
    assert [field["name"] for field in made["fields"]] == ["name", "menu[].dish", "menu[].at.price"]
    assert [one["delay"] for one in made["promise"]] == [1, 2, 3]
    assert made["promise"][0]["pipelined_steps"] < 5 < made["promise"][0]["sequential_steps"]
    trained = run("train", "-w", folder / "work", *QUICK).stderr
    assert "pipelined decoder, delay any, time_max 50" in trained
    run("train", "-w", folder / "work", *QUICK, "--decoder", "sequential")
    return folder / "work"


def test_items_are_written_scored_and_shown_by_their_names(workspace):
    told = run("generate", "-w", workspace, "--delay", 3, "--set", "time_max=9", "--live").stderr
    assert "3 fields at a time, items: Δt = 3" in told
    rows = re.findall(r"^ *(\S+) [✓∅✂] ", told, re.MULTILINE)
    assert {"name", "menu[1].dish", "menu[1].at.price"} <= {*rows}
    (path,) = (workspace / "generations").glob("pipelined-together-delay3-timemax9.jsonl")
    for line in lines_of(path):
        assert json.loads(line["prediction"]) == line["fields"]
        assert all(
            isinstance(one.get("at", {}).get("price", 0), int | float | None)
            for one in line["fields"].get("menu", ())
        )
    assert read_json(path.with_name(f"{path.stem}.manifest.json"))["settings"]["delay"] == 3
    scored = run("score", path, "-w", workspace, "--json")
    assert json.loads(scored.stdout)
    assert "sub_max does not apply" in refused("generate", "-w", workspace, "--set", "sub_max=3")


def test_the_report_and_its_page_and_card_know_lists(workspace):
    few = ("timing_examples=2", "repeats=1", "memory=false")
    run("report", "-w", workspace, *(word for key in few for word in ("--set", key)))
    content = read_json(workspace / "report" / "report.json")
    assert [one["name"] for one in content["entries"]] == ["sequential", "fields together"]
    page = (workspace / "report" / "report.html").read_text(encoding="utf-8")
    assert "menu[1].dish:" in page
    card = (workspace / "models" / "pipelined" / "README.md").read_text(encoding="utf-8")
    assert '["name","menu[].dish","menu[].at.price"]' in card.replace('", "', '","').replace("\\", "")
