"""What is counted over a run of `pipedec generate`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pipedec_cli.data.records import Generated

#: Identifiers that are remembered, to be named in a warning.
REMEMBERED: Final = 5


@dataclass(slots=True)
class Marked:
    """Examples that have something in common.

    Attributes:
        count: how many.
        first: identifiers of the first few.
    """

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, identifier: str) -> None:
        """Count one."""
        self.count += 1
        if self.count <= REMEMBERED:
            self.first.append(identifier)


@dataclass(slots=True)
class Tally:
    """Counts over the examples that a run has generated; those that a resumed run found done are not among them.

    Attributes:
        unknown_id: the id of the tokenizer's unknown token; None if it has none.
        examples: how many.
        steps: the examples' own decoder calls, added up.
        tokens: <eos> not counted.
        truncated: examples by what cut them short.
        exhausted: examples whose empty explorations kept a later one from being made, as `sub_max` was reached.
        cut: examples whose source was cut.
        unknown: those whose source holds unknown characters.
    """

    unknown_id: int | None
    examples: int = 0
    steps: int = 0
    tokens: int = 0
    truncated: Counter[str] = field(default_factory=Counter)
    exhausted: int = 0
    cut: Marked = field(default_factory=Marked)
    unknown: Marked = field(default_factory=Marked)

    @property
    def tokens_per_step(self) -> float:
        """Tokens that an example's decoder call gives it on average."""
        return self.tokens / self.steps if self.steps else 0.0

    def add(self, identifier: str, generated: Generated) -> None:
        """Count one example."""
        self.examples += 1
        self.steps += generated.steps
        self.tokens += generated.tokens
        if generated.truncated is not None:
            self.truncated[generated.truncated] += 1
        self.exhausted += generated.used_up
        if generated.source_cut:
            self.cut.add(identifier)
        if self.unknown_id is not None and self.unknown_id in generated.source_ids:
            self.unknown.add(identifier)

    def as_json(self) -> dict[str, Any]:
        """The counts as plain values."""
        return {
            "examples": self.examples,
            "steps": self.steps,
            "tokens": self.tokens,
            "tokens_per_step": round(self.tokens_per_step, 4),
            "truncated": dict(sorted(self.truncated.items())),
            "explorations_exhausted": self.exhausted,
            "sources_cut": self.cut.count,
            "sources_with_unknown": self.unknown.count,
        }
