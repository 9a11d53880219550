"""Progress: a bar on a terminal, a line now and then elsewhere; data stay on stdout."""

import io
import re
import time
from collections.abc import Iterator

import pytest
from rich.console import Console

from pipedec_cli.data.errors import log
from pipedec_cli.events import Ended, Training, stage, track
from pipedec_cli.pipeline.decode import Event, Finished, decode
from pipedec_cli.pipeline.grid import Method
from pipedec_cli.pipeline.schedule import Fixed
from pipedec_cli.training.hyperparameters import TrainingProgress
from pipedec_cli.view.console import write_stdout
from pipedec_cli.view.progress import LINE_EVERY, GenerationProgress, Terminal
from tests.fakes import BOS, EOS, ScriptedModel
from tests.view.conftest import Clock, showing
from tests.words import same_words


def make_terminal(
    *, terminal: bool = False, quiet: bool = False, no_color: bool = False
) -> Terminal:
    screen = Console(
        width=100, file=io.StringIO(), force_terminal=terminal, no_color=no_color
    )
    return Terminal(quiet=quiet, console=screen)


def written(terminal: Terminal) -> str:
    file = terminal.talk.console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def watch(
    progress: GenerationProgress, clock: Clock, seconds: float = 0.0, sequences: int = 1
) -> Iterator[Event]:
    """The events of three examples of 5, 2 and 1 tokens, after each of which so many seconds went by, once shown."""
    model = ScriptedModel([[[2, 3, 4], [5, 6]], [[2, 3]], [[4]]])
    method = Method(Fixed(1), bos=BOS, eos=EOS, empty_rows="stop")
    with showing(progress):
        for event in decode(
            model, [(index, [index]) for index in range(3)], method, sequences
        ):
            clock.now += seconds
            progress.on(event)
            yield event


def ticking(clock: Clock, *seconds: float) -> Iterator[int]:
    for number, wait in enumerate(seconds):
        clock.now += wait
        yield number


@pytest.mark.parametrize("sequences", [1, 2, 3])
def test_examples_tokens_without_eos_and_rates_are_counted_from_the_first_event_on(
    clock, sequences
):
    progress = GenerationProgress(make_terminal().talk, 3)
    clock.now += 1000  # a model that is slow to load is no slow decoder
    list(watch(progress, clock, sequences=sequences))
    assert (progress.examples, progress.tokens) == (3, 8)
    assert progress.rates == "", "no time has passed"
    clock.now += 4
    assert progress.rates == "0.75 examples/s, 2.00 tokens/s"


def test_off_a_terminal_a_line_comes_every_ten_seconds_and_no_oftener(clock):
    terminal = make_terminal()
    events = list(watch(GenerationProgress(terminal.talk, 3), clock, LINE_EVERY / 4))
    lines = written(terminal).splitlines()
    assert len(lines) == len(events) // 4
    assert lines[0].startswith("generating: 0 of 3, 0.00 examples/s, ")
    assert "\x1b" not in written(terminal)


@pytest.mark.parametrize(("total", "shown"), [(3, "2/3"), (None, "2/?")])
def test_on_a_terminal_a_bar_comes_and_goes_while_stdout_keeps_its_data(
    clock, capsys, total, shown
):
    terminal = make_terminal(terminal=True)
    progress = GenerationProgress(terminal.talk, total)
    for event in watch(progress, clock, 1.0):
        write_stdout("data\n")
        if isinstance(event, Finished) and event.example == 1:
            progress._display.bar.refresh()
    text = written(terminal)
    assert shown in text and "examples/s" in text
    assert text.rstrip().endswith("\x1b[2K"), "the line of the bar is cleared"
    assert "data" not in text and capsys.readouterr().out.startswith("data\n")


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [({}, 0.0), ({"quiet": True}, 10.0), ({"quiet": True, "terminal": True}, 10.0)],
)
def test_short_work_and_quiet_work_say_nothing(clock, settings, seconds):
    terminal = make_terminal(**settings)
    list(watch(GenerationProgress(terminal.talk, None), clock, seconds))
    with stage(terminal, "reading", 2) as advance:
        advance()
    assert written(terminal) == ""


@pytest.mark.parametrize(
    ("quiet", "shown"), [(False, ["50 % of [red]a␛[2J"]), (True, [])]
)
def test_a_terminal_shows_what_is_logged_as_data_and_each_warning_once(quiet, shown):
    earlier, terminal = make_terminal(), make_terminal(quiet=quiet)
    with stage(terminal, "reading"):
        log.info("50 % of [red]a\x1b[2J")
        for text in ("%s is odd", "%s is odd", "so is %d"):
            log.warning(text)
    assert written(terminal).splitlines() == [
        *shown,
        "warning: %s is odd",
        "warning: so is %d",
    ]
    assert written(earlier) == "", "a new terminal takes its place"


@pytest.mark.parametrize("settings", [{}, {"terminal": True, "no_color": True}])
def test_without_animation_there_are_lines_and_a_label_is_data(clock, settings):
    terminal = make_terminal(**settings)
    list(track(terminal, ticking(clock, LINE_EVERY, 0), 2, "[red]a\x1b[2Jfile"))
    assert written(terminal) == "[red]a␛[2Jfile: 1 of 2\n"


def test_short_stages_show_no_bar_and_a_long_one_shows_how_far_it_is(monkeypatch):
    terminal = make_terminal(terminal=True)
    with stage(terminal, "segmenting", 2) as advance:
        advance()
    assert written(terminal) == ""
    monkeypatch.setattr("pipedec_cli.view.progress.PATIENCE", 0.01)
    with stage(terminal, "learning", 2) as advance:
        while "learning" not in written(
            terminal
        ):  # it says nothing, and is shown all the same
            time.sleep(0.01)
        advance()
    assert "1/2" in written(terminal)
    assert "\x1b[?25h" in written(terminal), "the cursor comes back"


def test_track_draws_items_one_at_a_time_and_puts_the_bar_away_when_its_caller_stops(
    monkeypatch, clock
):
    monkeypatch.setattr("pipedec_cli.view.progress.PATIENCE", 0.0)
    terminal, left = make_terminal(terminal=True), ticking(clock, *[0] * 9)
    items = track(terminal, left, 9, "reading")
    assert (next(items), next(items), next(left)) == (0, 1, 2)
    assert (next(items), next(items)) == (3, 4)
    items.close()  # type: ignore[attr-defined]
    assert "reading" in written(terminal)
    assert "\x1b[?25h" in written(terminal), "the cursor comes back"


def test_each_evaluation_of_a_training_leaves_a_line():
    terminal = make_terminal(terminal=True)
    terminal(training := Training("F1"))
    for progress in (
        TrainingProgress(1, 2, 0.5, 2.5),
        TrainingProgress(2, 2, 1.0, 1.5, 1.25, 50.0),
    ):
        terminal(progress)
    terminal(Ended(training))
    text = written(terminal)
    lines = re.findall("update: .*", text)
    same_words("\n".join(lines))
    assert text.rstrip().endswith("\x1b[2K"), "the line of the bar is cleared"


def test_off_a_terminal_a_training_says_how_long_it_takes_and_whether_evaluations_are_in_it(
    clock,
):
    terminal = make_terminal()
    terminal(Training("F1"))
    for figures in (
        (1, 9, 0.1, None),
        (2, 9, 0.2, 2.5, None, None, 140.0),
        (3, 9, 0.3, 2.0, 1.5, 9.0, 240.0),
    ):
        terminal(TrainingProgress(*figures))
        clock.now += LINE_EVERY
    same_words(written(terminal))
