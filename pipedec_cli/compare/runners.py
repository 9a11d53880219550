"""Our decoders as runners that can be timed: on the engine, on forced lengths, and in exact mode."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, Self, get_args

from pipedec_cli.compare.child import spec_of
from pipedec_cli.compare.timing import (
    Clock,
    Output,
    Pass,
    Source,
    sum_known,
    time_of,
    watched,
)
from pipedec_cli.data.paper import TARGET_LENGTHS
from pipedec_cli.data.records import Draft
from pipedec_cli.pipeline.decode import Finished, Row, StepModel, decode
from pipedec_cli.pipeline.grid import EmptyRows, Limits, Method, Odds, Opening
from pipedec_cli.pipeline.schedule import Fixed, Together, Whole

if TYPE_CHECKING:
    from pipedec_cli.decoding.decoder import Decoder


#: Of English prose in T5's vocabulary, about: the paper's Table 1 counts words.
TOKENS_A_WORD: Final = 4 / 3
#: Any token that is not special.
_WORD: Final = 4


@dataclass(frozen=True, slots=True)
class Lengths:
    """Numbers of tokens that a bench forces on every model: of the source, and of each subsequence of its text."""

    source: int  # with its <eos>
    targets: tuple[int, ...]  # of each subsequence, without its <eos>
    origin: str  # where these lengths are from, in words
    #: Of objects, whose subsequences are values: the tokens of the key before each.
    keys: tuple[int, ...] = ()
    plain: int | None = None  # of objects: of the text of a sequential model

    @classmethod
    def even(
        cls, source: int, subsequences: int, tokens: int, origin: str = "as given"
    ) -> Self:
        """The lengths of so many `subsequences` with so many `tokens` in all, which differ by at most one, the longer first."""
        each, longer = divmod(tokens, subsequences)
        targets = (each + 1,) * longer + (each,) * (subsequences - longer)
        return cls(source, targets, origin)

    @classmethod
    def of_dataset(cls, name: str, source: int) -> Self:
        """The mean lengths of one of the paper's data sets, its words as tokens."""
        row = TARGET_LENGTHS[name]
        words = row.words_per_target
        subsequences = row.subsequences_per_target
        counts = f"{words} words in {subsequences} subsequences"
        origin = f"{name}: the paper's {row.table}, {counts}, 4 tokens for 3 words"
        tokens = round(words * TOKENS_A_WORD)
        return cls.even(source, round(subsequences), tokens, origin)

    @classmethod
    def of_fields(cls, source: int, keys: int = 12, tokens: int = 3) -> Self:
        """The lengths of an object with so many keys, whose values have so many `tokens` each.

        As one text each value has 4 more, for its key and the marks between them.
        """
        return cls(
            source,
            targets=(tokens,) * keys,
            origin=f"fields: {keys} keys of 2 tokens, values of {tokens}",
            keys=(2,) * keys,
            plain=keys * (tokens + 4),
        )

    @property
    def tokens(self) -> int:
        """All tokens of the target; with fields, of the sequential model's text."""
        return self.plain or sum(self.targets)

    @property
    def line(self) -> str:
        """The lengths in words."""
        shortest = min(self.targets)
        longest = max(self.targets)
        each = f"{shortest}" if shortest == longest else f"{shortest} to {longest}"
        total = f"{sum(self.targets):,} target tokens"
        written = f"{total} in {len(self.targets)} subsequences of {each}"
        if self.plain:
            written = f"{written}; {self.plain:,} in the plain text"
        return f"{self.source:,} source tokens, {written} ({self.origin})"

    def method(
        self,
        bos: int | None,
        eos: int,
        delay: int | Literal["together", "blind"] | None,
        empty_rows: EmptyRows = "retry",
    ) -> Method:
        """A decoding method whose limits let every text reach these lengths.

        Args:
            bos: the token that opens a row; None for a prompt that goes on.
            eos: the token that ends a row; for blind rows it opens them, too.
            delay: Δt in time-steps; ``together`` for objects, also ``blind``: no row
                sees another. None: the text is one row.
            empty_rows: what happens after an empty row.
        """
        longest = max(self.targets)
        if delay is None:
            limits = Limits(None, None, self.tokens + 1)
            return Method(Whole(), bos, eos, limits, empty_rows)
        if not isinstance(delay, int):
            # Each row begins with the tokens of a key; here these are any tokens.
            is_blind = delay == "blind"
            return Method(
                Together(),
                eos if is_blind else bos,
                eos,
                Limits(longest + 1, None),
                openings=tuple(Opening((_WORD,) * count) for count in self.keys),
                blind=is_blind,
            )
        usual = Limits()
        count = len(self.targets)
        time_max = max(usual.time_max or 0, delay * count + longest + 2)
        sub_max = max(usual.sub_max or 0, count + 1)
        return Method(Fixed(delay), bos, eos, Limits(time_max, sub_max), empty_rows)

    def sources(
        self, count: int, vocabulary: int, eos: int | None, seed: int = 0
    ) -> list[list[int]]:
        """So many sources (`count`) of random tokens below `vocabulary`, without special ones.

        Each ends in `eos`; with None they are prompts, which go on.
        """
        rng = random.Random(seed)  # noqa: S311  # chance, not secrecy
        end = [] if eos is None else [eos]
        sources = []
        for _ in range(count):
            words = rng.choices(range(3, vocabulary), k=self.source - len(end))
            sources.append(words + end)
        return sources


class Metered:
    """A `StepModel` that runs another one: it counts `calls` and `rows`, and times admissions.

    It can also force lengths on the model: see `__init__`.
    """

    def __init__(
        self,
        model: StepModel,
        clock: Clock,
        targets: Sequence[int] | None = None,
        eos: int = -1,
    ) -> None:
        """Count the calls of a model, and time it by a clock.

        With `targets` each subsequence ends after so many tokens, with `eos`, whatever
        the model answers, and later subsequences are empty. The model's own token stays
        unless it would end a subsequence too early. None: nothing is forced.
        """
        self.model = model
        self.clock = clock
        self.release = model.release
        self.take_back = model.take_back
        self.calls = 0
        self.rows = 0
        self.admitting = 0.0  # seconds in encoder and set-up
        self._targets = targets
        self._eos = eos
        #: The tokens so far of each subsequence, by sequence.
        self._lengths: dict[int, Counter[int]] = {}

    def admit(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Pass examples on."""
        for sequence, _ in newcomers:
            self._lengths[sequence] = Counter()
        self.admitting += time_of(self.clock, lambda: self.model.admit(newcomers))

    def step(self, rows: Sequence[Row]) -> Sequence[int]:
        """Compute, and return the answers."""
        return self._counted(rows, self.model.step(rows))

    def step_with_odds(
        self, rows: Sequence[Row], top: int = 0
    ) -> tuple[Sequence[int], Sequence[Odds]]:
        """Compute, and return the answers as well as the model's odds: how probable answers were, the `top` most probable ones with them."""
        tokens, odds = self.model.step_with_odds(rows, top)
        return self._counted(rows, tokens), odds

    def _counted(self, rows: Sequence[Row], tokens: Sequence[int]) -> Sequence[int]:
        """Count a call, and return the model's tokens, those that are forced in their place."""
        self.calls += 1
        self.rows += len(rows)
        if self._targets is None:
            return tokens
        # Rows without an answer are not counted.
        return [
            self._forced(row, token, self._targets) if row.slot.answers else token
            for row, token in zip(rows, tokens, strict=True)
        ]

    def _forced(self, row: Row, token: int, targets: Sequence[int]) -> int:
        """A row's token, or another one where its subsequence has to end, or must not end yet."""
        lengths = self._lengths[row.sequence]
        number = row.slot.subsequence  # from 1
        lengths[number] += 1
        length = targets[number - 1] if number <= len(targets) else 0
        if lengths[number] > length:
            return self._eos
        if token == self._eos:  # any other token that is not special
            return 4 if self._eos == 3 else 3
        return token


#: The names of exact mode in `--compare`: exact-pipelined, …
EXACT: Final[Mapping[str, Draft]] = {
    f"exact-{draft}": draft for draft in get_args(Draft)
}
#: Separates the two halves of a source in exact mode: ids of the sequential model, then
#: ids of the drafter.
SEPARATOR: Final = -1


class EngineRunner:
    """A checkpoint on our engine with one method: at a delay, waiting, or sequential."""

    largest_batch: int | None = None

    def __init__(
        self,
        decoder: Decoder,
        choice: Mapping[str, Any],
        lengths: Lengths | None = None,
    ) -> None:
        """Choose how the decoder decodes.

        Args:
            decoder: a loaded decoder.
            choice: the arguments of `Decoder.method`. They are kept, because a method
                cannot be sent to a child process: it holds functions of the checkpoint.
            lengths: the lengths to force, which work with every model and delay. None:
                the model ends its texts.

        Raises:
            UserError: nothing is forced, and the checkpoint was not trained for the
                delay.
        """
        self.decoder = decoder
        self.choice = dict(choice)
        self.lengths = lengths
        if lengths is None:
            self.method = decoder.method(**choice)
        else:
            checkpoint = decoder.checkpoint
            bos: int | None = checkpoint.opener
            if checkpoint.backbone.prompted and self.choice.get("delay") is None:
                bos = None  # one row, which goes on from the prompt
            self.method = lengths.method(bos, checkpoint.eos, **self.choice)
        self._whole = isinstance(self.method.schedule, Whole)

    @property
    def settings(self) -> Mapping[str, str]:
        """Kernels, schedule, bounds and dtype."""
        from pipedec_cli.model.arguments import name_of

        method = self.method
        weights = self.decoder.weights
        settings = {"kernels": weights.kernels, "schedule": method.schedule.name}
        if not self._whole and not method.openings:
            settings["empty_rows"] = method.empty_rows
        if method.stop_on_repeat:
            settings["stop_on_repeat"] = "yes"
        for name, bound in asdict(method.limits).items():
            if bound is not None:
                settings[name] = str(bound)
        settings["dtype"] = name_of(weights.dtype)
        return settings

    def read(self, text: str) -> list[int]:
        """The ids of a source, as `run` takes them."""
        return self.decoder.text.source(text)[0]

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Decode the sources, `batch_size` at a time, and time the parts of it by the clock."""
        return self.decode(sources, self.method, batch_size, clock)[0]

    def decode(
        self,
        sources: Sequence[Source],
        method: Method | Callable[[int], Method],
        batch_size: int,
        clock: Clock,
    ) -> tuple[Pass, list[Finished]]:
        """Decode the sources by a method, or by one for each; see `Runner.run`. Returns also how each example ended, in order."""
        targets = None
        if self.lengths is not None:
            targets = (self.lengths.tokens,) if self._whole else self.lengths.targets
        engine = self.decoder.engine(batch_size)
        engine.forget()  # each pass reads its sources
        meter = Metered(engine, clock, targets, self.decoder.checkpoint.eos)
        ended = []
        with watched(self.decoder.weights.encoder, clock) as encoder:
            for event in decode(meter, enumerate(sources), method, batch_size):
                if isinstance(event, Finished):
                    ended.append(event)
        ended.sort(key=lambda end: end.example)
        # Without an encoder, admitting an example is reading its prompt.
        encoding = meter.admitting
        set_up = None
        if encoder:
            encoding = sum(encoder)
            set_up = meter.admitting - encoding
        measured = Pass(
            outputs=tuple(map(_output, ended)),
            calls=meter.calls,
            encoder_seconds=encoding,
            setup_seconds=set_up,
            rows=meter.rows,
        )
        return measured, ended

    def spec(self) -> tuple[str, dict[str, Any]]:
        """What makes the same runner in a child process: ``module:function``, and its arguments as JSON has them."""
        payload = spec_of(self.decoder.checkpoint, self.settings["dtype"])
        payload["choice"] = self.choice
        payload["lengths"] = None if self.lengths is None else asdict(self.lengths)
        return f"{__name__}:from_spec", payload


def _output(end: Finished) -> Output:
    tokens = tuple(chain(*end.texts))
    return Output(tokens, end.grid.steps, end.grid.row_budget_exhausted)


class QuestionsRunner(EngineRunner):
    """A model whose rows answer questions: which answers there are depends on the source.

    It cannot be sent to a child process, so its memory is not measured.
    """

    def __init__(self, decoder: Decoder) -> None:
        """Take a decoder with blind rows."""
        super().__init__(decoder, {})
        self._methods: dict[tuple[int, ...], Method] = {}

    def read(self, text: str) -> list[int]:
        """The ids of a source; how its rows are answered is kept for `run`."""
        ids = super().read(text)
        assert self.method.of_source is not None
        self._methods[tuple(ids)] = self.method.of_source(self.method, text)
        return ids

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Answer the questions about sources that were read."""
        methods = [self._methods[tuple(source)] for source in sources]
        return self.decode(sources, methods.__getitem__, batch_size, clock)[0]


class ExactRunner(EngineRunner):
    """A sequential model whose text is checked against drafts.

    The time to draft, and to tokenize the draft, counts. The cost of guesses is
    measured in the first pass at each batch size.
    """

    def __init__(self, exact: Decoder, choice: Mapping[str, Any]) -> None:
        """Take a decoder of exact mode. `choice` is how its drafter decodes: the arguments of its `Decoder.method`.

        Its max_tokens also bounds the text.
        """
        assert exact.drafter is not None
        bound = {"max_tokens": choice.get("max_tokens")}
        super().__init__(exact.drafter.plain, bound)
        self.draft = exact.drafter
        drafter = exact.drafter.decoder  # None if no model drafts
        self.drafter = EngineRunner(drafter, choice) if drafter else None
        self._costs: dict[int, tuple[float, ...]] = {}

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of the sequential model, and of the draft."""
        settings = {**super().settings, "draft": self.draft.kind}
        if self.drafter is not None:
            drafter = self.drafter.settings
            words = f"{drafter['schedule']} {drafter.get('empty_rows', '')}"
            settings["drafted by"] = words.rstrip()
        return settings

    def read(self, text: str) -> list[int]:
        """The ids of a source; with a pipelined drafter those of both models, `SEPARATOR` between them."""
        ids = super().read(text)
        if self.drafter is None:
            return ids
        return [*ids, SEPARATOR, *self.drafter.read(text)]

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Draft the texts of all sources, then let the sequential model check them, `batch_size` at a time.

        The parts are timed by the clock.
        """
        from pipedec_cli.decoding.exact import measured

        if batch_size not in self._costs:
            self._costs[batch_size] = measured(self.decoder, batch_size)
        check = self.draft.check(self.method.limits.max_tokens, self._costs[batch_size])
        if self.drafter is None:
            return self.decode(sources, check, batch_size, clock)[0]
        own = []  # the sources as the sequential model reads them
        theirs = []  # the same as the drafter does
        for source in sources:
            middle = list(source).index(SEPARATOR)
            own.append(source[:middle])
            theirs.append(source[middle + 1 :])
        drafting, ends = self.drafter.decode(
            theirs, self.drafter.method, batch_size, clock
        )
        for end in ends:
            draft = self.drafter.decoder.reader.read(end)
            check.drafts[end.example] = self.draft.ids(draft)
        checking, _ = self.decode(own, check, batch_size, clock)
        return _both(checking, drafting)

    def spec(self) -> tuple[str, dict[str, Any]]:
        """What makes the same runner in a child process, which holds both models: ``module:function``, and its arguments."""
        factory, payload = super().spec()
        payload["draft"] = self.draft.kind
        if self.drafter is not None:
            payload["drafter"] = self.drafter.decoder.checkpoint.name
            payload["choice"] = self.drafter.choice
        return factory, payload


def _both(checking: Pass, drafting: Pass) -> Pass:
    """The pass that checks drafts, with the work of the pass that drafted added to it."""
    outputs = []
    for checked, draft in zip(checking.outputs, drafting.outputs, strict=True):
        outputs.append(Output(checked.tokens, checked.steps + draft.steps))
    return Pass(
        outputs=tuple(outputs),
        calls=checking.calls + drafting.calls,
        encoder_seconds=sum_known([checking.encoder_seconds, drafting.encoder_seconds]),
        setup_seconds=sum_known([checking.setup_seconds, drafting.setup_seconds]),
        draft_calls=drafting.calls,
        rows=checking.rows,
    )


def make_runner(decoder: Decoder, choice: Mapping[str, Any]) -> EngineRunner:
    """The runner of a decoder of ours.

    The choice is how it decodes or, in exact mode, how its drafter does.
    """
    if decoder.drafter:
        return ExactRunner(decoder, choice)
    if decoder.blind:
        return QuestionsRunner(decoder)
    return EngineRunner(decoder, choice)


def from_spec(
    *,
    name: str,
    eos: int,
    threads: int,
    choice: dict[str, Any],
    lengths: dict[str, Any] | None,
    draft: Draft | None = None,
    drafter: str | None = None,
    **loaded: Any,
) -> EngineRunner:
    """The runner that `EngineRunner.spec` describes, made in a child process: its checkpoints are loaded anew.

    Args:
        name: the checkpoint.
        eos: the id that ends texts: in a chat it differs from that of the checkpoint.
        threads: that compute.
        choice: the arguments of `Decoder.method`.
        lengths: the fields of the `Lengths` to force; None: nothing is forced.
        draft: what drafts in exact mode; None in other modes.
        drafter: the checkpoint of a pipelined drafter.
        loaded: dtype and device.
    """
    import torch

    from pipedec_cli.decoding.decoder import load
    from pipedec_cli.decoding.exact import exact_decoder

    torch.set_num_threads(threads)
    decoder = load(name, **loaded)
    decoder.checkpoint.eos = eos
    if draft is None:
        return EngineRunner(decoder, choice, Lengths(**lengths) if lengths else None)
    drafts: Any = draft if drafter is None else load(drafter, **loaded)
    return ExactRunner(exact_decoder(decoder, drafts), choice)
