"""From records to segmented records: cutting, merging and splitting, with a count of all that was done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from msgspec.structs import replace

from pipedec_cli.data.fitting import TIME_MAX, Measure, longest_fitting, merge, split_long
from pipedec_cli.data.records import Record, Segmentation
from pipedec_cli.data.segmentation import PhraseSegmenter, Segmenter, choose_joiner, cut


@dataclass(slots=True)
class Counts:
    """What was done to the targets, so that nothing is done in silence.

    Attributes:
        targets: all of them.
        given: targets that came segmented, as a list.
        empty: targets without a segment.
        merged: targets with too many segments, of which neighbours were joined.
        split: segments that were split since they were too long.
        dropped: empty phrases that were left out, as in ``a;;b``, and empty parts of lists.
        too_long: subsequences that do not fit into time_max at Δt = 1, which decoding would cut.
        too_long_targets: targets with such a subsequence.
        longest: the length of the longest subsequence.
    """

    targets: int = 0
    given: int = 0
    empty: int = 0
    merged: int = 0
    split: int = 0
    dropped: int = 0
    too_long: int = 0
    too_long_targets: int = 0
    longest: int = 0

    def to_json(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Fit:
    """The bounds that targets are made to fit.

    Attributes:
        measure: how long texts are.
        time_max: the last time-step.
        split_long: whether segments that are too long are split, or only counted.
    """

    measure: Measure
    time_max: int = TIME_MAX
    split_long: bool = False


def joiner_of(records: Sequence[Record], segmenter: Segmenter) -> str:
    """The joiner that suits the targets; see `segmentation.choose_joiner`."""
    separators = segmenter.separators if isinstance(segmenter, PhraseSegmenter) else ()
    if separators:
        return choose_joiner(separators, (), ())
    sample = records[:: max(1, len(records) // 1000)]  # a thousand targets tell
    return choose_joiner((), _gaps(sample, segmenter), (record.target or "" for record in sample))


class Preparer:
    """Segments the targets of records, one after the other, and counts what it does.

    Targets that came as lists are kept as they are, but for empty parts and for merging.

    Attributes:
        counts: what was done so far.
    """

    def __init__(self, segmenter: Segmenter, segmentation: Segmentation, fit: Fit) -> None:
        """Start with nothing counted.

        Args:
            segmenter: cuts targets that are strings.
            segmentation: gives the joiner and sub_max.
            fit: what else targets are made to fit.
        """
        self.counts = Counts()
        self._segmenter = segmenter
        self._joiner = segmentation.joiner
        self._most = segmentation.sub_max - 1  # the empty subsequence that closes every target needs a place
        self._fit = fit

    def segment(self, record: Record) -> Record:
        """The record with its `target_segments`; a target that was a list is now one string."""
        target = record.target or ""
        if record.target_segments is None:
            segments = self._cut(target)
        else:
            segments = self._tidy(record.target_segments)
            if target == " ".join(record.target_segments):  # as the reader put a list together
                target = self._joiner.join(segments)
        if len(segments) > self._most:
            self.counts.merged += 1
            segments = merge(segments, self._most, self._joiner, self._fit.measure)
        self._count(segments)
        return replace(record, target=target, target_segments=segments)

    def _cut(self, target: str) -> tuple[str, ...]:
        segments = cut(target, self._segmenter)
        if isinstance(self._segmenter, PhraseSegmenter):
            self.counts.dropped += self._segmenter.dropped(target)
        if self._fit.split_long:
            pieces = split_long(segments, self._fit.time_max, self._most, self._fit.measure)
            self.counts.split += len(pieces) - len(segments)
            segments = pieces
        return segments

    def _tidy(self, given: Sequence[str]) -> tuple[str, ...]:
        parts = [part.strip() for part in given]
        segments = tuple(filter(None, parts))
        self.counts.given += 1
        self.counts.dropped += len(parts) - len(segments)
        return segments

    def _count(self, segments: Sequence[str]) -> None:
        lengths = self._fit.measure(segments)
        too_long = sum(
            length > longest_fitting(place, self._fit.time_max)
            for place, length in enumerate(lengths, start=1)
        )
        self.counts.targets += 1
        self.counts.empty += not segments
        self.counts.too_long += too_long
        self.counts.too_long_targets += too_long > 0
        self.counts.longest = max(self.counts.longest, *lengths, 0)


def _gaps(records: Iterable[Record], segmenter: Segmenter) -> Iterator[str]:
    for record in records:
        if record.target_segments is None and record.target:
            spans = segmenter.spans(record.target)
            for (_, end), (start, _) in pairwise(spans):
                yield record.target[end:start]
