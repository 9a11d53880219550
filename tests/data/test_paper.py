"""The paper's figures as data, consistent with what its text says of them, and its settings by data set and command."""

from typing import get_args

import pytest

from pipedec_cli.data import paper
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.importers import IMPORTERS
from pipedec_cli.data.paper import RECIPES, TARGET_LENGTHS, paper_figures, recipe

BACKBONES = get_args(paper.Backbone)
SUMMARIES = ("wikihowqa", "cnn_dailymail", "pubmed")


def results(dataset):
    return [paper_figures(dataset, backbone).row for backbone in BACKBONES]


@pytest.mark.parametrize("dataset", TARGET_LENGTHS)
def test_main_results_have_known_metrics_less_memory_and_the_ratio_of_the_throughputs_as_speedup(
    dataset,
):
    for row in results(dataset):
        sequential, pipelined = row.sequential, row.pipelined
        assert (
            set(sequential.quality)
            == set(pipelined.quality)
            <= set(paper.METRIC_TITLES)
        )
        if dataset in SUMMARIES:  # the paper's text at hand has none
            assert sequential.memory_mb is pipelined.memory_mb is None
        else:
            assert pipelined.memory_mb < sequential.memory_mb
        # A throughput is printed with one decimal, so each may be off by 0.05.
        slowest = (pipelined.throughput - 0.05) / (sequential.throughput + 0.05)
        fastest = (pipelined.throughput + 0.05) / (sequential.throughput - 0.05)
        assert slowest - 0.05 <= row.speedup <= fastest + 0.05
    lengths = TARGET_LENGTHS[dataset]
    product = lengths.subsequences_per_target * lengths.words_per_subsequence
    assert lengths.words_per_target == pytest.approx(product, rel=0.02)


@pytest.mark.parametrize("dataset", SUMMARIES)
def test_results_by_delay_begin_with_the_main_result_and_speedup_rises_with_the_subsequences(
    dataset,
):
    figures = paper_figures(dataset)
    rows, main = figures.delays, figures.row.pipelined
    assert [row.delay for row in rows] == [1, 2, 3]
    assert (rows[0].quality, rows[0].throughput) == (main.quality, main.throughput)
    assert sorted((row.throughput for row in rows), reverse=True) == [
        row.throughput for row in rows
    ]
    assert figures.curve.at_2 < figures.curve.at_9
    assert (paper_figures("inspec"), paper_figures("msqa").delays) == (None, ())


PHRASE, SENTENCE = {"level": "phrase"}, {"level": "sentence"}
SUMMARY, KEYPHRASES = {"task": "summarization"}, {"task": "keyphrases"}
SETTINGS = {
    "paper": ({}, {}),
    "msqa": (PHRASE, {"task": "multispan"}),
    **dict.fromkeys(("kp20k", "kptimes"), (PHRASE, KEYPHRASES)),
    **dict.fromkeys(SUMMARIES, (SENTENCE, SUMMARY)),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_recipe_gives_each_command_the_papers_settings_by_the_names_of_its_options(
    name,
):
    assert (recipe(name, "segment"), recipe(name, "score")) == SETTINGS[name]
    assert recipe(name, "train") == {
        "delay": 1,
        "batch_size": 24,
        "optimizer": "adamw",
        "learning_rate": 1e-4,
        "epochs": 10,
        "max_source_tokens": 2048,
        "time_max": 50,
        "keep": "last",
    }
    assert recipe(name, "generate") == recipe(name, "report") == {}


def test_recipes_are_the_general_one_and_the_papers_data_sets_with_the_levels_of_their_importers():
    assert list(RECIPES) == ["paper", *TARGET_LENGTHS, "fields"]
    trained = recipe("paper", "train")
    assert (
        trained.pop("delay")
        and trained.pop("keep")
        and recipe("fields", "train") == trained
    )
    for name in TARGET_LENGTHS:
        assert recipe(name, "segment")["level"] == IMPORTERS[name][0]
    with pytest.raises(
        UserError,
        match="no recipe is called 'squad'; the recipes are paper, msqa, kp20k",
    ):
        recipe("squad", "train")
