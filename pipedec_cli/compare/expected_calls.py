"""Is the method worth it? Decoder calls counted on the targets, before anything is trained."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from pipedec_cli.data.errors import many
from pipedec_cli.data.fields import Field
from pipedec_cli.objects.codec import place_rows
from pipedec_cli.pipeline.grid import Limits, replay
from pipedec_cli.pipeline.schedule import USUAL_DELAY, Fixed, Together

WORTHWHILE: Final = 1.3  # a smaller factor in steps or time is not worth it
#: Fewer records teach nothing; fewer than the second number teach a pretrained model
#: alone.
TOO_FEW, FEW_FROM_SCRATCH = 100, 2_000
FEW_SUBSEQUENCES: Final = (
    2.0  # a target with no more has hardly anything to generate at once
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Mean decoder calls for a target at one Δt, if both decoders write exactly the targets.

    The sequential decoder makes each token of the target, and <eos>. `truncated` is the
    share of targets, 0 to 1, that time_max or sub_max would cut; their steps are
    counted uncut.
    """

    delay: int | Literal["together"]
    targets: int
    sequential_steps: float
    pipelined_steps: float
    truncated: float

    @property
    def ratio(self) -> float:
        """How many times fewer calls."""
        return (
            self.sequential_steps / self.pipelined_steps
            if self.pipelined_steps
            else 0.0
        )


def estimate(
    wholes: Sequence[int],
    parts: Sequence[Sequence[int]],
    limits: Limits,
    fields: Sequence[Field] = (),
    delays: Sequence[int | Literal["together"]] = (1, 2, 3),
) -> list[Estimate]:
    """Replay targets on the grid for each Δt. `wholes` and `parts` are the tokens of targets, and of their subsequences.

    Objects have `fields`: all rows start together, and later items of lists Δt apart.
    Their `parts` are the tokens of all rows, in the order of `rows_of`, 0 for a row
    without a value.
    """
    if fields and not any(field.listed for field in fields):
        delays = ("together",)
    count, results = max(1, len(parts)), list[Estimate]()
    sequential = sum(length + 1 for length in wholes) / count
    endless = replace(
        limits, time_max=10**9
    )  # a text that is cut has fewer steps, which is no gain
    for delay in delays:
        schedule, steps, cut = (
            Fixed(delay) if isinstance(delay, int) else Together(),
            0,
            0,
        )
        for lengths in parts:
            if fields:
                rows = place_rows(schedule, lengths, fields)
                made = [
                    (start, 0 if text is None else lengths[text])
                    for start, _, _, text in rows
                ]
                calls = [range(start, start + tokens + 1) for start, tokens in made]
                steps += len({time for times in calls for time in times})
                cut += (
                    limits.time_max is not None
                    and max(times.stop for times in calls) > limits.time_max
                )
            else:
                steps += replay(lengths, schedule, endless).steps
                cut += replay(lengths, schedule, limits).truncated is not None
        results.append(
            Estimate(delay, len(parts), sequential, steps / count, cut / count)
        )
    return results


def suggest(records: int, estimates: Sequence[Estimate]) -> str:
    """The Δt to try first, and whether so many records are enough for a training.

    It is the usual one where that keeps most of the gain, else the largest that does: a
    larger Δt costs less quality.
    """
    enough = "too few for a training"
    if records >= TOO_FEW:
        enough = "few for a model from scratch: train a pretrained one (--model)"
    if records >= FEW_FROM_SCRATCH:
        enough = "enough for a training"
    counted = f"{many(records, 'record')}: {enough}"
    best = max((entry.ratio for entry in estimates), default=0.0)
    fitting = [
        entry for entry in estimates if entry.ratio >= max(WORTHWHILE, 0.7 * best)
    ]
    if not fitting:
        return counted
    usual = [entry for entry in fitting if entry.delay == USUAL_DELAY]
    delay, ratio = (usual or fitting)[-1].delay, (usual or fitting)[-1].ratio
    name = f"Δt = {delay}" if isinstance(delay, int) else delay
    return f"{counted}. Try {name} first: {ratio:.1f} times fewer decoder calls"


def doubt(subsequences_per_target: float, estimates: Sequence[Estimate]) -> str | None:
    """Why the method will not help on these targets, or at some delays; None if it may help."""
    best, found = max((entry.ratio for entry in estimates), default=0.0), list[str]()
    if subsequences_per_target <= FEW_SUBSEQUENCES or best < WORTHWHILE:
        saves = f"at best a factor of {best:.1f}" if best >= 1.05 else "nothing"
        have = f"the targets have {subsequences_per_target:.1f} subsequences on average"
        hardly = "pipelined decoding will hardly help here"
        found.append(f"{have}, which saves {saves} in decoder steps: {hardly}")
    if slower := [str(entry.delay) for entry in estimates if entry.ratio < 1]:
        found.append(
            f"at Δt = {' and '.join(slower)} the decoder takes more steps than the sequential one"
        )
    return "; ".join(found) or None
