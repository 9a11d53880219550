"""Whether two runs differ by more than chance: paired bootstrap intervals."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipedec_cli.metrics.measure import Floats, Scores

CONFIDENCE: Final = 0.95
RESAMPLES: Final = 9999  # draws of the bootstrap
#: Counts of 8 bytes that a batch of draws may take.
_BATCH: Final = 4_000_000


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference on the given examples, with the interval of its bootstrap.

    The interval is the percentile interval; one example has none.
    """

    value: float
    low: float | None
    high: float | None

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval is on one side of zero.

        Equal runs, with the interval 0 to 0, do not differ.
        """
        if self.low is None or self.high is None:
            return False
        return self.low > 0 or self.high < 0


def method() -> str:
    """How `score_differences` makes its intervals, with library and version."""
    import scipy

    interval = f"percentile interval at {CONFIDENCE:.0%}, {RESAMPLES} resamples, seed 0"
    return f"paired bootstrap, {interval}, scipy.stats.bootstrap {scipy.__version__}"


def score_differences(
    first: Scores, second: Scores, resamples: int = RESAMPLES
) -> dict[str, Difference]:
    """First minus second by metric, in points of per cent; {} if nothing was scorable.

    `resamples` are the draws for each interval; it is the same each time. Raises a
    ValueError if the two do not have the same examples (in any order) and the same
    protocol.
    """
    measure = first.measure
    row_of = {example: row for row, example in enumerate(second.ids)}
    if measure.signature != second.measure.signature or row_of.keys() != set(first.ids):
        what = "the two runs are not of the same examples by the same protocol"
        raise ValueError(what)
    if not first.ids:
        return {}
    examples, columns = first.statistics.shape
    others = second.statistics[[row_of[example] for example in first.ids]]
    rows = np.hstack([first.statistics, others])

    def difference(means: Floats) -> Floats:
        """The differences [..., metrics] of two corpora with these means."""
        return measure.corpus(means[..., :columns]) - measure.corpus(
            means[..., columns:]
        )

    def of_draws(draws: NDArray[np.intp], axis: int = -1) -> Floats:  # noqa: ARG001  # scipy passes it
        """The differences [metrics, …] on draws [..., examples], each of which takes some examples several times.

        scipy joins batches along the last axis.
        """
        counts = _counts(draws.reshape(-1, examples))
        differences = np.moveaxis(difference(counts @ rows / examples), -1, 0)
        return differences.reshape(-1, *draws.shape[:-1])

    values = difference(rows.mean(axis=0)).tolist()
    low = high = [None] * len(values)
    if examples > 1:
        from scipy.stats import bootstrap

        result: Any = bootstrap(
            (np.arange(examples),),
            of_draws,
            n_resamples=resamples,
            batch=max(1, _BATCH // examples),
            vectorized=True,
            confidence_level=CONFIDENCE,
            method="percentile",
            rng=np.random.default_rng(0),
        )
        low, high = (np.ravel(end).tolist() for end in result.confidence_interval)
    differences = map(Difference, values, low, high)
    return dict(zip(measure.columns, differences, strict=True))


def _counts(draws: NDArray[np.intp]) -> Floats:
    """How often each example is in each draw, from the places [draws, examples]."""
    count, examples = draws.shape
    # Each draw counts in places of its own.
    apart = draws + examples * np.arange(count)[:, None]
    counts = np.bincount(apart.ravel(), minlength=draws.size)
    return counts.reshape(draws.shape).astype(np.float64)
