"""A report's stored grids to be played back: what each decoder call of an example made, beside the baseline's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipedec_cli.data.wording import many
from pipedec_cli.evaluate.runners import EngineRunner
from pipedec_cli.pipeline.schedule import Subsequence
from pipedec_cli.view.console import one_line
from pipedec_cli.view.grid_drawing import AFTER_PROMPT, BOS, EOS, RowText, Words
from pipedec_cli.view.page.page import Section, template
from pipedec_cli.view.page.shown import shortened, shown_places, size

if TYPE_CHECKING:
    from pipedec_cli.data.records import Generated
    from pipedec_cli.evaluate.comparison import Comparison, Entry

#: Bytes of all examples together, and of any one.
BUDGET: Final = 450_000
MOST: Final = BUDGET // 10
#: Characters of a source that tell an example.
HEADING: Final = 300
#: Stands between the tokens of a row.
BETWEEN: Final = "\n"


class _Traced(NamedTuple):
    """A decoder whose grids are stored: what it made by the example's place, and how a token looks behind another one."""

    name: str
    role: str
    made: Sequence[Generated]
    piece: Callable[[int | None, int], str]
    eos: int
    openings: Sequence[str]  # what rows begin with that are known to come
    clock: list[float] | None  # milliseconds before the first call, and of a call

    @classmethod
    def of(cls, one: Entry) -> _Traced | None:
        """None if there are no grids."""
        made = one.quality.scored.run.predictions if one.quality.scored else ()
        if not isinstance(one.runner, EngineRunner) or not any(each.grid for each in made):
            return None
        words, method = one.runner.decoder.text.decode, one.runner.method
        piece = _pieces(words, ({} if method.bos is None else {method.bos: BOS}) | {method.eos: EOS})
        openings = [one_line(words(opening.known).strip()) for opening in method.openings]
        openings = openings if method.bos is not None else [AFTER_PROMPT]
        return cls(one.name, one.role, made, piece, method.eos, openings, _clock(one))


def replay(report: Comparison) -> Section | None:
    """The section in which examples are played back; None where no predictions hold their grids."""
    found = [traced for one in report.entries if (traced := _Traced.of(one))]
    first = report.first.quality.scored
    if first is None or not found:
        return None
    left, examples, places = BUDGET, list[dict[str, Any]](), shown_places(report)
    for number, place in enumerate(places):
        item = first.items[place]
        runs = [_trace(one.made[place], one) for one in found]
        example = {
            "at": number,  # in the list of examples
            "place": place + 1,
            "id": shortened(item.id, 80),
            "source": shortened(item.source, HEADING),
            "runs": runs,
        }
        if any(runs) and (taken := size(example)) <= min(left, MOST):
            examples.append(example)
            left -= taken
    if not examples:
        return None
    usual = [at for at, one in enumerate(found) if one.name == report.advised]
    data = {
        "decoders": [{"name": one.name, "role": one.role, "clock": one.clock} for one in found],
        "usual": (usual or [min(1, len(found) - 1)])[0],
        "part": report.part,
        "between": BETWEEN,
        "examples": examples,
    }
    lacking = {one.name for one in report.entries if one.quality.scored} - {one.name for one in found}
    notes, of = list[str](), len(first.items)
    if len(examples) < of:
        notes.append(f"{many(len(examples), 'example')} of {of:,}: more would make this page too large")
    if lacking:
        without = "the predictions were made with --no-trace or by an older version"
        notes.append(f"not {', '.join(sorted(lacking))}: {without}, and hold no grid")
    if timed := any(one.clock for one in found):
        means = f"the means of {many(report.sample.timed, 'timed example')}, one at a time"
        notes.append(f"measured time: {means}, for the source and for each call")
    body = template("replay.html", notes=notes, timed=timed, part=report.part)
    return Section("replay", "The grid replayed", body, data, "replay.js")


def _trace(made: Generated, by: _Traced) -> dict[str, Any] | None:
    """One example's grid for the script; None where there is none, it is endless, or does not add up, as in a file that was changed.

    A row has its start, whether it has ended, its tokens, and what it begins with unless that is <bos>. `calls` has the time
    after each, where that is not the next one; what was taken back has call, subsequence, time and text; so many calls before
    (`draft`) made a draft.
    """
    rows, times = list[tuple[int, bool, str, *tuple[str, ...]]](), set[int]()
    for number, (start, tokens) in enumerate(made.grid):
        ended = tokens[-1:] == (by.eos,)
        text = tokens[: len(tokens) - ended]
        pieces = [by.piece(before, token) for before, token in zip((None, *text), text, strict=False)]
        rows.append((start, ended, BETWEEN.join(pieces), *by.openings[number : number + 1]))
        times.update(range(start + 1, start + len(tokens) + 1))
    times.update(time + 1 for _, _, time, _ in made.taken_back if not made.calls)
    calls, draft = made.calls or tuple(sorted(times)), made.draft_steps or 0
    fits = max((*times, *calls), default=0) < MOST and all(
        row <= len(rows) + 1 for _, row, *_ in made.taken_back
    )
    if not rows or not fits or len(calls) != made.steps - draft:
        return None
    gone = [(call, row, time, by.piece(None, token)) for call, row, time, token in made.taken_back]
    return {
        "rows": rows,
        "steps": len(calls),
        **({"calls": calls} if calls[-1] != len(calls) or made.calls else {}),
        **({"draft": draft} if draft else {}),
        **({"gone": gone} if gone else {}),
        **({"cut": made.truncated} if made.truncated else {}),
    }


def _pieces(words: Words, special: Mapping[int, str]) -> Callable[[int | None, int], str]:
    """How a token looks behind the one before it, as in the live view."""

    @cache
    def piece(before: int | None, token: int) -> str:
        if token in special:
            return special[token]
        text = RowText()
        text.extend(Subsequence(0, [token] if before is None else [before, token]), words)
        return text.pieces[-1]

    return piece


def _clock(one: Entry) -> list[float] | None:
    """Milliseconds that an example takes before its first call, and a call, one example at a time; None if not measured."""
    timing = one.timings.get(1)
    if timing is None:
        return None
    before = (timing.encoder_seconds or 0.0) + (timing.setup_seconds or 0.0)
    calls = timing.seconds - before
    return [round(1000 * part, 4) for part in (before / timing.examples, calls / timing.decoder_calls)]
