"""Progress: a bar on a terminal, a line now and then off one, and data never led astray."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import pytest
from rich.console import Console

from pipedec_cli.data.records import Generated
from pipedec_cli.jobs.tally import Marked, Tally
from pipedec_cli.pipeline.decode import Event, Finished, decode
from pipedec_cli.pipeline.grid import Limits, Method
from pipedec_cli.pipeline.schedule import Fixed
from pipedec_cli.view.console import Talk, write_stdout
from pipedec_cli.view.progress import (
    LINE_EVERY,
    PATIENCE,
    GenerationProgress,
)
from pipedec_cli.view.terminal import Terminal
from tests.fakes import BOS, EOS, ScriptedModel
from tests.view.showing import showing


class Clock:
    """Stands still unless it is told to go on."""

    now = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("pipedec_cli.view.progress.monotonic", lambda: clock.now)
    return clock


def make_terminal(*, terminal: bool = False, quiet: bool = False, no_color: bool = False) -> Terminal:
    screen = Console(width=100, file=io.StringIO(), force_terminal=terminal, no_color=no_color)
    return Terminal(quiet=quiet, console=screen)


def make_talk(**options: bool) -> Talk:
    return make_terminal(**options).talk


def written(talk: Talk) -> str:
    assert isinstance(talk.console.file, io.StringIO)
    return talk.console.file.getvalue()


def watch(
    progress: GenerationProgress, clock: Clock, seconds: float = 0.0, sequences: int = 1
) -> Iterator[Event]:
    """The events of three examples of 5, 2 and 1 tokens, after each of which so many seconds went by, once shown."""
    model = ScriptedModel([[[2, 3, 4], [5, 6]], [[2, 3]], [[4]]])
    method = Method(Fixed(1), bos=BOS, eos=EOS, empty_rows="stop")
    with showing(progress):
        for event in decode(model, [(index, [index]) for index in range(3)], method, sequences):
            clock.now += seconds
            progress.on(event)
            yield event


@pytest.mark.parametrize("sequences", [1, 2, 3])
def test_examples_tokens_without_eos_and_rates_are_counted_from_the_first_event_on(clock, sequences):
    progress = GenerationProgress(make_talk(), 3)
    clock.now += 1000  # a model that is slow to load is no slow decoder
    list(watch(progress, clock, sequences=sequences))
    assert (progress.examples, progress.tokens) == (3, 8)
    assert progress.rates == "", "no time has passed"
    clock.now += 4
    assert progress.rates == "0.75 examples/s, 2.00 tokens/s"


def test_off_a_terminal_a_line_comes_every_ten_seconds_and_no_oftener(clock):
    talk = make_talk()
    seconds = LINE_EVERY / 4 * len(list(watch(GenerationProgress(talk, 3), clock, LINE_EVERY / 4)))
    lines = written(talk).splitlines()
    assert len(lines) == int(seconds // LINE_EVERY)
    assert lines[0].startswith("generating: 0 of 3, 0.00 examples/s, ")
    assert "\x1b" not in written(talk)


@pytest.mark.parametrize(("total", "shown"), [(3, "2/3"), (None, "2 ")])
def test_on_a_terminal_a_bar_shows_how_far_it_is_and_goes_away(clock, total, shown):
    talk = make_talk(terminal=True)
    progress = GenerationProgress(talk, total)
    for event in watch(progress, clock, 1.0):
        if isinstance(event, Finished) and event.example == 1:
            assert progress._display.bar is not None
            progress._display.bar.refresh()
    text = written(talk)
    assert shown in text
    assert ("0/" in text) == (total is not None)
    assert "examples/s" in text
    assert text.rstrip().endswith("\x1b[2K"), "the bar's line is cleared"


@pytest.mark.parametrize(
    ("settings", "seconds"), [({}, 0.0), ({"quiet": True}, 10.0), ({"quiet": True, "terminal": True}, 10.0)]
)
def test_short_work_and_quiet_work_say_nothing(clock, settings, seconds):
    terminal = make_terminal(**settings)
    talk, notify = terminal.talk, terminal.notify
    list(watch(GenerationProgress(talk, None), clock, seconds))
    with notify.stage("reading", 2) as advance:
        advance()
    assert written(talk) == ""


def test_no_color_on_a_terminal_gives_lines_without_a_moving_bar(clock):
    terminal = make_terminal(terminal=True, no_color=True)
    talk, notify = terminal.talk, terminal.notify
    list(notify.track(_ticking(clock, [LINE_EVERY] * 2), 2, "reading"))
    assert "reading: 1 of 2" in written(talk)
    assert "\x1b[2K" not in written(talk)


def test_data_on_stdout_stays_there_while_a_bar_moves(clock, capsys):
    talk = make_talk(terminal=True)
    for _ in watch(GenerationProgress(talk, 3), Clock()):
        write_stdout("data\n")
    assert "data" not in written(talk)
    assert capsys.readouterr().out.startswith("data\n")


def _ticking(clock: Clock, seconds: list[float]) -> Iterator[int]:
    for number, wait in enumerate(seconds):
        clock.now += wait
        yield number


def test_a_bar_shows_how_far_it_is_only_beyond_two_seconds(clock):
    terminal = make_terminal(terminal=True)
    talk, notify = terminal.talk, terminal.notify
    list(notify.track(_ticking(clock, [PATIENCE / 2, PATIENCE / 4]), 2, "reading"))
    with notify.stage("segmenting", 2) as advance:
        advance()
        assert written(talk) == ""
        clock.now += PATIENCE
        advance()
    assert "2/2" in written(talk)
    assert list(notify.track(_ticking(clock, [PATIENCE, PATIENCE]), 2, "reading")) == [0, 1]
    assert "reading" in written(talk)


def test_track_draws_items_in_order_one_at_a_time_and_puts_the_bar_away_when_its_caller_stops(clock):
    terminal, left = make_terminal(terminal=True), _ticking(clock, [PATIENCE] * 9)
    talk, notify = terminal.talk, terminal.notify
    items = notify.track(left, 9, "reading")
    assert (next(items), next(items), next(left)) == (0, 1, 2)
    assert (next(items), next(items)) == (3, 4)
    items.close()  # type: ignore[attr-defined]
    assert "\x1b[?25h" in written(talk), "the cursor comes back"


def test_a_label_is_data(clock):
    terminal = make_terminal()
    talk, notify = terminal.talk, terminal.notify
    list(notify.track(_ticking(clock, [LINE_EVERY]), 1, "[red]a\x1b[2Jfile"))
    assert written(talk) == "[red]a␛[2Jfile: 1 of 1\n"


def test_a_stage_that_says_nothing_shows_itself_all_the_same(monkeypatch):
    monkeypatch.setattr("pipedec_cli.view.progress.PATIENCE", 0.0)
    terminal = make_terminal(terminal=True)
    talk, notify = terminal.talk, terminal.notify
    with notify.stage("learning"):
        while "learning" not in written(talk):
            time.sleep(0.01)
    assert "\x1b[?25h" in written(talk), "the cursor comes back"


def test_what_is_marked_is_counted_and_only_the_first_few_are_kept():
    marked = Marked()
    for number in range(1000):
        marked.add(str(number))
    assert (marked.count, marked.first) == (1000, ["0", "1", "2", "3", "4"])


@pytest.mark.parametrize(
    ("steps", "drafts", "said"),
    [
        (12, 5, None),
        (13, 5, "13 calls, the drafts' 5 among them, where the plain model alone makes 13"),
        (18, 5, "no guess has saved a decoder call: one more guess makes a call 3 times as long here"),
    ],
)
def test_drafts_that_cost_more_calls_than_they_save_are_told_of(steps, drafts, said):
    tally = Tally(unknown_id=None, examples=3, tokens=10, steps=steps, draft_steps=drafts)
    told = tally.saved_none([1.0, 3.0])
    assert told is None if said is None else told is not None and told.startswith(said)
    assert tally.saved_none(None) is None


def test_texts_that_were_ended_where_they_went_in_circles_are_counted_and_told():
    tally = Tally(unknown_id=None)
    for stopped_on_repeat in (True, False, True):
        tally.add(
            Generated(text="a", segments=("a",), steps=2, tokens=1, stopped_on_repeat=stopped_on_repeat)
        )
    assert tally.as_json()["stopped_on_repeat"] == 2
    assert "2 of 3 began to repeat themselves: each ends there" in [*tally.lines(1.0, Limits())]
