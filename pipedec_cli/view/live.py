"""The live view: the grid of one example while it is decoded, drawn from the events of the decoding loop."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions
from rich.live import Live
from rich.text import Text

from pipedec_cli.data.errors import many
from pipedec_cli.events import Generating
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
LIVE: Final = "▸"
DONE: Final = "✓"
EMPTY: Final = "∅"
CUT: Final = "✂"
CURSOR: Final = "▌"
HIDDEN: Final = "⋮"
EARLIER: Final = "‹"
DOT: Final = "·"
ELLIPSIS: Final = "…"
#: Stands before a token that continues the word before it.
CONTINUES: Final = "·"
#: A token of white space or of invisible characters.
BLANK: Final = "␣"
#: The marks on an ASCII console.
ASCII: Final = str.maketrans("▸✓∅✂▌⋮‹·…–", ">*-!_:<-~-")

#: Rows take these colours in turn. A number or a mark says the same as each colour.
ROW_COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue")
#: The newest time-step, and a step that made several tokens.
STRONG: Final = "bold not dim"
#: Terminal cells: the widest token and the longest key that are shown whole, and the
#: space about a token.
WIDEST_TOKEN: Final = 14
LONGEST_LABEL: Final = 20
PADDING: Final = 2


@dataclass(slots=True)
class RowText:
    """The tokens of one subsequence as text. Each token is decoded once, however often it is drawn."""

    whole: str = ""
    pieces: list[str] = field(default_factory=list)  # of each token, to be shown

    def extend(self, row: Subsequence, words: Words) -> None:
        """Decode by `words` the tokens of a row that are new since the last call, without <eos>."""
        new = row.text_tokens[len(self.pieces) :]
        for end, token in enumerate(new, start=len(self.pieces) + 1):
            before = self.whole
            self.whole = words(row.tokens[:end])
            # The difference of two texts, since a tokenizer may drop a space at the
            # start of a text.
            goes_on = self.whole.startswith(before)
            added = self.whole.removeprefix(before)
            if not goes_on or not added.strip():
                added = words([token])
            elif before[-1:].isalnum() and added[0].isalnum():
                added = CONTINUES + added
            piece = one_line(added.strip())
            self.pieces.append(piece or BLANK)


@dataclass(slots=True)
class GridDrawing:
    """A drawing of one example's grid, for rich to print: a line for each row, a column for each time-step.

    While the example is decoded the drawing fits the console: it shows the newest
    time-steps, and the live and newest rows. Afterwards it shows everything, in blocks
    as wide as the console.
    """

    example: int  # its number, from 0
    grid: Grid
    work: Generating  # what is being generated, and how its tokens and rows are called
    heading: str = ""  # the example's name stands behind it if there is room
    finished: bool = False
    step: Step | None = None  # the newest one
    texts: list[RowText] = field(default_factory=list)  # of the rows

    def row_texts(self) -> list[RowText]:
        """The text of each row."""
        rows = self.grid.subsequences
        # Rows may have been dropped because they repeat others.
        del self.texts[len(rows) :]
        while len(self.texts) < len(rows):
            self.texts.append(RowText())
        for text, row in zip(self.texts, rows, strict=True):
            text.extend(row, self.work.decode)
        return self.texts

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[Text]:
        """The lines of the drawing, none wider than the console."""
        frame = _Frame(self, console, options)
        for line in frame.finished() if self.finished else frame.running():
            line.no_wrap = True
            line.overflow = "crop"
            line.truncate(options.max_width, overflow="crop")
            if options.ascii_only:
                line.plain = line.plain.translate(ASCII)
            yield line


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A row of a grid with its text, and what it is called: its key, or its number."""

    number: int
    label: str
    colour: str
    text: RowText
    start: int
    newest: int  # the time-step of its newest token, or of its <bos>
    ended: bool
    empty: bool


#: A row and a time-step.
_Place = tuple[int, int]


class _Frame:
    """The lines of a drawing at one moment, on a console of known size.

    A row's own lines begin with a label; the rest of the width, the `area`, has a cell
    for each time-step that fits.
    """

    def __init__(
        self, drawing: GridDrawing, console: Console, options: ConsoleOptions
    ) -> None:
        self.console = console
        self.width = options.max_width
        self.height = options.max_height
        self.work = drawing.work
        self.grid = drawing.grid
        self.ended = drawing.finished
        texts = drawing.row_texts()
        self.labels = self._labels(len(texts))
        self.rows = list(self._rows(texts))
        # The first time-step that is shown. Rows of an object have their keys before
        # them, in the place of the column of openers (<bos>) at time-step 0.
        self.first = 1 if self.work.labels else 0
        self.time = self.grid.time
        if self.ended:
            self.time = max((row.newest for row in self.rows), default=0)
        longest = max(map(cell_len, self.labels), default=1)
        longest = min(longest, LONGEST_LABEL, self.width // 3)
        self.label_width = max(longest + 4, 7)
        self.area = max(1, self.width - self.label_width)
        self.title = self._title(drawing)
        self._read_step(None if self.ended else drawing.step)
        self._widths: dict[int, int] = {}

    def _labels(self, count: int) -> list[str]:
        """What so many rows (`count`) are called: by the keys with which they begin, or by their numbers."""
        labels = self.work.labels
        openings = [opening.label for opening in self.grid.openings]
        if labels and any(openings):
            labels = openings
        if labels:
            return list(map(one_line, labels))
        return list(map(str, range(1, 1 + count)))

    def _rows(self, texts: Sequence[RowText]) -> Iterator[_Row]:
        """The rows of the grid with their texts and labels."""
        rows = zip(self.grid.subsequences, texts, self.labels, strict=False)
        for number, (row, text, label) in enumerate(rows, start=1):
            yield _Row(
                number=number,
                label=label,
                colour=ROW_COLOURS[(number - 1) % len(ROW_COLOURS)],
                text=text,
                start=row.start,
                newest=row.start + len(row.tokens),
                ended=row.ended,
                empty=row.empty,
            )

    def _title(self, drawing: GridDrawing) -> Text:
        """The heading, and behind it the example's name if there is room."""
        title = Text(fit(one_line(drawing.heading), self.width), "bold")
        room = self.width - title.cell_len - 2
        name = self.work.name(drawing.example)
        if name and room >= 8:
            title.append("  " + fit(one_line(name), room), "not bold dim")
        return title

    def _read_step(self, step: Step | None) -> None:
        """Note what the newest step did: the styles of the tokens that it made, and the wrong guesses that it took back."""
        self.new_styles: dict[_Place, str] = {}
        self.taken_back: dict[_Place, int] = {}  # the ids of these tokens
        if step is None:
            return
        guessed = {(slot.subsequence, slot.time) for slot in step.fed}
        for slot in step.made:
            place = (slot.subsequence, slot.time)
            is_guess = place in guessed
            self.new_styles[place] = "italic reverse" if is_guess else "bold reverse"
        for slot in step.taken_back:
            self.taken_back[slot.subsequence, slot.time] = slot.token

    def running(self) -> list[Text]:
        """The lines of the newest part of a grid that is being decoded; no more than fit the console, if it has room for one row."""
        if not self.rows:
            return [self.title, Text("encoding the source", "dim")]
        columns = self._newest_columns()
        # A low console has no line for the legend alone.
        caption = self._caption(legend=self.height >= 12)
        # Title, time-steps, tokens per step and the cursor take a line each.
        room = max(1, self.height - 4 - len(caption))
        blank = [Text()] if room >= 10 else []
        text = self._end_of_text(min(room // 3, 8))
        room = max(1, room - len(text) - 2 * len(blank))
        framed = self._framed(columns, self._newest_rows(room, columns))
        return [self.title, *framed, *blank, *text, *blank, *caption]

    def _newest_columns(self) -> list[int]:
        """The newest time-steps that fit the width, wrong guesses among them."""
        wrong = [time for _, time in self.taken_back]
        latest = max(self.time, self.first, *wrong)
        backwards = range(latest, self.first - 1, -1)
        columns = next(self._blocks(backwards))
        columns.reverse()
        return columns

    def _end_of_text(self, most: int) -> list[Text]:
        """The last lines of the text so far, at most so many, with a sign where it was cut."""
        lines = self._text()
        if len(lines) <= most:
            return lines
        if most == 0:
            return []
        first, *others = lines[-most:]
        return [Text.assemble((ELLIPSIS, "dim"), first), *others]

    def _newest_rows(self, room: int, columns: Sequence[int]) -> list[Text]:
        """The lines of the rows, cut to the `columns`, at most `room` of them.

        Where there is no room for all, live rows go before ended ones, then newer before
        older, and one line names the hidden rows.
        """
        rows = self.rows
        lines = []
        if len(rows) > room:
            order = sorted(rows, key=lambda row: (row.ended, -row.number))
            kept = max(1, room - 1)
            hidden = sorted(row.number for row in order[kept:])
            rows = sorted(order[:kept], key=lambda row: row.number)
            if room > 1:
                names = f"{many(len(hidden), 'row')} not shown: {_ranges(hidden)}"
                line = f"{HIDDEN:>{self.label_width - 3}} {names}"
                lines.append(Text(fit(line, self.width), "dim"))
        for row in rows:
            lines.append(self._row(row, columns))
        return lines

    def finished(self) -> list[Text]:
        """The lines of the whole grid of an example that has ended.

        Its time-steps are in blocks as wide as the console, each with the rows that have
        a token there; the text and the figures follow.
        """
        lines = [self.title]
        for columns in self._blocks(range(self.first, self.time + 1)):
            rows = []
            for row in self.rows:
                if row.start <= columns[-1] and row.newest >= columns[0]:
                    rows.append(self._row(row, columns))
            lines += [*self._framed(columns, rows), Text()]
        text = self._text()
        if text:
            lines += [*text, Text()]
        return [*lines, *self._caption(), Text()]

    def _blocks(self, times: Sequence[int]) -> Iterator[list[int]]:
        """The time-steps, in runs whose cells fit the width of the console."""
        block: list[int] = []
        taken = 0
        for time in times:
            width = self._column_width(time)
            if block and taken + width > self.area:
                yield block
                block = []
                taken = 0
            block.append(time)
            taken += width
        yield block

    def _column_width(self, time: int) -> int:
        """The width of the cells of a time-step: that of its widest token, bounded, with a space about it."""
        if time not in self._widths:
            widest = 0
            for row in self.rows:
                text, _ = self._cell(row, time)
                widest = max(widest, cell_len(text))
            widest = min(widest, WIDEST_TOKEN, self.area - PADDING)
            self._widths[time] = max(widest, len(str(time))) + PADDING
        return self._widths[time]

    def _framed(self, columns: Sequence[int], rows: Sequence[Text]) -> list[Text]:
        """The rows between the time-steps and the number of tokens that each decoder call made."""
        times = self._times(columns)
        counts = self._counts(columns)
        return [times, *rows, counts]

    def _times(self, columns: Sequence[int]) -> Text:
        """The line above the rows: the numbers of the time-steps, the newest one bold."""
        line = Text(set_cell_size("time", self.label_width), "dim")
        lead = EARLIER if columns[0] > self.first else " "
        for time in columns:
            newest = time == self.time and not self.ended
            style = STRONG if newest else ""
            self._append(line, time, str(time), style, lead)
            lead = " "
        return line

    def _counts(self, columns: Sequence[int]) -> Text:
        """The line below the rows: how many tokens each time-step has, bold if several; blank where no row has any."""
        line = Text(set_cell_size("tokens", self.label_width), "dim")
        for time in columns:
            is_filled = any(row.start < time <= row.newest for row in self.rows)
            tokens = self._tokens_at(time)
            text = str(tokens) if is_filled else ""
            style = STRONG if tokens > 1 else ""
            self._append(line, time, text, style)
        return line

    def _append(
        self, line: Text, time: int, text: str, style: str, lead: str = " "
    ) -> None:
        """Append the cell of a time-step to a line: a text in a style, cut to the cell, behind the sign `lead`."""
        width = self._column_width(time)
        line.append(set_cell_size(lead + fit(text, width - PADDING), width), style)

    def _tokens_at(self, time: int) -> int:
        """The number of tokens at a time-step; <bos> and <eos> are none."""
        tokens = 0
        for row in self.rows:
            last = row.newest - row.ended
            tokens += row.start < time <= last
        return tokens

    def _row(self, row: _Row, columns: Sequence[int]) -> Text:
        """The line of a row: its label and sign, and a cell for each of the time-steps `columns`."""
        width = self.label_width - 3
        label = Text(fit(row.label, width), f"bold {row.colour}")
        label.align("right", width)
        label.append(" ")
        mark, style = self._mark(row)
        line = Text.assemble(label, (f"{mark} ", style))
        if row.newest < columns[0]:  # its text stands in the place of its cells
            text = fit(EARLIER + one_line(row.text.whole), self.area)
            return line.append(text, f"dim italic {row.colour}")
        for time in columns:
            if time <= row.newest or (row.number, time) in self.taken_back:
                self._append(line, time, *self._cell(row, time))
        return line

    def _mark(self, row: _Row) -> tuple[str, str]:
        """The sign of a row, and its style."""
        if row.empty:
            return EMPTY, "dim"
        if row.ended:
            return DONE, "bold green"
        if self.ended:
            return CUT, "bold yellow"
        return LIVE, "bold"

    def _cell(self, row: _Row, time: int) -> tuple[str, str]:
        """The text and the style of the cell of a row at a time-step. Both are empty where the row has no token.

        A row begins with its opener: <bos> or, where it goes on from a prompt, a sign.
        """
        if time < row.start or time > row.newest:
            return self._wrong_guess((row.number, time))
        if time == row.start:
            opener = BOS if self.work.opener else AFTER_PROMPT
            return opener, "dim"
        if time == row.newest and row.ended:
            return EOS, "dim" if row.empty else "green"
        new_style = self.new_styles.get((row.number, time), "")
        style = f"{new_style} {row.colour}".strip()
        return row.text.pieces[time - row.start - 1], style

    def _wrong_guess(self, place: _Place) -> tuple[str, str]:
        """The text and the style of a guess that the newest step took back there; both are empty if there is none."""
        token = self.taken_back.get(place)
        if token is None:
            return "", ""
        text = self.work.decode([token]).strip()
        return one_line(text) or BLANK, "dim strike"

    def _text(self) -> list[Text]:
        """The text so far, each subsequence behind its label, in lines that fit the console."""
        text = Text()
        for row in self.rows:
            live = not row.ended and not self.ended
            words = one_line(row.text.whole).strip()
            if words or live:
                label = row.label if self.first else row.number
                text.append(f"{' ' if text else ''}[{label}]", "dim")
                text.append(f" {words}", row.colour)
            if live:
                text.append(CURSOR, f"bold {row.colour}")
        # One column stays free for the mark of a cut.
        width = max(1, self.width - 1)
        return list(text.wrap(self.console, width)) if text else []

    def _caption(self, *, legend: bool = True) -> list[Text]:
        """The figures of the grid, and the legend: on the same line, or above it on a narrow console."""
        line = self._figures()
        signs = f"{LIVE} live  {DONE} finished  {EMPTY} empty"
        space = self.width - line.cell_len - cell_len(signs)
        if space >= 4:
            return [line.append(" " * space + signs, "dim")]
        if legend and cell_len(signs) <= self.width:
            return [Text(signs, "dim"), line]
        return [line]

    def _figures(self) -> Text:
        """Calls and tokens. On a narrow console the first figures give way."""
        steps = self.grid.steps
        count = self.grid.tokens
        unit = "token"
        if self.first:  # most rows may be empty
            count = len(self.labels)
            unit = "key"
        rate = count / steps if steps else 0
        parts = [
            "finished" if self.ended else f"time-step {self.time}",
            many(steps, "decoder call"),
            many(count, unit),
            f"{rate:.1f} {unit}s per step",
        ]
        cut = ""
        if not self.ended:
            parts.append(f"{self._tokens_at(self.time)} in this step")
        elif self.grid.truncated:
            cut = f"{CUT} cut at {self.grid.truncated}"
            parts.append(cut)
        dot = f" {DOT} "
        while len(parts) > 1 and cell_len(dot.join(parts)) > self.width:
            del parts[0]
        line = Text(dot.join(parts))
        if cut:
            line.stylize("bold yellow", len(line) - len(cut))
        return line


def _ranges(numbers: Sequence[int]) -> str:
    """Rising numbers in words, neighbours together: ``1–3, 5``."""
    ends = {}
    first = None
    for number in numbers:
        if first is None or number != ends[first] + 1:
            first = number
        ends[first] = number
    words = []
    for start, end in ends.items():
        words.append(str(start) if start == end else f"{start}–{end}")
    return ", ".join(words)


FRAMES_PER_SECOND: Final = 10
#: Steps per second of a single example, if no speed is given.
SINGLE_SPEED: Final = 10.0
#: The largest share of the time that drawing may take. A large grid is drawn less
#: often, so that it does not slow the decoder.
SHARE: Final = 0.05


@dataclass
class LiveGrid:
    """The drawing, for rich to print, of one example at a time: the oldest of those that are being decoded."""

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
        if self.followed is None:
            return ""
        return self._with_heading(self._in_flight[self.followed])

    def _with_heading(self, drawing: GridDrawing) -> GridDrawing:
        """The drawing, with its heading set: which example it is, of how many, and by which method it is decoded."""
        number = f"example {drawing.example + 1}"
        total = self.work.total
        parts = [number if total is None else f"{number} of {total}"]
        in_flight = len(self._in_flight)
        if in_flight > 1 and not drawing.finished:
            parts.append(f"the oldest of {in_flight} in flight")
        if self.work.method:
            parts.append(self.work.method)
        drawing.heading = ", ".join(parts)
        return drawing


class LiveScreen:
    """A `LiveGrid` on stderr: moving on a terminal; elsewhere each grid is printed once, when its example has finished.

    Frames are drawn between events, never in a thread beside the decoder. Nothing is
    shown if the talk is quiet.
    """

    def __init__(self, talk: Talk, view: LiveGrid, speed: float | None = None) -> None:
        """Show a view where `talk` speaks: on stderr.

        `speed` is the most steps per second that are shown: decoding waits for the
        person to follow. None: as many as there are, but of a single example
        `SINGLE_SPEED`.
        """
        self._talk = talk
        self._view = view
        self._speed = speed
        if speed is None and view.work.total == 1:
            self._speed = SINGLE_SPEED
        self._frame_due = monotonic()
        self._step_due = monotonic()
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
        is_moving = self._live.is_started
        is_followed = event.example == self._view.followed
        if self._speed and is_moving and is_followed:
            sleep(max(0.0, self._step_due - monotonic()))
            self._frame_due = monotonic()
            self._step_due = self._frame_due + 1 / self._speed
        finished = self._view.on(event)
        # On a terminal the grids of other examples are not left behind.
        if finished and (is_followed or not is_moving):
            self._print(finished)
        if is_moving:
            self._draw()

    def _print(self, finished: GridDrawing) -> None:
        """Print the whole grid of an example that has finished, unless the talk is quiet."""
        if not self._talk.quiet:
            self._talk.console.print(finished)

    def _draw(self) -> None:
        """Draw a frame if one is due."""
        began = monotonic()
        if began >= self._frame_due:
            self._live.refresh()
            spent = monotonic() - began
            self._frame_due = began + max(1 / FRAMES_PER_SECOND, spent / SHARE)
