"""The frame of a page: what the data hold stays text, and nothing runs but the scripts of the package."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from operator import mul

import pytest
from markupsafe import Markup
from matplotlib.colors import to_rgb

from pipedec_cli.page import page
from pipedec_cli.page.page import Section, render

HOSTILE = "</script><script>alert(1)</script> <!-- & \" ' \u202e\x1b[31m\x00\u2028 \ud800 <b>**bold**</b>"


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """A page whose package folder has the scripts `one.js` and `two.js` besides."""
    (tmp_path / "scripts").mkdir()
    for folder in ("templates", "page.css"):
        (tmp_path / folder).symlink_to(page._HERE / folder)
    for name in ("one", "two"):
        (tmp_path / f"scripts/{name}.js").write_text(
            f'console.log("{name}");\n', encoding="utf-8"
        )
    monkeypatch.setattr(page, "_HERE", tmp_path)
    page._environment.cache_clear()
    yield tmp_path
    page._environment.cache_clear()


def test_sections_stand_in_order_with_their_data_and_each_script_once(scripts):
    sections = [
        Section(
            "first", "The first", Markup("<p>body</p>"), {"Δ": [1, None]}, "one.js"
        ),
        Section("second", "The second", Markup("<p>more</p>"), script="two.js"),
        Section("third", "The third", Markup("<p>last</p>"), [], "one.js"),
    ]
    made = render("A title", sections)
    assert re.findall(r'<section id="(\w+)"', made) == ["first", "second", "third"]
    blocks = re.findall(r'id="data-(\w+)">(.*?)</script>', made)
    assert blocks == [("first", '{"Δ":[1,null]}'), ("third", "[]")]
    assert re.findall(r'<a href="#(\w+)">', made) == ["first", "second", "third"]
    told = re.findall(r"<script>(.*?)</script>", made, re.DOTALL)
    assert told == ['console.log("one");\n', 'console.log("two");\n']
    hashes = [
        f"'sha256-{b64encode(sha256(one.encode()).digest()).decode()}'" for one in told
    ]
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', made)
    assert Markup(policy).unescape().endswith(f"script-src {' '.join(hashes)}")


def test_whatever_the_data_hold_is_text_in_titles_templates_and_blocks():
    empty = {"policy": "", "style": "", "sections": [], "scripts": []}
    body = page.template("page.html", title=HOSTILE, **empty)
    made = render(
        HOSTILE,
        [
            Section("x", HOSTILE, body),
            Section("y", "Y", Markup(""), {HOSTILE: [HOSTILE]}),
        ],
    )
    made.encode("utf-8")  # no half of a surrogate pair
    assert "<script>" not in made and "<b>" not in made and "<!--" not in made
    assert not re.search("[\x00\x1b\u202e\u2028]", made)
    assert "␛[31m␀" in made, "what acts on a terminal is shown"
    (block,) = re.findall(r'id="data-y">(.*?)</script>', made)
    ((key, values),) = json.loads(block).items()
    assert values == [key] and key.startswith(
        "</script><script>alert(1)</script> <!-- & \" ' "
    )


def test_a_page_without_scripts_lets_none_run():
    assert "script-src &#39;none&#39;" in render(
        "T", [Section("only", "Only", Markup(""))]
    )


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_a_contrast_of_4_5_on_every_ground_and_a_series_of_3(dark):
    css = (page._HERE / "page.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root {(.*?)}", css, re.DOTALL)[: 1 + dark]
    light = {}
    for name, code in re.findall(r"--([\w-]+): #(\w{6}|\w{3});", "".join(blocks)):
        linear = [
            ((c + 0.055) / 1.055) ** 2.4 if c > 0.04 else c / 12.92
            for c in to_rgb(f"#{code}")
        ]
        light[name] = 0.05 + sum(map(mul, (0.2126, 0.7152, 0.0722), linear))

    def contrast(one, other):
        return max(light[one] / light[other], light[other] / light[one])

    for ground in ("ground", "raised", "tint", "mark", "doubt"):
        assert (
            min(contrast(text, ground) for text in ("ink", "faint", "accent")) >= 4.5
        ), ground
    assert (
        min(
            contrast(f"series-{n}", ground)
            for n in range(8)
            for ground in ("ground", "good")
        )
        >= 3
    )
