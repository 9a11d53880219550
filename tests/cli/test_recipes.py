"""`--recipe`: the paper's settings as defaults, and what is typed wins."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer

from pipedec_cli.cli.app import app
from pipedec_cli.cli.options import resolve
from pipedec_cli.data.paper import RECIPES, recipe
from pipedec_cli.jobs import generate
from tests.running import read_json, refused, run, write_lines

COMMANDS = ("segment", "train", "generate", "score", "report")
KINDS = {
    name: get_type_hints(getattr(import_module(f"pipedec_cli.cli.{name}"), name))[
        "settings"
    ]
    for name in COMMANDS
}
pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `generate` and `report` were asked for, instead of doing it."""
    requests: list[Any] = []

    def compare(settings: Any, *_: Any) -> None:
        requests.append(settings)
        raise typer.Exit

    monkeypatch.setattr(
        generate, "generate", lambda settings, *_: requests.append(settings)
    )
    monkeypatch.setattr("pipedec_cli.jobs.report.compare", compare)
    return requests


def signature(*options: str) -> str:
    """The protocol that `pipedec score` takes for a file that fits every task."""
    row = {"id": "a", "source": "a red cat", "prediction": "cat", "segments": ["cat"]}
    target = {"animal": "cat"} if "fields" in options else "cat"
    write_lines("out.jsonl", {**row, "target": target, "target_segments": ["cat"]})
    score = json.loads(run("score", "out.jsonl", "--json", *options).stdout)
    return str(score["signature"]).partition("|")[0]


@pytest.mark.parametrize("name", RECIPES)
def test_score_takes_the_protocol_of_the_recipe_and_keeps_its_name(name):
    protocol = recipe(name, "score").get("protocol") or signature()
    assert signature("--recipe", name) == protocol
    contents = [
        read_json(path) for path in Path("pipedec-workspace/scores").glob("*.json")
    ]
    assert name in [
        content["manifest"]["settings"].get("recipe") for content in contents
    ]


@pytest.mark.parametrize(
    ("options", "protocol"),
    [
        ("--recipe kp20k --protocol meng2017", "meng2017"),
        ("--protocol rouge --recipe kp20k", "rouge"),
        ("--recipe kp20k --task summarization", "rouge"),
        ("--task keyphrases --recipe kp20k", "chan2019"),
        ("--recipe kp20k --task multispan --protocol multispanqa", "multispanqa"),
        ("--config recipe.toml", "multispanqa"),
        ("--config recipe.toml --recipe pubmed", "rouge"),
        ("--config protocol.toml --recipe kptimes", "meng2017"),
        ("--recipe kptimes --config protocol.toml", "meng2017"),
    ],
)
def test_what_is_typed_wins_over_a_config_file_and_that_over_the_recipe(
    options, protocol
):
    Path("recipe.toml").write_text('[score]\nrecipe = "msqa"\n')
    Path("protocol.toml").write_text('[score]\nprotocol = "meng2017"\n')
    assert signature(*options.split()) == protocol
    typed = ("--recipe", "kp20k", "--task", "summarization", "--protocol", "chan2019")
    said = refused("score", "out.jsonl", *typed)
    assert "summarization has no protocol 'chan2019'; choose from rouge" in said


def test_report_takes_metrics_and_delay_of_the_recipe_and_generate_its_grid(
    asked, monkeypatch
):
    monkeypatch.setattr("pipedec_cli.jobs.report.find_model", lambda *_: "")
    run("report", "--recipe", "kptimes")
    run(
        "report", "--recipe", "kptimes", "--delays", "2,3", "--set", "protocol=meng2017"
    )
    run("report", "--recipe", "kptimes", "--set", "protocol=rouge")
    run("report")
    assert [(one.recipe, one.protocol, one.delays) for one in asked] == [
        ("kptimes", "chan2019", (1,)),
        ("kptimes", "meng2017", (2, 3)),
        ("kptimes", "rouge", (1,)),
        (None, None, None),
    ]
    asked.clear()
    for options in ((), ("--delay", "3", "--set", "sub_max=7")):
        run("generate", "--set", "recipe=pubmed", *options)
    assert [(one.delay, one.time_max, one.sub_max) for one in asked] == [
        (1, 50, 20),
        (3, 50, 7),
    ]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", RECIPES)
def test_file_of_a_recipe_does_as_config_what_its_name_does_as_recipe(name, command):
    def options(*arguments: str) -> dict[str, Any]:
        """The options that a command ends up with; nothing is run."""
        words = ["data.jsonl", *arguments] if command == "segment" else list(arguments)
        context = of_command.make_context(command, words)
        return vars(
            resolve(
                KINDS[command], {k: v for k, v in context.params.items() if v}, context
            )
        ).copy()

    of_command = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]
    path = RECIPES[name]
    typed = ("--set", f"recipe={name}") if command == "generate" else ("--recipe", name)
    by_name, by_file = options(*typed), options("--config", str(path))
    assert set(recipe(name, command)) <= set(by_name)
    for found in (by_name, by_file):
        for option in ("recipe", "config", "set_keys", "from_recipe"):
            found.pop(option, None)
    assert by_name == by_file


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_recipe_is_refused_with_those_there_are(command):
    unknown = "no recipe is called 'squad'; the recipes are paper, msqa"
    typed = (
        ("--set", "recipe=squad") if command == "generate" else ("--recipe", "squad")
    )
    data = ("data.jsonl",) if command == "segment" else ()
    assert unknown in refused(command, *data, *typed)


def test_own_data_segmented_with_a_recipe_are_scored_as_it_says():
    """Phrases alone would be taken for keyphrases."""
    write_lines(
        "own.jsonl", *({"source": f"q {n}", "target": "x; y"} for n in range(20))
    )
    line = {
        "id": "a",
        "prediction": "x; y",
        "segments": ["x", "y"],
        "steps": 3,
        "tokens": 4,
    }
    line |= {"truncated": None, "seconds": 0.1, "source": "q", "target": ["x", "y"]}
    write_lines("out.jsonl", line)
    run("segment", "own.jsonl", "--recipe", "msqa")
    why = "task: multispan, since the workspace's data were segmented with the recipe msqa"
    assert why in run("score", "out.jsonl").stderr.replace("\n", " ")
