"""The grids of a report to replay: the tokens of each decoder call of an example, beside the baseline's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pipedec_cli.compare.runners import EngineRunner
from pipedec_cli.data.errors import many
from pipedec_cli.metrics.measure import record_beside
from pipedec_cli.page.examples import shortened, shown_first, shown_places, size
from pipedec_cli.page.page import Section, template
from pipedec_cli.pipeline.grid import openings_of
from pipedec_cli.pipeline.schedule import Subsequence
from pipedec_cli.view.console import one_line
from pipedec_cli.view.live import AFTER_PROMPT, BOS, EOS, RowText, Words

if TYPE_CHECKING:
    from pipedec_cli.compare.comparison import Report
    from pipedec_cli.compare.entry import Entry
    from pipedec_cli.data.records import Generated
    from pipedec_cli.pipeline.grid import Method


#: The most bytes of all examples together, and of one.
BUDGET: Final = 450_000
MOST: Final = BUDGET // 10
#: Characters of a source in the heading of an example.
HEADING: Final = 300
#: Stands between the tokens of a row.
BETWEEN: Final = "\n"


@dataclass(frozen=True, slots=True)
class _Traced:
    """A decoder whose grids are stored. `piece` is the text of a token, given the token before it.

    The clock has the milliseconds before the first call, and of a call.
    """

    entry: Entry
    made: Sequence[Generated]
    piece: Callable[[int | None, int], str]
    words: Words
    method: Method
    clock: list[float] | None

    @classmethod
    def of(cls, entry: Entry) -> _Traced | None:
        """The decoder of an entry; None if there are no grids."""
        made = entry.quality.scored.run.predictions if entry.quality.scored else ()
        if not isinstance(entry.runner, EngineRunner) or not any(
            each.grid for each in made
        ):
            return None
        words, method = entry.runner.decoder.text.decode, entry.runner.method
        special = {} if method.bos is None else {method.bos: BOS}
        special |= dict.fromkeys((*method.ends, method.eos), EOS)

        @cache
        def piece(before: int | None, token: int) -> str:
            """The text of a token after another token, as in the live view."""
            if token in special:
                return special[token]
            text = RowText()
            text.extend(
                Subsequence(0, [token] if before is None else [before, token]), words
            )
            return text.pieces[-1]

        clock = None
        if timing := entry.timings.get(1):  # one example at a time
            reading = (timing.encoder_seconds or 0.0) + (timing.setup_seconds or 0.0)
            spent = (
                reading / timing.examples,
                (timing.seconds - reading) / timing.decoder_calls,
            )
            clock = [round(1000 * part, 4) for part in spent]
        return cls(entry, made, piece, words, method, clock)


def replay(report: Report) -> Section | None:
    """The section that replays examples; None if no predictions have their grids."""
    found = [traced for entry in report.entries if (traced := _Traced.of(entry))]
    scored = report.first.quality.scored
    if scored is None or not found:
        return None
    left, examples = BUDGET, list[dict[str, Any]]()
    for number, place in enumerate(shown_places(report)):
        item, runs = (
            scored.items[place],
            [_trace(traced.made[place], traced) for traced in found],
        )
        example = {
            "at": number,  # in the list of examples
            "place": place + 1,
            "id": shortened(item.id, 80),
            "source": shortened(record_beside(item).source, HEADING),
            "runs": runs,
        }
        taken = size(example)
        if any(runs) and taken <= min(left, MOST):
            examples.append(example)
            left -= taken
    if not examples:
        return None
    names = [traced.entry.name for traced in found]
    data = {
        "decoders": [
            {"name": one.entry.name, "role": one.entry.role, "clock": one.clock}
            for one in found
        ],
        "usual": shown_first(names, report),
        "part": report.part,
        "between": BETWEEN,
        "examples": examples,
    }
    notes, of = list[str](), len(scored.items)
    if len(examples) < of:
        notes.append(
            f"{many(len(examples), 'example')} of {of:,}: more would make this page too large"
        )
    if lacking := sorted(
        {entry.name for entry in report.entries if entry.quality.scored} - {*names}
    ):
        notes.append(
            f"not {', '.join(lacking)}: the predictions have no grid (trace=false)"
        )
    timed = any(one.clock for one in found)
    if timed:
        means = (
            f"the means of {many(report.sample.timed, 'timed example')}, one at a time"
        )
        notes.append(f"measured time: {means}, for the source and for each call")
    body = template("replay.html", notes=notes, timed=timed, part=report.part)
    return Section("replay", "The grid replayed", body, data, "replay.js")


def _trace(made: Generated, by: _Traced) -> dict[str, Any] | None:
    """The grid of one example for the script. None if there is none or if it is not consistent: a file may be damaged.

    A row has its start, whether it has ended, its tokens, and its opening unless that
    is <bos>. `calls` are the times after the calls, if these are not 1, 2, 3, ...;
    `gone` has the call, row, time and text of each wrong guess of exact mode; `draft`
    is the number of calls that made a draft.
    """
    rows, times = list[tuple[int, bool, str, *tuple[str, ...]]](), set[int]()
    openings = [AFTER_PROMPT]  # the given starts of the rows
    if by.method.bos is not None:
        openings = [
            one_line(by.words(one.known).strip())
            for one in openings_of(by.method, made.grid)
        ]
    for number, (start, tokens) in enumerate(made.grid):
        ended = not {by.method.eos, *by.method.ends}.isdisjoint(tokens[-1:])
        text = tokens[: len(tokens) - ended]
        pieces = [
            by.piece(before, token)
            for before, token in zip((None, *text), text, strict=False)
        ]
        rows.append(
            (start, ended, BETWEEN.join(pieces), *openings[number : number + 1])
        )
        times.update(range(start + 1, start + len(tokens) + 1))
    calls, draft = made.calls or tuple(sorted(times)), made.draft_steps or 0
    endless = max((*times, *calls), default=0) >= MOST
    foreign = any(row > len(rows) for _, row, *_ in made.taken_back)
    if not rows or endless or foreign or len(calls) != made.steps - draft:
        return None
    trace: dict[str, Any] = {"rows": rows, "steps": len(calls)}
    if made.calls or calls[-1] != len(calls):
        trace["calls"] = calls
    gone = [
        (call, row, time, by.piece(None, token))
        for call, row, time, token in made.taken_back
    ]
    optional = {"draft": draft, "gone": gone, "cut": made.truncated}
    return trace | {name: value for name, value in optional.items() if value}
