"""What stands where in the grid, while it is being decoded and once it is finished."""

from __future__ import annotations

import re

from pipedec_cli.pipeline.grid import Limits
from pipedec_cli.pipeline.schedule import Fixed, Waiting
from tests.terminal.live.scripts import FIGURE_2, SENTENCES, Script, after, console, finished, shown


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


def test_before_the_first_step_the_source_is_being_encoded_and_before_that_there_is_nothing() -> None:
    assert shown(FIGURE_2.view()) == [""]
    assert FIGURE_2.view().followed is None
    view = after(FIGURE_2, FIGURE_2.events(Fixed(1)), 1)
    assert shown(view) == ["example 1", "encoding the source"]


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
    view = after(script, script.events(Waiting()), 20)
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


def test_the_oldest_example_in_flight_is_followed_until_it_leaves_with_its_whole_grid() -> None:
    script = Script([["a", "a", "a"]], [["b"]], [["c"] * 5])
    view = script.view(total=3, name=lambda example: f"name-{example}")
    seen, drawings = [], {}
    for event in script.events(Fixed(1), sequences=2):
        if drawing := view.on(event):
            drawings[drawing.example] = shown(drawing, width=100)
        else:
            seen.append((view.followed, shown(view, width=100)[0]))
    assert seen[0][0] == 0
    assert (0, "example 1 of 3, the oldest of 2 in flight  name-0") in seen
    assert [example for example, _ in seen] == sorted(example for example, _ in seen if example is not None)
    assert view.followed is None
    heads = [lines[0] for _, lines in sorted(drawings.items())]
    assert heads == [f"example {number} of 3  name-{number - 1}" for number in (1, 2, 3)]
    assert "[1] c c c c c" in drawings[2]
