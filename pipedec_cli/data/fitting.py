"""Making the subsequences of a target fit the grid: not too many of them, and none too long."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from pipedec_cli.data.scripts import mostly_spaceless
from pipedec_cli.data.segmentation import clause_ends

TIME_MAX: Final = 50  # the paper's

#: How long texts are: in words, or in tokens of a tokenizer.
Measure = Callable[[Sequence[str]], list[int]]


def longest_fitting(place: int, time_max: int) -> int:
    """How long subsequence number `place`, from 1, may be at Δt = 1: m_i such that start_i + m_i + 1 ≤ time_max."""
    return time_max - place


def group_adjacent(lengths: Sequence[int], most: int) -> list[int]:
    """Group neighbours into at most `most` groups such that the longest group is as short as can be.

    No more is grouped than need be: of more than `most` items come exactly `most` groups.

    Args:
        lengths: the items' lengths, none negative.
        most: at least 1.

    Returns:
        The sizes of the groups, in order.
    """
    if len(lengths) <= most:
        return [1] * len(lengths)
    low, high = max(lengths), sum(lengths)
    while low < high:
        middle = (low + high) // 2
        if len(_filled(lengths, middle)) <= most:
            high = middle
        else:
            low = middle + 1
    sizes = _filled(lengths, low)
    # Filling groups up may need fewer than allowed; take grouped items apart again, the last groups first: what
    # starts late should be short.
    spare = most - len(sizes)
    apart: list[int] = []
    for size in reversed(sizes):
        taken = min(spare, size - 1)
        spare -= taken
        apart[:0] = [size - taken] + [1] * taken
    return apart


def _filled(lengths: Sequence[int], limit: int) -> list[int]:
    """The sizes of groups filled one after the other up to a limit."""
    sizes: list[int] = []
    total = limit + 1
    for length in lengths:
        if total + length > limit:
            sizes.append(0)
            total = 0
        sizes[-1] += 1
        total += length
    return sizes


def merge(segments: Sequence[str], most: int, joiner: str, measure: Measure) -> tuple[str, ...]:
    """Join neighbouring segments until there are at most `most`, the longest as short as can be."""
    if len(segments) <= most:
        return tuple(segments)
    merged, start = [], 0
    for size in group_adjacent(measure(segments), most):
        merged.append(joiner.join(segments[start : start + size]))
        start += size
    return tuple(merged)


def split_long(segments: Sequence[str], time_max: int, most: int, measure: Measure) -> tuple[str, ...]:
    """Split the segments that do not fit into time_max at Δt = 1, each at its last clause end that fits.

    Where no clause end fits it is the last white space, in scripts without spaces the last character. A single word
    that is too long stays whole.

    Args:
        segments: the subsequences in order.
        time_max: the last time-step.
        most: how many subsequences there may be; merging keeps to it later.
        measure: how long texts are.
    """
    waiting = list(reversed(segments))
    done: list[str] = []
    while waiting:
        segment = waiting.pop()
        allowed = max(1, longest_fitting(min(len(done) + 1, most), time_max))
        if measure([segment])[0] > allowed:
            head, rest = _split(segment, allowed, measure)
            if rest:
                waiting.append(rest)
            done.append(head)
        else:
            done.append(segment)
    return tuple(done)


def _split(segment: str, allowed: int, measure: Measure) -> tuple[str, str]:
    """The longest start of a segment that fits and ends well, and the rest; all and nothing if it is one word."""
    spaces = [match.start() for match in re.finditer(r"\s+", segment)]
    places = spaces or (range(1, len(segment)) if mostly_spaceless([segment]) else ())
    for ends in (clause_ends(segment), places):
        fitting = bisect_right(ends, allowed, key=lambda end: measure([segment[:end]])[0])
        if fitting:
            head, rest = segment[: ends[fitting - 1]].strip(), segment[ends[fitting - 1] :].strip()
            if rest:
                return head, rest
    if places:  # the first word alone does not fit; what follows may
        return segment[: places[0]].strip(), segment[places[0] :].strip()
    return segment, ""
