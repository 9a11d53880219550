"""The live grid: what stands where on a console of known size, and that no token can break it."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from pipedec_cli.data.workspace import Workspace
from pipedec_cli.pipeline.decode import Event, Finished, Method, decode
from pipedec_cli.pipeline.grid import Explore, Limits
from pipedec_cli.pipeline.schedule import Fixed, Schedule, Sequential
from pipedec_cli.terminal.console import Talk, write_stdout
from pipedec_cli.terminal.views import live_picture
from pipedec_cli.terminal.views.live import LiveGrid, LiveScreen
from tests.checkpoints import TOLD, tiny_checkpoint
from tests.fakes import BOS, EOS, ScriptedModel


class Script:
    """Examples told in words: a token a word, joined by spaces as a tokenizer would."""

    def __init__(self, *examples: Sequence[Sequence[str]]) -> None:
        self.vocabulary = ["", ""]
        self.scripts = [[[self._token(word) for word in text] for text in example] for example in examples]
        self.decoded = 0

    def _token(self, word: str) -> int:
        if word not in self.vocabulary[2:]:
            self.vocabulary.append(word)
        return self.vocabulary.index(word, 2)

    def words(self, ids: Sequence[int]) -> str:
        self.decoded += 1
        return " ".join(self.vocabulary[token] for token in ids)

    def events(
        self, schedule: Schedule, *, explore: Explore = "once", limits: Limits | None = None, lanes: int = 1
    ) -> list[Event]:
        method = Method(schedule, bos=BOS, eos=EOS, limits=limits or Limits(), explore=explore)
        sources = [(index, [index]) for index in range(len(self.scripts))]
        return list(decode(ScriptedModel(self.scripts), sources, method, lanes))

    def view(self, **more: object) -> LiveGrid:
        return LiveGrid(self.words, eos=EOS, **more)  # type: ignore[arg-type]


FIGURE_2 = Script([["A", "B", "C"], ["D", "E"]])
SENTENCES = [[f"{letter}{number}" for number in range(8)] for letter in "abcdef"]


def console(width: int, height: int = 40, *, terminal: bool = False, encoding: str = "utf-8") -> Console:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    return Console(
        width=width, height=height, file=file, force_terminal=terminal, no_color=not terminal, markup=False
    )


def shown(renderable: object, width: int = 80, height: int = 40, *, encoding: str = "utf-8") -> list[str]:
    """The lines of a drawing without styles, trailing blanks cut."""
    target = console(width, height, encoding=encoding)
    with target.capture() as capture:
        target.print(renderable)
    return [line.rstrip() for line in capture.get().split("\n")][:-1]


def after(script: Script, events: Sequence[Event], count: int, **more: object) -> LiveGrid:
    view = script.view(**more)
    for event in events[:count]:
        view.on(event)
    return view


def finished(script: Script, events: Sequence[Event]) -> object:
    view = script.view()
    return [drawing for event in events if (drawing := view.on(event))][-1]


def test_figure_2_is_drawn_as_in_the_paper_while_it_is_being_decoded() -> None:
    view = after(FIGURE_2, FIGURE_2.events(Fixed(1)), 4, method="Δt = 1")  # admitted, and three decoder calls
    assert shown(view) == [
        "example 1, Δt = 1",
        "time    0      1      2      3",
        "   1 ▸  <bos>  A      B      C",
        "   2 ▸         <bos>  D      E",
        "   3 ∅                <bos>  <eos>",
        "tokens         1      2      2",
        "",
        "[1] A B C▌ [2] D E▌",
        "",
        "time-step 3 · 3 decoder calls · 5 tokens · 1.7 tokens per step · 2 in this step",
    ]


def test_figure_2_finished_marks_every_row_and_counts_its_calls() -> None:
    assert shown(finished(FIGURE_2, FIGURE_2.events(Fixed(1))), width=100) == [
        "example 1",
        "time    0      1      2      3      4",
        "   1 ✓  <bos>  A      B      C      <eos>",
        "   2 ✓         <bos>  D      E      <eos>",
        "   3 ∅                <bos>  <eos>",
        "tokens         1      2      2      0",
        "",
        "[1] A B C [2] D E",
        "",
        "finished · 4 decoder calls · 5 tokens · 1.2 tokens per step              ▸ live  ✓ finished  ∅ empty",
        "",
    ]


def test_tokens_of_the_newest_step_are_highlighted_and_no_others() -> None:
    view = after(FIGURE_2, FIGURE_2.events(Fixed(1)), 4)
    target = console(80, terminal=True)
    with target.capture() as capture:
        target.print(view)
    highlighted = re.findall(r"\x1b\[[0-9;]*\b7[0-9;]*m([^\x1b]*)", capture.get())
    assert [text.strip() for text in highlighted] == ["C", "E"]


def test_an_example_without_a_step_says_that_its_source_is_being_encoded() -> None:
    view = after(FIGURE_2, FIGURE_2.events(Fixed(1)), 1)
    assert shown(view) == ["example 1", "encoding the source"]


def test_nothing_is_shown_before_the_first_event() -> None:
    assert shown(FIGURE_2.view()) == [""]
    assert FIGURE_2.view().followed is None


def test_a_narrow_terminal_shows_the_newest_time_steps() -> None:
    script = Script(SENTENCES)
    lines = shown(after(script, script.events(Fixed(2)), 11), width=30, height=40)
    assert lines == [
        "example 1",
        "t   ‹7   8      9      10",
        "1 ✓  a6  a7     <eos>",
        "2 ▸  b4  b5     b6     b7",
        "3 ▸  c2  c3     c4     c5",
        "4 ▸  d0  d1     d2     d3",
        "5 ▸      <bos>  e0     e1",
        "n    4   4      4      4",
        "",
        "[1] a0 a1 a2 a3 a4 a5 a6 a7",
        "[2] b0 b1 b2 b3 b4 b5 b6 b7▌",
        "[3] c0 c1 c2 c3 c4 c5▌ [4] d0",
        "d1 d2 d3▌ [5] e0 e1▌",
        "",
        "10 calls · 28 tok · 2.8/step",
    ]


def test_a_row_that_has_scrolled_off_shows_its_text_in_its_place() -> None:
    script = Script([["gone", "by", "now"], ["z"] * 20])
    view = after(script, script.events(Sequential()), 20)
    row = next(line for line in shown(view, width=40) if line.startswith("1 ✓"))
    assert row == "1 ✓ ‹gone by now"


def test_more_rows_than_the_console_is_high_show_the_live_ones_and_name_the_hidden() -> None:
    script = Script([["x"] * 30, *[["y"]] * 15])
    view = after(script, script.events(Fixed(1)), 15)
    lines = shown(view, width=80, height=12)
    assert len(lines) < 12
    hidden = next(line for line in lines if "not shown" in line)
    numbers = [int(line.split()[0]) for line in lines if re.match(r" +\d+ [▸✓∅]", line)]
    assert numbers[0] == 1, "the first row is live still"
    assert numbers[-1] == 14
    assert f"{14 - len(numbers)} rows not shown: 2–" in hidden


def test_a_row_that_hit_time_max_is_marked_as_cut() -> None:
    script = Script([["w"] * 9, ["v"]])
    lines = shown(finished(script, script.events(Fixed(1), limits=Limits(time_max=4))), width=120)
    assert any(line.startswith("   1 ✂") for line in lines)
    assert "✂ cut at time_max" in lines[-2]
    narrow = shown(finished(script, script.events(Fixed(1), limits=Limits(time_max=4))), width=30)
    assert narrow[-2].endswith("✂ cut at time_max"), "what was cut is the last thing to give way"


def test_a_finished_grid_wider_than_the_console_is_drawn_whole_in_blocks() -> None:
    script = Script(SENTENCES)
    lines = shown(finished(script, script.events(Fixed(2))), width=50)
    times = [
        int(time) for line in lines if re.match(r"t +‹?\d+ +\d", line) for time in re.findall(r"\d+", line)
    ]
    assert times == list(range(len(times)))
    cells = " ".join(line for line in lines if re.match(r" *\d [✓∅]", line)).split()
    assert sorted(word for word in cells if word[0] in "abcdef") == sorted(
        word for text in SENTENCES for word in text
    )


def test_time_steps_that_pass_without_a_decoder_call_are_columns_without_tokens() -> None:
    script = Script([["A"], ["B"]])
    lines = shown(finished(script, script.events(Fixed(5))), width=120)
    assert lines[1].split()[1:] == [str(time) for time in range(len(lines[1].split()) - 1)]
    assert re.search(r"2 ✓ +<bos>  B  <eos>", lines[3])
    counts = next(line for line in lines if line.startswith("tokens"))
    assert counts.split()[1:] == ["1", "0", "1", "0", "0"], "two for each text, one for the closing empty one"


def test_the_oldest_example_in_flight_is_followed_until_it_leaves() -> None:
    script = Script([["a", "a", "a"]], [["b"]], [["c"] * 5])
    view = script.view(total=3, name=lambda example: f"name-{example}")
    seen = []
    for event in script.events(Fixed(1), lanes=2):
        view.on(event)
        if not isinstance(event, Finished):
            seen.append((view.followed, shown(view, width=100)[0]))
    assert seen[0][0] == 0
    assert (0, "example 1 of 3, the oldest of 2 in flight  name-0") in seen
    assert [example for example, _ in seen] == sorted(example for example, _ in seen if example is not None)
    assert view.followed is None


def test_every_finished_example_gives_its_own_whole_grid_also_in_batches() -> None:
    script = Script([["a", "a", "a"]], [["b"]], [["c"] * 5])
    view = script.view()
    drawings = {}
    for event in script.events(Fixed(1), lanes=3):
        drawing = view.on(event)
        if drawing:
            drawings[drawing.trace.example] = shown(drawing, width=100)
    assert [lines[0] for _, lines in sorted(drawings.items())] == ["example 1", "example 2", "example 3"]
    assert "[1] c c c c c" in drawings[2]


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
    view = LiveGrid(lambda ids: "".join(["", "", "plan", "et", "."][token] for token in ids), eos=EOS)
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
    row = shown(after(script, script.events(Sequential()), 3), width=80)[2]
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
    events = script.events(Fixed(delay), explore="retry")
    view = after(script, events, 1 + calls)
    lines = shown(view, width, height)
    assert all(cell_len(line) <= width for line in lines)
    assert not any(
        ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for line in lines for character in line
    )
    if view.followed is not None and not isinstance(events[min(calls, len(events) - 1)], Finished):
        assert len(lines) < height


def test_a_console_that_knows_ascii_only_gets_ascii_marks() -> None:
    view = after(FIGURE_2, FIGURE_2.events(Fixed(1)), 5)
    lines = shown(view, encoding="ascii")
    assert "".join(lines).isascii()
    assert [line.split()[1] for line in lines[2:5]] == ["*", "*", "-"]


def talk(*, terminal: bool, quiet: bool = False) -> Talk:
    return Talk(quiet, console(100, terminal=terminal))


def written(talker: Talk) -> str:
    talker.console.file.flush()
    raw = talker.console.file.buffer.getvalue().decode()  # type: ignore[attr-defined]
    return str(raw)


def run_screen(talker: Talk, script: Script, lanes: int = 1) -> str:
    now = 0.0
    with LiveScreen(talker, script.view(), clock=lambda: now) as screen:
        for event in script.events(Fixed(1), lanes=lanes):
            now += 1
            screen.on(event)
    return written(talker)


def test_off_a_terminal_each_grid_is_printed_once_without_a_single_escape() -> None:
    script = Script([["A", "B"]], [["C"]])
    text = run_screen(talk(terminal=False), script, lanes=2)
    assert "\x1b" not in text
    assert text.count("finished ·") == 2
    assert "in this step" not in text


def test_on_a_terminal_frames_move_and_the_finished_grid_stays() -> None:
    text = run_screen(talk(terminal=True), Script([["A", "B"]], [["C"]]))
    assert "1 in this step" in text
    assert text.count("finished ·") == 2, "each once, and not again as a frame"
    assert "\x1b[?25h" in text, "the cursor comes back"


def test_no_color_stops_the_animation() -> None:
    talker = Talk(console=Console(width=100, file=io.StringIO(), force_terminal=True, no_color=True))
    script = Script([["A", "B"]])
    with LiveScreen(talker, script.view()) as screen:
        for event in script.events(Fixed(1)):
            screen.on(event)
    text = talker.console.file.getvalue()  # type: ignore[attr-defined]
    assert "finished ·" in text
    assert "in this step" not in text


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
        with LiveScreen(talker, Slow(FIGURE_2.words, eos=EOS), clock=lambda: now[0]) as screen:
            for event in Script([["w"] * 40]).events(Fixed(1)):
                now[0] += 0.05
                screen.on(event)
        return written(talker).count("frame")

    assert frames(0.0) > 2 * frames(0.03) > 0


def test_the_picture_shows_a_models_own_run_and_comes_out_the_same_each_time(tmp_path: Path) -> None:
    place = Workspace(tmp_path / "work")
    tiny_checkpoint(place.model("pipelined"))
    source, told = TOLD[3]
    place.data.mkdir()
    (place.data / "test.jsonl").write_text(
        json.dumps({"id": "a", "source": source, "target": " ".join(told), "target_segments": told}) + "\n",
        encoding="utf-8",
    )
    drawn = []
    for _ in range(2):
        live_picture.main(tmp_path / "live-grid.svg", place.root, steps=5)
        drawn.append((tmp_path / "live-grid.svg").read_text(encoding="utf-8"))

    assert drawn[0] == drawn[1]
    assert drawn[0].startswith("<svg")
    assert "in&#160;this&#160;step" in drawn[0], "it is drawn mid-decoding"
    assert "rating[5" in drawn[0]
