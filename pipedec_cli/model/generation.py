"""Texts in, texts out: sources sorted into sequences, decoded, and given back in the order in which they came."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Generated, Segmentation
from pipedec_cli.data.segmentation import cut
from pipedec_cli.model.batches import TextEncoder
from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings
from pipedec_cli.model.engine import Engine
from pipedec_cli.model.weights import DecoderWeights, lay_out
from pipedec_cli.pipeline.decode import Admitted, Event, Finished, Method, decode
from pipedec_cli.pipeline.grid import SEQUENTIAL_LIMITS, Explore, Limits
from pipedec_cli.pipeline.schedule import Fixed, Schedule, Waiting, Whole

#: Sources are sorted by length within this many batches: far enough to even the lengths out, and bounded.
SORTED_BATCHES: Final = 16
#: Δt of a checkpoint that serves any.
DEFAULT_DELAY: Final = 2

#: What stands in for the settings of a checkpoint that this tool has not trained: an ordinary T5.
PLAIN_T5: Final = MethodSettings("sequential", "any", Segmentation("sentence", (), " "))

Delay = int | Literal["sequential"]


@dataclass(slots=True)
class _Open:
    """A source that has been read and not yet given back."""

    ids: list[int]
    cut: int
    admitted: float = 0.0
    result: Generated | None = None


class Generator:
    """A checkpoint ready to generate, with room for a number of examples at once.

    Its output does not depend on the batch size: in float32 the tokens are those of one at a time, near-ties apart.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        batch_size: int = 1,
        max_source_tokens: int | None = None,
        weights: DecoderWeights | None = None,
        consume: bool = False,
    ) -> None:
        """Lay out the weights.

        Args:
            checkpoint: the model, in the dtype and on the device to decode with.
            batch_size: how many examples are in flight.
            max_source_tokens: another limit than the checkpoint's.
            weights: what `weights.lay_out` made of this model before, to be shared.
            consume: empty the model's own matrices as they are laid out; see `weights.lay_out`.
        """
        self.checkpoint = checkpoint
        self.settings = checkpoint.settings or PLAIN_T5
        self.batch_size = batch_size
        self.weights = weights or lay_out(checkpoint.model, consume=consume)
        self.engine = Engine(checkpoint.model, batch_size, weights=self.weights)
        encoder = checkpoint.encoder(self.settings)
        if max_source_tokens is not None:
            encoder.max_source_tokens = max_source_tokens
        self.text: TextEncoder = encoder

    def method(
        self,
        delay: Delay | None = None,
        *,
        explore: Explore = "retry",
        time_max: int | None = None,
        sub_max: int | None = None,
        max_tokens: int | None = None,
        untrained: bool = False,
    ) -> Method:
        """How to decode; see `choose_method`."""
        return choose_method(
            self.checkpoint,
            delay,
            explore=explore,
            time_max=time_max,
            sub_max=sub_max,
            max_tokens=max_tokens,
            untrained=untrained,
        )

    def run(self, sources: Iterable[str], method: Method) -> Iterator[Event | Generated]:
        """Generate from texts.

        Sources are read a window at a time, so memory is bounded by what is in flight and not by the input.

        Args:
            sources: the contexts.
            method: from `method`.

        Yields:
            The decoding's events as they happen, and each `Generated` in input order as soon as the order allows.
        """
        waiting: dict[int, _Open] = {}
        due = 0
        for event in decode(self.engine, self._sorted(sources, waiting), method, self.batch_size):
            if isinstance(event, Admitted):
                waiting[event.example].admitted = time.perf_counter()
            yield event
            if isinstance(event, Finished):
                waiting[event.example].result = self._result(event, waiting[event.example])
            while due in waiting and (result := waiting[due].result):
                del waiting[due]
                due += 1
                yield result

    def texts(self, sources: Iterable[str], method: Method | None = None) -> Iterator[Generated]:
        """Generate from texts, the results alone."""
        for item in self.run(sources, method or self.method()):
            if isinstance(item, Generated):
                yield item

    def _sorted(
        self, sources: Iterable[str], waiting: dict[int, _Open]
    ) -> Iterator[tuple[int, Sequence[int]]]:
        """Sources as ids, longest first within a window, so that the sequences' lengths are alike."""
        numbered = enumerate(sources)
        size = 1 if self.batch_size == 1 else self.batch_size * SORTED_BATCHES
        while window := list(islice(numbered, size)):
            for index, text in window:
                ids, cut = self.text.source(text)
                waiting[index] = _Open(ids, cut)
            for index in sorted((index for index, _ in window), key=lambda i: -len(waiting[i].ids)):
                yield index, waiting[index].ids

    def _result(self, event: Finished, source: _Open) -> Generated:
        text, segments = self._put_together([self.text.text(ids) for ids in event.texts])
        return Generated(
            index=event.example,
            text=text,
            segments=segments,
            steps=event.steps,
            tokens=event.tokens,
            truncated=event.truncated,
            seconds=time.perf_counter() - source.admitted,
            grid=tuple((row.start, tuple(row.tokens)) for row in event.subsequences),
            empty=sum(row.empty for row in event.subsequences),
            used_up=event.used_up,
            source_ids=tuple(source.ids),
            source_cut=source.cut,
        )

    def _put_together(self, texts: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """The whole text and its segments; a sequential decoder's text is cut as the training targets were."""
        found = tuple(filter(None, texts))
        if self.settings.decoder == "sequential" and self.checkpoint.segmenter is not None:
            whole = "".join(found)
            return whole, cut(whole, self.checkpoint.segmenter)
        return self.settings.segmentation.joiner.join(found), found


def choose_method(
    checkpoint: Checkpoint,
    delay: Delay | None = None,
    *,
    explore: Explore = "retry",
    time_max: int | None = None,
    sub_max: int | None = None,
    max_tokens: int | None = None,
    untrained: bool = False,
) -> Method:
    """How to decode with a checkpoint: by its own settings where nothing is given.

    Args:
        checkpoint: the model.
        delay: Δt, or ``sequential`` for the sequential schedule; by default as trained, 2 if trained for any.
            A sequential checkpoint is an ordinary T5 and takes none.
        explore: the exploration rule.
        time_max: the last time-step; a fixed delay has 50 by default, the sequential decoders none.
        sub_max: the most subsequences; a fixed delay has 20 by default, the sequential decoders no bound.
        max_tokens: the most tokens; the sequential decoders have 512 by default, a fixed delay no bound.
        untrained: allow a delay that the checkpoint was not trained for.

    Raises:
        UserError: the checkpoint was not trained for that delay.
    """
    settings = checkpoint.settings or PLAIN_T5
    schedule = _choose_schedule(checkpoint.name, settings, delay, untrained=untrained)
    if isinstance(schedule, Fixed):
        limits = Limits(time_max or settings.time_max, sub_max or settings.sub_max, max_tokens)
    else:
        limits = Limits(time_max, sub_max, max_tokens or SEQUENTIAL_LIMITS.max_tokens)
    return Method(schedule, checkpoint.bos, checkpoint.eos, limits, explore)


def _choose_schedule(
    name: str, settings: MethodSettings, delay: Delay | None, *, untrained: bool
) -> Schedule:
    if settings.decoder == "sequential":
        if delay not in (None, "sequential"):
            raise UserError(
                f"{name} is an ordinary T5 and has no delay",
                todo="leave --delay out, or use a checkpoint that `pipedec train` made with --decoder pipelined",
            )
        return Whole()
    trained = settings.delay
    wanted = delay or (DEFAULT_DELAY if trained == "any" else trained)
    if trained not in ("any", wanted) and not untrained:
        raise UserError(
            f"{name} was trained for delay {trained} only; at {wanted} it would take the first later exploration "
            "for the end and drop the rest of the text",
            todo=f"use --delay {trained}, train with --delay any, or insist with --untrained-delay",
        )
    return Waiting() if wanted == "sequential" else Fixed(wanted)


def generate_texts(
    checkpoint: Checkpoint, sources: Sequence[str], *, max_tokens: int | None = None
) -> list[str]:
    """Texts from sources with the checkpoint's own settings.

    Args:
        checkpoint: the model.
        sources: the contexts.
        max_tokens: another bound on the sequential decoders' tokens than the usual one.
    """
    generator = Generator(checkpoint, batch_size=8)
    bound = max_tokens if generator.settings.decoder == "sequential" else None
    return [generated.text for generated in generator.texts(sources, generator.method(max_tokens=bound))]
