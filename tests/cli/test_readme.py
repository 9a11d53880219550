"""README and docs: their length, their figures and their links."""

import re

import pytest

from tests.trials.readme import PAGES, ROOT, blocks, commands, compared, printed

TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
README = TEXTS["README.md"]
BLOCKS = {name: lines for text in TEXTS.values() for name, lines in blocks(text).items()}
PRINTED = """\
                     words
  split   examples   total
 ─────────────────────────
  train      1,234    23.1

update 10 of 20: loss 2.5
update 20 of 20: loss 1.5
  speedup     1.0 ×  2.5 ×
"""
FIGURE = re.compile(r"\d ×|\d %|\d%|\d times|\d,\d\d\d|\d M |F1 \d")
NUMBER = re.compile(r"\d+\.\d+")


def test_readme_docs_and_changelog_stay_short():
    assert len(README.split()) <= 1_200
    assert sum(len(text.split()) for name, text in TEXTS.items() if name != "README.md") <= 12_000
    assert len((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()) <= 60


def test_every_figure_of_the_readme_is_printed_by_a_command_there_or_stands_in_the_page_it_links_to():
    assert all(commands(lines)[0].startswith("pipedec ") for lines in BLOCKS.values())
    elsewhere = README
    for lines in blocks(README).values():
        elsewhere = elsewhere.replace("\n".join(lines), "")
    for paragraph in filter(FIGURE.search, elsewhere.split("\n\n")):
        (page,) = re.findall(r"\(docs/([\w-]+\.md)", paragraph)
        figures = NUMBER.findall(paragraph)
        assert figures
        assert [figure for figure in figures if figure not in TEXTS[page]] == []


def test_the_readme_links_to_every_page_and_every_link_leads_somewhere():
    assert [name for name in TEXTS if name != "README.md" and f"](docs/{name})" not in README] == []
    for page in PAGES:
        for link, _, heading in re.findall(r"\]\((?!https?:)([^)#]*)(#([^)]*))?\)", TEXTS[page.name]):
            target = (page.parent / link).resolve() if link else page
            assert target.exists(), (page.name, link)
            if heading:
                titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
                assert heading in {_anchor(title) for title in titles}, (page.name, link, heading)


def _anchor(title: str) -> str:
    """The name that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize(
    ("shown", "now", "holds"),
    [
        ("  train   1,234    23.1", "  train   1,234    23.1", True),
        ("  train   1,200    23.1", "  train   1,234    23.1", False),
        ("  test    1,200    23.1", None, False),
        # Found by its first figures, not by the order of the lines. Nothing was trained in this block.
        ("update 20 of 20: loss 1.4", "update 20 of 20: loss 1.5", False),
        ("$ pipedec train\nupdate 20 of 20: loss 1.4", "update 20 of 20: loss 1.5", True),
        ("$ pipedec train\nupdate 20 of 20: loss 3.4", "update 20 of 20: loss 1.5", False),
        # The machine's own figures
        ("  speedup  1.0 ×  3.5 ×", "  speedup  1.0 ×  2.5 ×", True),
        # Out of order
        ("update 20 of 20: loss 1.5\n  train   1,234   23.1", None, False),
    ],
)
def test_a_line_is_found_again_with_its_figures_or_is_not(shown, now, holds):
    line = list(compared(shown.splitlines(), PRINTED))[-1]
    assert (line.now, line.holds) == (now, holds)


@pytest.mark.slow
@pytest.mark.parametrize("lines", [BLOCKS["grid"]], ids=["grid"])
def test_a_block_that_needs_no_other_data_is_printed_as_it_stands(tmp_path, lines):
    found = list(compared(lines, printed(lines, tmp_path)))
    assert [line for line in found if not line.holds] == []
