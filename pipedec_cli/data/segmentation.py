"""Cuts a target into its subsequences, makes them fit the grid, and chooses the joiner that puts them together again.

The joined segments give the text back, except for white space. At level ``phrase`` the
first separator stands for all of them, and empty phrases, as in ``a;;b``, are dropped
and counted.
"""

import base64
import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from math import prod
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pipedec_cli.data.errors import UserError, first_line
from pipedec_cli.data.fields import (
    Field,
    FieldSegmenter,
    any_item,
    kind_of,
    leaves,
    value_texts,
)
from pipedec_cli.data.records import Level, Record, Segmentation
from pipedec_cli.data.sentences import (
    SentenceModel,
    count_words,
    mostly_spaceless,
    train_sentences,
)


@dataclass(frozen=True, slots=True)
class SentenceSegmenter:
    """Cuts after each sentence; with `clauses`, also after any punctuation that ends a clause."""

    model: SentenceModel
    clauses: bool = False

    def cut(self, text: str) -> tuple[str, ...]:
        """The segments of a text."""
        return tuple(text[start:end] for start, end in self.spans(text))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end of each segment, without white space around it."""
        spans = []
        for start, end in pairwise([0, *self.model.ends(text, clauses=self.clauses)]):
            segment = text[start:end].strip()
            if segment:
                first = text.index(segment, start)
                spans.append((first, first + len(segment)))
        return spans


@dataclass(frozen=True, slots=True)
class PhraseSegmenter:
    """Cuts at separators, which belong to no segment."""

    separators: tuple[str, ...] = (";",)

    def cut(self, text: str) -> tuple[str, ...]:
        """The phrases of a text, without empty ones."""
        return tuple(filter(None, self._pieces(text)))

    def dropped(self, text: str) -> int:
        """The number of empty phrases that `cut` leaves out of a text; one after a closing separator does not count."""
        if not text.strip():
            return 0
        pieces = self._pieces(text)
        if len(pieces) > 1 and not pieces[-1]:
            pieces.pop()
        return pieces.count("")

    def _pieces(self, text: str) -> list[str]:
        longest_first = sorted(self.separators, key=len, reverse=True)
        return [
            piece.strip()
            for piece in re.split("|".join(map(re.escape, longest_first)), text)
        ]


Segmenter = SentenceSegmenter | PhraseSegmenter | FieldSegmenter
_LINE_BREAKS: Final = "\n\r\u2028\u2029\u0085\v\f"


def make_segmenter(
    level: Level,
    targets: Iterable[str] = (),
    sources: Iterable[str] = (),
    *,
    separators: Sequence[str] = (),
    fields: tuple[Field, ...] = (),
) -> Segmenter:
    """What cuts texts at a level.

    Args:
        level: what a segment is.
        targets: the texts on which the finder of sentences is trained, for sentences
            and clauses.
        sources: more of such texts.
        separators: for phrases, what stands between two; none: ``;``.
        fields: for objects, the keys.
    """
    if level == "phrase":
        if not all(separators):
            raise UserError("a separator must not be empty")
        return PhraseSegmenter(tuple(separators)) if separators else PhraseSegmenter()
    if separators:
        todo = "leave out --separator, or use --level phrase"
        raise UserError(f"level {level} has no separators", todo=todo)
    if level == "field":
        return FieldSegmenter(fields)
    return SentenceSegmenter(
        train_sentences(targets, sources), clauses=level == "clause"
    )


def joiner_of(records: Sequence[Record], segmenter: Segmenter) -> str:
    """The text that is put between two segments of a prediction.

    For sentences and clauses it is a space or nothing, as between the segments of most
    targets of the `records`; sources serve where there are no targets. If line breaks
    and lists leave it open, the script of most letters decides. For phrases it is the
    first separator and, unless that is white space or of full width, a space.
    """
    if isinstance(segmenter, FieldSegmenter):
        return "; "
    if isinstance(segmenter, PhraseSegmenter):
        return _joiner_of_phrases(segmenter.separators[0])
    gaps: list[str] = []
    texts = []
    every = max(1, len(records) // 1000)  # a thousand targets are enough
    for record in records[::every]:
        text = record.source if record.target is None else record.target
        texts.append(text)
        if record.target_segments is None:
            gaps += _gaps_in(text, segmenter)
    telling = [gap for gap in gaps if not gap or gap.strip(_LINE_BREAKS)]  # no breaks
    if telling:
        with_gap = sum(map(bool, telling))
        return " " if 2 * with_gap >= len(telling) else ""
    return "" if mostly_spaceless(texts) else " "


def _joiner_of_phrases(separator: str) -> str:
    is_wide = re.search(r"[\u3000-\u303f\uff00-\uffef]", separator) is not None
    if separator.isspace() or is_wide:
        return separator
    return f"{separator} "


def _gaps_in(text: str, segmenter: SentenceSegmenter) -> Iterator[str]:
    """What stands between the segments of a text."""
    for (_, end), (start, _) in pairwise(segmenter.spans(text)):
        yield text[end:start]


#: The most characters that a file may make of a single one: NFKC, in T5's and many
#: others, makes up to 33 bytes.
MOST: Final = 1_000
#: The most characters of JSON of what stands around each text.
_AROUND: Final = 20_000


def check_growth(name: str, *, local: bool) -> None:
    """Refuse, with a ValueError, a tokenizer.json by which a short text fills the memory.

    `name` is a folder or a model of the hub, which is not asked if `local`.
    """
    from transformers.utils import cached_file

    file = cached_file(
        name,
        "tokenizer.json",
        local_files_only=local,
        _raise_exceptions_for_missing_entries=False,
    )
    if file:
        check_content(Path(file).read_bytes())


def check_content(tokenizer: bytes) -> None:
    """Refuse, with a ValueError, the content of a tokenizer.json by which a short text fills the memory."""
    content = json.loads(tokenizer)
    # Else the tokenizer has other files, or cannot be loaded.
    if not isinstance(content, dict):
        return
    for name in ("normalizer", "decoder"):
        if _growth(content.get(name)) > MOST:
            what = f"makes more than {MOST:,} characters of one"
            raise ValueError(f"the {name} in tokenizer.json {what}")
    if len(json.dumps(content.get("post_processor"))) > _AROUND:
        what = "puts too much around a text"
        raise ValueError(f"the post_processor in tokenizer.json {what}")


def _growth(step: Any) -> int:
    """The most characters that a step of a tokenizer.json, or a list of steps, makes of one character.

    Steps that follow one another multiply.
    """
    if isinstance(step, list):
        return prod(map(_growth, step))
    if not isinstance(step, dict):
        return 1
    longest = max(len(str(step.get(name, ""))) for name in ("content", "prepend"))
    charsmap = step.get("precompiled_charsmap")
    if charsmap:
        # The size of a tree in four bytes, the tree, and the texts that it leads to,
        # each with a zero byte at its end.
        table = base64.b64decode(charsmap)
        texts = table[4 + int.from_bytes(table[:4], "little") :]
        longest = max(map(len, texts.split(b"\0")))
    return max(1, longest) * prod(
        _growth(step.get(name)) for name in ("normalizers", "decoders")
    )


#: Gives the length of each text, at least 1.
TokenCounter = Callable[[Sequence[str]], list[int]]


def token_counter(tokenizer: str | None) -> TokenCounter:
    """What counts the tokens of texts, without special ones.

    `tokenizer` is the folder or the hub name of one; a UserError if none can be loaded.
    Without a tokenizer words are counted.
    """
    if tokenizer is None:
        return lambda texts: [max(1, count_words(text)) for text in texts]
    is_local = Path(tokenizer).exists()
    is_path = tokenizer.count("/") > 1 or tokenizer.startswith((".", "/", "~"))
    todo = "give a checkpoint folder or a hub name"
    if is_path and not is_local:
        raise UserError("no such folder", where=tokenizer, todo=todo)
    from transformers import AutoTokenizer

    try:
        check_growth(tokenizer, local=is_local)
        loaded: Any = AutoTokenizer.from_pretrained(
            tokenizer, local_files_only=is_local, trust_remote_code=False
        )
    except KeyboardInterrupt:
        raise
    # The errors of its parsers, in Python and in Rust, and of its HTTP client.
    except BaseException as error:
        why = first_line(error).removesuffix(".")
        what = f"no tokenizer can be loaded from {tokenizer!r}: {why}"
        raise UserError(what, todo=todo) from error

    def count_tokens(texts: Sequence[str]) -> list[int]:
        if not texts:
            return []
        encoded = loaded(list(texts), add_special_tokens=False, verbose=False)
        return [max(1, len(ids)) for ids in encoded["input_ids"]]

    return count_tokens


@dataclass(slots=True)
class Counts:
    """What was done to the targets."""

    targets: int = 0
    given: int = 0  # targets that came segmented, as a list
    empty: int = 0  # targets without a segment
    merged: int = 0  # targets with too many segments, whose neighbours were joined
    dropped: int = 0  # empty phrases, as in ``a;;b``, and empty parts of lists, which were left out
    too_long: int = 0  # subsequences that do not fit into time_max at Δt = 1; decoding would cut them
    too_long_targets: int = 0
    longest: int = 0  # the length of the longest subsequence
    unlisted: int = 0  # values of keys that the schema does not have
    repeated: int = 0  # segments left out because their text had them before
    rejoined: int = 0  # targets that the joiner does not put together as they were


@dataclass(slots=True)
class Preparer:
    """Segments the targets of records, one after the other, and counts what it does."""

    segmenter: Segmenter  # for targets that are no lists
    segmentation: Segmentation  # gives the joiner and sub_max
    count_tokens: TokenCounter
    time_max: int  # the last time-step of the grid
    each_once: bool = False  # leave out a segment that its text had before
    counts: Counts = field(default_factory=Counts)

    def segment(self, record: Record) -> Record:
        """The record with its `target_segments`; a target that was a list is now one string."""
        if self.segmentation.level == "field":
            return self._segment_object(record)
        if record.target_fields is not None:
            todo = "--level field makes a row of each of its keys"
            raise UserError("the target is an object", where=record.where, todo=todo)
        target = record.target or ""
        given = record.target_segments
        joiner = self.segmentation.joiner
        if given is not None:
            segments = tuple(filter(None, map(str.strip, given)))
            self.counts.given += 1
            self.counts.dropped += len(given) - len(segments)
            if target == " ".join(given):  # the reader put a list together
                target = joiner.join(segments)
        else:
            segments = self._cut(target)
            once = tuple(dict.fromkeys(segments))
            if self.each_once and len(once) < len(segments):
                self.counts.repeated += len(segments) - len(once)
                target = joiner.join(once)
                segments = once
        # The empty subsequence that closes every target needs a row.
        most = self.segmentation.sub_max - 1
        if len(segments) > most:
            self.counts.merged += 1
            rest = iter(segments)
            sizes = group_adjacent(self.count_tokens(segments), most)
            segments = tuple(joiner.join(islice(rest, size)) for size in sizes)
        self._count(segments, delay=1)
        return replace(record, target=target, target_segments=segments)

    def _cut(self, target: str) -> tuple[str, ...]:
        """The segments of a target. Counts what was dropped, and whether the joiner puts them together as they were."""
        segments = self.segmenter.cut(target)
        if isinstance(self.segmenter, PhraseSegmenter):
            self.counts.dropped += self.segmenter.dropped(target)
        joined = self.segmentation.joiner.join(segments)
        if re.sub(" +", " ", joined).strip() != re.sub(" +", " ", target).strip():
            self.counts.rejoined += 1
        return segments

    def _segment_object(self, record: Record) -> Record:
        """The record of an object with the texts of its values. A teacher writes the object as a plain text."""
        fields = self.segmentation.fields_of(record)
        target = record.target_fields
        if target is None:
            texts = self.segmenter.cut(record.target or "")
        else:
            texts = value_texts(target, fields, record.where)
            in_schema = {field.keys for field in fields}
            for keys, value in leaves(target):
                if any_item(keys) not in in_schema and kind_of(value) is not None:
                    self.counts.unlisted += 1
        self._count(tuple(filter(None, texts)), delay=0)  # all start together
        return replace(record, target_segments=texts)

    def _count(self, segments: Sequence[str], delay: int) -> None:
        """Count a target with these subsequences, of which each starts `delay` time-steps after the one before it."""
        counts = self.counts
        lengths = self.count_tokens(segments)
        # Subsequence i, from 0, fits if its <eos> stands within time_max: start_i + m_i
        # + 1 ≤ time_max.
        too_long = sum(
            length >= self.time_max - i * delay for i, length in enumerate(lengths)
        )
        counts.targets += 1
        counts.empty += not segments
        counts.too_long += too_long
        counts.too_long_targets += too_long > 0
        counts.longest = max(counts.longest, *lengths, 0)


def group_adjacent(lengths: Sequence[int], most: int) -> list[int]:
    """Put neighbours together so that at most so many groups are left, and the longest is as short as possible.

    Returns the number of items of each group; there are `most` groups, unless there are
    fewer items.
    """
    if len(lengths) <= most:
        return [1] * len(lengths)
    limits = range(max(lengths), sum(lengths))
    # The smallest length of a group with which there are few enough groups.
    shortest = bisect_left(
        limits, True, key=lambda limit: len(_filled(lengths, limit)) <= most
    )
    sizes = _filled(lengths, limits.start + shortest)
    # There may be fewer groups than allowed. Take grouped items apart again, the last
    # groups first: a subsequence that starts late should be short.
    spare = most - len(sizes)
    apart = list[int]()
    for size in reversed(sizes):
        taken = min(spare, size - 1)
        spare -= taken
        apart[:0] = [size - taken] + [1] * taken
    return apart


def _filled(lengths: Sequence[int], limit: int) -> list[int]:
    """The number of items of each group, if groups are filled in order up to a `limit` of length."""
    sizes = []
    total = limit + 1
    for length in lengths:
        if total + length > limit:
            sizes.append(0)
            total = 0
        sizes[-1] += 1
        total += length
    return sizes


class TargetStatistics(Struct, frozen=True):
    """The paper's Table 1 for one set of records; `count_words` counts the words."""

    examples: int
    words_per_target: float
    subsequences_per_target: float
    words_per_subsequence: float  # over the whole set
    histogram: Mapping[int, int]  # how many targets have n subsequences, by n


def describe_targets(records: Iterable[Record]) -> TargetStatistics:
    """The statistics of segmented records; records without segments and keys without a value do not count."""
    words = 0
    histogram: Counter[int] = Counter()
    for record in records:
        if record.target_segments is not None:
            filled = list(filter(None, record.target_segments))
            words += sum(map(count_words, filled))
            histogram[len(filled)] += 1
    examples = histogram.total()
    subsequences = sum(n * count for n, count in histogram.items())
    # Without targets the means are 0.
    return TargetStatistics(
        examples,
        words_per_target=words / max(1, examples),
        subsequences_per_target=subsequences / max(1, examples),
        words_per_subsequence=words / max(1, subsequences),
        histogram=dict(sorted(histogram.items())),
    )
