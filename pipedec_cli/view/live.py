"""The live view: the grid of one example while it is decoded, drawn from the events of the decoding loop."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from time import monotonic, sleep
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions
from rich.live import Live
from rich.text import Text

from pipedec_cli.data.errors import many
from pipedec_cli.jobs.events import Generating
from pipedec_cli.pipeline.decode import Admitted, Event, Finished, Stepped
from pipedec_cli.pipeline.grid import Grid, Step
from pipedec_cli.pipeline.schedule import Subsequence
from pipedec_cli.view.console import Talk, fit, one_line

#: Token ids to text, special tokens left out.
Words = Callable[[Sequence[int]], str]

BOS: Final = "<bos>"
#: Stands in the place of <bos> where a text follows a prompt.
AFTER_PROMPT: Final = "…"
EOS: Final = "<eos>"
LIVE, DONE, EMPTY, CUT = "▸✓∅✂"
CURSOR, HIDDEN, EARLIER, DOT, ELLIPSIS = "▌⋮‹·…"
#: Stands before a token that continues the word before it.
CONTINUES: Final = "·"
#: A token of white space or of invisible characters.
BLANK: Final = "␣"
#: The marks on an ASCII console.
ASCII: Final = str.maketrans("▸✓∅✂▌⋮‹·…–", ">*-!_:<-~-")

#: Rows take these colours in turn. A number or a mark says the same as each colour.
ROW_COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue")
#: Terminal cells: the widest token and the longest key that are shown whole, and the
#: space about a token.
WIDEST_TOKEN: Final = 14
LONGEST_LABEL: Final = 20
PADDING: Final = 2


@dataclass(slots=True)
class RowText:
    """The tokens of one subsequence as text. Each token is decoded once, however often it is drawn."""

    whole: str = ""
    pieces: list[str] = field(default_factory=list)

    def extend(self, row: Subsequence, words: Words) -> None:
        """Decode the tokens that are new since the last call, without <eos>."""
        for end in range(len(self.pieces) + 1, len(row.text_tokens) + 1):
            before, self.whole = self.whole, words(row.tokens[:end])
            # The difference of two texts, since a tokenizer may drop a space at the
            # start of a text.
            added = self.whole[len(before) :] if self.whole.startswith(before) else ""
            if not added.strip():
                added = words(row.tokens[end - 1 : end])
            elif before[-1:].isalnum() and added[0].isalnum():
                added = CONTINUES + added
            self.pieces.append(one_line(added.strip()) or BLANK)


@dataclass(slots=True)
class GridDrawing:
    """A renderable of one example's grid.

    While the example is decoded the drawing fits the console: it shows the newest
    time-steps, and the live and newest rows. Afterwards it shows everything, in blocks
    as wide as the console. The example's name stands after the heading if there is
    room. `step` is the newest.
    """

    example: int
    grid: Grid
    work: Generating
    heading: str = ""
    finished: bool = False
    step: Step | None = None
    texts: list[RowText] = field(default_factory=list)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[Text]:
        """The lines of the drawing, none wider than the console."""
        frame = _Frame(self, console, options)
        for line in frame.finished() if self.finished else frame.running():
            line.no_wrap, line.overflow = True, "crop"
            line.truncate(options.max_width, overflow="crop")
            if options.ascii_only:
                line.plain = line.plain.translate(ASCII)
            yield line


class _Frame:
    """A drawing on a console of known size."""

    def __init__(
        self, drawing: GridDrawing, console: Console, options: ConsoleOptions
    ) -> None:
        self.console, self.grid, self.ended = console, drawing.grid, drawing.finished
        self.rows, self.texts = self.grid.subsequences, drawing.texts
        del self.texts[
            len(self.rows) :
        ]  # of rows that were dropped because they repeat others
        self.texts += [RowText() for _ in self.rows[len(self.texts) :]]
        for text, row in zip(self.texts, self.rows, strict=True):
            text.extend(row, drawing.work.decode)
        self.time = (
            max(map(_newest, self.rows), default=0) if self.ended else self.grid.time
        )
        step = None if drawing.finished else drawing.step
        self.made = (
            {(slot.subsequence, slot.time) for slot in step.made} if step else set()
        )
        #: In the newest step: the tokens that were taken back, and the places that were
        #: guessed.
        self.gone = (
            {(slot.subsequence, slot.time): slot.token for slot in step.taken_back}
            if step
            else {}
        )
        self.guessed = (
            {(slot.subsequence, slot.time) for slot in step.fed} if step else set()
        )
        self.words, self.opener = (
            drawing.work.decode,
            BOS if drawing.work.opener else AFTER_PROMPT,
        )
        self.width, self.height = options.max_width, options.max_height
        known = [one.label for one in self.grid.openings]
        labels = known if drawing.work.labels and any(known) else drawing.work.labels
        self.labels = list(map(one_line, labels)) or [
            str(n + 1) for n in range(len(self.rows))
        ]
        self.first = 1 if labels else 0  # the label replaces the column of openers
        digits = min(
            max(map(cell_len, self.labels), default=1), LONGEST_LABEL, self.width // 3
        )
        self.label_width = max(digits + 4, 7)
        self.area = max(1, self.width - self.label_width)
        self.title = Text(fit(one_line(drawing.heading), self.width), "bold")
        room, subject = (
            self.width - self.title.cell_len - 2,
            drawing.work.name(drawing.example),
        )
        if subject and room >= 8:
            self.title.append("  " + fit(one_line(subject), room), "not bold dim")
        self._widths: dict[int, int] = {}

    def running(self) -> list[Text]:
        """The newest part of the grid. It is never higher than a console that has room for one row."""
        rows = self.rows
        if not rows:
            return [self.title, Text("encoding the source", "dim")]
        latest = max([self.time, self.first, *(time for _, time in self.gone)])
        columns = next(self._blocks(range(latest, self.first - 1, -1)))[::-1]
        caption = self._caption(
            legend=self.height >= 12
        )  # a low console has no line for the legend alone
        # Title, time-steps, tokens per step and the cursor take a line each.
        room = max(1, self.height - 4 - len(caption))
        blank = [Text()] * (room >= 10)
        text = self._text(max(0, min(room // 3, 8)))
        places = max(1, room - len(text) - 2 * len(blank))
        lines, shown = [], list(range(1, len(rows) + 1))
        if len(shown) > places:
            # Live rows come before ended ones, then newer before older. One line names
            # the hidden rows.
            shown.sort(key=lambda number: (rows[number - 1].ended, -number))
            hidden = sorted(shown[max(1, places - 1) :])
            shown = sorted(shown[: max(1, places - 1)])
            if places > 1:
                runs = groupby(
                    enumerate(hidden), key=lambda placed: placed[1] - placed[0]
                )
                ends = [
                    (run[0][1], run[-1][1])
                    for run in (list(pairs) for _, pairs in runs)
                ]
                ranges = ", ".join(
                    str(low) if low == high else f"{low}–{high}" for low, high in ends
                )
                said = (
                    f"{many(len(hidden), 'row')} not shown: {ranges}"  # such as 1–3, 5
                )
                lines.append(
                    Text(
                        fit(f"{HIDDEN:>{self.label_width - 3}} {said}", self.width),
                        "dim",
                    )
                )
        lines += [self._row(number, columns) for number in shown]
        return [
            self.title,
            *self._framed(columns, lines),
            *blank,
            *text,
            *blank,
            *caption,
        ]

    def finished(self) -> list[Text]:
        """Every time-step, and every row that has a token there."""
        lines = [self.title]
        for columns in self._blocks(range(self.first, self.time + 1)):
            there = [
                row.start <= columns[-1] and _newest(row) >= columns[0]
                for row in self.rows
            ]
            rows = [
                self._row(number, columns)
                for number, shown in enumerate(there, start=1)
                if shown
            ]
            lines += [*self._framed(columns, rows), Text()]
        text = self._text(None)
        return [*lines, *text, *([Text()] if text else []), *self._caption(), Text()]

    def _blocks(self, times: Sequence[int]) -> Iterator[list[int]]:
        """The time-steps in runs that fit the width of the console."""
        block: list[int] = []
        for time in times:
            if block and sum(map(self._column_width, [*block, time])) > self.area:
                yield block
                block = []
            block.append(time)
        yield block

    def _column_width(self, time: int) -> int:
        if time not in self._widths:
            cells = [
                cell_len(self._cell(number, time)[0])
                for number in range(1, len(self.rows) + 1)
            ]
            widest = min(max(cells, default=0), WIDEST_TOKEN, self.area - PADDING)
            self._widths[time] = max(widest, len(str(time))) + PADDING
        return self._widths[time]

    def _framed(self, columns: Sequence[int], rows: Sequence[Text]) -> list[Text]:
        """The rows, with the time-steps above and the number of tokens that each decoder call made below."""
        times, counts = (
            Text(set_cell_size(name, self.label_width), "dim")
            for name in ("time", "tokens")
        )
        for time in columns:
            newest, made = time == self.time and not self.ended, self._made_at(time)
            lead = EARLIER if time == columns[0] and time > self.first else " "
            self._append(times, time, str(time), "bold not dim" if newest else "", lead)
            style = "bold not dim" if (made or 0) > 1 else ""
            self._append(counts, time, "" if made is None else str(made), style)
        return [times, *rows, counts]

    def _append(
        self, line: Text, time: int, text: str, style: str, lead: str = " "
    ) -> None:
        width = self._column_width(time)
        line.append(set_cell_size(lead + fit(text, width - PADDING), width), style)

    def _made_at(self, time: int) -> int | None:
        """The number of tokens at a time-step, without <bos> and <eos>. None if no decoder call was made at it."""
        answered = [row for row in self.rows if row.start < time <= _newest(row)]
        return (
            sum(time <= _newest(row) - row.ended for row in answered)
            if answered
            else None
        )

    def _row(self, number: int, columns: Sequence[int]) -> Text:
        row, colour = self.rows[number - 1], _colour(number)
        mark, style = (CUT, "bold yellow") if self.ended else (LIVE, "bold")
        if row.ended:
            mark, style = (EMPTY, "dim") if row.empty else (DONE, "bold green")
        label = fit(self.labels[number - 1], self.label_width - 3)
        label = " " * (self.label_width - 3 - cell_len(label)) + label
        line = Text.assemble((f"{label} ", f"bold {colour}"), (f"{mark} ", style))
        if (
            _newest(row) < columns[0]
        ):  # all its cells have scrolled off: its text stands in their place
            said = one_line(self.texts[number - 1].whole)
            return line.append(
                fit(f"{EARLIER}{said}", self.area), f"dim italic {colour}"
            )
        for time in columns:
            if time <= _newest(row) or (number, time) in self.gone:
                self._append(line, time, *self._cell(number, time))
        return line

    def _cell(self, number: int, time: int) -> tuple[str, str]:
        """The text and the style of one cell. Both are empty where the row has no token."""
        row, colour = self.rows[number - 1], _colour(number)
        place = time - row.start
        if not 0 <= place <= len(row.tokens):
            wrong = self.gone.get((number, time))
            if wrong is None:
                return "", ""
            return one_line(self.words([wrong]).strip()) or BLANK, "dim strike"
        if place == 0:
            return self.opener, "dim"
        if row.ended and place == len(row.tokens):
            return EOS, "dim" if row.empty else "green"
        new = (number, time) in self.made
        drafted = new and (number, time) in self.guessed  # and kept
        style = (
            f"italic reverse {colour}"
            if drafted
            else f"bold reverse {colour}"
            if new
            else colour
        )
        return self.texts[number - 1].pieces[place - 1], style

    def _text(self, most: int | None) -> list[Text]:
        """The text so far, each subsequence after its label. Of more than `most` lines, the last."""
        text = Text()
        for number, row in enumerate(self.rows, start=1):
            live = not row.ended and not self.ended
            said = one_line(self.texts[number - 1].whole).strip()
            if said or live:
                label = self.labels[number - 1] if self.first else number
                text.append(f"{' ' if text else ''}[{label}]", "dim")
                text.append(f" {said}", _colour(number))
            if live:
                text.append(CURSOR, f"bold {_colour(number)}")
        # One column stays free for the mark of a cut.
        lines = list(text.wrap(self.console, max(1, self.width - 1))) if text else []
        if most is None or len(lines) <= most:
            return lines
        newest = lines[len(lines) - most :]
        return (
            [Text.assemble((ELLIPSIS, "dim"), newest[0]), *newest[1:]] if newest else []
        )

    def _caption(self, *, legend: bool = True) -> list[Text]:
        """The figures of the grid, and the legend: on the same line, or above it on a narrow console."""
        steps, tokens = self.grid.steps, self.grid.tokens
        parts = ["finished" if self.ended else f"time-step {self.time}"]
        # Of an object the keys count: most of its rows may be empty.
        made, unit = (len(self.labels), "key") if self.first else (tokens, "token")
        parts += [many(steps, "decoder call"), many(made, unit)]
        parts += [f"{made / steps if steps else 0:.1f} {unit}s per step"]
        parts += [] if self.ended else [f"{self._made_at(self.time) or 0} in this step"]
        if self.ended and self.grid.truncated:
            parts.append(f"{CUT} cut at {self.grid.truncated}")
        dot = f" {DOT} "
        while len(parts) > 1 and cell_len(dot.join(parts)) > self.width:
            del parts[0]
        line = Text(dot.join(parts))
        if parts[-1].startswith(CUT):
            line.stylize("bold yellow", len(line) - len(parts[-1]))
        signs = f"{LIVE} live  {DONE} finished  {EMPTY} empty"
        space = self.width - line.cell_len - cell_len(signs)
        if space >= 4:
            return [line.append(" " * space + signs, "dim")]
        return (
            [Text(signs, "dim"), line]
            if legend and cell_len(signs) <= self.width
            else [line]
        )


def _newest(row: Subsequence) -> int:
    """The time-step of the newest token of a row, or of its <bos>."""
    return row.start + len(row.tokens)


def _colour(number: int) -> str:
    return ROW_COLOURS[(number - 1) % len(ROW_COLOURS)]


FRAMES_PER_SECOND: Final = 10
#: Steps per second of a single example, if no speed is given.
SINGLE_SPEED: Final = 10.0
#: The largest share of the time that drawing may take. A large grid is drawn less
#: often, so that it does not slow the decoder.
SHARE: Final = 0.05


@dataclass
class LiveGrid:
    """A renderable that follows one example at a time: the oldest in flight."""

    work: Generating
    _in_flight: dict[int, GridDrawing] = field(default_factory=dict, init=False)

    def on(self, event: Event) -> GridDrawing | None:
        """Take in an event. Returns the whole grid of an example that has just finished."""
        if isinstance(event, Admitted):
            self._in_flight[event.example] = GridDrawing(
                event.example, event.grid, self.work
            )
        elif isinstance(event, Stepped):
            self._in_flight[event.example].step = event.step
        elif isinstance(event, Finished):
            drawing = self._in_flight.pop(event.example)
            drawing.finished = True
            return self._with_heading(drawing)
        return None

    @property
    def followed(self) -> int | None:
        """The index of the example that is shown, None if none is in flight."""
        return next(iter(self._in_flight), None)

    def __rich__(self) -> GridDrawing | str:
        """The followed example as it stands."""
        return (
            ""
            if self.followed is None
            else self._with_heading(self._in_flight[self.followed])
        )

    def _with_heading(self, drawing: GridDrawing) -> GridDrawing:
        of = "" if self.work.total is None else f" of {self.work.total}"
        parts = [f"example {drawing.example + 1}{of}"]
        if len(self._in_flight) > 1 and not drawing.finished:
            parts.append(f"the oldest of {len(self._in_flight)} in flight")
        if self.work.method:
            parts.append(self.work.method)
        drawing.heading = ", ".join(parts)
        return drawing


class LiveScreen:
    """A `LiveGrid` on stderr: moving on a terminal; elsewhere each grid is printed once, when its example has finished.

    Frames are drawn between events, never in a thread beside the decoder. At most
    `speed` steps per second are shown; a single example has `SINGLE_SPEED` by default.
    Nothing is shown if the talk is quiet.
    """

    def __init__(self, talk: Talk, view: LiveGrid, speed: float | None = None) -> None:
        self._talk, self._view = talk, view
        self._speed = speed or (SINGLE_SPEED if view.work.total == 1 else None)
        self._frame_due = self._step_due = monotonic()
        self._live = Live(
            view,
            console=talk.console,
            auto_refresh=False,
            transient=True,
            # Rich may capture stdout only if it is the same screen: data must never go
            # to stderr.
            redirect_stdout=sys.stdout.isatty(),
        )
        if talk.animated:
            self._live.start()

    def stop(self) -> None:
        """Take the moving grid away."""
        self._live.stop()

    def on(self, event: Event) -> None:
        """Show an event of the decoding loop, and draw a frame if one is due."""
        moving, followed = self._live.is_started, self._view.followed
        if self._speed and moving and event.example == followed:
            sleep(max(0.0, self._step_due - monotonic()))
            self._frame_due = monotonic()
            self._step_due = self._frame_due + 1 / self._speed
        finished = self._view.on(event)
        if (
            finished
            and not self._talk.quiet
            and (finished.example == followed or not moving)
        ):
            self._talk.console.print(finished)
        began = monotonic()
        if moving and began >= self._frame_due:
            self._live.refresh()
            self._frame_due = began + max(
                1 / FRAMES_PER_SECOND, (monotonic() - began) / SHARE
            )
