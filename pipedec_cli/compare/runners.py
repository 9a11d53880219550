"""Our decoders as runners that can be timed: on the engine, on forced lengths, and in exact mode."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
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
    """Tokens of the source with its <eos>, and of each subsequence without.

    `origin` says where these lengths are from. With fields, each subsequence is a value
    after a key with `keys` tokens; the sequential model writes `plain` tokens.
    """

    source: int
    targets: tuple[int, ...]
    origin: str
    keys: tuple[int, ...] = ()
    plain: int | None = None

    @classmethod
    def even(
        cls, source: int, subsequences: int, tokens: int, origin: str = "as given"
    ) -> Self:
        """Divide tokens among subsequences that differ by at most one, the longer first."""
        each, longer = divmod(tokens, subsequences)
        targets = (each + 1,) * longer + (each,) * (subsequences - longer)
        return cls(source, targets, origin)

    @classmethod
    def of_dataset(cls, name: str, source: int) -> Self:
        """The mean lengths of one of the paper's data sets, its words as tokens."""
        row = TARGET_LENGTHS[name]
        words, subsequences = row.words_per_target, row.subsequences_per_target
        counts = f"{words} words in {subsequences} subsequences"
        origin = f"{name}: the paper's {row.table}, {counts}, 4 tokens for 3 words"
        tokens = round(words * TOKENS_A_WORD)
        return cls.even(source, round(subsequences), tokens, origin)

    @classmethod
    def of_fields(cls, source: int, keys: int = 12, tokens: int = 3) -> Self:
        """The lengths of an object whose values have so many tokens.

        As one text each value has 4 more.
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
        shortest, longest = min(self.targets), max(self.targets)
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
        """A method that only these lengths end.

        Without a delay the target is one string; fields start ``together``, also
        ``blind``.
        """
        longest = max(self.targets)
        if delay is None:
            limits = Limits(None, None, self.tokens + 1)
            return Method(Whole(), bos, eos, limits, empty_rows)
        if not isinstance(delay, int):
            is_blind = delay == "blind"
            return Method(
                Together(),
                eos if is_blind else bos,
                eos,
                Limits(longest + 1, None),
                openings=tuple(Opening((_WORD,) * count) for count in self.keys),
                blind=is_blind,
            )
        usual, count = Limits(), len(self.targets)
        time_max = max(usual.time_max or 0, delay * count + longest + 2)
        sub_max = max(usual.sub_max or 0, count + 1)
        return Method(Fixed(delay), bos, eos, Limits(time_max, sub_max), empty_rows)

    def sources(
        self, count: int, vocabulary: int, eos: int | None, seed: int = 0
    ) -> list[list[int]]:
        """Sources of random tokens below `vocabulary`, without special ones.

        Each has its <eos>; without eos, they are prompts.
        """
        rng = random.Random(seed)  # noqa: S311  # chance, not secrecy
        end = [] if eos is None else [eos]
        sources = []
        for _ in range(count):
            words = rng.choices(range(3, vocabulary), k=self.source - len(end))
            sources.append(words + end)
        return sources


class Metered:
    """A `StepModel` that runs another one: it counts calls and rows, and times admissions.

    With `targets`, subsequences end after these numbers of tokens, and later
    subsequences are empty. The model's own token stays unless it would end a
    subsequence too early.
    """

    def __init__(
        self,
        model: StepModel,
        clock: Clock,
        targets: Sequence[int] | None = None,
        eos: int = -1,
    ) -> None:
        """Count and time the calls of a model.

        With `targets` each row ends after so many tokens, whatever the model answers:
        its end is `eos`. Both are for made-up lengths.
        """
        self.model, self.clock = model, clock
        self.release, self.take_back = model.release, model.take_back
        self.calls = self.rows = 0
        self.admitting = 0.0  # seconds in encoder and set-up
        self._targets, self._eos = targets, eos
        self._made: dict[int, Counter[int]] = {}

    def admit(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Pass examples on."""
        for sequence, _ in newcomers:
            self._made[sequence] = Counter()
        self.admitting += time_of(self.clock, lambda: self.model.admit(newcomers))

    def step(self, rows: Sequence[Row]) -> Sequence[int]:
        """Compute, and return the answers."""
        return self._counted(rows, self.model.step(rows))

    def step_with_odds(
        self, rows: Sequence[Row], top: int = 0
    ) -> tuple[Sequence[int], Sequence[Odds]]:
        """The same; the odds are the model's."""
        tokens, odds = self.model.step_with_odds(rows, top)
        return self._counted(rows, tokens), odds

    def _counted(self, rows: Sequence[Row], tokens: Sequence[int]) -> Sequence[int]:
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
        """The token, or the one that gives its subsequence the length of its target."""
        made, number = self._made[row.sequence], row.slot.subsequence
        made[number] += 1
        length = targets[number - 1] if number <= len(targets) else 0
        if made[number] > length:
            return self._eos
        if token == self._eos:
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
        """Choose a method by the arguments of `Decoder.method`.

        Forced lengths work with every model and delay (None: the whole target as one
        string). Else a UserError if the checkpoint was not trained for the delay. The
        choice is kept, because a method cannot be sent to a child process: it holds
        functions of the checkpoint.
        """
        self.decoder, self.choice, self.lengths = decoder, dict(choice), lengths
        if lengths is None:
            self.method = decoder.method(**choice)
        else:
            checkpoint = decoder.checkpoint
            bos: int | None = checkpoint.opener
            if checkpoint.backbone.prompted and self.choice.get("delay") is None:
                bos = None
            self.method = lengths.method(bos, checkpoint.eos, **self.choice)
        self._whole = isinstance(self.method.schedule, Whole)

    @property
    def settings(self) -> Mapping[str, str]:
        """Kernels, schedule, bounds and dtype."""
        method, weights = self.method, self.decoder.weights
        settings = {"kernels": weights.kernels, "schedule": method.schedule.name}
        if not self._whole and not method.openings:
            settings["empty_rows"] = method.empty_rows
        if method.stop_on_repeat:
            settings["stop_on_repeat"] = "yes"
        for name, bound in asdict(method.limits).items():
            if bound is not None:
                settings[name] = str(bound)
        settings["dtype"] = str(weights.dtype).removeprefix("torch.")
        return settings

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Decode; see `Runner.run`."""
        return self.decode(sources, self.method, batch_size, clock)[0]

    def decode(
        self, sources: Sequence[Source], method: Method, batch_size: int, clock: Clock
    ) -> tuple[Pass, list[Finished]]:
        """Decode with some method. Returns also how each example ended."""
        targets = None
        if self.lengths is not None:
            targets = (self.lengths.tokens,) if self._whole else self.lengths.targets
        engine = self.decoder.engine(batch_size)
        engine.forget()  # each pass reads its sources
        meter = Metered(engine, clock, targets, self.decoder.checkpoint.eos)
        ended = list[Finished]()
        with watched(self.decoder.weights.encoder, clock) as encoder:
            for event in decode(meter, enumerate(sources), method, batch_size):
                if isinstance(event, Finished):
                    ended.append(event)
        ended.sort(key=lambda end: end.example)
        # Without an encoder, admitting an example is reading its prompt.
        encoding, set_up = meter.admitting, None
        if encoder:
            encoding = sum(encoder)
            set_up = meter.admitting - encoding
        made = Pass(
            outputs=tuple(map(_output, ended)),
            calls=meter.calls,
            encoder_seconds=encoding,
            setup_seconds=set_up,
            rows=meter.rows,
        )
        return made, ended

    def spec(self) -> tuple[str, dict[str, Any]]:
        """The same for a child process."""
        payload = spec_of(self.decoder.checkpoint, self.settings["dtype"])
        payload["choice"] = self.choice
        payload["lengths"] = None if self.lengths is None else asdict(self.lengths)
        return f"{__name__}:from_spec", payload


def _output(end: Finished) -> Output:
    tokens = tuple(chain(*end.texts))
    return Output(tokens, end.grid.steps, end.grid.row_budget_exhausted)


class ExactRunner(EngineRunner):
    """A sequential model whose text is checked against drafts.

    The time to draft, and to tokenize the draft, counts. The cost of guesses is
    measured in the first pass at each batch size.
    """

    def __init__(self, exact: Decoder, choice: Mapping[str, Any]) -> None:
        """Draft as the choice says, by the arguments of `Decoder.method`."""
        assert exact.drafter is not None
        super().__init__(exact.drafter.plain, {})
        self.draft, drafter = exact.drafter, exact.drafter.decoder
        self.drafter = EngineRunner(drafter, choice) if drafter else None
        self._costs: dict[int, tuple[float, ...]] = {}

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of the sequential model, and of the draft."""
        settings = {**super().settings, "draft": self.draft.kind}
        if self.drafter is not None:
            drafter = self.drafter.settings
            how = f"{drafter['schedule']} {drafter.get('empty_rows', '')}"
            settings["drafted by"] = how.rstrip()
        return settings

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Draft all, then check; see `Runner.run`."""
        from pipedec_cli.decoding.exact import measured

        if batch_size not in self._costs:
            self._costs[batch_size] = measured(self.decoder, batch_size)
        check = self.draft.check(self.method.limits.max_tokens, self._costs[batch_size])
        if self.drafter is None:
            return self.decode(sources, check, batch_size, clock)[0]
        own, theirs = [], []
        for source in sources:
            place = list(source).index(SEPARATOR)
            own.append(source[:place])
            theirs.append(source[place + 1 :])
        drafting, ends = self.drafter.decode(
            theirs, self.drafter.method, batch_size, clock
        )
        for end in ends:
            draft = self.drafter.decoder.reader.read(end)
            check.drafts[end.example] = self.draft.ids(draft)
        checking, _ = self.decode(own, check, batch_size, clock)
        return _both(checking, drafting)

    def spec(self) -> tuple[str, dict[str, Any]]:
        """The same for a child process, which holds both models."""
        factory, payload = super().spec()
        payload["draft"] = self.draft.kind
        if self.drafter is not None:
            payload["drafter"] = self.drafter.decoder.checkpoint.name
            payload["choice"] = self.drafter.choice
        return factory, payload


def _both(checking: Pass, drafting: Pass) -> Pass:
    """A pass that checks, with the work of the pass that drafted."""
    outputs = []
    for checked, draft in zip(checking.outputs, drafting.outputs, strict=True):
        outputs.append(Output(checked.tokens, checked.steps + draft.steps))
    both = (checking, drafting)
    return Pass(
        outputs=tuple(outputs),
        calls=checking.calls + drafting.calls,
        encoder_seconds=sum_known([made.encoder_seconds for made in both]),
        setup_seconds=sum_known([made.setup_seconds for made in both]),
        draft_calls=drafting.calls,
        rows=checking.rows,
    )


def make_runner(decoder: Decoder, choice: Mapping[str, Any]) -> EngineRunner:
    """The runner of a decoder of ours.

    The choice is how it decodes or, in exact mode, how its drafter does.
    """
    if decoder.drafter:
        return ExactRunner(decoder, choice)
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
    """Load the checkpoints anew, as `pipedec generate` does; see `EngineRunner.spec`.

    Texts end with the id `eos`: in a chat it differs from the id that the checkpoint
    names.
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


def source_ids(decoder: Decoder, text: str) -> list[int]:
    """A source in ids, as the decoder's runner takes it; with a drafter, of both."""
    ids, drafter = decoder.text.source(text)[0], decoder.drafter
    if drafter is None or drafter.decoder is None:
        return ids
    return [*ids, SEPARATOR, *drafter.decoder.text.source(text)[0]]
