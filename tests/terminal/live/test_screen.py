"""Where the grid moves, where it is printed once, and where nothing is shown."""

from __future__ import annotations

import pytest

from pipedec_cli.pipeline.schedule import Fixed
from pipedec_cli.terminal.console import Talk, write_stdout
from pipedec_cli.terminal.live import LiveGrid, LiveScreen
from tests.terminal.live.scripts import FIGURE_2, Script, console


def talk(*, terminal: bool, quiet: bool = False) -> Talk:
    return Talk(quiet, console(100, terminal=terminal))


def written(talker: Talk) -> str:
    talker.console.file.flush()
    raw = talker.console.file.buffer.getvalue().decode()  # type: ignore[attr-defined]
    return str(raw)


def run_screen(talker: Talk, script: Script, sequences: int = 1) -> str:
    now = 0.0
    with LiveScreen(talker, script.view(), clock=lambda: now) as screen:
        for event in script.events(Fixed(1), sequences=sequences):
            now += 1
            screen.on(event)
    return written(talker)


@pytest.mark.parametrize("terminal", [False, True])
def test_where_nothing_moves_each_grid_is_printed_once_without_a_single_escape(terminal: bool) -> None:
    talker = talk(terminal=terminal)
    talker.console.no_color = True  # it stops the animation on a terminal, too
    text = run_screen(talker, Script([["A", "B"]], [["C"]]), sequences=2)
    assert "\x1b[2K" not in text
    assert terminal or "\x1b" not in text
    assert text.count("finished ·") == 2
    assert "in this step" not in text


def test_on_a_terminal_frames_move_and_the_finished_grid_stays() -> None:
    text = run_screen(talk(terminal=True), Script([["A", "B"]], [["C"]]))
    assert "1 in this step" in text
    assert text.count("finished ·") == 2, "each once, and not again as a frame"
    assert "\x1b[?25h" in text, "the cursor comes back"


def test_quiet_shows_no_grid() -> None:
    assert run_screen(talk(terminal=False, quiet=True), FIGURE_2) == ""


def test_data_on_stdout_stays_there_while_a_grid_moves_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    talker = talk(terminal=True)
    with LiveScreen(talker, FIGURE_2.view()) as screen:
        for event in FIGURE_2.events(Fixed(1)):
            screen.on(event)
            write_stdout("a line of data\n")
    assert "a line of data" not in written(talker)
    assert capsys.readouterr().out.startswith("a line of data\n")


def test_a_large_grid_is_drawn_less_often_than_a_small_one() -> None:
    def frames(cost: float) -> int:
        now = [0.0]

        class Slow(LiveGrid):
            def __rich__(self) -> str:  # type: ignore[override]
                now[0] += cost
                return "frame\n"

        talker = talk(terminal=True)
        with LiveScreen(talker, Slow(FIGURE_2.words), clock=lambda: now[0]) as screen:
            for event in Script([["w"] * 40]).events(Fixed(1)):
                now[0] += 0.05
                screen.on(event)
        return written(talker).count("frame")

    assert frames(0.0) > 2 * frames(0.03) > 0
