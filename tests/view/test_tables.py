"""Tables of any content on a terminal of any width, and their figures."""

import io

from rich.cells import cell_len
from rich.console import Console

from pipedec_cli.view.tables import (
    Section,
    Sheet,
    escaped,
    figure,
    fitting_table,
    show_sheet,
    times,
)
from tests.words import same_words


def screen(width):
    file = io.StringIO()
    file.isatty = lambda: True
    return Console(file=file, width=width, color_system=None)


def left_out(sheet, width):
    """The headings of the columns that a terminal of that width has no room for."""
    table, others = fitting_table(screen(width), sheet)
    assert len(table.columns) + len(others) == 1 + len(sheet.columns)
    return others


def test_headings_are_broken_between_words_and_figures_stand_to_the_right():
    rows = (("one", "1.0", "word"), ("two", "10.0", "longer"))
    section = Section("a section whose heading is long", rows)
    file = io.StringIO()
    show_sheet(
        Console(file=file, width=10), Sheet("", ("a heading", "text"), (section,))
    )
    same_words(file.getvalue())


def test_only_a_last_column_of_text_is_broken_to_fit():
    rows = (("a name", "a word " * 20), ("b", "\x1b[0m[bold]"))
    console = screen(50)
    show_sheet(console, Sheet("", ("settings",), (Section("", rows),)))
    text = same_words(console.file.getvalue())
    assert max(map(cell_len, text.splitlines())) <= 50


def test_signs_of_markdown_stay_text():
    assert escaped("a|b*c\n<d>") == r"a\|b\*c \<d\>"


def test_numbers_have_three_figures():
    assert [figure(number) for number in (1234.5, 12.34, 0.1234)] == [
        "1234",
        "12.3",
        "0.12",
    ]
    assert [times(number) for number in (0.1234, 0.999, 12.34, None)] == [
        "0.12 ×",
        "1.0 ×",
        "12.3 ×",
        "–",
    ]
