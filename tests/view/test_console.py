"""Messages on a terminal: they are broken between words, and a command in them can be pasted."""

import shlex

import pytest

from pipedec_cli.view.console import broken


def test_a_message_is_broken_between_words_and_its_command_can_be_pasted():
    command = "pipedec train --data 'my  own folder' --workspace results --decoder sequential --delay 1"
    text = broken(f"next: `{command}`, at Δt = 2 as well", 40)
    assert max(map(len, text.split("\n"))) <= 40 and "Δt = 2" in text
    _, pasted, _ = text.split("`")
    assert shlex.split(pasted.replace("\\\n", "")) == shlex.split(command)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_command_is_shown_on_a_terminal_of_any_width(width):
    assert broken("`a b`", width).replace(" \\\n", " ") == "`a b`"
