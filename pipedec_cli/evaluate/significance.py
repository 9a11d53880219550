"""Is the difference between two runs more than chance? Paired bootstrap intervals by ``scipy.stats.bootstrap``.

Both runs predicted the same examples. The bootstrap draws examples with replacement, each with both its predictions,
and measures how the difference of the two scores varies. A macro F1 or a ratio of sums is no mean of values of examples:
each is computed anew on every draw, from the statistics of the examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipedec_cli.evaluate.metrics.measure import Floats, Scores

CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference on the given examples, with the percentile interval of its bootstrap; one example has none."""

    value: float
    low: float | None
    high: float | None

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval is on one side of zero. Equal runs, with the interval 0 to 0, do not differ."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def method(resamples: int, seed: int) -> str:
    """How `score_differences` makes its intervals, with library and version."""
    import scipy

    interval = f"percentile interval at {CONFIDENCE:.0%}, {resamples} resamples, seed {seed}"
    return f"paired bootstrap, {interval}, scipy.stats.bootstrap {scipy.__version__}"


def score_differences(
    first: Scores, second: Scores, *, resamples: int = 9999, seed: int = 0
) -> dict[str, Difference]:
    """First minus second by metric, in points of per cent; {} if nothing was scorable.

    The same seed gives the same intervals. A ValueError if the two do not have the same examples (in any order) and the
    same protocol.
    """
    measure, place = first.measure, {example: row for row, example in enumerate(second.ids)}
    if measure.signature != second.measure.signature or place.keys() != set(first.ids):
        raise ValueError("the two runs are not of the same examples by the same protocol")
    if not first.ids:
        return {}
    examples, columns = first.statistics.shape
    rows = np.hstack([first.statistics, second.statistics[[place[example] for example in first.ids]]])

    def difference(means: Floats) -> Floats:
        return measure.corpus(means[..., :columns]) - measure.corpus(means[..., columns:])

    def of_draws(draws: NDArray[np.intp], axis: int = -1) -> Floats:  # noqa: ARG001  # scipy passes it
        """The differences [metrics, …] of draws [..., examples]; scipy joins batches along the last axis."""
        flat = draws.reshape(-1, examples)
        apart = flat + examples * np.arange(len(flat))[:, None]  # each draw counts in places of its own
        drawn = np.bincount(apart.ravel(), minlength=flat.size).reshape(flat.shape).astype(np.float64)
        return np.moveaxis(difference(drawn @ rows / examples), -1, 0).reshape(-1, *draws.shape[:-1])

    values = difference(rows.mean(axis=0)).tolist()
    ends: list[list[Any]] = [[None] * len(values)] * 2
    if examples > 1:
        from scipy.stats import bootstrap

        result: Any = bootstrap(
            (np.arange(examples),),
            of_draws,
            n_resamples=resamples,
            batch=max(1, 4_000_000 // examples),  # draws × examples counts of 8 bytes
            vectorized=True,
            confidence_level=CONFIDENCE,
            method="percentile",
            rng=np.random.default_rng(seed),
        )
        ends = [np.ravel(end).tolist() for end in result.confidence_interval]
    return dict(zip(measure.metrics, map(Difference, values, *ends), strict=True))
