"""Paired bootstrap intervals: recomputed statistics, and sane answers at the edges."""

import numpy as np
import pytest
import scipy
from numpy.typing import ArrayLike

from pipedec_cli.data.records import Generated
from pipedec_cli.metrics.differences import Difference, method, score_differences
from pipedec_cli.metrics.keyphrases import Chan2019, Meng2017
from pipedec_cli.metrics.measure import Floats, Measure, Scores, score_examples
from pipedec_cli.metrics.rouge import Rouge
from tests.metrics.documents import example


def phrases(name: str, predicted: str, right: str) -> Generated:
    source = "a b c d e f g h"
    return example(predicted.split(), right.split(), source=source, name=name)


def chan(*triples: tuple[str, str, str]) -> Scores:
    return score_examples([phrases(*triple) for triple in triples], Chan2019())


class Mean(Measure):
    """A protocol whose score is the mean of one number an example."""

    name = "mean"
    primary = "mean"
    columns = ("mean",)
    headline = {"mean": "mean"}  # noqa: RUF012
    _settings = ""

    def statistics(self, example: Generated) -> tuple[float, ...] | None:
        raise NotImplementedError

    def corpus(self, means: Floats) -> Floats:
        return means


def difference_of_means(first: ArrayLike, second: ArrayLike) -> Difference:
    runs = [np.asarray(values, dtype=np.float64)[:, None] for values in (first, second)]
    one, other = (
        Scores(Mean(), tuple(map(str, range(len(rows)))), rows) for rows in runs
    )
    return score_differences(one, other)["mean"]


FIRST = chan(("1", "b", "b c"), ("2", "b c d e", "b"))
SECOND = chan(("2", "f", "b"), ("1", "b c d", "b c"))


def test_value_and_draws_are_differences_of_corpus_scores_and_not_of_means_over_examples():
    # Of two examples there are three draws: the first twice, the second twice, one
    # each. Over thousands of draws a 95 % interval ends at the lowest and the highest
    # of the three differences, each computed anew.
    found = score_differences(FIRST, SECOND, resamples=999)
    turned = chan(("1", "b c d", "b c"), ("2", "f", "b"))
    assert found == score_differences(
        FIRST, turned, resamples=999
    )  # whatever the order of the examples
    for metric, difference in found.items():
        *alone, both = (
            FIRST.values_of(ids)[metric] - SECOND.values_of(ids)[metric]  # type: ignore[operator]
            for ids in ("1", "2", "12")
        )
        ends = (min(*alone, both), both, max(*alone, both))
        assert (difference.low, difference.value, difference.high) == pytest.approx(
            ends
        )
        if metric == "present_f1@M":
            assert difference.value != pytest.approx(np.mean(alone))


@pytest.mark.parametrize(
    ("first", "second", "ends", "excludes_zero"),
    [
        (
            [3, 4],
            [3, 4],
            (0.0, 0.0, 0.0),
            False,
        ),  # equal runs differ by nothing, and that is no finding
        ([3], [1], (2.0, None, None), False),  # one example has no interval
        (
            [3, 4, 5],
            [1, 2, 3],
            (2.0, 2.0, 2.0),
            True,
        ),  # differences that are all the same
    ],
)
def test_intervals_at_the_edges(first, second, ends, excludes_zero):
    difference = difference_of_means(first, second)
    assert (difference.value, difference.low, difference.high) == pytest.approx(ends)
    assert difference.excludes_zero is excludes_zero


def test_the_mean_difference_is_of_pairs():
    rng = np.random.default_rng(0)
    hardness = rng.normal(
        scale=100, size=200
    )  # what both runs share must not widen the interval
    found = difference_of_means(hardness + rng.normal(1.0, 0.1, size=200), hardness)
    assert 0.97 < found.low < found.value < found.high < 1.03  # type: ignore[operator]


def test_the_interval_covers_as_wide_as_the_normal_one_on_a_large_sample():
    rng = np.random.default_rng(0)
    values = rng.normal(size=400)
    difference = difference_of_means(values, np.zeros(400))
    half = 1.96 * values.std() / 20
    assert difference.low == pytest.approx(values.mean() - half, abs=0.01)
    assert difference.high == pytest.approx(values.mean() + half, abs=0.01)


def test_runs_of_other_examples_or_by_other_protocols_are_refused():
    by_another = score_examples(
        [phrases("1", "b", "b"), phrases("2", "b", "b")], Meng2017()
    )
    for other in (chan(("1", "b", "b"), ("3", "b", "b")), by_another):
        with pytest.raises(
            ValueError, match="not of the same examples by the same protocol"
        ):
            score_differences(FIRST, other)


def test_nothing_scorable_has_no_differences_and_the_method_names_library_and_version():
    greek = score_examples([example(["γ"], references=("γ",))], Rouge())
    assert score_differences(greek, greek) == {}
    settings = "paired bootstrap, percentile interval at 95%, 9999 resamples, seed 0"
    assert method() == f"{settings}, scipy.stats.bootstrap {scipy.__version__}"
