"""Why the texts of a run are of no use, seen in the texts alone."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from pipedec_cli.metrics.differences import score_differences
from pipedec_cli.metrics.failures import right_answers
from pipedec_cli.metrics.measure import Scores, score_examples
from pipedec_cli.metrics.scoring import Scored

MOSTLY: Final = 0.5  # of the texts, as a share of 1
ENOUGH: Final = 300  # examples, to tell a decoder from chance
#: Points of 100 that texts must score more for their own sources than for others; an
#: untrained model's do not.
ABOVE_CHANCE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the texts of a run are useless, in words.

    More examples may clear a fault of `few_examples`.
    """

    words: str
    few_examples: bool = False


def faults(run: Scored) -> Iterator[Fault]:
    """The reasons why the texts of a run are useless; none if they may be of use."""
    failures = run.failures
    if failures.truncated_rate > MOSTLY:
        limits = " or ".join(failures.truncated)
        cut = f"{failures.truncated_rate:.0%} of its texts are cut short by {limits}"
        yield Fault(f"{cut}: it does not find the end, or the limit is too low")
    if failures.alike_rate > MOSTLY:
        which = "sources" if run.is_unscored else "right answers"
        alike = f"{failures.alike_rate:.0%} of its texts repeat an earlier example's"
        yield Fault(f"{alike}, though the {which} differ")
    fault = as_good_when_exchanged(run.scores)
    if fault is not None:
        yield fault


def as_good_when_exchanged(scores: Scores) -> Fault | None:
    """The fault of texts that score hardly better beside their own right answers than the texts of other examples do.

    None if they score better, or if all examples have the same right answers.
    """
    scorable = set(scores.ids)
    examples = [example for example in scores.items if example.id in scorable]
    chosen = random.Random(0).sample(examples, min(len(examples), ENOUGH))  # noqa: S311  # chance, not secrecy
    kept = []
    exchanged = []
    for example, other in pairwise([*chosen, *chosen[:1]]):
        if right_answers(example) != right_answers(other):
            kept.append(example)
            exchanged.append(replace(example, text=other.text, segments=other.segments))
    if not kept:
        return None
    measure = scores.measure
    name = measure.primary
    right = score_examples(kept, measure)
    wrong = score_examples(exchanged, measure)
    difference = score_differences(right, wrong, resamples=999)[name]
    value = right.values[name]
    by_chance = wrong.values[name]
    label = measure.headline[name]
    values = (
        f"{label} is {value:.1f}, and {by_chance:.1f} with the texts of other inputs"
    )
    if difference.value < ABOVE_CHANCE:
        return Fault(f"the model ignores its input: {values}")
    if not difference.excludes_zero:
        what = f"{len(kept)} examples do not tell it from chance: {values}"
        return Fault(what, few_examples=True)
    return None
