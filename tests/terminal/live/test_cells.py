"""The text of tokens in their cells: decoded once, shown as data, and never wider than the console."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pipedec_cli.pipeline.schedule import Fixed, Waiting
from pipedec_cli.terminal.live import LiveGrid
from tests.terminal.live.scripts import FIGURE_2, SENTENCES, Script, after, shown


def test_events_alone_decode_no_token() -> None:
    script = Script(SENTENCES)
    after(script, script.events(Fixed(2)), 12)
    assert script.decoded == 0


def test_each_token_is_decoded_once_however_often_it_is_drawn() -> None:
    script = Script([["a", "b", "c"]])
    view = after(script, script.events(Fixed(1)), 4)
    shown(view)
    once = script.decoded
    shown(view)
    assert script.decoded == once


def test_a_word_piece_is_marked_as_going_on_with_its_word() -> None:
    view = LiveGrid(lambda ids: "".join(["", "", "plan", "et", "."][token] for token in ids))
    script = Script([["x", "y", "z"]])  # ids 2, 3 and 4
    for event in islice(script.events(Fixed(1)), 4):
        view.on(event)
    lines = shown(view)
    assert lines[2].split() == ["1", "▸", "<bos>", "plan", "·et", "."]
    assert "[1] planet.▌" in lines


@pytest.mark.parametrize(
    ("token", "cell"),
    [
        ("[red]", "[red]"),
        (":smile:", ":smile:"),
        ("\x1b[31mred", "␛[31mred"),
        ("a\nb\tc", "a␊b␉c"),
        ("nul\0", "nul␀"),
        ("\x9b2J", "�2J"),
        ("\u202eabc", "�abc"),
        ("\ud800", "�"),
        ("日本", "日本"),
        ("👍", "👍"),
        (" ", "␣"),
        ("a-token-longer-than-a-cell", "a-token-longe…"),
        ("漢字漢字漢字漢字", "漢字漢字漢字… "),
    ],
)
def test_whatever_a_token_holds_is_shown_as_data(token: str, cell: str) -> None:
    script = Script([[token, "next"]])
    row = shown(after(script, script.events(Waiting()), 3), width=80)[2]
    assert row == f"   1 ▸  <bos>  {cell}  next"


def test_cells_after_wide_characters_stand_beneath_their_time_step() -> None:
    script = Script([["日本", "x"], ["y"]])
    lines = shown(after(script, script.events(Fixed(1)), 3))
    times, first, second = lines[1:4]
    assert cell_len(times[: times.index("2")]) == cell_len(first[: first.index("x")])
    assert cell_len(times[: times.index("2")]) == cell_len(second[: second.index("y")])


TOKENS = st.text(max_size=20) | st.sampled_from(["[/]", "\x1b[2J", "👩‍👩‍👧", "é", "\r", "中"])


@given(
    example=st.lists(st.lists(TOKENS, min_size=1, max_size=6), min_size=1, max_size=8),
    delay=st.integers(1, 3),
    calls=st.integers(0, 60),
    width=st.integers(6, 120),
    height=st.integers(6, 30),
)
def test_no_text_and_no_size_makes_the_drawing_overflow(
    example: list[list[str]], delay: int, calls: int, width: int, height: int
) -> None:
    script = Script(example)
    view = script.view()
    finished = None
    for event in islice(script.events(Fixed(delay), explore="retry"), 1 + calls):
        finished = view.on(event)
    lines = shown(view, width, height)
    assert all(cell_len(line) <= width for line in lines)
    assert not any(
        ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for line in lines for character in line
    )
    if view.followed is not None and finished is None:
        assert len(lines) < height


def test_a_console_that_knows_ascii_only_gets_ascii_marks() -> None:
    view = after(FIGURE_2, FIGURE_2.events(Fixed(1)), 5)
    lines = shown(view, encoding="ascii")
    assert "".join(lines).isascii()
    assert [line.split()[1] for line in lines[2:5]] == ["*", "*", "-"]
