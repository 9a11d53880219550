"""Is the method worth it? Decoder calls counted on the targets, before anything is trained."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from pipedec_cli.data.errors import many
from pipedec_cli.data.fields import Field
from pipedec_cli.objects.codec import place_rows
from pipedec_cli.pipeline.grid import Limits, replay
from pipedec_cli.pipeline.schedule import USUAL_DELAY, Fixed, Schedule, Together

#: A smaller factor in steps or time is not worth it.
WORTHWHILE: Final = 1.3
#: Fewer records teach nothing; fewer than the second number teach a pretrained model
#: alone.
TOO_FEW, FEW_FROM_SCRATCH = 100, 2_000
#: A target with no more has hardly anything to generate at once.
FEW_SUBSEQUENCES: Final = 2.0


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
        if not self.pipelined_steps:
            return 0.0
        return self.sequential_steps / self.pipelined_steps


def estimate(
    wholes: Sequence[int],
    parts: Sequence[Sequence[int]],
    limits: Limits,
    fields: Sequence[Field] = (),
    delays: Sequence[int | Literal["together"]] = (1, 2, 3),
) -> list[Estimate]:
    """The decoder calls that targets would take at each Δt, if they were written on the grid; means over the targets.

    Args:
        wholes: the number of tokens of each target as one text.
        parts: the numbers of tokens of each target's subsequences. Of an object they are
            those of all its rows, in the order of `rows_of`, 0 for a row without a
            value.
        limits: the last time-step and the most rows of the grid.
        fields: the keys of objects, whose rows start together, later items of lists Δt
            apart; () for texts.
        delays: the Δt to try. Objects without lists have but one, "together".
    """
    if fields and not any(field.listed for field in fields):
        delays = ("together",)
    count = max(1, len(parts))
    # A sequential decoder needs a call for each token and one for the end.
    sequential = sum(length + 1 for length in wholes) / count
    results = []
    for delay in delays:
        schedule = Fixed(delay) if isinstance(delay, int) else Together()
        steps = truncated = 0
        for lengths in parts:
            if fields:
                calls, is_cut = _replay_object(lengths, schedule, limits, fields)
            else:
                calls, is_cut = _replay_text(lengths, schedule, limits)
            steps += calls
            truncated += is_cut
        result = Estimate(
            delay,
            targets=len(parts),
            sequential_steps=sequential,
            pipelined_steps=steps / count,
            truncated=truncated / count,
        )
        results.append(result)
    return results


def _replay_text(
    lengths: Sequence[int], schedule: Schedule, limits: Limits
) -> tuple[int, bool]:
    """The decoder calls of a text with subsequences of these lengths, and whether the limits would cut it."""
    # They are counted without a last time-step: a text that is cut has fewer, which is
    # no gain.
    endless = replace(limits, time_max=10**9)
    cut = replay(lengths, schedule, limits).truncated is not None
    return replay(lengths, schedule, endless).steps, cut


def _replay_object(
    lengths: Sequence[int], schedule: Schedule, limits: Limits, fields: Sequence[Field]
) -> tuple[int, bool]:
    """The decoder calls of an object with rows of these lengths, and whether the limits would cut it.

    A call is needed for each time-step at which any row has a token or its end.
    """
    times = set[int]()
    for start, _, _, text in place_rows(schedule, lengths, fields):
        tokens = 0 if text is None else lengths[text]
        times.update(range(start, start + tokens + 1))
    end = max(times) + 1
    return len(times), limits.time_max is not None and end > limits.time_max


def suggest(records: int, estimates: Sequence[Estimate]) -> str:
    """Words on the Δt to try first, and on whether so many `records` are enough for a training.

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
    least = max(WORTHWHILE, 0.7 * best)
    fitting = [entry for entry in estimates if entry.ratio >= least]
    if not fitting:
        return counted
    usual = [entry for entry in fitting if entry.delay == USUAL_DELAY]
    first = (usual or fitting)[-1]
    name = f"Δt = {first.delay}" if isinstance(first.delay, int) else first.delay
    fewer = f"{first.ratio:.1f} times fewer decoder calls"
    return f"{counted}. Try {name} first: {fewer}"


def doubt(subsequences_per_target: float, estimates: Sequence[Estimate]) -> str | None:
    """Why the method will not help on targets with so many subsequences on average, or at some delays; None if it may help."""
    doubts = []
    best = max((entry.ratio for entry in estimates), default=0.0)
    if subsequences_per_target <= FEW_SUBSEQUENCES or best < WORTHWHILE:
        saves = f"at best a factor of {best:.1f}" if best >= 1.05 else "nothing"
        have = f"the targets have {subsequences_per_target:.1f} subsequences on average"
        hardly = "pipelined decoding will hardly help here"
        doubts.append(f"{have}, which saves {saves} in decoder steps: {hardly}")
    slower = [str(entry.delay) for entry in estimates if entry.ratio < 1]
    if slower:
        steps = "the decoder takes more steps than the sequential one"
        doubts.append(f"at Δt = {' and '.join(slower)} {steps}")
    return "; ".join(doubts) or None
