"""Exact mode as a competitor: a plain model's own text, and what its draft costs and saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, get_args

from pipedec_cli.data.records import Draft
from pipedec_cli.evaluate.competitor import EngineRunner
from pipedec_cli.evaluate.timing import Clock, Output, Pass, Source, of_known

if TYPE_CHECKING:
    from pipedec_cli.model.decoder import Decoder
    from pipedec_cli.model.exact import ExactDecoder

#: What `--compare` calls them: exact-pipelined, …
EXACT: Final[Mapping[str, Draft]] = {f"exact-{draft}": draft for draft in get_args(Draft)}
#: Stands in a source behind the ids of the plain model, before those of the decoder that drafts.
BETWEEN: Final = -1


def source_ids(decoder: Decoder, text: str) -> list[int]:
    """A source in ids, as the decoder's runner takes it; where another one drafts, in ids of both."""
    drafter: Decoder | None = getattr(decoder, "drafter", None)
    own = decoder.text.source(text)[0]
    return own if drafter is None else [*own, BETWEEN, *drafter.text.source(text)[0]]


class ExactRunner(EngineRunner):
    """A plain model whose text is checked against drafts; drafting, and tokenizing the draft, is part of what is timed.

    What guesses cost is measured in the first pass at a batch size.
    """

    def __init__(self, exact: ExactDecoder, choice: Mapping[str, Any]) -> None:
        """Drafts are made as the choice says, by the arguments of `Decoder.method`."""
        super().__init__(exact.plain, {})
        self.exact, by = exact, exact.drafter
        self.drafter = EngineRunner(by, choice) if by is not None else None
        self._costs: dict[int, tuple[float, ...]] = {}

    @property
    def settings(self) -> Mapping[str, str]:
        """Those of the plain model, and of the draft."""
        drafter = self.drafter.settings if self.drafter else {}
        drafts = " ".join(drafter[name] for name in ("schedule", "empty_rows") if name in drafter)
        by = {"drafted by": drafts} if drafts else {}
        return {**super().settings, "draft": self.exact.kind, **by}

    def run(self, sources: Sequence[Source], batch_size: int, clock: Clock) -> Pass:
        """Draft all, then check; see `Runner.run`."""
        if batch_size not in self._costs:
            self._costs[batch_size] = self.exact.measured(batch_size)
        check = self.exact.check(self.method.limits.max_tokens, self._costs[batch_size])
        if self.drafter is None:
            return self.decode(sources, check, batch_size, clock)[0]
        at = [list(source).index(BETWEEN) for source in sources]
        theirs = [source[place + 1 :] for place, source in zip(at, sources, strict=True)]
        drafting, ends = self.drafter.decode(theirs, self.drafter.method, batch_size, clock)
        for end in ends:
            check.drafts[end.example] = self.exact.draft(self.drafter.decoder.joined(end)[0])
        own = [source[:place] for place, source in zip(at, sources, strict=True)]
        checking, _ = self.decode(own, check, batch_size, clock)
        both = zip(checking.outputs, drafting.outputs, strict=True)
        outputs = [Output(mine.tokens, mine.steps + other.steps) for mine, other in both]
        encoding = of_known([checking.encoder_seconds, drafting.encoder_seconds], sum)
        set_up = of_known([checking.setup_seconds, drafting.setup_seconds], sum)
        calls, drafted = checking.calls + drafting.calls, drafting.calls
        return Pass(outputs, calls, encoding, set_up, draft_calls=drafted, rows=checking.rows)

    def spec(self) -> tuple[str, dict[str, Any]]:
        """The same for a child process, which holds both models."""
        _, plain = super().spec()
        given = {key: plain[key] for key in ("name", "eos", "dtype", "device", "threads")}
        by = self.drafter and (self.drafter.decoder.checkpoint.name, self.drafter.choice)
        return "pipedec_cli.evaluate.exact:from_spec", {**given, "draft": by or (self.exact.kind, {})}


def make_runner(decoder: Decoder, choice: Mapping[str, Any]) -> EngineRunner:
    """What times a decoder of ours that decodes, or whose drafter decodes, as the choice says; see `EngineRunner`."""
    from pipedec_cli.model.exact import ExactDecoder

    return (
        ExactRunner(decoder, choice) if isinstance(decoder, ExactDecoder) else EngineRunner(decoder, choice)
    )


def from_spec(
    *, name: str, eos: int, draft: tuple[str, dict[str, Any]], threads: int, **loaded: Any
) -> ExactRunner:
    """Load the checkpoints anew, the text of the plain one to end with the id `eos`; see `ExactRunner.spec`."""
    import torch

    from pipedec_cli.model.decoder import load
    from pipedec_cli.model.exact import ExactDecoder

    torch.set_num_threads(threads)
    by, choice = draft
    kind: Any = load(by, **loaded) if choice else by
    plain = load(name, **loaded)
    plain.checkpoint.eos = eos
    return ExactRunner(ExactDecoder(plain, kind), choice)
