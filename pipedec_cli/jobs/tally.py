"""What is counted while a model generates, and what is said of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from pipedec_cli.data.errors import log, many
from pipedec_cli.data.predictions import limit_options
from pipedec_cli.data.records import Generated

#: Identifiers that a warning names.
NAMED: Final = 5
#: Texts after which a model that ends no text is noticed.
FIRST: Final = 16


@dataclass(slots=True)
class Marked:
    """Examples that have something in common: their number, and the ids of the first few, so that memory does not grow."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, identifier: str) -> None:
        """Count one example."""
        self.count += 1
        if self.count <= NAMED:
            self.first.append(identifier)

    def __add__(self, other: Marked) -> Marked:
        return Marked(self.count + other.count, [*self.first, *other.first][:NAMED])


@dataclass(slots=True)
class Tally:
    """Counts over the examples that a run has generated, without those that were there before."""

    examples: int = 0
    steps: int = 0  # decoder calls, each example's own
    draft_steps: int = 0  # those of them that made a draft, in exact mode
    tokens: int = 0  # without <eos>
    keys: int = 0  # of objects that were answered all at once, with a value or without
    #: Examples by the limit that cut them short.
    truncated: dict[str, int] = field(default_factory=dict)
    values_lost: int = 0  # of fields: cut, or not allowed by the schema
    violating: int = 0  # objects of which the JSON Schema does not hold
    #: Objects with a value that must be there and that the text does not have.
    made_up: int = 0
    no_objects: int = 0  # texts without any key of the schema
    row_budget_exhausted: int = 0  # examples whose empty rows used up sub_max
    stopped_on_repeat: int = 0
    chunked: int = 0  # sources that were read in chunks, and how many chunks they had
    chunks: int = 0
    seconds: float = 0.0  # of generating, without what showing took
    sources_cut: Marked = field(default_factory=Marked)
    #: Characters that the tokenizer does not know.
    sources_with_unknown: Marked = field(default_factory=Marked)
    #: Sources with text of more tokens than the model was made for.
    beyond_positions: Marked = field(default_factory=Marked)

    def add(
        self, generated: Generated, unknown_id: int | None, positions: int | None
    ) -> None:
        """Count one example.

        `unknown_id` is the tokenizer's token for characters that it does not know, None
        if it has none. `positions` are the tokens that the model was made for; None if
        it has no such bound.
        """
        self.examples += 1
        self.steps += generated.steps
        self.draft_steps += generated.draft_steps or 0
        self.tokens += generated.tokens
        self.values_lost += generated.values_lost
        self.violating += bool(generated.violations)
        self.made_up += bool(generated.missing)
        self.no_objects += generated.fields == {} and generated.text != "{}"
        self.row_budget_exhausted += generated.row_budget_exhausted
        self.stopped_on_repeat += generated.stopped_on_repeat
        if generated.truncated:
            limit = generated.truncated
            self.truncated[limit] = self.truncated.get(limit, 0) + 1
        if generated.source_cut:
            self.sources_cut.add(generated.id)
        if unknown_id in generated.source_ids:
            self.sources_with_unknown.add(generated.id)
        if positions is not None:
            # Behind the prompt, the position of a token is its time-step and, for each
            # row above its own, one more.
            rows = enumerate(generated.grid)
            farthest = max(
                (start + len(tokens) + number for number, (start, tokens) in rows),
                default=0,
            )
            if len(generated.source_ids) + farthest > positions:
                self.beyond_positions.add(generated.id)

    def include(self, other: Tally) -> None:
        """Add the counts of another tally."""
        truncated = dict(Counter(self.truncated) + Counter(other.truncated))
        for counted in fields(self):
            name = counted.name
            if name != "truncated":
                setattr(self, name, getattr(self, name) + getattr(other, name))
        self.truncated = truncated

    @property
    def cut_short(self) -> int:
        """How many texts were cut short, by any limit."""
        return sum(self.truncated.values())

    def report(
        self, settings: Mapping[str, Any], costs: Sequence[float] | None = None
    ) -> None:
        """Say what was counted in a run with these settings.

        In exact mode `costs` are the times of a decoder call by its number of guesses, in
        calls without a guess.
        """
        self._warn_of_sources(settings)
        self._warn_of_limits()
        self._warn_of_objects()
        if self.row_budget_exhausted:
            log.warning(
                f"{self.row_budget_exhausted:,} of {self.examples:,} texts lost sentences because empty rows used up the "
                f"limit of {settings['sub_max']} rows; see --set empty_rows=stop, a larger --delay, or the key sub_max"
            )
        if self.examples:
            self._tell_of_speed()
            self._tell_of_calls()
            none_saved = self.saved_none(costs)
            if none_saved is not None:
                log.warning(none_saved)

    def _warn_of_sources(self, settings: Mapping[str, Any]) -> None:
        """Warn of sources that the model has not read as they are."""
        hint = "; --max-source-tokens sets the limit"
        cut = f"longer than {settings['max_source_tokens']:,} tokens and cut"
        shots = settings.get("rows", {}).get("shots")
        if "prompt" in settings:
            before = "the prompt with its examples" if shots else "the prompt"
            cut = f"cut, because {before} and the text had more than {settings['max_source_tokens']:,} tokens"
        if shots:
            hint += ", and fewer --shots leave more room"
        beyond = "with text beyond the positions that the model was made for"
        unknown = "with characters that the tokenizer does not know"
        for marked, what, todo in (
            (self.sources_cut, cut, hint),
            (self.beyond_positions, beyond, hint),
            (self.sources_with_unknown, unknown, ""),
        ):
            count = marked.count
            if count:
                were = "was" if count == 1 else "were"
                some = f"{count:,} of {many(self.examples, 'source')} {were}"
                names = ", ".join(marked.first)
                if count > NAMED:
                    names += ", …"
                log.warning(f"{some} {what}: id {names}{todo}")

    def _warn_of_limits(self) -> None:
        """Warn of texts that a limit cut short."""
        if self.truncated:
            reasons = ", ".join(
                f"{times:,} by {reason}"
                for reason, times in sorted(self.truncated.items())
            )
            more = f"`{limit_options(sorted(self.truncated))}` allows more"
            log.warning(f"cut short: {reasons}, of {self.examples:,}; {more}")

    def _warn_of_objects(self) -> None:
        """Warn of objects that are not whole, or not as the schema has them."""
        if self.values_lost:
            lost = f"{many(self.values_lost, 'value')} of fields lost"
            log.warning(f"{lost}: cut short, or none that the schema allows")
        if self.made_up:
            some = f"{self.made_up:,} of {many(self.examples, 'object')}"
            log.warning(
                f"{some} must have a value that the model does not find in the text: `missing` in a line names the keys"
            )
        if self.violating:
            some = f"{self.violating:,} of {many(self.examples, 'object')}"
            log.warning(
                f"{some} do not hold to the schema: `violations` in a line says in what"
            )
        if self.no_objects:
            empty = f"{self.no_objects:,} of {many(self.examples, 'text')}"
            log.warning(f"{empty} hold no key of the schema: kept as they are")

    def _tell_of_speed(self) -> None:
        rates = f"{self.examples / self.seconds:.2f} examples/s, {self.tokens / self.seconds:,.0f} tokens/s"
        log.info(f"{many(self.examples, 'example')} in {self.seconds:.1f} s: {rates}")

    def _tell_of_calls(self) -> None:
        """Say how many decoder calls the texts took, and which of them were read or written in part."""
        written = many(self.tokens, "token")
        rate = f": {self.tokens / max(1, self.steps):.2f} tokens a call"
        if self.keys:
            # The tokens of an object say little: most of its rows may be empty, and a
            # key costs nothing.
            written = many(self.keys, "key")
            rate = ""
        drafting = ""
        if self.draft_steps:
            drafting = f"; {self.draft_steps:,} of the calls made drafts"
        calls = f"{written} took {many(self.steps, 'decoder call')}"
        log.info(f"{calls}{rate}{drafting}")
        if self.chunked:
            log.info(
                f"{many(self.chunked, 'source')} read in {self.chunks:,} chunks, their objects merged"
            )
        if self.stopped_on_repeat:
            some = f"{self.stopped_on_repeat:,} of {self.examples:,}"
            log.info(f"{some} began to repeat themselves: each ends there")

    def warn_early(self, total: int) -> None:
        """Warn, once, of a model that does not end its texts, while most of the `total` is still to be done."""
        if self.examples == FIRST < total and self.cut_short >= FIRST:
            reasons = ", ".join(sorted(self.truncated))
            what = f"all of the first {FIRST} texts were cut short by {reasons}"
            log.warning(f"{what}: the model may not end its texts (Ctrl-C stops)")

    def saved_none(self, costs: Sequence[float] | None) -> str | None:
        """A warning that the guesses of exact mode saved no decoder call; None if they did, and in other modes.

        `costs` are as in `report`; None in other modes.
        """
        # The calls of the sequential model without drafts: each token, and each end.
        alone = self.tokens + self.examples - self.cut_short
        if not self.examples or costs is None or self.steps < alone:
            return None
        if self.steps - self.draft_steps < alone:
            calls = f"{self.steps:,} calls, the drafts' {self.draft_steps:,} among them"
            alike = f"the sequential model alone makes {alone:,}: the drafts are too unlike its texts"
            return f"{calls}, where {alike}; --draft source takes no calls for them"
        more = "none is made"
        if len(costs) > 1:
            more = f"one more guess makes a call {costs[1]:.2g} times as long here"
        return f"no guess has saved a decoder call: {more}; fewer examples at a time make it cheaper (--batch-size 1)"


@dataclass(frozen=True, kw_only=True)
class GenerateResult:
    """What a run did: the file, or the folder of a job, its lines, and the counts of what was generated now."""

    out: str
    rows: int
    counts: Tally
    settings: Mapping[str, Any]
    resumed_from: int = 0  # lines that were there before
    invalid: int = 0  # records that were skipped
    shards: int = 0  # of a job
