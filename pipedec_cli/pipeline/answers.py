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
    """A token of answers that are tried in a call, and its place: several answers may begin with it."""

    row: int  # the subsequence, from 1
    token: int  # −1: the last known token of the row
    depth: int  # the tokens of the answers up to it; 0 for the last known one
    branch: int
    lift: int  # how many time-steps later than in the row it stands
    wanted: tuple[int, ...]  # the tokens whose probabilities behind it are wanted


class Tried(NamedTuple):
    """An answer that is tried in a call: for each of its tokens the trial before it, and the place in what that wants."""

    row: int
    steps: tuple[tuple[int, int], ...]


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
        # Only differences of priors count. So no score rises above 0.
        prior = answer.prior - least_prior
        ranked.append(scores[number] - prior)
        if not answer.text:
            nothing = math.exp(ranked[number])
        elif best < 0 or ranked[number] > ranked[best]:
            best = number
    known = sum(math.exp(value) for value in scores)
    if best < 0:
        return Verdict(best, 0.0, 0.0, nothing, known)
    share = probabilities(answers, scores, temperature)[best]
    return Verdict(best, math.exp(ranked[best]), share, nothing, known)


class _Node:
    """What answers of a row begin with, up to a token."""

    def __init__(self, row: int, token: int = -1, depth: int = 0) -> None:
        self.row = row
        self.token = token
        self.depth = depth
        self.wanted: dict[int, int] = {}  # places by tokens
        self.below: dict[int, _Node] = {}
        self.number = 0  # of the trial


def due_of(
    due: Sequence[tuple[int, Answer]], most_of_row: int
) -> Sequence[tuple[int, Answer]]:
    """The answers that the next call tries, out of those that are `due`: the first ones, each with its row.

    A call tries at most `MOST_TRIED` tokens, one answer at least, and at most so many
    answers of a row.
    """
    tokens = 0
    newest = 0
    of_row = 0
    for number, (row, answer) in enumerate(due):
        if row != newest:
            newest = row
            of_row = 0
        of_row += 1
        tokens += len(answer.tokens)
        is_full = tokens > MOST_TRIED or of_row > most_of_row
        if number and is_full:
            return due[:number]
    return due


def trials_of(
    answers: Sequence[tuple[int, Answer]],
) -> tuple[list[Trial], list[Tried]]:
    """The tokens of answers that a call tries, each once for all answers of its row that begin alike.

    A token is seen by those that stand behind it in an answer, and by no other: branches
    rise in the order of the tokens here, and times fall in the order in which what
    stands behind a token is whole.
    """
    roots = dict[int, _Node]()
    paths = list[tuple[int, list[tuple[_Node, int]]]]()
    for row, answer in answers:
        node = roots.setdefault(row, _Node(row))
        path = []
        for number, token in enumerate(answer.tokens, start=1):
            place = node.wanted.setdefault(token, len(node.wanted))
            path.append((node, place))
            if number < len(answer.tokens):
                node = node.below.setdefault(token, _Node(row, token, number))
        paths.append((row, path))
    trials = list[Trial]()
    ends = list[int]()  # the trials, as what stands behind each is whole
    for root in roots.values():
        _lay_out(root, trials, ends)
    for lift, number in enumerate(reversed(ends), start=1):
        trial = trials[number]
        trials[number] = trial._replace(lift=lift - trial.depth)
    tried = []
    for row, path in paths:
        steps = tuple((node.number, place) for node, place in path)
        tried.append(Tried(row, steps))
    return trials, tried


def _lay_out(root: _Node, trials: list[Trial], ends: list[int]) -> None:
    """Add the trials of a row, each before those behind it. A branch goes on where one begins."""
    branch = 1
    open_nodes = [(root, iter(root.below.values()))]
    _begin(root, branch, trials)
    has_ended = False
    while open_nodes:
        node, below = open_nodes[-1]
        following = next(below, None)
        if following is None:
            ends.append(node.number)
            open_nodes.pop()
            has_ended = True
            continue
        branch += has_ended
        has_ended = False
        _begin(following, branch, trials)
        open_nodes.append((following, iter(following.below.values())))


def _begin(node: _Node, branch: int, trials: list[Trial]) -> None:
    node.number = len(trials)
    wanted = tuple(node.wanted)
    trials.append(Trial(node.row, node.token, node.depth, branch, 0, wanted))
