"""The frame of a page: what the data hold stays text, and nothing runs but the scripts of the package."""

import json
import re
from base64 import b64encode
from hashlib import sha256

import pytest
from markupsafe import Markup

from pipedec_cli.view.page import page
from pipedec_cli.view.page.page import Section, render

HOSTILE = "</script><script>alert(1)</script> <!-- & \" ' \u202e\x1b[31m\x00\u2028 \ud800 <b>**bold**</b>"


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """A page whose package folder has the scripts `one.js` and `two.js` besides."""
    (tmp_path / "scripts").mkdir()
    for folder in ("templates", "page.css"):
        (tmp_path / folder).symlink_to(page._HERE / folder)
    for name in ("one", "two"):
        (tmp_path / f"scripts/{name}.js").write_text(f'console.log("{name}");\n', encoding="utf-8")
    monkeypatch.setattr(page, "_HERE", tmp_path)
    page._environment.cache_clear()
    yield tmp_path
    page._environment.cache_clear()


def test_sections_stand_in_order_with_their_data_and_each_script_once(scripts):
    sections = [
        Section("first", "The first", Markup("<p>body</p>"), {"Δ": [1, None]}, "one.js"),
        Section("second", "The second", Markup("<p>more</p>"), script="two.js"),
        Section("third", "The third", Markup("<p>last</p>"), [], "one.js"),
    ]
    made = render("A title", sections)
    assert re.findall(r'<section id="(\w+)"', made) == ["first", "second", "third"]
    assert re.findall(r'id="data-(\w+)">(.*?)</script>', made) == [
        ("first", '{"Δ":[1,null]}'),
        ("third", "[]"),
    ]
    assert re.findall(r'<a href="#(\w+)">', made) == ["first", "second", "third"]
    told = re.findall(r"<script>(.*?)</script>", made, re.DOTALL)
    assert told == ['console.log("one");\n', 'console.log("two");\n']
    hashes = [f"'sha256-{b64encode(sha256(one.encode()).digest()).decode()}'" for one in told]
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', made)
    assert Markup(policy).unescape().endswith(f"script-src {' '.join(hashes)}")


def test_whatever_the_data_hold_is_text_in_titles_templates_and_blocks():
    body = Section(
        "x", HOSTILE, page.template("page.html", title=HOSTILE, policy="", style="", sections=[], scripts=[])
    )
    made = render(HOSTILE, [body, Section("y", "Y", Markup(""), {HOSTILE: [HOSTILE]})])
    made.encode("utf-8")  # no half of a surrogate pair
    assert "<script>" not in made and "<b>" not in made and "<!--" not in made
    assert not re.search("[\x00\x1b\u202e\u2028]", made)
    assert "␛[31m␀" in made, "what acts on a terminal is shown"
    (block,) = re.findall(r'id="data-y">(.*?)</script>', made)
    ((key, values),) = json.loads(block).items()
    assert values == [key] and key.startswith("</script><script>alert(1)</script> <!-- & \" ' ")


def test_a_page_without_scripts_lets_none_run():
    assert "script-src &#39;none&#39;" in render("T", [Section("only", "Only", Markup(""))])
