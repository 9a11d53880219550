"""The paper's settings, by data set and by command."""

import json

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers import IMPORTERS
from pipedec_cli.data.paper import TARGET_LENGTHS
from pipedec_cli.data.recipes import RECIPES, recipe


def test_recipes_are_the_general_one_and_the_papers_six_data_sets():
    assert list(RECIPES) == ["paper", *TARGET_LENGTHS]
    assert all(entry.name == name for name, entry in RECIPES.items())


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_the_papers_settings(name):
    entry = recipe(name)
    assert (entry.delay, entry.time_max, entry.sub_max) == (1, 50, 20)
    training = entry.training
    assert (training.batch_size, training.learning_rate, training.epochs) == (24, 1e-4, 10)
    assert (training.optimizer, training.max_source_tokens) == ("AdamW", 2048)


@pytest.mark.parametrize("name", ["msqa", "kp20k", "kptimes"])
def test_phrase_data_are_split_and_joined_at_semicolons(name):
    assert recipe(name).settings_for("segment") == {
        "level": "phrase",
        "separator": [";"],
        "joiner": "; ",
        "time_max": 50,
        "sub_max": 20,
    }


@pytest.mark.parametrize("name", ["wikihowqa", "cnn_dailymail", "pubmed"])
def test_sentence_data_have_no_separator(name):
    settings = recipe(name).settings_for("segment")
    assert (settings["level"], settings["joiner"]) == ("sentence", " ")
    assert "separator" not in settings


@pytest.mark.parametrize(
    ("name", "task", "protocol"),
    [
        ("msqa", "multispan", "multispanqa"),
        ("kp20k", "keyphrases", "chan2019"),
        ("kptimes", "keyphrases", "chan2019"),
        ("wikihowqa", "summarization", "rouge"),
        ("cnn_dailymail", "summarization", "rouge"),
        ("pubmed", "summarization", "rouge"),
    ],
)
def test_recipe_chooses_the_metrics_of_its_data(name, task, protocol):
    assert recipe(name).settings_for("score") == {"task": task, "protocol": protocol}
    assert recipe(name).settings_for("report") == {"task": task, "protocol": protocol, "delays": "1"}


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "paper"])
def test_level_of_a_recipe_is_the_level_of_its_importer(name):
    assert recipe(name).level == IMPORTERS[name].level
    assert recipe(name).title == IMPORTERS[name].title


def test_training_settings_go_by_the_names_of_the_options():
    assert recipe("paper").settings_for("train") == {
        "delay": "1",
        "batch_size": 24,
        "optimizer": "adamw",
        "learning_rate": 1e-4,
        "epochs": 10,
        "max_source_tokens": 2048,
        "time_max": 50,
    }


def test_general_recipe_leaves_level_and_metrics_to_the_data():
    assert recipe("paper").settings_for("segment") == {"time_max": 50, "sub_max": 20}
    assert recipe("paper").settings_for("score") == {}
    assert recipe("paper").settings_for("report") == {"delays": "1"}


def test_commands_that_no_recipe_speaks_to_get_nothing():
    assert recipe("msqa").settings_for("demo") == {}


def test_unknown_recipe_is_refused_with_the_names_that_there_are():
    with pytest.raises(UserError, match="no recipe is called 'squad'; the recipes are paper, msqa, kp20k"):
        recipe("squad")


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_is_plain_json(name):
    assert json.loads(json.dumps(recipe(name).as_json()))["training"]["batch_size"] == 24
