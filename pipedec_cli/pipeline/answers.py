"""Known answers of a row, which are scored as a whole: the row takes the most probable one.

The score of an answer is the sum of the logarithms of its tokens' probabilities behind
what the row begins with. The end counts as a token, and the softmax is over the whole
vocabulary. Each answer is a branch of its row, see `branched`: it sees what the row's
beginning sees, this beginning, and itself. All answers go through the decoder in one
call, or in several calls where they are many. Then the model forgets the branches.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

#: The branches of a row. Branch 0 is what all branches begin with, and known answers
#: that are tried follow. What the row writes itself is the last branch.
BRANCHES: Final = 1 << 10
WRITTEN: Final = BRANCHES - 1
#: The most tokens of answers that one call tries.
MOST_TRIED: Final = 4096
#: Probabilities below this have no place among the normal numbers of float32, and count
#: as much.
_LEAST: Final = 2.0**-126


class Answer(NamedTuple):
    """A known answer of a row."""

    tokens: tuple[
        int, ...
    ]  # behind the known tokens of the row, with the token that ends the row
    text: str  # what the answer means; "" is no value
    prior: float = 0.0  # its score whatever the source says, which is subtracted


class Trial(NamedTuple):
    """An answer that is tried in a call, and the place where its tokens stand."""

    row: int  # the subsequence, from 1
    answer: Answer
    branch: int
    lift: int  # how many time-steps later than in the row its tokens stand


class Verdict(NamedTuple):
    """What the scores of all answers of a row say."""

    best: int  # the number of the best answer that is a value; −1 if there is none
    probability: float  # of this answer, by its score
    share: float  # its part of the probability of all answers
    nothing: float  # the probability of the answer "no value", by its score; 0 if this is no answer
    known: float  # the probability of all answers together


def branched(subsequence: int, branch: int) -> int:
    """The number by which `attention.visible` knows a branch of a row.

    Rows below have larger numbers than all branches of a row, and rows above have
    smaller ones. Branches of a row that must not see each other stand at times that
    fall while these numbers rise.
    """
    return subsequence * BRANCHES + branch


def score(chances: Sequence[float]) -> float:
    """The score of an answer whose tokens have these probabilities."""
    return sum(math.log(max(chance, _LEAST)) for chance in chances)


def probabilities(
    answers: Sequence[Answer], scores: Sequence[float], temperature: float = 1.0
) -> list[float]:
    """The probabilities of a row's answers: the softmax of their scores, less their priors, over the temperature."""
    logits = []
    for answer, value in zip(answers, scores, strict=True):
        logits.append((value - answer.prior) / temperature)
    highest = max(logits)
    weights = [math.exp(logit - highest) for logit in logits]
    total = sum(weights)
    return [weight / total for weight in weights]


def judge(
    answers: Sequence[Answer], scores: Sequence[float], temperature: float = 1.0
) -> Verdict:
    """Find the best of a row's answers. Of equals the first one counts."""
    best = -1
    nothing = 0.0
    least_prior = min(answer.prior for answer in answers)
    ranked = []
    for number, answer in enumerate(answers):
        # Without a source an answer has at least this prior: no sum is above 0.
        ranked.append(scores[number] - (answer.prior - least_prior))
        if not answer.text:
            nothing = math.exp(ranked[number])
        elif best < 0 or ranked[number] > ranked[best]:
            best = number
    known = sum(math.exp(value) for value in scores)
    if best < 0:
        return Verdict(best, 0.0, 0.0, nothing, known)
    share = probabilities(answers, scores, temperature)[best]
    return Verdict(best, math.exp(ranked[best]), share, nothing, known)


def trials_of(due: Sequence[tuple[int, Answer]], most_of_row: int) -> list[Trial]:
    """The answers that the next call tries, out of those that are `due`: the first ones, each with its row.

    A call tries at most `MOST_TRIED` tokens, one answer at least, and at most so many
    answers of a row.
    """
    chosen = list[tuple[int, Answer, int]]()
    tokens = 0
    for row, answer in due:
        branch = 1
        if chosen and chosen[-1][0] == row:
            branch = chosen[-1][2] + 1
        tokens += len(answer.tokens)
        if chosen and (tokens > MOST_TRIED or branch > most_of_row):
            break
        chosen.append((row, answer, branch))
    # The later an answer stands in the call, the earlier its tokens stand in time: no
    # answer sees another.
    lift = 1
    trials = list[Trial]()
    for row, answer, branch in reversed(chosen):
        trials.append(Trial(row, answer, branch, lift))
        lift += len(answer.tokens)
    trials.reverse()
    return trials
