"""The paper's settings, by data set and by command."""

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers import IMPORTERS
from pipedec_cli.data.paper import RECIPES, TARGET_LENGTHS, recipe

GRID = {"time_max": 50, "sub_max": 20}
PHRASE = {"level": "phrase", "separator": [";"], "joiner": "; ", **GRID}
SENTENCE = {"level": "sentence", "joiner": " ", **GRID}
SUMMARIES = {"task": "summarization", "protocol": "rouge"}
KEYPHRASES = {"task": "keyphrases", "protocol": "chan2019"}
CASES = {
    "paper": (GRID, {}),
    "msqa": (PHRASE, {"task": "multispan", "protocol": "multispanqa"}),
    "kp20k": (PHRASE, KEYPHRASES),
    "kptimes": (PHRASE, KEYPHRASES),
    "wikihowqa": (SENTENCE, SUMMARIES),
    "cnn_dailymail": (SENTENCE, SUMMARIES),
    "pubmed": (SENTENCE, SUMMARIES),
}


def test_recipes_are_the_general_one_and_the_papers_six_data_sets():
    assert list(RECIPES) == ["paper", *TARGET_LENGTHS]
    assert all(entry.name == name for name, entry in RECIPES.items())


@pytest.mark.parametrize("name", CASES)
def test_recipe_gives_each_command_the_papers_settings_by_the_names_of_its_options(name):
    segment, score = CASES[name]
    settings_for = recipe(name).settings_for
    assert settings_for("segment") == segment
    assert settings_for("train") == {
        "delay": "1",
        "batch_size": 24,
        "optimizer": "adamw",
        "learning_rate": 1e-4,
        "epochs": 10,
        "max_source_tokens": 2048,
        "time_max": 50,
    }
    assert settings_for("generate") == {"delay": "1", **GRID}
    assert settings_for("score") == score
    assert settings_for("report") == {"delays": "1", **score}
    assert settings_for("demo") == {}


@pytest.mark.parametrize("name", TARGET_LENGTHS)
def test_level_of_a_recipe_is_the_level_of_its_importer(name):
    assert recipe(name).settings_for("segment")["level"] == IMPORTERS[name].level


def test_unknown_recipe_is_refused_with_the_names_that_there_are():
    with pytest.raises(UserError, match="no recipe is called 'squad'; the recipes are paper, msqa, kp20k"):
        recipe("squad")
