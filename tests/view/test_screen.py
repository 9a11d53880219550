"""Where the grid moves, where it is printed once, where nothing is shown; and the picture for the documentation."""

from dataclasses import dataclass
from typing import Any

import pytest

from pipedec_cli.data.workspace import Workspace
from pipedec_cli.pipeline.schedule import Fixed
from pipedec_cli.view.console import Talk, write_stdout
from pipedec_cli.view.live import LiveGrid, LiveScreen
from tests.checkpoints import TOLD, tiny_checkpoint
from tests.running import write_lines
from tests.trials.picture import draw_picture
from tests.view.conftest import Clock, showing
from tests.view.scripts import FIGURE_2, Script, console

TWO = Script([["A", "B"]], [["C"]])


@dataclass
class Run:
    """A screen that has shown a script, with a line of data on stdout and so many seconds of decoding at each event."""

    clock: Clock
    terminal: bool = True
    quiet: bool = False
    moving: bool = True
    seconds: float = 1.0

    def text(
        self,
        script: Script,
        view: LiveGrid | None = None,
        speed: float | None = None,
        sequences: int = 1,
    ) -> str:
        """The content of the screen in the end, every escape included."""
        talk = Talk(self.quiet, console(100, terminal=self.terminal))
        talk.console.no_color = not self.moving
        with showing(LiveScreen(talk, view or script.view(), speed)) as screen:
            for event in script.events(Fixed(1), sequences=sequences):
                self.clock.now += self.seconds
                screen.on(event)
                write_stdout("a line of data\n")
        file: Any = talk.console.file
        file.flush()
        return str(file.buffer.getvalue().decode())


@pytest.mark.parametrize("terminal", [False, True])
def test_where_nothing_moves_each_grid_is_printed_once_without_a_single_escape(
    clock, terminal
):
    text = Run(clock, terminal, moving=False).text(
        TWO, sequences=2
    )  # as NO_COLOR does on a terminal
    assert "\x1b[2K" not in text
    assert terminal or "\x1b" not in text
    assert text.count("finished ·") == 2
    assert "in this step" not in text


def test_on_a_terminal_frames_move_and_the_finished_grid_and_the_data_on_stdout_stay(
    clock, capsys
):
    text = Run(clock).text(TWO)
    assert "1 in this step" in text
    assert text.count("finished ·") == 2, "each once, and not again as a frame"
    assert "\x1b[?25h" in text, "the cursor comes back"
    assert "a line of data" not in text
    assert capsys.readouterr().out.startswith("a line of data\n")


@pytest.mark.parametrize(("terminal", "frames"), [(True, 4), (False, 0)])
@pytest.mark.parametrize(
    ("speed", "total", "held"), [(5.0, None, 0.15), (None, 1, 0.05)]
)
def test_a_speed_slows_the_followed_example_on_a_terminal_alone(
    clock, speed, total, held, terminal, frames
):
    text = Run(clock, terminal, seconds=0.05).text(
        FIGURE_2, FIGURE_2.view(total=total), speed
    )
    assert [round(seconds, 3) for seconds in clock.slept] == [0.0, *[held] * frames][
        : len(clock.slept)
    ]
    assert len(clock.slept) == frames + (frames > 0)
    assert sum(f"{count} decoder call" in text for count in range(1, 5)) >= frames
    assert text.count("finished ·") == 1, "the whole grid stays"


def test_quiet_shows_no_grid(clock):
    assert Run(clock, terminal=False, quiet=True).text(FIGURE_2) == ""


def test_a_large_grid_is_drawn_less_often_than_a_small_one(clock):
    def frames(cost: float) -> int:
        class Slow(LiveGrid):
            def __rich__(self) -> str:  # type: ignore[override]
                clock.now += cost
                return "frame\n"

        return (
            Run(clock, seconds=0.05)
            .text(Script([["w"] * 40]), Slow(FIGURE_2.view().work))
            .count("frame")
        )

    assert frames(0.0) > 2 * frames(0.03) > 0


def test_the_picture_shows_a_models_own_run_and_comes_out_the_same_each_time(tmp_path):
    place, (source, told), path = (
        Workspace(tmp_path / "work"),
        TOLD[3],
        tmp_path / "live-grid.svg",
    )
    tiny_checkpoint(place.model("pipelined"))
    row = {
        "id": "a",
        "source": source,
        "target": " ".join(told),
        "target_segments": told,
    }
    write_lines(place.data / "test.jsonl", row)
    drawn = set()
    for _ in range(2):
        draw_picture(path, place.root, steps=5)
        drawn.add(path.read_text(encoding="utf-8"))
    (picture,) = drawn
    assert picture.startswith("<svg")
    assert "in&#160;this&#160;step" in picture, "it is drawn mid-decoding"
    assert "rating[5" in picture
