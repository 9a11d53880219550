"""The paper's figures as data: consistent with what its text says of them."""

from typing import get_args

import pytest

from pipedec_cli.data.paper import (
    METRIC_TITLES,
    SPEEDUP_BY_SUBSEQUENCES,
    TARGET_LENGTHS,
    Backbone,
    delay_rows,
    paper_row,
)

BACKBONES = get_args(Backbone)
SUMMARIES = ("wikihowqa", "cnn_dailymail", "pubmed")
CASES = [(dataset, backbone) for dataset in TARGET_LENGTHS for backbone in BACKBONES]


@pytest.mark.parametrize(("dataset", "backbone"), CASES)
def test_row_has_known_metrics_less_memory_and_the_ratio_of_the_throughputs_as_its_speedup(dataset, backbone):
    row = paper_row(dataset, backbone)
    sequential, pipelined = row.sequential, row.pipelined
    assert set(sequential.quality) == set(pipelined.quality) <= set(METRIC_TITLES)
    if dataset in SUMMARIES:  # the paper's text at hand has none
        assert sequential.memory_mb is pipelined.memory_mb is None
    else:
        assert pipelined.memory_mb < sequential.memory_mb
    # A throughput is printed with one decimal, so each may be off by 0.05.
    slowest = (pipelined.throughput - 0.05) / (sequential.throughput + 0.05)
    fastest = (pipelined.throughput + 0.05) / (sequential.throughput - 0.05)
    assert slowest - 0.05 <= row.speedup <= fastest + 0.05


def test_speedups_are_those_that_the_paper_prints():
    printed = {
        dataset: tuple(paper_row(dataset, backbone).speedup for backbone in BACKBONES)
        for dataset in TARGET_LENGTHS
    }
    assert printed == {
        "msqa": (1.7, 1.7),
        "kp20k": (2.0, 2.0),
        "kptimes": (2.5, 2.4),
        "wikihowqa": (5.8, 5.2),
        "cnn_dailymail": (2.4, 2.3),
        "pubmed": (6.5, 7.0),
    }


@pytest.mark.parametrize(("dataset", "gap"), [("wikihowqa", 0.5), ("cnn_dailymail", 1.4), ("pubmed", 2.1)])
def test_largest_loss_in_rouge_on_test_sets_is_the_one_that_the_text_states(dataset, gap):
    losses = [
        row.sequential.quality[metric] - row.pipelined.quality[metric]
        for row in (paper_row(dataset, backbone) for backbone in BACKBONES)
        for metric in row.sequential.quality
    ]
    assert max(losses) == pytest.approx(gap)


def test_gain_on_absent_keyphrases_of_kp20k_is_between_those_that_the_text_states():
    rows = [paper_row("kp20k", backbone) for backbone in BACKBONES]
    gains = [
        row.pipelined.quality[metric] - row.sequential.quality[metric]
        for row in rows
        for metric in ("absent_f1@5", "absent_f1@M")
    ]
    assert (min(gains), max(gains)) == (pytest.approx(1.8), pytest.approx(3.4))


@pytest.mark.parametrize("dataset", SUMMARIES)
def test_first_row_by_delay_is_the_main_result_of_t5_base(dataset):
    rows = delay_rows(dataset)
    main = paper_row(dataset, "T5-Base").pipelined
    assert [row.delay for row in rows] == [1, 2, 3]
    assert (rows[0].quality, rows[0].throughput) == (main.quality, main.throughput)
    assert sorted((row.throughput for row in rows), reverse=True) == [row.throughput for row in rows]


@pytest.mark.parametrize("dataset", TARGET_LENGTHS)
def test_words_of_a_target_are_about_its_subsequences_times_their_words(dataset):
    lengths = TARGET_LENGTHS[dataset]
    product = lengths.subsequences_per_target * lengths.words_per_subsequence
    assert lengths.words_per_target == pytest.approx(product, rel=0.02)


def test_speedup_rises_with_the_number_of_subsequences():
    assert all(ends.at_2 < ends.at_9 for ends in SPEEDUP_BY_SUBSEQUENCES.values())
    ends = SPEEDUP_BY_SUBSEQUENCES["wikihowqa"]
    assert (ends.at_2, ends.at_9) == (1.8, 5.1)


def test_data_the_paper_does_not_use_has_no_figures():
    assert paper_row("inspec") is None
    assert "inspec" not in TARGET_LENGTHS
    assert delay_rows("msqa") == ()
