"""Is a decoder of any use? Asked before it is compared: of two useless decoders the faster one is no gain."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pipedec_cli.evaluate.metrics.measure import score
from pipedec_cli.evaluate.scoring import ScoredRun
from pipedec_cli.evaluate.significance import score_differences

MOSTLY: Final = 0.5  # of the texts, as a share of 1
ENOUGH: Final = 300  # examples, to tell a decoder from chance
#: Points of 100 that texts must score more for their own sources than for others; an untrained model's do not.
ABOVE_CHANCE: Final = 1.0


def faults(run: ScoredRun) -> Iterator[str]:
    """The reasons why the texts of a run are useless, in words; none if they may be of use."""
    failures = run.failures
    if failures.truncated_rate > MOSTLY:
        cut = f"{failures.truncated_rate:.0%} of its texts are cut short by {' or '.join(failures.truncated)}"
        yield f"{cut}: it does not find the end, or the limit is too low"
    if failures.alike_rate > MOSTLY:
        which = "sources" if run.is_unscored else "right answers"
        yield f"{failures.alike_rate:.0%} of its texts are the same as another example's, though the {which} differ"
    yield from _as_good_when_exchanged(run)


def _as_good_when_exchanged(run: ScoredRun) -> Iterator[str]:
    """Whether the texts score hardly better than the same texts exchanged between examples."""
    scorable = set(run.scores.ids)
    items = [item for item in run.items if item.id in scorable]
    items = random.Random(0).sample(items, min(len(items), ENOUGH))  # noqa: S311  # chance, not secrecy
    pairs = zip(items, items[1:] + items[:1], strict=True)
    apart = [(one, other) for one, other in pairs if one.right != other.right]
    if not apart:
        return
    exchanged = [replace(one, prediction=other.prediction, segments=other.segments) for one, other in apart]
    measure = run.scores.measure
    own, others = score((one for one, _ in apart), measure), score(exchanged, measure)
    name = measure.primary
    difference = score_differences(own, others, resamples=999)[name]
    values = f"{measure.headline[name]} is {own.values[name]:.1f}, and {others.values[name]:.1f} with texts exchanged"
    if difference.value < ABOVE_CHANCE:
        yield f"its texts hardly depend on the sources: {values} between examples"
    elif not difference.excludes_zero:
        yield f"{len(apart)} examples do not tell it from chance: {values} between them"
