"""The grid as it is drawn: subsequences down, time-steps across, the text beneath. It draws and computes nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions
from rich.text import Text

from pipedec_cli.terminal.views.grid_trace import GridTrace, RowTrace, Words, one_line

BOS: Final = "<bos>"
EOS: Final = "<eos>"

#: Rows take these in turn. They are the terminal theme's own, legible on dark and light alike; what a colour says,
#: a number or a mark says too.
ROW_COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue")

#: Terminal cells: the widest token that is shown whole, and the space about a token.
WIDEST_TOKEN: Final = 14
PADDING: Final = 2
#: The width from which labels are words, the caption is a sentence, and the marks are explained.
ROOMY: Final = 72


@dataclass(frozen=True, slots=True)
class Marks:
    """One character for each thing that is marked."""

    live: str
    done: str
    empty: str
    cut: str
    cursor: str
    hidden: str
    earlier: str
    dot: str
    ellipsis: str


UNICODE_MARKS: Final = Marks("▸", "✓", "∅", "✂", "▌", "⋮", "‹", "·", "…")
ASCII_MARKS: Final = Marks(">", "*", "-", "!", "_", ":", "<", "-", "~")


@dataclass(frozen=True, slots=True)
class GridDrawing:
    """A renderable of one example's grid.

    While decoding goes on it fits the console: it shows the newest time-steps that have room, and the live and newest
    rows. Once finished it shows everything, in blocks of as many time-steps as the console is wide.

    Attributes:
        trace: what has been seen of the example.
        words: token ids to text.
        heading: what stands above the grid.
        subject: what the example is, after the heading; it gives way where room is short.
    """

    trace: GridTrace
    words: Words
    heading: str
    subject: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """The drawing, a `Text` a line, none wider than the console."""
        sheet = _Sheet(console, options, self)
        for line in sheet.finished() if self.trace.finished else sheet.running():
            line.no_wrap, line.overflow = True, "crop"
            line.truncate(options.max_width, overflow="crop")
            yield line


class _Sheet:
    """A drawing on a console of known size."""

    def __init__(self, console: Console, options: ConsoleOptions, drawing: GridDrawing) -> None:
        self.console = console
        self.trace = trace = drawing.trace
        self.words = drawing.words
        self.width, self.height = options.max_width, options.max_height
        self.marks = ASCII_MARKS if options.ascii_only else UNICODE_MARKS
        self.roomy = self.width >= ROOMY
        self.title = self._heading(one_line(drawing.heading), one_line(drawing.subject))
        self._widths: dict[int, int] = {}
        digits = len(str(len(trace.rows)))
        self.label_width = max(digits + 4, 7) if self.roomy else digits + 3
        self.area = max(1, self.width - self.label_width)

    def running(self) -> list[Text]:
        """The newest part that fits; never higher than the console, where there is room for one row at all."""
        if not self.trace.rows:
            return [self.title, Text("encoding the source", "dim")]
        columns = self._newest_columns()
        # title, time-steps, tokens a step and the caption; and the cursor's own line
        room = max(1, self.height - 5)
        gaps = room >= 10
        text = self._text(max(0, min(room // 3, 8)))
        places = max(1, room - len(text) - 2 * gaps)
        shown = self._shown_rows(places)
        lines = [self.title, self._times(columns)]
        if len(shown) < len(self.trace.rows) and places > 1:
            lines.append(self._hidden(shown))
        lines += [self._row(number, columns) for number in shown]
        lines.append(self._counts(columns))
        blank = [Text()] * gaps
        return [*lines, *blank, *text, *blank, self._caption()]

    def finished(self) -> list[Text]:
        """All of it: every time-step and every row that has something there."""
        lines = [self.title]
        for columns in self._blocks():
            lines.append(self._times(columns))
            for number, row in enumerate(self.trace.rows, start=1):
                if row.start <= columns[-1] and row.newest >= columns[0]:
                    lines.append(self._row(number, columns))
            lines += [self._counts(columns), Text()]
        text = self._text(None)
        return [*lines, *text, *([Text()] if text else []), self._caption(), Text()]

    # Which part is shown

    def _newest_columns(self) -> list[int]:
        columns: list[int] = []
        used = 0
        for time in range(self.trace.time, -1, -1):
            used += self._column_width(time)
            if used > self.area and columns:
                break
            columns.insert(0, time)
        return columns

    def _blocks(self) -> Iterator[list[int]]:
        block: list[int] = []
        used = 0
        for time in range(self.trace.time + 1):
            width = self._column_width(time)
            if block and used + width > self.area:
                yield block
                block, used = [], 0
            block.append(time)
            used += width
        yield block

    def _shown_rows(self, room: int) -> list[int]:
        """Live rows before ended ones, then newer before older; one line is kept for saying what is hidden."""
        numbers = range(1, len(self.trace.rows) + 1)
        if len(numbers) <= room:
            return list(numbers)
        wanted = sorted(numbers, key=lambda number: (self.trace.rows[number - 1].ended, -number))
        return sorted(wanted[: max(1, room - 1)])

    # Lines

    def _heading(self, heading: str, subject: str) -> Text:
        line = Text(self._fit(heading, self.width), "bold")
        room = self.width - line.cell_len - 2
        if subject and room >= 8:
            line.append("  " + self._fit(subject, room), "not bold dim")
        return line

    def _times(self, columns: Sequence[int]) -> Text:
        line = Text(set_cell_size("time" if self.roomy else "t", self.label_width), "dim")
        for time in columns:
            earlier = self.marks.earlier if time == columns[0] and time > 0 else " "
            style = "bold not dim" if time == self.trace.time and not self.trace.finished else ""
            line.append(set_cell_size(f"{earlier}{time}", self._column_width(time)), style)
        return line

    def _counts(self, columns: Sequence[int]) -> Text:
        """How many tokens each decoder call made: where rows run in parallel it is more than one."""
        line = Text(set_cell_size("tokens" if self.roomy else "n", self.label_width), "dim")
        for time in columns:
            made = self.trace.made_at(time)
            text = "" if made is None else f" {made}"
            style = "bold not dim" if made and made > 1 else ""
            line.append(set_cell_size(text, self._column_width(time)), style)
        return line

    def _row(self, number: int, columns: Sequence[int]) -> Text:
        row = self.trace.rows[number - 1]
        colour = _colour(number)
        line = Text()
        mark, style = self._mark(row)
        line.append(f"{number:>{self.label_width - 3}} ", f"bold {colour}")
        line.append(f"{mark} ", style)
        if row.newest < columns[0]:
            return self._row_gone_by(line, row, colour)
        for time in columns:
            if time > row.newest:
                break
            text, style = self._cell(row, time, colour)
            width = self._column_width(time)
            line.append(set_cell_size(f" {self._fit(text, width - PADDING)} " if text else "", width), style)
        return line

    def _row_gone_by(self, line: Text, row: RowTrace, colour: str) -> Text:
        """A row whose cells have all scrolled off: its place holds what it says."""
        line.append(
            self._fit(f"{self.marks.earlier}{row.text(self.words)}", self.area), f"dim italic {colour}"
        )
        return line

    def _hidden(self, shown: Sequence[int]) -> Text:
        hidden = [number for number in range(1, len(self.trace.rows) + 1) if number not in shown]
        rows = f"{len(hidden)} row{'s' if len(hidden) > 1 else ''} not shown: {_ranges(hidden)}"
        line = Text(f"{self.marks.hidden:>{self.label_width - 3}} {rows}", "dim")
        line.truncate(self.width, overflow="ellipsis")
        return line

    def _text(self, most: int | None) -> list[Text]:
        """The text so far, each subsequence after its number; the last lines of it if there are more than `most`."""
        text = Text()
        for number, row in enumerate(self.trace.rows, start=1):
            live = not row.ended and not self.trace.finished
            said = row.text(self.words)
            if not said and not live:
                continue
            text.append(f"{' ' if text else ''}[{number}]", "dim")
            text.append(f" {said.strip()}" if said.strip() else " ", _colour(number))
            if live:
                text.append(self.marks.cursor, f"bold {_colour(number)}")
        # one column is left free for the mark of what was cut
        lines = list(text.wrap(self.console, max(1, self.width - 1))) if text else []
        if most is None or len(lines) <= most:
            return lines
        newest = lines[len(lines) - most :]
        return [Text.assemble((self.marks.ellipsis, "dim"), newest[0]), *newest[1:]] if newest else []

    def _caption(self) -> Text:
        trace = self.trace
        rate = f"{trace.tokens / trace.steps:.1f}" if trace.steps else "0"
        if not self.roomy:
            parts = [f"t {trace.time}", f"{trace.steps} calls", f"{trace.tokens} tok", f"{rate}/step"]
        else:
            parts = [
                "finished" if trace.finished else f"time-step {trace.time}",
                _count(trace.steps, "decoder call"),
                _count(trace.tokens, "token"),
                f"{rate} tokens per step",
            ]
            if not trace.finished:
                parts.append(f"{trace.made_at(trace.time) or 0} in this step")
        dot = f" {self.marks.dot} "
        cut = f"{dot}{self.marks.cut} cut at {trace.truncated}" if trace.truncated else ""
        while len(parts) > 1 and cell_len(dot.join(parts) + cut) > self.width:
            del parts[0]
        line = Text.assemble(dot.join(parts), (cut, "bold yellow"))
        legend = f"{self.marks.live} live  {self.marks.done} finished  {self.marks.empty} empty"
        space = self.width - line.cell_len - cell_len(legend)
        if space >= 4:
            line.append(" " * space + legend, "dim")
        return line

    # Cells

    def _cell(self, row: RowTrace, time: int, colour: str) -> tuple[str, str]:
        """The text and the style of one cell; nothing where the row has no token."""
        place = time - row.start
        if place < 0 or place > len(row.tokens):
            return "", ""
        if place == 0:
            return BOS, "dim"
        if row.ended and place == len(row.tokens):
            return EOS, "dim" if row.empty else "green"
        live = time == row.newest == self.trace.time and not self.trace.finished
        return row.pieces(self.words)[place - 1], f"bold reverse {colour}" if live else colour

    def _column_width(self, time: int) -> int:
        if time not in self._widths:
            widest = max((cell_len(self._cell(row, time, "")[0]) for row in self.trace.rows), default=0)
            self._widths[time] = max(min(widest, WIDEST_TOKEN, self.area - PADDING), len(str(time))) + PADDING
        return self._widths[time]

    def _mark(self, row: RowTrace) -> tuple[str, str]:
        if row.empty:
            return self.marks.empty, "dim"
        if row.ended:
            return self.marks.done, "bold green"
        return (self.marks.cut, "bold yellow") if self.trace.finished else (self.marks.live, "bold")

    def _fit(self, text: str, width: int) -> str:
        """The text in at most so many terminal cells, with an ellipsis where it was cut."""
        if cell_len(text) <= width:
            return text
        return (
            set_cell_size(text, width - 1).rstrip() + self.marks.ellipsis
            if width > 1
            else set_cell_size(text, 1)
        )


def _colour(number: int) -> str:
    return ROW_COLOURS[(number - 1) % len(ROW_COLOURS)]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers in order as ``1–3, 5``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
