"""What a command says about the kernels that take the decoder's steps."""

from __future__ import annotations

import os

from pipedec_cli.model.native.build import is_compiled
from pipedec_cli.model.native.library import VARIABLE
from pipedec_cli.terminal.console import Talk


def announce_compiling(device: str, talk: Talk) -> None:
    """Say why nothing seems to happen for some seconds, when the kernels are about to be compiled.

    Args:
        device: what is decoded on.
        talk: where to say it.
    """
    if device == "cpu" and os.environ.get(VARIABLE) != "0" and not is_compiled():
        talk.say("compiling encoder and decoder step for this machine; this takes some seconds, once")
