"""What a run of `pipedec generate` says for itself, in lines."""

from __future__ import annotations

from collections.abc import Iterator

from pipedec_cli.pipeline.decode import Method
from pipedec_cli.pipeline.schedule import Fixed, Whole
from pipedec_cli.terminal.console import many
from pipedec_cli.terminal.runs.generation_tally import Marked, Tally


def describe_method(method: Method) -> str:
    """Decoder, schedule and exploration rule, for a heading."""
    if isinstance(method.schedule, Whole):
        return "sequential decoder"
    kind = f"Δt = {method.schedule.delay}" if isinstance(method.schedule, Fixed) else "sequential schedule"
    return f"{kind}, explore {method.explore}"


def describe_run(tally: Tally, seconds: float, method: Method) -> Iterator[str]:
    """Counts and rates of what was generated in this run, a line each."""
    if not tally.examples:
        return
    yield (
        f"{many(tally.examples, 'example')} in {seconds:.1f} s: {tally.examples / seconds:.2f} examples/s, "
        f"{tally.tokens / seconds:,.0f} tokens/s"
    )
    yield (
        f"{tally.tokens:,} tokens in {tally.steps:,} decoder calls, each example's own: "
        f"{tally.tokens_per_step:.2f} tokens a call"
    )
    if tally.truncated:
        reasons = ", ".join(f"{count:,} by {reason}" for reason, count in sorted(tally.truncated.items()))
        yield f"cut short: {reasons}, of {tally.examples:,}"
    if tally.exhausted:
        yield (
            f"empty explorations used up all {method.limits.sub_max} subsequences in {tally.exhausted:,} of "
            f"{tally.examples:,}: text may be missing there; see --explore once, a larger --delay or --sub-max"
        )


def describe_sources(tally: Tally, limit: int) -> Iterator[str]:
    """Warnings of what the model could not see of the sources."""
    if tally.cut.count:
        yield (
            f"{_some(tally.cut, tally.examples)} longer than {limit:,} tokens and cut: {_names(tally.cut)}; "
            "--max-source-tokens sets the limit"
        )
    if tally.unknown.count:
        yield (
            f"{_some(tally.unknown, tally.examples)} with characters that the tokenizer does not know: "
            f"{_names(tally.unknown)}"
        )


def _some(marked: Marked, examples: int) -> str:
    return f"{marked.count:,} of {many(examples, 'source')} {'was' if marked.count == 1 else 'were'}"


def _names(marked: Marked) -> str:
    return f"id {', '.join(marked.first)}{', …' if marked.count > len(marked.first) else ''}"
