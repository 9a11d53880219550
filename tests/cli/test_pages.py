"""README and docs: their length, figures and links; the commands, options, keys and files that they name exist."""

import re

import pytest

from tests.cli.test_help import COMMANDS, found_command
from tests.trials.readme import PAGES, ROOT, blocks, commands, compared, printed

TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
README = TEXTS["README.md"]
BLOCKS = {
    name: lines for text in TEXTS.values() for name, lines in blocks(text).items()
}
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
#: `--help`, and options of torchrun, sbatch, accelerate and our trials, which the pages
#: name too.
FOREIGN = {
    "--help",
    "--array",
    "--cases",
    "--each",
    "--nproc-per-node",
    "--use_fsdp",
    "--write",
    "--fsdp_version",
}


def options(command):
    """The options of a command, as they are typed."""
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)}


def keys(command):
    """The keys that a command takes with `--set`."""
    return {one.name for one in command.settings if one.role == "key"}


@pytest.mark.parametrize("page", TEXTS)
def test_every_option_key_and_file_that_a_page_names_exists(page):
    text = TEXTS[page]
    every = [found_command(command.split())[0] for command in COMMANDS]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"`[^`\n]*?(?<![\w-])(--[a-z][\w-]*)", prose))
    assert named <= FOREIGN.union(*map(options, every))
    named = {
        *re.findall(r"--set ([a-z_]+)=", prose),
        *re.findall(r"\bkeys? `(\w+)`", prose),
    }
    assert named <= set().union(*map(keys, every))
    folders = (ROOT, ROOT / "pipedec_cli", ROOT / "pipedec_cli" / "model")
    parts = "pipedec_cli|tests|pipeline|data|model|evaluate|jobs|view|cli|page|serve|engine|training"
    named = set(re.findall(rf"`((?:{parts})/[a-z_0-9/]*(?:\.\w+)?)`", text))
    assert [
        name
        for name in named
        if not any((folder / name).exists() for folder in folders)
    ] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_readme_or_in_a_page(command):
    assert f"pipedec {command.split()[0]}" in README
    assert any(f"pipedec {command}" in text for text in TEXTS.values())


def test_the_readme_stays_short():
    assert len(README.split()) <= 1_200


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


def test_every_link_leads_somewhere():
    for page in PAGES:
        for link, _, heading in re.findall(
            r"\]\((?!https?:)([^)#]*)(#([^)]*))?\)", TEXTS[page.name]
        ):
            target = (page.parent / link).resolve() if link else page
            assert target.exists(), (page.name, link)
            if heading:  # by the name that GitHub gives it
                titles = re.findall(
                    r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE
                )
                names = {
                    re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
                    for title in titles
                }
                assert heading in names, (page.name, link, heading)


@pytest.mark.parametrize(
    ("shown", "now", "holds"),
    [
        ("  train   1,234    23.1", "  train   1,234    23.1", True),
        ("  train   1,200    23.1", "  train   1,234    23.1", False),
        ("  test    1,200    23.1", None, False),
        # Found by its first figures, not by the order of the lines. Nothing was trained
        # in this block.
        ("update 20 of 20: loss 1.4", "update 20 of 20: loss 1.5", False),
        (
            "$ pipedec train\nupdate 20 of 20: loss 1.4",
            "update 20 of 20: loss 1.5",
            True,
        ),
        (
            "$ pipedec train\nupdate 20 of 20: loss 3.4",
            "update 20 of 20: loss 1.5",
            False,
        ),
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
def test_a_block_that_needs_no_other_data_is_printed_as_it_stands(tmp_path):
    found = list(compared(BLOCKS["grid"], printed(BLOCKS["grid"], tmp_path)))
    assert [line for line in found if not line.holds] == []
