"""A loaded decoder: checkpoint, method and engine together, from texts to `Generated`."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Delay, Generated, Segmentation
from pipedec_cli.data.writing import file_sha256
from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings, load_checkpoint
from pipedec_cli.model.device import choose_device, choose_dtype
from pipedec_cli.model.steps.engine import Engine
from pipedec_cli.model.steps.weights import DecoderWeights, lay_out
from pipedec_cli.pipeline.decode import Admitted, Event, Finished, Method, decode
from pipedec_cli.pipeline.grid import SEQUENTIAL_LIMITS, Explore, Limits
from pipedec_cli.pipeline.schedule import Fixed, Schedule, Waiting, Whole

#: Sources are sorted by length within this many batches: far enough to even the lengths out, and bounded.
SORTED_BATCHES: Final = 16

#: The settings of a checkpoint that this tool has not trained: those of an ordinary T5.
_PLAIN_T5: Final = MethodSettings("sequential", "any", Segmentation("sentence", (), " "))

#: Files that have no say in what is generated: logs and manifests of the training, and the decoding defaults of others.
_SILENT: Final = frozenset({"generation_config.json", "trainer_state.json", "training.json"})
_TELLING: Final = frozenset({".bin", ".json", ".model", ".safetensors", ".txt"})


@dataclass(slots=True)
class _Open:
    """A source that has been read and not yet given back."""

    ids: list[int]
    cut: int
    admitted: float = 0.0
    result: Generated | None = None


class Decoder:
    """A checkpoint ready to generate.

    Its output does not depend on the batch size: in float32 the tokens are those of one at a time, near-ties apart.

    Attributes:
        checkpoint: the model, in the dtype and on the device to decode with.
        settings: what it was trained for; those of an ordinary T5 where it does not say.
        text: texts to ids and back.
        batch_size: examples in flight where `run` is not told otherwise.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        batch_size: int = 1,
        max_source_tokens: int | None = None,
        consume: bool = False,
    ) -> None:
        """Do nothing yet: the weights are laid out when they are first needed.

        With `consume` the model's own matrices are emptied then, so that they are in memory once; of the model only its
        config is of use afterwards. `max_source_tokens` is another limit than the checkpoint's.
        """
        self.checkpoint = checkpoint
        self.settings = checkpoint.settings or _PLAIN_T5
        self.text = checkpoint.codec()
        if max_source_tokens is not None:
            self.text.max_source_tokens = max_source_tokens
        self.batch_size = batch_size
        self._consume = consume
        self._engines: dict[int, Engine] = {}

    @cached_property
    def weights(self) -> DecoderWeights:
        """What all engines share."""
        return lay_out(self.checkpoint.model, consume=self._consume)

    def engine(self, batch_size: int | None = None) -> Engine:
        """The engine with room for so many examples; it is made once for each number."""
        size = batch_size or self.batch_size
        if size not in self._engines:
            self._engines[size] = Engine(self.checkpoint.model, size, weights=self.weights)
        return self._engines[size]

    @cached_property
    def sha256(self) -> str | None:
        """Of the weights, the configuration and the tokenizer of a folder, wherever it lies; a hub model's commit.

        Folders within, a training's ``checkpoint-N`` among them, are left out.
        """
        folder = Path(self.checkpoint.name)
        if not folder.is_dir():
            commit = getattr(self.checkpoint.model.config, "_commit_hash", None)
            return None if commit is None else str(commit)
        digest = hashlib.sha256()
        for file in sorted(folder.iterdir()):
            if file.is_file() and file.suffix in _TELLING and file.name not in _SILENT:
                digest.update(f"{file.name} {file_sha256(file)}\n".encode())
        return digest.hexdigest()

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
        """How to decode: by the checkpoint's own settings where nothing is given.

        The delay is Δt, or ``wait`` for the schedule that waits; by default as trained, 2 if trained for any. An
        ordinary T5 takes none. With a fixed delay, time_max and sub_max are the checkpoint's by default, and max_tokens
        is not bounded; else max_tokens is 512 by default, and the other two have no bound.

        Raises:
            UserError: the checkpoint was not trained for that delay, and `untrained` does not allow it.
        """
        schedule = self._schedule("wait" if delay == "sequential" else delay, untrained)
        if isinstance(schedule, Fixed):
            limits = Limits(time_max or self.settings.time_max, sub_max or self.settings.sub_max, max_tokens)
        else:
            limits = Limits(time_max, sub_max, max_tokens or SEQUENTIAL_LIMITS.max_tokens)
        return Method(schedule, self.checkpoint.bos, self.checkpoint.eos, limits, explore)

    def _schedule(self, delay: Delay | None, untrained: bool) -> Schedule:
        if self.settings.decoder == "sequential":
            if delay not in (None, "wait"):
                raise UserError(
                    f"{self.checkpoint.name} is an ordinary T5 and has no delay",
                    todo="leave --delay out, or use a checkpoint that `pipedec train` made with --decoder pipelined",
                )
            return Whole()
        trained = self.settings.delay
        wanted = delay or self.settings.usual_delay
        if trained not in ("any", wanted) and not untrained:
            raise UserError(
                f"{self.checkpoint.name} was trained for delay {trained} only; at {wanted} it would take the first "
                "later exploration for the end and drop the rest of the text",
                todo=f"use --delay {trained}, train with --delay any, or insist with --untrained-delay",
            )
        return Fixed(wanted) if isinstance(wanted, int) else Waiting()

    def run(
        self, sources: Iterable[str], method: Method | None = None, batch_size: int | None = None
    ) -> Iterator[Event | Generated]:
        """Generate from texts, which are read a window at a time.

        Yields:
            The decoding's events as they happen, and each `Generated` in input order as soon as the order allows.
        """
        waiting: dict[int, _Open] = {}
        due = 0
        size = batch_size or self.batch_size
        admissions = self._sorted(sources, waiting, 1 if size == 1 else size * SORTED_BATCHES)
        for event in decode(self.engine(size), admissions, method or self.method(), size):
            if isinstance(event, Admitted):
                waiting[event.example].admitted = time.perf_counter()
            yield event
            if isinstance(event, Finished):
                waiting[event.example].result = self._result(event, waiting[event.example])
            while due in waiting and (result := waiting[due].result):
                del waiting[due]
                due += 1
                yield result

    def texts(
        self, sources: Iterable[str], method: Method | None = None, batch_size: int | None = None
    ) -> Iterator[Generated]:
        """Generate from texts, the results alone."""
        for item in self.run(sources, method, batch_size):
            if isinstance(item, Generated):
                yield item

    def _sorted(
        self, sources: Iterable[str], waiting: dict[int, _Open], size: int
    ) -> Iterator[tuple[int, Sequence[int]]]:
        """Sources as ids, longest first within a window, so that those in flight together are alike."""
        numbered = enumerate(sources)
        while window := list(islice(numbered, size)):
            for index, text in window:
                ids, over = self.text.source(text)
                waiting[index] = _Open(ids, over)
            for index in sorted((index for index, _ in window), key=lambda i: -len(waiting[i].ids)):
                yield index, waiting[index].ids

    def _result(self, event: Finished, source: _Open) -> Generated:
        segments = tuple(filter(None, (self.text.decode(ids) for ids in event.texts)))
        text = self.settings.segmentation.joiner.join(segments)
        if self.settings.decoder == "sequential" and self.checkpoint.segmenter is not None:
            # The whole target came as one; it is cut as the training targets were.
            text = "".join(segments)
            segments = self.checkpoint.segmenter.cut(text)
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


def load(
    name: str | Path,
    *,
    batch_size: int = 1,
    dtype: str = "float32",
    device: str = "auto",
    max_source_tokens: int | None = None,
    consume: bool = True,
) -> Decoder:
    """Load a folder that `pipedec train` made, another local T5 or a hub model, and make it ready to generate.

    The dtype is ``float32``, ``bfloat16`` or, on a GPU, ``float16``; the device ``auto``, ``cpu``, ``cuda`` or
    ``cuda:N``. The rest is as in `Decoder`; with `consume` the `checkpoint.model` of what comes back may be empty.

    Raises:
        UserError: the checkpoint is not there or is no T5, or the machine has no such device.
    """
    where = choose_device(device)
    checkpoint = load_checkpoint(str(name), dtype=choose_dtype(dtype, where), device=str(where))
    return Decoder(checkpoint, batch_size=batch_size, max_source_tokens=max_source_tokens, consume=consume)
