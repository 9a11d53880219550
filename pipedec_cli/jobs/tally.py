"""What is counted of the examples that a run generates, and what of it is said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from pipedec_cli.data.wording import many
from pipedec_cli.pipeline.grid import Limits

if TYPE_CHECKING:
    from pipedec_cli.data.records import Generated

#: Identifiers that a warning names.
NAMED: Final = 5
#: Texts that give a first impression.
FIRST: Final = 16


@dataclass(slots=True)
class Marked:
    """Examples that have something in common: how many, and the ids of the first few, so that memory does not grow."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, identifier: str) -> None:
        """Count one."""
        self.count += 1
        if self.count <= NAMED:
            self.first.append(identifier)

    def __add__(self, other: Marked) -> Marked:
        return Marked(self.count + other.count, [*self.first, *other.first][:NAMED])


@dataclass(slots=True)
class Tally:
    """Counts over the examples that a run has generated; those that a resumed run found done are not among them."""

    unknown_id: int | None  # the tokenizer's unknown token, if it has one
    positions: int | None = None  # that a decoder-only model was made for
    examples: int = 0
    steps: int = 0  # the examples' own decoder calls, added up
    draft_steps: int = 0  # those of them that made a draft, in exact mode
    tokens: int = 0  # without <eos>
    truncated: Counter[str] = field(default_factory=Counter)  # examples by what cut them short
    lost: int = 0  # values of objects that are null, having been cut or being none that the schema allows
    exhausted: int = 0  # examples of which empty explorations took the last of `sub_max` subsequences
    stopped_on_repeat: int = 0  # examples that ended where they began to repeat themselves
    cut: Marked = field(default_factory=Marked)  # examples whose source was cut,
    unknown: Marked = field(default_factory=Marked)  # those whose source holds unknown characters,
    beyond: Marked = field(default_factory=Marked)  # and those that went beyond the model's positions

    def add(self, generated: Generated) -> None:
        """Count one example."""
        self.examples += 1
        self.steps += generated.steps
        self.draft_steps += generated.draft_steps or 0
        self.tokens += generated.tokens
        self.lost += sum(value is None for value in (generated.fields or {}).values())
        self.exhausted += generated.row_budget_exhausted
        self.stopped_on_repeat += generated.stopped_on_repeat
        self.truncated.update(filter(None, [generated.truncated]))
        if generated.source_cut:
            self.cut.add(generated.id)
        if self.unknown_id in generated.source_ids:
            self.unknown.add(generated.id)
        if self.positions is not None:
            rows = enumerate(generated.grid)
            farthest = max((start + len(tokens) + number for number, (start, tokens) in rows), default=0)
            if len(generated.source_ids) + farthest > self.positions:
                self.beyond.add(generated.id)

    def include(self, other: Tally) -> None:
        """Count what another one has counted."""
        self.positions = other.positions
        for name in (one.name for one in fields(self) if one.name not in ("unknown_id", "positions")):
            ours, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, ours + theirs)

    def as_json(self) -> dict[str, Any]:
        """The counts as plain values."""
        return {
            "examples": self.examples,
            "steps": self.steps,
            "draft_steps": self.draft_steps,
            "tokens": self.tokens,
            "tokens_per_step": round(self.tokens / self.steps, 4) if self.steps else 0.0,
            "truncated": dict(sorted(self.truncated.items())),
            "values_lost": self.lost,
            "explorations_exhausted": self.exhausted,
            "stopped_on_repeat": self.stopped_on_repeat,
            "sources_cut": self.cut.count,
            "sources_with_unknown": self.unknown.count,
            "beyond_positions": self.beyond.count,
        }

    def warnings(self, limit: int) -> Iterator[str]:
        """What the model could not see of the sources, of which it takes so many tokens."""
        cut, hint = f"longer than {limit:,} tokens and cut", "; --max-source-tokens sets the limit"
        unknown = "with characters that the tokenizer does not know"
        beyond = (
            f"with what was written beyond the {self.positions or 0:,} positions that the model was made for"
        )
        told = ((self.cut, cut, hint), (self.beyond, beyond, hint), (self.unknown, unknown, ""))
        for marked, what, todo in told:
            if count := marked.count:
                some = f"{count:,} of {many(self.examples, 'source')} {'was' if count == 1 else 'were'}"
                yield f"{some} {what}: id {', '.join(marked.first)}{', …' if count > NAMED else ''}{todo}"

    def first_impression(self, total: int) -> str | None:
        """What is to be said while most of the work is to be done: a model that does not end its texts takes hours for nothing."""
        if self.examples != FIRST or total <= FIRST or self.truncated.total() < FIRST:
            return None
        reasons = ", ".join(sorted(self.truncated))
        return f"all of the first {FIRST} texts were cut short by {reasons}: the model may not end its texts (Ctrl-C stops)"

    def saved_none(self, costs: Sequence[float] | None) -> str | None:
        """That drafts have saved no call, if so, where calls cost so much by the guesses in them."""
        alone = self.tokens + self.examples - self.truncated.total()  # the plain model's calls
        if not self.examples or costs is None or self.steps < alone:
            return None
        if self.steps - self.draft_steps < alone:
            calls = f"{self.steps:,} calls, the drafts' {self.draft_steps:,} among them"
            alike = f"the plain model alone makes {alone:,}: the drafts are too unlike its texts"
            return f"{calls}, where {alike}; --draft source takes no calls for them"
        more = (
            f"one more guess makes a call {costs[1]:.2g} times as long here"
            if len(costs) > 1
            else "none is made"
        )
        return f"no guess has saved a decoder call: {more}; fewer examples at a time make it cheaper (--batch-size 1)"

    def lines(self, seconds: float, limits: Limits) -> Iterator[str]:
        """Counts and rates, a line each."""
        if not self.examples:
            return
        rates = f"{self.examples / seconds:.2f} examples/s, {self.tokens / seconds:,.0f} tokens/s"
        yield f"{many(self.examples, 'example')} in {seconds:.1f} s: {rates}"
        calls = f"{self.tokens:,} tokens in {self.steps:,} decoder calls, each example's own"
        drafting = f"; {self.draft_steps:,} of the calls made drafts" if self.draft_steps else ""
        yield f"{calls}: {self.tokens / max(1, self.steps):.2f} tokens a call{drafting}"
        if self.truncated:
            reasons = ", ".join(f"{times:,} by {reason}" for reason, times in sorted(self.truncated.items()))
            yield f"cut short: {reasons}, of {self.examples:,}"
        if self.stopped_on_repeat:
            yield f"{self.stopped_on_repeat:,} of {self.examples:,} began to repeat themselves: each ends there"
        if self.lost:
            yield f"{many(self.lost, 'value')} of fields null: cut short, or none that the schema allows"
        if self.exhausted:
            yield (
                f"empty explorations used up all {limits.sub_max} subsequences in {self.exhausted:,} of "
                f"{self.examples:,}: text may be missing there; see --empty-rows stop, a larger --delay or --sub-max"
            )
