"""The README: its figures are printed by the commands that stand beside them."""

import re

import pytest

from tests.trials.readme import README, blocks, commands, compared, printed

TEXT = README.read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)
PRINTED = """\
                     words
  split   examples   total
 ─────────────────────────
  train      1,234    23.1

update 10 of 20: loss 2.5
update 20 of 20: loss 1.5
  speedup     1.0 ×  2.5 ×
"""


def test_every_figure_stands_below_a_command_that_prints_it():
    assert all(commands(lines)[0].startswith("pipedec ") for lines in BLOCKS.values())
    elsewhere = TEXT
    for lines in BLOCKS.values():
        elsewhere = elsewhere.replace("\n".join(lines), "")
    assert not re.findall(r".*(?:\d ×|\d %|\d%|\d times|\d,\d\d\d|\d M ).*", elsewhere)


@pytest.mark.parametrize(
    ("shown", "now", "holds"),
    [
        ("  train   1,234    23.1", "  train   1,234    23.1", True),
        ("  train   1,200    23.1", "  train   1,234    23.1", False),
        ("  test    1,200    23.1", None, False),
        # The update that is meant, and not the next one with these words; nobody has trained here
        ("update 20 of 20: loss 1.4", "update 20 of 20: loss 1.5", False),
        ("$ pipedec train\nupdate 20 of 20: loss 1.4", "update 20 of 20: loss 1.5", True),
        ("$ pipedec demo\nupdate 20 of 20: loss 1.4", "update 20 of 20: loss 1.5", True),
        ("$ pipedec train\nupdate 20 of 20: loss 3.4", "update 20 of 20: loss 1.5", False),
        # The machine's own
        ("  speedup  1.0 ×  3.5 ×", "  speedup  1.0 ×  2.5 ×", True),
        # Out of order
        ("update 20 of 20: loss 1.5\n  train   1,234   23.1", None, False),
    ],
)
def test_a_line_is_found_again_with_its_figures_or_is_not(shown, now, holds):
    assert list(compared(shown.splitlines(), PRINTED))[-1][1:] == (now, holds)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grid", "demo"])
def test_what_needs_no_other_data_is_printed_as_it_stands_in_the_readme(tmp_path, name):
    made = list(compared(BLOCKS[name], printed(BLOCKS[name], tmp_path)))
    assert [line for line in made if not line.holds] == []
