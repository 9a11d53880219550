"""Settings, wherever they are given: typed, by `--set`, in a config file of the user's or one that ships with pipedec."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pipedec_cli.cli.commands import COMMANDS, MERGE
from pipedec_cli.cli.options import Command, Invocation, add
from pipedec_cli.data.paper import RECIPES, recipe
from pipedec_cli.jobs.settings import Settings, settings_of
from tests.running import read_json, refused, run, write_lines
from tests.words import same_words

#: All fields of the settings of all commands.
MOST_SETTINGS = 160
pytestmark = pytest.mark.usefixtures("empty_folder")


@dataclass
class Asked:
    """What a command was asked for."""

    settings: Any
    invocation: Invocation


def asked(name: str, *words: object, data: object = "data.jsonl") -> Asked:
    """What the command line makes of words; nothing is run."""
    found: list[Asked] = []

    def take(settings: Settings, invocation: Invocation) -> None:
        """Take settings."""
        found.append(Asked(settings, invocation))

    probed = typer.Typer()
    for command in COMMANDS:
        probe = Command(name, command.settings, take, "")
        add(probed, probe if command.name == name else command)
    needed = [data] if name == "segment" else []
    typed = [name, *map(str, (*needed, *words))]
    result = CliRunner().invoke(probed, typed, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found[0]


def test_settings_are_few():
    counts = {
        command.name: len(settings_of(command.settings))
        for command in (*COMMANDS, MERGE)
    }
    assert sum(counts.values()) <= MOST_SETTINGS, counts


#: Lines that are no use of the commands: options, values, then what is gone, then keys.
WRONG = """
segment x --level word
generate --nonsense
generate --data x
train --epochs many
train --epochs 0
train --learning-rate 1e99
train --learning-rate nan
train --seed -1
train --delay {huge}
train --delay 0
train --delay -1
train --delay two
train --delay 1.5
generate --delay {huge}
generate --delay {long}
generate --batch-size 1000001
generate --shots :4
train --batch-size 1000001
generate --limit {huge}
report --delays 1,{huge}
bench --subsequences 1000000 --tokens 12
generate --max-source-tokens 65537
generate --fields a --schema b.json
generate --device cuda:x
segment
nonsense
segmnt
segment x --out -
train --out -
report --out -
demo --out -
report -w -
score -
--nonsense
segment x '--set'
generate --delay
segment x --recipe msqa
train --set family=llama
segment x --set held_out
segment x --set nonsense=1
segment x --set level=phrase
segment x --set held_out=2
segment x --set held_out=nan
segment x --set held_out=a{nul}b
report --split dev,tset
report --split ,
report --delays 0
report --delays 1,,2
report --delays a
report --batch-sizes 1,x
"""
VALUES = {"huge": 10**20, "long": "1" + "0" * 5000, "nul": "\0"}


@pytest.mark.parametrize("line", WRONG.strip().split("\n"))
def test_what_is_wrong_with_an_option_is_said_in_one_line(line):
    result = run(*line.format(**VALUES).split(" "), exit_code=2)
    assert result.stderr.count("\n") == 1
    assert "--help" in same_words(result.stderr)


@pytest.mark.parametrize(
    "content",
    [
        None,
        "delay =",
        "[generate]\nnon-sense = 1\n",
        "[generate]\nepochs = 1\n",
        "non-sense = 1\n",
        "config = 'c.toml'\n",
        "[Generate]\ndelay = 1\n",
        "recipe = 'msqa'\n",
    ],
)
def test_a_config_file_that_does_not_fit_is_refused(content):
    if content is not None:
        Path("c.toml").write_text(content, encoding="utf-8")
    assert refused("generate", "--config", "c.toml").startswith("c.toml: ")


#: A command and the line of a config file that it cannot take.
NO_VALUES = r"""
segment none.jsonl: dev = "a\u0000b"
segment none.jsonl: limit = 10000000000000000000000
segment none.jsonl: limit = true
segment none.jsonl: segment.held-out = "many"
segment none.jsonl: held-out = nan
segment none.jsonl: level = 2024-01-01
generate: batch-size = 100000000000000000000
report: delays = [1, 100000000000000000000]
train: epochs = inf
report: split = 0
report: batch-sizes = [[]]
report: split = []
report: report.delays = {a = 1}
"""


@pytest.mark.parametrize("line", NO_VALUES.strip().split("\n"))
def test_what_is_no_value_of_an_option_is_refused_in_a_config_file_too(line):
    command, _, setting = line.partition(": ")
    Path("c.toml").write_text(setting, encoding="utf-8")
    result = run(*command.split(), "--config", "c.toml", exit_code=2)
    assert "(in c.toml)" in same_words(result.stderr)
    assert result.stderr.count("\n") == 1


def test_two_commands_share_a_config_file_whose_keys_go_to_those_that_have_them():
    keys = 'workspace = "w"\nlevel = "clause"\ndelay = 3\nlimit = 1\nepochs = 2\n'
    Path("c.toml").write_text(f"{keys}[train]\ndelay = 2\n", encoding="utf-8")
    segment = asked("segment", "--config", "c.toml").settings
    assert (segment.level, segment.workspace) == ("clause", Path("w"))
    assert asked("generate", "--config", "c.toml").settings.delay == 3
    assert asked("train", "--config", "c.toml").settings.delay == 2


def test_a_key_of_another_command_that_this_one_had_once_is_warned_of(caplog):
    write_lines("in.jsonl", *({"source": f"{n}", "target": "a"} for n in range(9)))
    Path("c.toml").write_text("sub_max = 7\n", encoding="utf-8")
    run("segment", "in.jsonl", "--config", "c.toml")
    assert "c.toml: sub_max is no setting of `pipedec segment`" in caplog.text


def test_a_config_file_is_not_written_over():
    Path("c.toml").write_text("task = 'fields'\n", encoding="utf-8")
    refused("score", "--out", "c.toml", "--config", "c.toml")
    assert Path("c.toml").read_text(encoding="utf-8") == "task = 'fields'\n"


def test_what_is_typed_wins_over_the_last_config_file_and_that_over_the_first():
    Path("c.toml").write_text(
        "[train]\nepochs = 3\n[segment]\nw = 'elsewhere'\nq = true\n", encoding="utf-8"
    )
    both = ("--config", "paper", "--config", "c.toml")
    typed = ("--set", "accumulation=2", "--epochs", "9")
    found = [asked("train", *words).settings for words in ((), both, (*both, *typed))]
    assert [settings.epochs for settings in found] == [10.0, 3.0, 9.0]
    assert [settings.delay for settings in found] == ["any", 1, 1]
    assert [settings.recipe for settings in found] == [None, "paper", "paper"]
    assert found[-1].accumulation == 2
    segment = asked("segment", "--config", "c.toml")  # by -w and -q
    assert segment.settings.workspace == Path("elsewhere")
    assert segment.invocation.quiet


def test_two_names_of_one_option_say_the_keys_or_the_file_of_a_schema():
    keys = asked("generate", "--fields", "name, age int").settings
    assert (keys.fields, keys.schema) == ("name, age int", None)
    for name in ("person.json", "person.py:Person", "/dev/null"):
        schema = asked("segment", "--schema", name).settings
        assert schema.fields == schema.schema == name


# ---- config files that ship with pipedec


@pytest.mark.parametrize("command", ["segment", "train", "generate", "score", "report"])
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_a_config_file_whose_every_key_is_a_setting(name, command):
    settings = asked(command, "--config", name).settings
    by_path = asked(command, "--config", RECIPES[name]).settings
    assert settings.recipe == name
    for key, value in recipe(name, command).items():
        assert getattr(settings, key) == getattr(by_path, key) == value


def test_a_file_of_the_name_of_a_recipe_is_taken_before_it():
    Path("paper").write_text("epochs = 2\n", encoding="utf-8")
    settings = asked("train", "--config", "paper").settings
    assert (settings.epochs, settings.recipe) == (2, None)


def signature(*options: str) -> str:
    """The protocol that `pipedec score` takes for a file that fits every task."""
    row = {"id": "a", "source": "a red cat", "prediction": "cat", "segments": ["cat"]}
    target = {"animal": "cat"} if "fields" in options else "cat"
    write_lines("out.jsonl", {**row, "target": target, "target_segments": ["cat"]})
    score = json.loads(run("score", "out.jsonl", "--json", *options).stdout)
    return str(score["signature"]).partition("|")[0]


@pytest.mark.parametrize(
    ("name", "protocol"),
    [
        ("wikihowqa", "rouge"),
        ("kp20k", "chan2019"),
        ("msqa", "multispanqa"),
        ("fields", "fields"),
    ],
)
def test_score_takes_the_task_of_a_recipe_and_keeps_its_name(name, protocol):
    assert signature("--config", name) == protocol
    (content,) = map(read_json, Path("pipedec-workspace/scores").glob("*-*.json"))
    assert content["manifest"]["settings"]["recipe"] == name


def test_a_task_or_protocol_that_is_typed_goes_with_that_of_a_recipe_or_is_refused():
    assert signature("--config", "kp20k", "--protocol", "meng2017") == "meng2017"
    assert signature("--config", "kp20k", "--task", "summarization") == "rouge"
    typed = ("--task", "summarization", "--protocol", "chan2019")
    refused("score", "out.jsonl", *typed)


def test_own_data_segmented_with_a_recipe_are_scored_as_it_says():
    """Phrases alone would be taken for keyphrases."""
    rows = ({"source": f"q {n}", "target": "x; y"} for n in range(20))
    write_lines("own.jsonl", *rows)
    line = {"id": "a", "prediction": "x; y", "segments": ["x", "y"], "steps": 3}
    line |= {"truncated": None, "seconds": 0.1, "source": "q", "tokens": 4}
    write_lines("out.jsonl", {**line, "target": ["x", "y"]})
    run("segment", "own.jsonl", "--config", "msqa")
    same_words(run("score", "out.jsonl").stderr)


# ---- completion by the shell


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("gen", "generate"),
        ("train --max-st", "--max-steps"),
        ("train --delay a", "any"),
        ("report --delays w", "wait"),
        ("segment x --config pu", "pubmed"),
        ("train --decoder s", "sequential"),
    ],
)
def test_a_shell_completes_commands_options_and_values(words, completed):
    program = "import sys; sys.argv[0] = 'pipedec'; from pipedec_cli.cli.app import main; main()"
    asked_of = {
        "_PIPEDEC_COMPLETE": "complete_bash",
        "COMP_WORDS": f"pipedec {words}",
        "COMP_CWORD": str(len(words.split())),
    }
    told = subprocess.check_output(
        [sys.executable, "-c", program], env={**os.environ, **asked_of}, text=True
    )
    assert completed in told.split()
