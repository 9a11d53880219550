"""What stands where in the grid, while it is being decoded and once it is finished: shown as data, never too wide."""

import re
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pipedec_cli.pipeline.decode import decode
from pipedec_cli.pipeline.exact import Verify
from pipedec_cli.pipeline.grid import SEQUENTIAL_LIMITS, Limits, Method, Opening
from pipedec_cli.pipeline.schedule import Fixed, Together, Waiting, Whole
from tests.fakes import BOS, EOS, ScriptedModel
from tests.view.scripts import FIGURE_2, SENTENCES, Script, console, shown


def test_figure_2_is_drawn_as_in_the_paper_while_it_is_being_decoded():
    assert (shown(FIGURE_2.view()), FIGURE_2.view().followed) == ([""], None)
    assert shown(FIGURE_2.after(1, Fixed(1))) == ["example 1", "encoding the source"]
    view = FIGURE_2.after(
        4, Fixed(1), method="Δt = 1"
    )  # admitted, and three decoder calls
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
        "▸ live  ✓ finished  ∅ empty",
        "time-step 3 · 3 decoder calls · 5 tokens · 1.7 tokens per step · 2 in this step",
    ]
    target = console(80, terminal=True)
    with target.capture() as capture:
        target.print(view)
    highlighted = re.findall(r"\x1b\[[0-9;]*\b7[0-9;]*m([^\x1b]*)", capture.get())
    assert [text.strip() for text in highlighted] == ["C", "E"], (
        "the newest tokens and no others"
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_legend_stands_beside_or_above_the_figures_unless_the_console_is_low(width):
    view, legend = (
        FIGURE_2.after(4, Fixed(1), method="Δt = 1"),
        "▸ live  ✓ finished  ∅ empty",
    )
    assert [line.count(legend) for line in shown(view, width)].count(1) == 1
    assert "in this step" in shown(view, width)[-1]
    low = shown(view, width, height=10)
    assert len(low) < 10 and any(legend in line for line in low) == (width == 120)


def test_figure_2_finished_marks_every_row_and_counts_its_calls():
    assert shown(FIGURE_2.finished(Fixed(1)), width=100) == [
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


def test_a_text_that_goes_on_behind_a_prompt_has_no_bos():
    script = Script([["The", "Mill"]])
    view, method = (
        script.view(opener=False),
        Method(Whole(), None, EOS, Limits(max_tokens=9)),
    )
    (drawing,) = filter(
        None,
        map(view.on, decode(ScriptedModel(script.scripts), [(0, [0, BOS])], method)),
    )
    assert shown(drawing)[1:3] == [
        "time    0  1    2     3",
        "   1 ✓  …  The  Mill  <eos>",
    ]


def test_rows_that_are_a_keys_are_called_by_it_from_their_first_token_on():
    """The key itself stands before; a long one is cut, and what it holds is data."""
    script = Script([["The", "Mill"], [], ["a"]])
    keys = ("name", "family [bold]friendly[/] and more", "x")
    method = Method(Together(), BOS, EOS, openings=tuple(Opening((2, 3)) for _ in keys))
    view, frames = script.view(labels=keys), []
    for event in decode(ScriptedModel(script.scripts), [(0, [0])], method):
        frames.append(shown(view.on(event) or view))
    assert frames[0] == ["example 1", "encoding the source"]
    assert frames[1][1:5] == [
        "time                     1",
        "                 name ▸  The",
        "family [bold]friendl… ∅  <eos>",
        "                    x ▸  a",
    ]
    assert frames[-1][1:7] == [
        "time                     1      2      3",
        "                 name ✓  The    Mill   <eos>",
        "family [bold]friendl… ∅  <eos>",
        "                    x ✓  a      <eos>",
        "tokens                   2      1      0",
        "",
    ]
    assert frames[-1][7] == "[name] The Mill [x] a"


def test_guesses_that_were_wrong_stand_behind_the_text_until_the_next_step():
    script = Script([["A", "B", "C", "D", "E", "F", "G"]])
    draft = [*script.scripts[0][0][:2], *[script.scripts[0][0][6]] * 3]
    method = Verify(BOS, EOS, SEQUENTIAL_LIMITS, costs=(1.0,) * 6, drafts={0: draft})
    view = script.view()
    for event in islice(decode(ScriptedModel(script.scripts), [(0, [0])], method), 2):
        view.on(event)
    (row,) = [line.split() for line in shown(view) if line.lstrip().startswith("1 ")]
    assert row[2:] == [
        "<bos>",
        "A",
        "B",
        "C",
        "G",
        "G",
    ]  # the first wrong one gave way to the model's own


def test_a_narrow_terminal_shows_the_newest_time_steps():
    assert shown(SENTENCES.after(11, Fixed(2)), width=30, height=40) == [
        "example 1",
        "time   ‹7   8      9      10",
        "   1 ✓  a6  a7     <eos>",
        "   2 ▸  b4  b5     b6     b7",
        "   3 ▸  c2  c3     c4     c5",
        "   4 ▸  d0  d1     d2     d3",
        "   5 ▸      <bos>  e0     e1",
        "tokens  4   4      4      4",
        "",
        "[1] a0 a1 a2 a3 a4 a5 a6 a7",
        "[2] b0 b1 b2 b3 b4 b5 b6 b7▌",
        "[3] c0 c1 c2 c3 c4 c5▌ [4] d0",
        "d1 d2 d3▌ [5] e0 e1▌",
        "",
        "▸ live  ✓ finished  ∅ empty",
        "4 in this step",
    ]


def test_a_row_that_has_scrolled_off_shows_its_text_in_its_place():
    view = Script([["gone", "by", "now"], ["z"] * 20]).after(20, Waiting())
    assert "   1 ✓ ‹gone by now" in shown(view, width=40)


def test_more_rows_than_the_console_is_high_show_the_live_ones_and_name_the_hidden():
    lines = shown(
        Script([["x"] * 30, *[["y"]] * 15]).after(15, Fixed(1)), width=80, height=12
    )
    assert len(lines) < 12
    numbers = [int(line.split()[0]) for line in lines if re.match(r" +\d+ [▸✓∅]", line)]
    assert (numbers[0], numbers[-1]) == (1, 14), "the first row is live still"
    assert any(f"{14 - len(numbers)} rows not shown: 2–" in line for line in lines)


def test_a_row_that_hit_time_max_is_marked_as_cut():
    cut = Script([["w"] * 9, ["v"]]).finished(Fixed(1), Limits(time_max=4))
    assert any(line.startswith("   1 ✂") for line in shown(cut, width=120))
    assert "✂ cut at time_max" in shown(cut, width=120)[-2]
    assert shown(cut, width=30)[-2].endswith("✂ cut at time_max"), (
        "it is the last to give way"
    )


def test_a_finished_grid_wider_than_the_console_is_drawn_whole_in_blocks():
    lines = shown(SENTENCES.finished(Fixed(2)), width=50)
    heads = " ".join(line for line in lines if re.match(r"time +‹?\d+ +\d", line))
    times = list(map(int, re.findall(r"\d+", heads)))
    assert times == list(range(len(times)))
    cells = " ".join(line for line in lines if re.match(r" *\d [✓∅]", line)).split()
    assert sorted(word for word in cells if word[0] in "abcdef") == sorted(
        SENTENCES.vocabulary[2:]
    )


def test_time_steps_that_pass_without_a_decoder_call_are_columns_without_tokens():
    lines = shown(Script([["A"], ["B"]]).finished(Fixed(5)), width=120)
    assert lines[1].split()[1:] == [
        str(time) for time in range(len(lines[1].split()) - 1)
    ]
    assert re.search(r"2 ✓ +<bos>  B  <eos>", lines[3])
    counts = next(line for line in lines if line.startswith("tokens"))
    assert counts.split()[1:] == ["1", "0", "1", "0", "0"], (
        "two for each text, one for the closing empty one"
    )


def test_the_oldest_example_in_flight_is_followed_until_it_leaves_with_its_whole_grid():
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
    assert [example for example, _ in seen] == sorted(
        example for example, _ in seen if example is not None
    )
    assert view.followed is None
    heads = [lines[0] for _, lines in sorted(drawings.items())]
    assert heads == [
        f"example {number} of 3  name-{number - 1}" for number in (1, 2, 3)
    ]
    assert "[1] c c c c c" in drawings[2]


def test_each_token_is_decoded_once_when_it_is_drawn_and_never_again():
    script = Script([["a", "b", "c"]])
    view = script.after(4, Fixed(1))
    decoded = [script.decoded]
    for _ in range(2):
        shown(view)
        decoded.append(script.decoded)
    assert 0 == decoded[0] < decoded[1] == decoded[2]


def test_a_word_piece_is_marked_as_going_on_with_its_word():
    script = Script([["x", "y", "z"]])
    script.words = lambda ids: "".join(
        ["", "", "plan", "et", "."][token] for token in ids
    )
    view = script.view()
    for event in islice(script.events(Fixed(1)), 4):  # ids 2, 3 and 4
        view.on(event)
    lines = shown(view)
    assert lines[2].split() == ["1", "▸", "<bos>", "plan", "·et", "."]
    assert "[1] planet.▌" in lines


@pytest.mark.parametrize(
    ("token", "cell"),
    [
        *((same, same) for same in ("[red]", ":smile:", "日本", "👍")),
        ("\x1b[31mred", "␛[31mred"),
        ("a\nb\tc", "a␊b␉c"),
        ("nul\0", "nul␀"),
        ("\x9b2J", "�2J"),
        ("\u202eabc", "�abc"),
        ("\ud800", "�"),
        (" ", "␣"),
        ("a-token-longer-than-a-cell", "a-token-longe…"),
        ("漢字漢字漢字漢字", "漢字漢字漢字… "),
    ],
)
def test_whatever_a_token_holds_is_shown_as_data(token, cell):
    row = shown(Script([[token, "next"]]).after(3, Waiting()), width=80)[2]
    assert row == f"   1 ▸  <bos>  {cell}  next"


def test_cells_after_wide_characters_stand_beneath_their_time_step():
    rows = shown(Script([["日本", "x"], ["y"]]).after(3, Fixed(1)))[1:4]
    assert (
        len(
            {
                cell_len(row[: row.index(mark)])
                for row, mark in zip(rows, "2xy", strict=True)
            }
        )
        == 1
    )


TOKENS = st.text(max_size=20) | st.sampled_from(
    ["[/]", "\x1b[2J", "👩‍👩‍👧", "é", "\r", "中"]
)


@given(
    example=st.lists(st.lists(TOKENS, min_size=1, max_size=6), min_size=1, max_size=8),
    delay=st.integers(1, 3),
    calls=st.integers(0, 60),
    width=st.integers(6, 120),
    height=st.integers(6, 30),
)
def test_no_text_and_no_size_makes_the_drawing_overflow(
    example, delay, calls, width, height
):
    script, finished = Script(example), None
    view = script.view()
    for event in islice(script.events(Fixed(delay), empty_rows="retry"), 1 + calls):
        finished = view.on(event)
    lines = shown(view, width, height)
    assert all(cell_len(line) <= width for line in lines)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", "".join(lines))
    if view.followed is not None and finished is None:
        assert len(lines) < height


def test_a_console_that_knows_ascii_only_gets_ascii_marks():
    lines = shown(FIGURE_2.after(5, Fixed(1)), encoding="ascii")
    assert "".join(lines).isascii()
    assert [line.split()[1] for line in lines[2:5]] == ["*", "*", "-"]
