"""The replay and the list of examples in a real browser: by mouse and by keyboard, whatever the data hold."""

import pytest
import torch

from pipedec_cli.page.examples import examples
from pipedec_cli.page.page import Section, render, template
from pipedec_cli.page.replay import replay
from pipedec_cli.pipeline.attention import visible
from tests.page.reports import EXAMPLES, objects_report, traced_report

pytestmark = pytest.mark.browser
HOSTILE = "</script><script>alert(1)</script> <img/src=x/onerror=alert(2)> **b** \u202eabc \x1b[31m \x00 `x`"
SHOWN = HOSTILE.replace("\u202e", "�").replace("\x1b", "␛").replace("\x00", "␀")


def page_of(report):
    return render("A report", [*filter(None, (replay(report), examples(report)))])


@pytest.fixture(scope="module")
def html():
    return page_of(traced_report())


def tokens(page, decoder):
    """What is to be seen of a decoder, by subsequence and time-step; taken back and to come left out."""
    cells = page.locator(f'[aria-label="tokens of {decoder}"] [data-row]:not(.later)')
    return {tuple(at): said for at, said in cells.evaluate_all(
        "cells => cells.map(cell => [[Number(cell.dataset.row), Number(cell.dataset.time)], cell.textContent])"
    )}  # fmt: skip


def grid_of(trace):
    return {
        (i, start + j): said
        for i, (start, ended, text) in enumerate(trace["rows"], start=1)
        for j, said in enumerate(
            ["<bos>", *filter(None, text.split("\n")), *["<eos>"] * ended]
        )
    }


def choose(page, section, name, label):
    page.locator(f'#{section} [name="{name}"]').select_option(label=label)


def press(page, name):
    page.locator(f'#replay [name="{name}"]').click()


@pytest.mark.parametrize("clock", ["decoder steps", "measured time"])
def test_the_replay_ends_with_exactly_the_tokens_of_the_trace(visit, html, clock):
    page, data = visit(html), replay(traced_report()).data
    for number, decoder in enumerate(data["decoders"]):
        choose(page, "replay", "decoder", decoder["name"])
        choose(page, "replay", "clock", clock)
        for place, example in enumerate(data["examples"]):
            page.locator('#replay [name="example"]').select_option(str(place))
            opened = tokens(page, decoder["name"]), tokens(page, "sequential")
            assert opened == (
                grid_of(example["runs"][number]),
                grid_of(example["runs"][0]),
            ), "at its end"
            press(page, "start")
            assert tokens(page, decoder["name"]) == {(1, 0): "<bos>"}
            press(page, "end")
            assert (tokens(page, decoder["name"]), tokens(page, "sequential")) == opened
            assert page.locator("#replay .gone:not(.later)").count() == 1, (
                "the legend's"
            )


def test_step_by_step_each_call_adds_what_it_made_and_shows_the_wrong_guesses(
    visit, html
):
    page = visit(html)
    choose(page, "replay", "decoder", "Δt = 2")
    press(page, "start")
    seen = []
    for _ in range(7):
        press(page, "step")
        seen.append(set(tokens(page, "Δt = 2")) - {(1, 0)})
    for call, places in enumerate(seen, start=1):
        wanted = {(1, time) for time in range(1, min(call, 6) + 1)}
        wanted |= {(2, time) for time in range(2, min(call, 7) + 1) if call > 2}
        assert places == wanted | ({(3, 4), (3, 5)} if call > 4 else set()), call
    choose(page, "replay", "decoder", "exact-source")
    press(page, "start")
    gone = []
    for _ in range(3):
        press(page, "step")
        gone.append(page.locator("#replay .runs .gone").count())
    press(page, "end")
    gone.append(page.locator("#replay .runs .gone").count())
    assert gone == [6, 3, 0, 0], "at the end only what is kept is shown"


def test_playing_gets_to_the_end_and_arrows_step(visit, html):
    page = visit(html)
    page.locator('#replay [name="speed"]').fill("40")
    press(page, "play")
    page.get_by_role("button", name="Pause").wait_for(state="detached")
    caption = page.locator("#replay .run .note").first.inner_text()
    assert caption.startswith("finished: 10 decoder calls, 9 tokens")
    press(page, "start")
    page.locator('#replay [name="play"]').focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    assert tokens(page, "sequential") == {(1, 0): "<bos>", (1, 1): "The"}


def test_what_a_token_could_see_is_what_attention_lets_it(visit, html):
    page = visit(html)
    choose(page, "replay", "decoder", "Δt = 1")
    page.locator('#replay [name="example"]').select_option("2")
    cells = page.locator('[aria-label="tokens of Δt = 1"] [data-row]')
    places = list(tokens(page, "Δt = 1"))
    rows, times = (torch.tensor(each) for each in zip(*places, strict=True))
    allowed = visible((rows, times), (rows, times))
    for number, place in enumerate(places):
        cells.nth(number).click()
        marked = cells.evaluate_all(
            "cells => cells.map(cell => cell.matches('.seen, .beside'))"
        )
        assert marked == allowed[number].tolist(), place
        cells.nth(number).click()
    assert not cells.evaluate_all(
        "cells => cells.some(cell => cell.matches('.seen, .beside, .unseen'))"
    )
    # the same by keyboard: a token down, a token to the right
    page.locator('[aria-label="tokens of Δt = 1"] [tabindex="0"]').focus()
    for key in ("Home", "Enter"):
        page.keyboard.press(key)
    assert "time-step" in page.locator("#replay .sight").inner_text()


def test_examples_are_searched_filtered_and_sorted(visit, html):
    page = visit(html)
    shown = page.locator("#examples li .id")
    search = page.locator('#examples [name="search"]')

    def found():
        return [text.partition(": ")[2] for text in shown.all_inner_texts()]

    assert found() == ["e0", "e1", "e2", "e3"]
    search.fill("SHIPS")
    assert found() == ["e1"]
    search.fill("nowhere")
    assert found() == []
    assert page.locator("#examples .example").is_hidden()
    search.fill("")
    for kind, names in (
        ("texts that differ from the baseline's", ["e1", "e2"]),
        ("texts that were cut", ["e2"]),
        ("with duplicated subsequences", ["e1", "e2"]),
        ("with dropped subsequences", ["e1"]),
        ("all", ["e0", "e1", "e2", "e3"]),
    ):
        choose(page, "examples", "kind", kind)
        assert found() == names
    choose(page, "examples", "count", "2")
    assert found() == ["e0", "e2"]
    choose(page, "examples", "count", "any number")
    choose(page, "examples", "sort", "by difference, worst first")
    assert found() == ["e1", "e2", "e0", "e3"]
    choose(page, "examples", "sort", "by difference, best first")
    assert found()[-1] == "e1"


def test_keys_go_through_the_examples_and_each_shows_what_went_wrong_in_words(
    visit, html
):
    page = visit(html)
    page.locator("#examples .list").focus()
    for key in ("j", "ArrowDown", "k"):
        page.keyboard.press(key)
    example = page.locator("#examples .example")
    assert "three ships" in example.inner_text()
    assert "≡ 1 duplicated · ∅ 1 dropped" in example.locator(".scores").inner_text()
    rows = example.locator(".texts tbody tr").all_inner_texts()
    said = [row.split("\t")[-1].strip() for row in rows]
    assert said == ["One is red .", "≡ duplicated One is red !", "∅ nothing here"]
    page.locator('#examples [name="replay"]').click()
    assert page.locator('#replay [name="example"]').input_value() == "1"


def test_what_is_wrong_in_an_object_is_counted_marked_and_found(visit):
    page = visit(page_of(objects_report()))
    example = page.locator("#examples .example")
    rows = example.locator(".scores tbody tr").all_inner_texts()
    assert [row.split("\t")[-1] for row in rows] == ["nothing", "≠ 1 wrong"]
    assert example.locator(".texts .marked").all_inner_texts() == [
        "≠ wrong name: The Eagle"
    ]
    choose(page, "examples", "kind", "with wrong fields")
    assert page.locator("#examples li").count() == 1
    choose(page, "examples", "kind", "with dropped fields")
    assert page.locator("#examples li").count() == 0
    page.locator('[aria-label="tokens of Δt = 1"] [data-row="2"]').last.click()
    assert "subsequence" not in page.locator("body").inner_text().lower()


@pytest.mark.parametrize("width", [360, 800, 1600])
def test_hostile_and_endless_texts_are_text_and_no_width_scrolls_sideways(visit, width):
    word = HOSTILE.replace(" ", "_")
    rows = [
        (HOSTILE, [word, "b ."], [word, word]),
        ("word " * 100_000, ["w " * 600], ["w " * 600]),
        ("x" * 9000, ["y" * 3000], ["y" * 3000]),
    ]
    page = visit(page_of(traced_report(rows)), width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("#examples .source").inner_text() == SHOWN
    assert SHOWN.replace(" ", "_") in tokens(page, "sequential").values()
    for _ in rows:
        page.locator("#examples .list").focus()
        page.keyboard.press("j")
        assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("img, b").count() == 0
    for place in range(page.locator('#replay [name="example"] option').count()):
        page.locator('#replay [name="example"]').select_option(str(place))
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_a_very_long_token_is_shortened_in_its_column_and_whole_in_its_title_and_below(
    visit,
):
    word = "x" * 300
    page = visit(
        page_of(traced_report([("a", [f"{word} b", "c d"], [f"{word} b", "c d"])])),
        1600,
    )
    choose(page, "replay", "decoder", "Δt = 1")
    cell = page.locator('[aria-label="tokens of Δt = 1"] td', has_text=word).first
    assert cell.bounding_box()["width"] < 250
    assert cell.evaluate("cell => getComputedStyle(cell).textOverflow") == "ellipsis"
    assert cell.get_attribute("title") == word
    cell.click()
    assert word in page.locator("#replay .sight").inner_text()


def test_paper_has_the_whole_grid_within_its_margins_and_nothing_that_only_a_screen_can_do(
    visit,
):
    long = [
        "One two three four five six seven eight nine ten eleven twelve thirteen ."
    ] * 2
    page = visit(
        page_of(traced_report([("a", long, [*long, "x" * 60])])),
        718,
        color_scheme="dark",
    )
    choose(page, "replay", "decoder", "Δt = 2")
    press(page, "start")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#replay .runs .later:not(.gone)").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") == 718
    assert page.locator("button:visible, kbd:visible, select:visible").count() == 0
    assert page.locator("#examples .paper").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    assert (
        tokens(page, "sequential") == {(1, 0): "<bos>"}
        and page.locator("#examples .paper").is_hidden()
    )


def test_a_page_of_few_decoders_and_no_grid_has_its_examples(visit):
    report = traced_report(
        EXAMPLES, untraced=["sequential", "Δt = 1", "Δt = 2", "exact-source"]
    )
    page = visit(page_of(report))
    assert page.locator("#replay").count() == 0
    assert page.locator('#examples [name="replay"]').is_hidden()


def page_of_rows(part, rows, steps):
    """A page that replays a grid, whose calls take a second each."""
    data = {
        "decoders": [{"name": "D", "clock": [0.0, 1000.0]}],
        "usual": 0,
        "part": part,
        "between": "\n",
    }
    data["examples"] = [
        {"at": 0, "id": "x", "source": "s", "runs": [{"rows": rows, "steps": steps}]}
    ]
    body = template("replay.html", notes=[], timed=True, part=part)
    return render("A grid", [Section("replay", "The grid", body, data, "replay.js")])


def test_many_empty_rows_are_folded_and_the_legend_explains_only_what_occurs(visit):
    rows = [[0, True, "a\nb", "name:"], *[[0, True, "", "key:"]] * 51]
    page = visit(page_of_rows("field", rows, 3))
    shown, legend = (
        page.locator("#replay .grid tbody tr:visible"),
        page.locator("#replay .legend > :visible"),
    )
    assert shown.count() == 1 and "3.0 s" in page.locator(".run .note").inner_text()
    page.get_by_role("button", name="Show 51 empty fields").click()
    assert shown.count() == 52
    assert legend.all_inner_texts()[:-1] == ["▸ live", "✓ finished", "∅ empty", "new"]


def test_rows_in_turn_are_lines_of_text_and_empty_rows_at_their_end_are_folded(visit):
    rows = [
        [0, True, "a\nb"],
        [3, True, "c"],
        *([place, True, ""] for place in range(5, 25)),
    ]
    page = visit(page_of_rows("subsequence", rows, 25))
    lines = page.locator("#replay .flow [role=row]:visible")
    assert lines.all_inner_texts() == ["1 ✓<bos>ab<eos>", "2 ✓<bos>c<eos>"]


def test_no_token_shines_through_the_row_label_that_it_scrolls_below(visit):
    page = visit(
        page_of_rows(
            "subsequence", [[0, True, "\n".join(["word"] * 30)], [1, True, "a"]], 31
        ),
        400,
    )
    page.locator('#replay [data-time="1"]').first.click()
    page.locator("#replay .run .scroll").evaluate("box => { box.scrollLeft = 300; }")
    label = page.locator("#replay .grid tbody th").first
    above = "e => { const r = e.getBoundingClientRect(); return document.elementFromPoint(r.x + 9, r.y + 9) === e; }"
    assert label.evaluate(above)
