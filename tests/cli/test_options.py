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

#: All fields of the settings of all commands.
MOST_SETTINGS = 160
TO_A_FOLDER = ("segment x --out", "train --out", "report --out", "demo --out")
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


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("segment x --level word", "'--level': 'word' is not sentence, phrase, clause"),
        ("generate --nonsense", "No such option: --nonsense"),
        ("generate --data x", "--data. That is an argument: leave --data out"),
        ("train --epochs many", "'--epochs': 'many' is not a number from 0.001 to"),
        ("train --epochs 0", "'0' is not a number from 0.001 to 1,000,000,000"),
        ("train --learning-rate 1e99", "is not a number from 0 to 1,000,000,000"),
        ("train --learning-rate nan", "is not a number from 0 to 1,000,000,000"),
        ("train --seed -1", "is not a whole number from 0 to 4,294,967,295"),
        (f"train --delay {10**20}", "from 1 to 1,000,000 or any"),
        (f"generate --delay {10**20}", "from 1 to 1,000,000 or wait"),
        (f"generate --delay 1{'0' * 5000}", "from 1 to 1,000,000 or wait"),
        ("generate --batch-size 1000001", "from 1 to 1,000,000 or auto"),
        ("generate --shots :4", "'--shots': ':4' is not a file and how many"),
        ("train --batch-size 1000001", "is not a whole number from 1 to 1,000,000"),
        (f"generate --limit {10**20}", "is not a whole number from 1 to"),
        (f"report --delays 1,{10**20}", "from 1 to 1,000,000 or wait"),
        ("bench --subsequences 1000000 --tokens 12", "from 1 to 1,000"),
        ("generate --max-source-tokens 65537", "'--max-source-tokens'"),
        (
            "generate --fields a --schema b.json",
            "'--fields': give either --fields or --schema, once",
        ),
        ("generate --device cuda:x", "is not auto, cpu, cuda or cuda:N"),
        ("segment", "Missing argument"),
        ("nonsense", "No such command 'nonsense'; see `pipedec"),
        ("segmnt", "No such command 'segmnt'. Did you mean 'segment'? see `pipedec"),
        *((f"{each} -", "'--out': - is standard output") for each in TO_A_FOLDER),
        ("report -w -", "'--workspace': - is standard output"),
        ("score -", "'predictions': - is standard input, which is not read here"),
        ("--nonsense", "No such option: --nonsense. The options of a command stand"),
        ("segment x '--set'", "Got unexpected extra argument(s) ('--set')"),
        ("generate --delay", "Option '--delay' requires an argument"),
        # What is gone says what to do instead.
        ("segment x --recipe msqa", "No such option: --recipe; give the file that"),
        ("serve --grace 3", "No such option: --grace; it is 30 seconds"),
        ("train --set family=llama", "no key 'family'; name it with the model"),
        # Keys
        ("segment x --set held_out", "'held_out' is not KEY=VALUE"),
        ("segment x --set nonsense=1", "no key 'nonsense'; the keys are held_out"),
        ("segment x --set level=phrase", "no key 'level'; write --level instead"),
        ("segment x --set held_out=2", "held_out: '2' is not a number from 0 to 1"),
        ("segment x --set held_out=nan", "held_out: 'nan' is not a number from 0 to 1"),
        ("segment x --set held_out=a\0b", "cannot be used"),
    ],
)
def test_what_is_wrong_with_an_option_is_said_in_one_line(line, told):
    result = run(*line.split(" "), exit_code=2)
    assert told in result.stderr
    assert result.stderr.count("\n") == 1
    assert "--help" in result.stderr


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "no such file"),
        ("delay =", "not a TOML file"),
        ("[generate]\nnon-sense = 1\n", "setting 'non-sense' for `pipedec generate`"),
        ("[generate]\nepochs = 1\n", "setting 'epochs' for `pipedec generate`"),
        ("non-sense = 1\n", "unknown setting 'non-sense' for any command"),
        ("config = 'c.toml'\n", "unknown setting 'config' for any command"),
        ("[Generate]\ndelay = 1\n", "[Generate] is no table of pipedec"),
        ("recipe = 'msqa'\n", "give the file that ships with pipedec"),
    ],
)
def test_a_config_file_that_does_not_fit_is_refused(content, told):
    if content is not None:
        Path("c.toml").write_text(content, encoding="utf-8")
    said = refused("generate", "--config", "c.toml")
    assert said.startswith("c.toml: ") and told in said


@pytest.mark.parametrize(
    ("command", "setting"),
    [
        ("segment none.jsonl", 'dev = "a\\u0000b"'),
        ("segment none.jsonl", "limit = 10000000000000000000000"),
        ("segment none.jsonl", "limit = true"),
        ("segment none.jsonl", '[segment]\nheld-out = "many"'),
        ("segment none.jsonl", "held-out = nan"),
        ("segment none.jsonl", "level = 2024-01-01"),
        ("generate", f"batch-size = {10**20}"),
        ("report", f"delays = [1, {10**20}]"),
        ("train", "epochs = inf"),
        ("report", "split = 0"),
        ("report", "batch-sizes = [[]]"),
        ("report", "split = []"),
        ("report", "[report]\ndelays = {a = 1}"),
    ],
)
def test_what_is_no_value_of_an_option_is_refused_in_a_config_file_too(
    command, setting
):
    Path("c.toml").write_text(setting, encoding="utf-8")
    result = run(*command.split(), "--config", "c.toml", exit_code=2)
    assert result.stderr.startswith("error: Invalid value for ")
    assert "(in c.toml)" in result.stderr
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
    told = refused("score", "--out", "c.toml", "--config", "c.toml")
    assert told == "c.toml: would be written over; name another file"
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
    said = refused("score", "out.jsonl", *typed)
    assert "summarization has no protocol 'chan2019'; choose from rouge" in said


def test_own_data_segmented_with_a_recipe_are_scored_as_it_says():
    """Phrases alone would be taken for keyphrases."""
    rows = ({"source": f"q {n}", "target": "x; y"} for n in range(20))
    write_lines("own.jsonl", *rows)
    line = {"id": "a", "prediction": "x; y", "segments": ["x", "y"], "steps": 3}
    line |= {"truncated": None, "seconds": 0.1, "source": "q", "tokens": 4}
    write_lines("out.jsonl", {**line, "target": ["x", "y"]})
    run("segment", "own.jsonl", "--config", "msqa")
    why = "task: multispan, since the workspace's data were segmented with the recipe msqa"
    assert why in run("score", "out.jsonl").stderr.replace("\n", " ")


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
