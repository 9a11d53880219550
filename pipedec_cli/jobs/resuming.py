"""The folder that `train` writes to: whether a training may begin or go on there, and what one that is stopped says of it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipedec_cli.data import trained
from pipedec_cli.data.artifact import Artifact, settings_diff
from pipedec_cli.data.errors import UserError
from pipedec_cli.jobs.events import Notify
from pipedec_cli.model.training.processes import count, is_main

if TYPE_CHECKING:
    from pipedec_cli.jobs.train import TrainSettings

#: How gloo and NCCL say that a process with which this one sums up gradients is no more.
_PEER_GONE: Final = ("closed by peer", "reset by peer", "remote process exited", "remote worker")


def check_folder(
    target: Path, record: Mapping[str, Any] | None, settings: TrainSettings, notify: Notify
) -> Any:
    """Refuse to lose or to mix: a training is resumed as it was begun, a model given up on purpose.

    Clears away what a killed training was writing and, where the record is known by now, an earlier one that is given
    up. Gives the result of one that is to be resumed and has come to its end.
    """
    before = Artifact.training(target).manifest
    if before and is_main() and (left := trained.clean(target)):
        notify.say(f"a training that was killed left {', '.join(left)} half written: removed")
    begun = trained.checkpoints(target)
    if settings.resume:
        if record and before and (why := ", ".join(settings_diff(before, record, {"data"}))):
            todo = "give the settings and data that it was begun with, or start over with --overwrite"
            raise UserError(f"the training in {target} was begun otherwise: {why}", todo=todo)
        if not begun and "result" not in before:
            raise UserError(f"nothing to resume in {target}", todo="train without --resume")
        if record and "result" not in before:
            notify.say(f"going on from {begun[-1]}")
        return before.get("result")
    if "result" in before and not settings.overwrite:
        todo = "replace it with --overwrite, or keep both with --out FOLDER"
        raise UserError(f"{target} holds a trained model", todo=todo)
    if begun and not settings.overwrite:
        todo = "go on with --resume and the settings that it was begun with, or start over with --overwrite"
        raise UserError(f"{target} holds an unfinished training", todo=todo)
    if record and is_main():
        trained.forget(begun)  # a later --resume must not pick up another training's
    return None


@contextmanager
def stopped(target: Path, notify: Notify) -> Iterator[None]:
    """Say how to go on after Ctrl-C, and give a full disk its name."""
    try:
        yield
    except KeyboardInterrupt:
        notify.say(f"stopped{_what_is_kept(target)}")
        raise
    except Exception as error:
        if count() > 1 and any(words in str(error) for words in _PEER_GONE):
            notify.say(f"stopped, since another process has ended{_what_is_kept(target)}")
            raise SystemExit(1) from error  # that one, or who ended it, says why
        # torch and safetensors wrap what the system says.
        if shutil.disk_usage(target).free < 1 << 20 or "No space left" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target)) from error
        raise


def _what_is_kept(target: Path) -> str:
    kept = "; the same command with --resume goes on from the last checkpoint"
    return (
        kept if any(target.glob("checkpoint-*")) else " before there was a first checkpoint; nothing is kept"
    )
