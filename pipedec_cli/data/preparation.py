"""From records to segmented records that fit the grid: cut, merged, split, with a count of all that was done."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pipedec_cli.data.errors import UserError, first_line
from pipedec_cli.data.fields import is_filled, value_texts
from pipedec_cli.data.records import Record, Segmentation
from pipedec_cli.data.segmentation import PhraseSegmenter, Segmenter
from pipedec_cli.data.sentences import clause_ends, count_words, mostly_spaceless
from pipedec_cli.data.writing import rounded

#: How long texts are, each at least 1.
TokenCounter = Callable[[Sequence[str]], list[int]]


def token_counter(tokenizer: str | None) -> TokenCounter:
    """Counts the tokens of texts, special ones left out, by the tokenizer of a folder or the hub; without one, words."""
    if tokenizer is None:
        return lambda texts: [max(1, count_words(text)) for text in texts]
    from transformers import AutoTokenizer
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # it warns of texts longer than the model, which are only counted here
    try:
        local: dict[str, Any] = {"local_files_only": Path(tokenizer).exists(), "trust_remote_code": False}
        loaded: Any = AutoTokenizer.from_pretrained(tokenizer, **local)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever its parsers, in Python and in Rust, and its HTTP client raise
        what = f"no tokenizer can be loaded from {tokenizer!r}: {first_line(error)}"
        raise UserError(what, todo="give a checkpoint folder or a hub name") from error
    finally:
        logging.set_verbosity(verbosity)

    def tokens(texts: Sequence[str]) -> list[int]:
        ids = loaded(list(texts), add_special_tokens=False, verbose=False)["input_ids"] if texts else ()
        return [max(1, len(row)) for row in ids]

    return tokens


@dataclass(slots=True)
class Counts:
    """What was done to the targets, so that nothing is done in silence."""

    targets: int = 0
    given: int = 0  # targets that came segmented, as a list
    empty: int = 0  # targets without a segment
    merged: int = 0  # targets with too many segments, of which neighbours were joined
    split: int = 0  # cuts in segments that were too long
    dropped: int = 0  # empty phrases that were left out, as in ``a;;b``, and empty parts of lists
    too_long: int = 0  # subsequences that do not fit into time_max at Δt = 1, which decoding would cut
    too_long_targets: int = 0
    longest: int = 0  # the length of the longest subsequence
    unlisted: int = 0  # values of keys that the schema does not have
    repeated: int = 0  # segments that their text had before and that were left out


@dataclass(slots=True)
class Preparer:
    """Segments the targets of records, one after the other, and counts what it does."""

    segmenter: Segmenter  # for targets that did not come as lists
    segmentation: Segmentation  # gives the joiner and sub_max
    count_tokens: TokenCounter
    time_max: int
    split_long: bool = False  # else segments that are too long are only counted
    each_once: bool = False  # a segment that a text says again is left out
    counts: Counts = field(default_factory=Counts)

    def segment(self, record: Record) -> Record:
        """The record with its `target_segments`; a target that was a list is now one string."""
        target, counts = record.target or "", self.counts
        if self.segmentation.level == "field":
            return self._fields(record)
        if record.target_fields is not None:
            todo = "--level field makes a row of each of its keys"
            raise UserError("the target is an object", where=record.where, todo=todo)
        most = self.segmentation.sub_max - 1  # the empty subsequence that closes every target needs a place
        if record.target_segments is None:
            cut = segments = self.segmenter.cut(target)
            if isinstance(self.segmenter, PhraseSegmenter):
                counts.dropped += self.segmenter.dropped(target)
            if self.split_long:
                segments = split_long(cut, self.time_max, most, self.count_tokens)
                counts.split += len(segments) - len(cut)
            if self.each_once and (again := len(segments) - len(once := tuple(dict.fromkeys(segments)))):
                counts.repeated += again
                target = self.segmentation.joiner.join(segments := once)
        else:
            given = record.target_segments
            segments = tuple(filter(None, map(str.strip, given)))
            counts.given += 1
            counts.dropped += len(given) - len(segments)
            if target == " ".join(given):  # as the reader put a list together
                target = self.segmentation.joiner.join(segments)
        if len(segments) > most:
            counts.merged += 1
            rest, sizes = iter(segments), group_adjacent(self.count_tokens(segments), most)
            segments = tuple(self.segmentation.joiner.join(islice(rest, size)) for size in sizes)
        self._count(segments, delay=1)
        return replace(record, target=target, target_segments=segments)

    def _fields(self, record: Record) -> Record:
        """The texts of an object's values, or of a plain text that says one, as a teacher writes it."""
        fields, target = self.segmentation.fields, record.target_fields
        if target is None:
            texts = self.segmenter.cut(record.target or "")
        else:
            texts = value_texts(target, fields, record.where)
            known = {field.name for field in fields}
            self.counts.unlisted += sum(is_filled(target[name]) for name in target if name not in known)
        self._count(tuple(filter(None, texts)), delay=0)
        return replace(record, target_segments=texts)

    def _count(self, segments: Sequence[str], delay: int) -> None:
        counts, lengths = self.counts, self.count_tokens(segments)
        # Subsequence i, from 0, fits if its <eos> stands within time_max: start_i + m_i + 1 ≤ time_max.
        too_long = sum(length >= self.time_max - i * delay for i, length in enumerate(lengths))
        counts.targets += 1
        counts.empty += not segments
        counts.too_long += too_long
        counts.too_long_targets += too_long > 0
        counts.longest = max(counts.longest, *lengths, 0)


def group_adjacent(lengths: Sequence[int], most: int) -> list[int]:
    """The sizes of groups of neighbours, `most` of them if there are as many items, the longest as short as can be."""
    if len(lengths) <= most:
        return [1] * len(lengths)
    limits = range(max(lengths), sum(lengths))
    shortest = bisect_left(limits, True, key=lambda limit: len(_filled(lengths, limit)) <= most)
    sizes = _filled(lengths, limits.start + shortest)
    # Filling groups up may need fewer than allowed; take grouped items apart again, the last groups first: what
    # starts late should be short.
    spare, apart = most - len(sizes), list[int]()
    for size in reversed(sizes):
        taken = min(spare, size - 1)
        spare -= taken
        apart[:0] = [size - taken] + [1] * taken
    return apart


def _filled(lengths: Sequence[int], limit: int) -> list[int]:
    """The sizes of groups filled one after the other up to a limit."""
    sizes, total = list[int](), limit + 1
    for length in lengths:
        if total + length > limit:
            sizes.append(0)
            total = 0
        sizes[-1] += 1
        total += length
    return sizes


def split_long(
    segments: Sequence[str], time_max: int, most: int, count_tokens: TokenCounter
) -> tuple[str, ...]:
    """Split the segments that do not fit into time_max at Δt = 1, each at its last clause end, space or character.

    Characters count in scripts without spaces only: a single word stays whole. Merging keeps to `most` later.
    """
    done: list[str] = []
    for segment in segments:
        rest = segment
        while rest:
            allowed = max(1, time_max - min(len(done) + 1, most))
            piece, rest = (
                (rest, "") if count_tokens([rest])[0] <= allowed else _split(rest, allowed, count_tokens)
            )
            done.append(piece)
    return tuple(done)


def _split(segment: str, allowed: int, count_tokens: TokenCounter) -> tuple[str, str]:
    """The longest start of a segment that fits and ends well, and the rest; all and nothing if it is one word."""
    spaces = [match.start() for match in re.finditer(r"\s+", segment)]
    characters = range(1, len(segment)) if mostly_spaceless([segment]) else ()
    for ends in (clause_ends(segment), spaces, characters):
        fitting = bisect_right(ends, allowed, key=lambda end: count_tokens([segment[:end]])[0])
        if fitting and (rest := segment[ends[fitting - 1] :].strip()):
            return segment[: ends[fitting - 1]].strip(), rest
    if places := characters or spaces:  # the first word alone does not fit; what follows may
        return segment[: places[0]].strip(), segment[places[0] :].strip()
    return segment, ""


@dataclass(frozen=True, slots=True)
class TargetStatistics:
    """The paper's Table 1 for one set of records; words are those of `count_words`."""

    examples: int
    words_per_target: float
    subsequences_per_target: float
    words_per_subsequence: float  # over the whole set
    histogram: Mapping[int, int]  # how many targets have n subsequences, by n, ascending

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON, the averages rounded to what a table shows and a bit more."""
        return rounded(asdict(self), 3)


def describe_targets(records: Iterable[Record]) -> TargetStatistics:
    """The statistics of segmented records; those without segments are left out, and so are keys without a value."""
    words = 0
    histogram: Counter[int] = Counter()
    for record in records:
        if record.target_segments is not None:
            filled = list(filter(None, record.target_segments))
            words += sum(map(count_words, filled))
            histogram[len(filled)] += 1
    examples, subsequences = histogram.total(), sum(n * count for n, count in histogram.items())
    a_target, a_subsequence = max(1, examples), max(1, subsequences)  # of nothing the means are 0
    means = (words / a_target, subsequences / a_target, words / a_subsequence)
    return TargetStatistics(examples, *means, dict(sorted(histogram.items())))
