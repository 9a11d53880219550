"""The page of `pipedec serve` in a real browser: the grid as it grows, the text, and what is refused."""

import json

import pytest

from tests.checkpoints import TOLD
from tests.model.chats import foreign
from tests.serve.test_serve import models, serving  # noqa: F401

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [400, 1600])
def test_the_page_shows_grid_and_text_and_loads_nothing_from_elsewhere(
    chromium,
    models,  # noqa: F811
    width,
    tmp_path,
):
    from playwright.sync_api import expect

    source, told = TOLD[3]
    with serving(models / "pipelined", keys=[b"sesame"]) as made:
        page = chromium.new_page(viewport={"width": width, "height": 900})
        asked, failed = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: failed.append(str(error)))
        url = f"http://127.0.0.1:{made.address[1]}/"
        page.goto(url)
        page.locator("#key").fill(
            "sesame"
        )  # it is asked for, because the server has keys
        page.locator("#example").click()
        example = page.locator("#source").input_value()
        assert (
            example == page.locator("#source").get_attribute("placeholder")
            and example.count(".") > 1
        )
        page.locator("#source").fill(source)
        page.locator("#go").click()
        expect(page.locator("#status")).to_contain_text("decoder calls")
        assert page.locator("#text").inner_text() == "; ".join(told)
        names = page.locator("#grid th").all_inner_texts()
        assert [name.split()[0] for name in names[: len(told)]] == ["✓"] * len(told)
        assert "∅" in names[-1]
        said = page.locator("#result > p").all_inner_texts()
        assert said[0].startswith(
            "Each row is a sentence or a key, and each column is a time-step"
        )
        assert (
            said[1].startswith("▸ live") and "∅ empty" in said[1] and "■ end" in said[1]
        )
        row = page.locator("#grid tr").nth(3).locator("td").all_inner_texts()
        assert "".join(row).replace(" ", "") == f"{told[3]}■".replace(" ", "")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.locator("summary").click()
        page.locator("#schema").fill('{"properties": {"name": {}}}')
        page.locator("#go").click()
        expect(page.locator("#status")).to_contain_text("such objects")
        page.screenshot(path=tmp_path / "page.png", full_page=True)
        assert failed == [] and all(one.startswith(url) for one in asked)


def test_the_page_marks_each_value_of_an_object_in_its_text(
    chromium,
    tmp_path,
):
    from playwright.sync_api import expect

    schema = {
        "properties": {
            "name": {"type": "string"},
            "stars": {"type": "integer"},
            "at": {"properties": {"area": {"enum": ["river"]}}, "required": ["area"]},
        },
        "required": ["name", "stars", "at"],
    }
    with serving(foreign(tmp_path / "model")) as made:
        page = chromium.new_page()
        failed = []
        page.on("pageerror", lambda error: failed.append(str(error)))
        page.goto(f"http://127.0.0.1:{made.address[1]}/")
        page.locator("summary").click()
        page.locator("#example").click()
        example = page.locator("#schema")
        assert example.input_value() == example.get_attribute("placeholder")
        page.locator("#source").fill("😀 Aromi <b>has</b> 3 stars.")
        page.locator("#schema").fill(json.dumps(schema))
        page.locator("#go").click()
        expect(page.locator("#values")).to_be_visible()
        pairs = {}
        for row in page.locator("#pairs tr").all():
            key, value, confidence = row.locator("th, td").all_inner_texts()
            pairs[key] = value, confidence
        assert pairs["stars"][0] == "3" and pairs["at.area"][0] == "river"
        assert all(confidence.endswith(" %") for _, confidence in pairs.values())
        marks = page.locator("#marked mark").all_inner_texts()
        assert "3" in marks and "".join(marks).count("3") == 1
        said = page.locator("#marked small").all_inner_texts()
        for key in ("name", "stars"):
            assert f"{key} {pairs[key][1]}" in said
        text = page.locator("#marked").evaluate(
            "made => [...made.querySelectorAll('mark, span')].map(part => part.textContent).join('')"
        )
        assert text == "😀 Aromi <b>has</b> 3 stars."
        name = pairs["name"][0]
        assert name and text[text.index(name) :].startswith(name)
        page.screenshot(path=tmp_path / "values.png", full_page=True)
        page.locator("#schema").fill("")
        page.locator("#go").click()
        expect(page.locator("#status")).to_contain_text("decoder calls")
        expect(page.locator("#values")).to_be_hidden()
        assert failed == []
