"""`pipedec recipes`, as a user runs it."""

import json
from functools import partial

from pipedec_cli.data.paper import RECIPES
from tests.terminal import running
from tests.terminal.running import refused

run = partial(running.run, "recipes")


def test_list_shows_each_data_set_with_both_backbones():
    result = run()
    lines = result.stdout.splitlines()
    for name in set(RECIPES) - {"paper"}:
        for backbone in ("T5-Base", "T5-Large"):
            assert any(name in line and backbone in line for line in lines)
    assert "present F1@5 33.7 → 27.8" in result.stdout
    assert "1,714 → 1,634" in result.stdout
    assert result.stderr == ""


def test_one_recipe_shows_its_figures_by_delay_and_its_options_and_the_general_one_has_no_figures():
    output = run("wikihowqa").stdout
    figures = (
        "Δt 2",
        "Figure 4: 1.8× at 2 target subsequences, 5.1× at 9",
        "pipedec segment: level sentence",
    )
    trained = "pipedec train: delay 1, batch_size 24, optimizer adamw, learning_rate 0.0001"
    assert all(shown in output for shown in (*figures, trained))
    general = run("paper").stdout
    assert "batch 24" in general and "speedup" not in general
    # memory that the paper's text lacks is said to be not available
    for name in ("wikihowqa", "cnn_dailymail", "pubmed"):
        assert run(name).stdout.count("not available") == 2
    assert "not available" not in run("msqa").stdout


def test_narrow_terminal_keeps_every_figure():
    output = run("msqa", columns=60).stdout
    assert all(part in output for part in ("72.3", "71.5", "1.7×", "1,802", "1,798"))


def test_json_holds_options_and_figures():
    (entry,) = json.loads(run("kptimes", "--json").stdout)
    assert (entry["title"], entry["level"], entry["separators"]) == ("KPTimes", "phrase", [";"])
    assert (entry["delay"], entry["training"]["optimizer"]) == (1, "AdamW")
    assert entry["options"]["score"] == {"task": "keyphrases", "protocol": "chan2019"}
    base, large = entry["paper"]["results"]
    assert (base["backbone"], base["speedup"], large["speedup"]) == ("T5-Base", 2.5, 2.4)
    assert entry["paper"]["target_lengths"]["subsequences_per_target"] == 5.0
    assert [item["name"] for item in json.loads(run("--json").stdout)] == list(RECIPES)


def test_unknown_recipe_is_refused():
    assert "the recipes are paper, msqa" in refused("recipes", "squad")
