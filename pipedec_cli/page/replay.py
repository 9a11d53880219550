"""The grids of a report to replay: the tokens of each decoder call of an example, beside the baseline's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pipedec_cli.compare.runners import EngineRunner
from pipedec_cli.data.errors import many
from pipedec_cli.metrics.measure import record_beside
from pipedec_cli.page.examples import (
    NAME_LENGTH,
    shortened,
    shown_count,
    shown_first,
)
from pipedec_cli.page.page import Section, template
from pipedec_cli.pipeline.grid import openings_of
from pipedec_cli.pipeline.schedule import Subsequence
from pipedec_cli.view.console import one_line
from pipedec_cli.view.live import AFTER_PROMPT, BOS, EOS, RowText, Words

if TYPE_CHECKING:
    from pipedec_cli.compare.comparison import Report
    from pipedec_cli.compare.entry import Entry
    from pipedec_cli.compare.timing import Timing
    from pipedec_cli.data.records import Generated
    from pipedec_cli.pipeline.grid import Method


#: The most tokens and the most time-steps of a grid: a browser draws them all.
LONGEST: Final = 2_000
#: Characters of a source in the heading of an example.
HEADING: Final = 300
#: Stands between the tokens of a row.
BETWEEN: Final = "\n"


@dataclass(frozen=True, slots=True)
class _Traced:
    """A decoder whose grids are stored."""

    entry: Entry
    predictions: Sequence[Generated]
    token: Callable[[int | None, int], str]  # the text of a token, given the one before
    words: Words  # the text of token ids
    method: Method
    clock: list[float] | None  # milliseconds before the first call, and of a call


def _traced(entries: Sequence[Entry]) -> Iterator[_Traced]:
    """The decoders that have grids."""
    for entry in entries:
        runner = entry.runner
        scored = entry.quality.scored
        if not scored or not isinstance(runner, EngineRunner):
            continue
        predictions = scored.run.predictions
        if not any(prediction.grid for prediction in predictions):
            continue
        words = runner.decoder.text.decode
        token = _token_texts(words, runner.method)
        clock = _clock(entry.timings.get(1))  # one example at a time
        yield _Traced(entry, predictions, token, words, runner.method, clock)


def _token_texts(words: Words, method: Method) -> Callable[[int | None, int], str]:
    """A function that gives the text of a token, given the one before it, or None at the beginning of a row."""
    special = dict.fromkeys((*method.ends, method.eos), EOS)
    if method.bos is not None:
        special.setdefault(method.bos, BOS)

    @cache
    def text_of(before: int | None, token: int) -> str:
        """The text of a token after another token, as in the live view."""
        if token in special:
            return special[token]
        tokens = [token] if before is None else [before, token]
        text = RowText()
        text.extend(Subsequence(0, tokens), words)
        return text.pieces[-1]

    return text_of


def _clock(timing: Timing | None) -> list[float] | None:
    """The milliseconds of an example before its first decoder call, and those of a call; None if it was not timed."""
    if timing is None:
        return None
    reading = (timing.encoder_seconds or 0.0) + (timing.setup_seconds or 0.0)
    before = reading / timing.examples
    call = (timing.seconds - reading) / timing.decoder_calls
    return [round(1000 * before, 4), round(1000 * call, 4)]


def replay(report: Report) -> Section | None:
    """The section that replays examples; None if no predictions have their grids."""
    decoders = list(_traced(report.entries))
    scored = report.first.quality.scored
    if scored is None or not decoders:
        return None
    examples = []
    for number in range(shown_count(report)):
        runs = [_trace(decoder.predictions[number], decoder) for decoder in decoders]
        item = scored.items[number]
        example = {
            "at": number,  # in the list of examples
            "place": number + 1,
            "id": shortened(item.id, NAME_LENGTH),
            "source": shortened(record_beside(item).source, HEADING),
            "runs": runs,
        }
        if any(runs):
            examples.append(example)
    if not examples:
        return None
    names = [decoder.entry.name for decoder in decoders]
    data = {
        "decoders": [
            {
                "name": decoder.entry.name,
                "role": decoder.entry.role,
                "clock": decoder.clock,
            }
            for decoder in decoders
        ],
        "usual": shown_first(names, report),
        "part": report.part,
        "between": BETWEEN,
        "examples": examples,
    }
    timed = any(decoder.clock for decoder in decoders)
    notes = list(_notes(report, names, len(examples), timed=timed))
    body = template("replay.html", notes=notes, timed=timed, part=report.part)
    return Section("replay", "The grid replayed", body, data, "replay.js")


def _notes(
    report: Report, names: Sequence[str], replayed: int, *, timed: bool
) -> Iterator[str]:
    """Notes on what is not replayed, and on what the times are.

    `names` are those of the decoders that are replayed, `replayed` is the number of
    examples; `timed` says that there are times.
    """
    scored = report.first.quality.scored
    count = len(scored.items) if scored else 0
    if replayed < count:
        long = f"grids of more than {LONGEST:,} tokens or time-steps are left out"
        yield f"{many(replayed, 'example')} of {count:,}, from the first on; {long}"
    lacking = [
        entry.name
        for entry in report.entries
        if entry.quality.scored and entry.name not in names
    ]
    if lacking:
        untraced = ", ".join(sorted(lacking))
        yield f"not {untraced}: the predictions have no grid (trace=false)"
    if timed:
        examples = many(report.sample.timed, "timed example")
        means = f"the means of {examples}, one at a time"
        yield f"measured time: {means}, for the source and for each call"


def _trace(prediction: Generated, decoder: _Traced) -> dict[str, Any] | None:
    """The grid of one example for the page's script; None if there is none, or none that can be drawn.

    Its values: ``rows``, see `_rows`; ``steps``, the number of calls; ``cut``, the limit
    that cut the text; ``calls``, the time-steps after each call, if these are not 1, 2,
    3, …; of exact mode ``draft``, the number of calls that made a draft, and ``gone``,
    the call, row, time and text of each wrong guess.
    """
    calls = prediction.calls or _times(prediction)
    if not calls or not _can_be_drawn(prediction, calls):
        return None
    trace: dict[str, Any] = {"rows": _rows(prediction, decoder), "steps": len(calls)}
    if prediction.calls or calls[-1] != len(calls):
        trace["calls"] = calls
    if prediction.draft_steps:
        trace["draft"] = prediction.draft_steps
    if prediction.taken_back:
        gone = []
        for call, row, time, token in prediction.taken_back:
            gone.append((call, row, time, decoder.token(None, token)))
        trace["gone"] = gone
    if prediction.truncated:
        trace["cut"] = prediction.truncated
    return trace


def _can_be_drawn(prediction: Generated, calls: Sequence[int]) -> bool:
    """Whether a grid is there, is not too long, and is consistent: a file may be damaged."""
    grid = prediction.grid
    tokens = sum(len(tokens) for _, tokens in grid)
    if not grid or max(tokens, *_times(prediction), *calls) > LONGEST:
        return False
    if any(row > len(grid) for _, row, *_ in prediction.taken_back):
        return False
    return len(calls) == prediction.steps - (prediction.draft_steps or 0)


def _times(prediction: Generated) -> tuple[int, ...]:
    """The time-steps at which any row has a token."""
    times: set[int] = set()
    for start, tokens in prediction.grid:
        times.update(range(start + 1, start + len(tokens) + 1))
    return tuple(sorted(times))


def _rows(
    prediction: Generated, decoder: _Traced
) -> list[tuple[int, bool, str, *tuple[str, ...]]]:
    """The rows of a grid for the page's script: start, whether it has ended, tokens, and its opening unless that is <bos>."""
    method = decoder.method
    openings = [AFTER_PROMPT]  # the given starts of the rows
    if method.bos is not None:
        openings = [
            one_line(decoder.words(opening.known).strip())
            for opening in openings_of(method, prediction.grid)
        ]
    rows: list[tuple[int, bool, str, *tuple[str, ...]]] = []
    for number, (start, tokens) in enumerate(prediction.grid):
        ended = bool(tokens) and tokens[-1] in (method.eos, *method.ends)
        text = tokens[: len(tokens) - ended]
        pairs = zip((None, *text), text, strict=False)
        shown = BETWEEN.join(decoder.token(before, token) for before, token in pairs)
        rows.append((start, ended, shown, *openings[number : number + 1]))
    return rows
